#include <deepum/deepum.hpp>
#include <deepum/interop/pmr.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace pmr_test {

using namespace deepum::literals;
using deepum::interop::pmr_resource;

struct machine {
  machine() : gpu(deepum::sim::find_profile("h200_pcie5"), memory_of(64_MiB)), memory(gpu, options()) {}
  static deepum::sim::device_options memory_of(deepum::bytes size) {
    deepum::sim::device_options o;
    o.memory = size;
    return o;
  }
  static deepum::arena_options options() {
    deepum::arena_options o;
    o.capacity = 128_MiB;
    o.headroom = 4_MiB;
    o.log = [](std::string_view) {};
    return o;
  }
  deepum::sim::device gpu;
  deepum::arena<deepum::sim::managed_memory> memory;
};

const auto twice = deepum::sim::kernel(
    [](int* p, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i)
        p[i] *= 2;
    },
    [](deepum::sim::work& w, int* p, std::size_t n) { w.updates(p, n * sizeof(int)); });

TEST_CASE("kernels work on what a container holds, and the host finds it there") {
  machine m;
  pmr_resource resource{m.memory};
  deepum::stream s{m.memory};
  std::pmr::vector<int> x(1 << 20, 0, &resource);
  REQUIRE(m.memory.contains(x.data()));
  m.memory.host_access(x.data(), deepum::bytes{x.size() * sizeof(int)}, deepum::access::overwrite);
  std::iota(x.begin(), x.end(), 0);
  s.launch("twice", 1, 1, 0, twice, x.data(), x.size());
  s.synchronize();
  m.memory.host_access(x.data(), deepum::bytes{x.size() * sizeof(int)}, deepum::access::read);
  CHECK(x[12345] == 24690);
}

TEST_CASE("what containers give back, the arena has again") {
  machine m;
  pmr_resource resource{m.memory};
  {
    std::pmr::map<int, std::pmr::string> names{&resource};
    for (int i = 0; i < 100; ++i) {
      names[i] = "a name that is too long for the string itself, number " + std::to_string(i);
    }
    CHECK(m.memory.contains(&*names.begin()));
    CHECK(m.memory.contains(names[7].data()));
    CHECK(m.memory.footprint().allocated > deepum::bytes{100 * 50});
  }
  CHECK(m.memory.footprint().allocated == deepum::bytes{});
}

TEST_CASE("no bytes are an address of their own, alignments are kept, and what is too much is an error") {
  machine m;
  pmr_resource resource{m.memory};
  void* const a = resource.allocate(0);
  void* const b = resource.allocate(0);
  CHECK(a != nullptr);
  CHECK(a != b);
  void* const c = resource.allocate(10, 65536);
  CHECK(reinterpret_cast<std::uintptr_t>(c) % 65536 == 0);
  resource.deallocate(a, 0);
  resource.deallocate(b, 0);
  resource.deallocate(c, 10, 65536);
  CHECK_THROWS_AS((void)resource.allocate((1_GiB).count), deepum::error);
}

TEST_CASE("resources are equal when their arena is the same") {
  machine m;
  machine other;
  const pmr_resource a{m.memory};
  const pmr_resource b{m.memory};
  const pmr_resource c{other.memory};
  CHECK(a == b);
  CHECK(a != c);
  CHECK(!a.is_equal(*std::pmr::new_delete_resource()));
}

}  // namespace pmr_test
