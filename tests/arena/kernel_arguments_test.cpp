// What a launch learns from the parameters of its kernel.

#include "support/failure.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

namespace kernel_arguments_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::failure;
using deepum_test::mentions;
using word = std::uint32_t;

constexpr std::size_t n = (4_MiB).count / sizeof(word);
constexpr std::size_t stride = 16;  // of words that a launch adds

void add(word* y, const word* x) {
  for (std::size_t i = 0; i < n; i += stride) {
    y[i] += x[i];
  }
}
void describe_add(sim::work& w, const word* y, const word* x) {
  w.reads(x, n * sizeof(word)).updates(y, n * sizeof(word)).flops(1e8);
}

template <class T>
void add_any(T* y, const T* x) {
  add(y, x);
}
struct own_kernel {
  static void body(word* y, const word* x) { add(y, x); }
  static void describe(sim::work& w, word* y, const word* x) { describe_add(w, y, x); }
};

/// An arena on memory that never faults, whose device has room for half of what the launches read.
struct machine {
  machine() {
    for (word*& x : weights) {
      x = memory.allocate<word>(n);
      const auto view = memory.host_overwrite(x, n);
      std::fill_n(view.data(), n, word{1});
    }
    sum = memory.allocate<word>(n);
    const auto view = memory.host_overwrite(sum, n);
    std::fill_n(view.data(), n, word{0});
  }
  /// Adds all weights twice. @returns  What left the device meanwhile beside the sum.
  template <class Launch>
  bytes out_of(Launch&& launch) {
    for (int pass = 0; pass < 2; ++pass) {
      for (word* x : weights) {
        launch(x);
      }
    }
    s.synchronize();
    const bytes out{memory.statistics().out().all_bytes()};
    const auto total = memory.host_read(sum, n);
    CHECK(total[0] == 2 * weights.size());
    CHECK(total[n - stride] == 2 * weights.size());
    return out;
  }

  sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = 64_MiB}};
  arena<sim::paged_memory> memory{gpu, {.capacity = 128_MiB, .device_budget = 20_MiB, .policy = "lru", .log = {}}};
  stream<sim::paged_memory> s{memory};
  std::array<word*, 8> weights{};
  word* sum = nullptr;
};

template <class Kernel>
bytes out_of(const Kernel& kernel) {
  machine m;
  return m.out_of([&](word* x) { m.s.launch("add", 1, 1, 0, kernel, m.sum, x); });
}

TEST_CASE("what goes to a pointer to const is read, however the kernel is written, so it is not written back") {
  const auto describe = [](sim::work& w, const word* y, const word* x) { describe_add(w, y, x); };
  CHECK(out_of(sim::kernel(add, describe_add)) == 0_B);
  CHECK(out_of(sim::kernel(&add_any<word>, describe_add)) == 0_B);
  CHECK(out_of(own_kernel{}) == 0_B);
  CHECK(out_of(sim::kernel([](word* __restrict__ y, const word* __restrict__ const x) noexcept { add(y, x); },
                           describe)) == 0_B);
  CHECK(out_of(sim::kernel([](word*& y, const word* const& x) mutable { add(y, x); }, describe)) == 0_B);
  CHECK(out_of(sim::kernel(std::function<void(word*, const word*)>(add), describe)) == 0_B);
  CHECK(out_of(sim::kernel([](void* y, const void* x) { add(static_cast<word*>(y), static_cast<const word*>(x)); },
                           describe)) == 0_B);
}

TEST_CASE("where the parameters are not known, or may be written through, a pointer without const is updated") {
  const auto describe = [](sim::work& w, auto* y, auto* x) { describe_add(w, y, x); };
  CHECK(out_of(sim::kernel([](auto* y, auto* x) { add(y, x); }, describe)) > 16_MiB);
  const auto writes = sim::kernel([](word* y, word* x) { add(y, x); }, describe);
  CHECK(out_of(writes) > 16_MiB);
  machine m;
  CHECK(m.out_of([&](word* x) { m.s.launch("add", 1, 1, 0, writes, m.sum, reads_as_mutable(x)); }) == 0_B);
  machine part;
  CHECK(part.out_of([&](word* x) { part.s.launch("add", 1, 1, 0, writes, part.sum, reads_as_mutable(x, n)); }) == 0_B);
}

TEST_CASE("what the program declares counts for more than the parameter") {
  const auto kernel = sim::kernel(add, describe_add);
  machine m;
  CHECK(m.out_of([&](word* x) { m.s.launch("add", 1, 1, 0, kernel, m.sum, updates(x)); }) > 16_MiB);
}

TEST_CASE_TEMPLATE("bytes that another argument names for writing are written", Memory, sim::managed_memory,
                   sim::paged_memory) {
  const auto doubles = sim::kernel(add, describe_add);
  const auto doubles_second = sim::kernel([](const word* x, word* y) { add(y, x); },
                                          [](sim::work& w, const word* x, word* y) { describe_add(w, y, x); });
  sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = 64_MiB}};
  arena<Memory> memory{gpu, {.capacity = 128_MiB, .device_budget = 12_MiB, .policy = "lru", .log = {}}};
  stream<Memory> s{memory};
  std::vector<word*> x(6);
  for (word*& each : x) {
    each = memory.template allocate<word>(n);
    const auto view = memory.host_overwrite(each, n);
    std::fill_n(view.data(), n, word{1});
  }
  for (int step = 0; step < 3; ++step) {
    for (word* each : x) {  // in turn, so that all of them leave the device in between
      s.launch("doubles", 1, 1, 0, doubles, each, each);
      s.launch("doubles", 1, 1, 0, doubles_second, each, each);
      s.launch("doubles", 1, 1, 0, doubles_second, each, updates(each, n));
      s.launch("doubles", 1, 1, 0, doubles_second, reads(each), each);
    }
  }
  s.synchronize();
  for (word* each : x) {
    const auto view = memory.host_read(each, n);
    CHECK(view[0] == 1U << 12);
    CHECK(view[n - stride] == 1U << 12);
  }
}

TEST_CASE("reads stands for a pointer to const, reads_as_mutable for the pointer itself") {
  float* p = nullptr;
  CHECK(std::is_same_v<decltype(reads(p).pointer), const float*>);
  CHECK(std::is_same_v<decltype(reads(p, 1).pointer), const float*>);
  CHECK(std::is_same_v<decltype(reads(static_cast<void*>(p), 1).pointer), const void*>);
  CHECK(std::is_same_v<decltype(reads(static_cast<const float*>(p)).pointer), const float*>);
  CHECK(std::is_same_v<decltype(reads_as_mutable(p).pointer), float*>);
  CHECK(std::is_same_v<decltype(reads_as_mutable(p, 1).pointer), float*>);
  CHECK(reads_as_mutable(p, 3).mode == access::read);
  CHECK(reads_as_mutable(p, 3).size == bytes{3 * sizeof(float)});
  CHECK(reads_as_mutable(p).size == operand::whole);
}

TEST_CASE("nullptr, NULL and 0 stand for a pointer of the kernel, and no other number does") {
  int called = 0;
  const auto optional = sim::kernel(
      [&](word* y, const word* bias, int count) { called += y != nullptr && bias == nullptr ? count : 100; },
      [](sim::work&, word*, const word*, int) {});
  machine m;
  m.s.launch("optional", 1, 1, 0, optional, m.sum, nullptr, 1);
  m.s.launch("optional", 1, 1, 0, optional, m.sum, NULL, 1);
  m.s.launch("optional", 1, 1, 0, optional, m.sum, 0, 1);
  m.s.launch("optional", 1, 1, 0, optional, m.sum, static_cast<word*>(nullptr), 1);
  m.s.synchronize();
  CHECK(called == 4);
  const std::string said =
      failure(status::invalid_argument, [&] { m.s.launch("optional", 1, 1, 0, optional, m.sum, 16, 1); });
  CHECK(mentions(said, "'optional'"));
  CHECK(mentions(said, "argument 2"));
  CHECK(mentions(said, "16"));
  m.s.synchronize();
  CHECK(called == 4);
}

/// As `float4`.
struct alignas(16) four_numbers {
  float x, y, z, w;
};
struct list {
  double x;
  list* next;
};

TEST_CASE("vectors and complex numbers hide no pointers, so that a launch declares all with a pointer to them") {
  CHECK(hides_no_pointers<four_numbers>);
  CHECK(hides_no_pointers<const std::complex<double>>);
  CHECK_FALSE(hides_no_pointers<list>);
  CHECK_FALSE(hides_no_pointers<std::span<double>>);
  const auto set = sim::kernel([](four_numbers* p, four_numbers v) { std::fill_n(p, n / 4, v); },
                               [](sim::work& w, four_numbers* p, four_numbers) { w.overwrites(p, n * sizeof(word)); });
  const auto cut =
      sim::kernel([](list* p) { p->next = nullptr; }, [](sim::work& w, list* p) { w.updates(p, n * sizeof(word)); });
  machine m;  // what may touch anything does not fit, as more is allocated than the device takes
  auto* const p = m.memory.allocate<four_numbers>(n / 4);
  m.s.launch("set", 1, 1, 0, set, p, four_numbers{1, 2, 3, 4});
  CHECK(mentions(
      failure(status::out_of_device_memory, [&] { m.s.launch("cut", 1, 1, 0, cut, m.memory.allocate<list>(n / 4)); }),
      "may touch more than it declares"));
  m.s.synchronize();
  CHECK(m.memory.host_read(p, n / 4)[n / 4 - 1].w == 4);
}

/// As CUDA's.
struct dim3 {
  unsigned x, y, z;
};

TEST_CASE("the extents of a launch may be those of CUDA") {
  CHECK(dim(dim3{4, 5, 6}) == dim(4, 5, 6));
  CHECK_FALSE(std::is_convertible_v<four_numbers, dim>);
  machine m;
  const auto nothing = sim::kernel([] {}, [](sim::work&) {});
  CHECK(m.s.launch("nothing", dim3{4, 5, 6}, dim3{32, 1, 1}, 0, nothing).valid());
}

TEST_CASE("a size that is made of a number of any type is that number") {
  const int i = 5;
  const unsigned long long u = 1ULL << 40U;
  CHECK(bytes{i} == bytes{5U});
  CHECK(bytes(u).count == u);
  CHECK_FALSE(std::is_constructible_v<bytes, const char*>);
}

}  // namespace kernel_arguments_test
