// Counts of elements whose bytes no number holds: a product that wrapped around would name a few bytes, or none.

#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace element_counts_test {

using namespace deepum;
using namespace deepum::literals;

template <class Memory>
struct machine {
  sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = 64_MiB}};
  arena<Memory> memory{gpu, {.capacity = 64_MiB, .device_budget = 32_MiB, .log = [](std::string_view) {}}};
  stream<Memory> s{memory};
  float* x = memory.template allocate<float>(1 << 20);
};

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
const std::vector<std::uint64_t> counts{std::uint64_t{1} << 62, (std::uint64_t{1} << 62) + 1, most / 4 + 1, most};

const auto nothing = sim::kernel([](float*) {}, [](sim::work& w, float*) { w.flops(1); });

template <class Run>
void refused(std::uint64_t n, Run&& run) {
  CAPTURE(n);
  try {
    run();
    FAIL_CHECK("nothing was thrown");
  } catch (const error& e) {
    CAPTURE(e.what());
    CHECK(e.code() == status::invalid_argument);
    CHECK(std::string_view(e.what()).find(std::to_string(n) + " elements of 4 bytes") != std::string_view::npos);
  }
}

TEST_CASE_TEMPLATE("views and operands of more bytes than can be counted are refused with the count", Memory,
                   sim::managed_memory, sim::paged_memory) {
  machine<Memory> m;
  for (const std::uint64_t n : counts) {
    refused(n, [&] { (void)m.memory.host_read(m.x, n); });
    refused(n, [&] { (void)m.memory.host_write(m.x, n); });
    refused(n, [&] { (void)m.memory.host_overwrite(m.x, n); });
    refused(n, [&] { m.s.launch("k", 1, 1, 0, nothing, overwrites(m.x, n)); });
    refused(n, [&] { m.s.launch("k", 1, 1, 0, nothing, updates(m.x, n)); });
    refused(n, [&] { (void)m.memory.hold({reads(m.x, n)}); });
  }
  CHECK(m.memory.host_read(m.x, 0).size() == 0);
}

TEST_CASE_TEMPLATE("what cannot be counted has no room, and a size of all bytes is not the whole allocation", Memory,
                   sim::managed_memory, sim::paged_memory) {
  machine<Memory> m;
  for (const std::uint64_t n : counts) {
    CHECK_THROWS_AS((void)m.memory.template allocate<float>(n), error);
    CHECK_THROWS_AS((void)m.memory.template make_array<float>(n), error);
    CHECK_THROWS_AS((void)m.memory.allocate_bytes(bytes{n}), error);
  }
  for (const std::uint64_t n : {most, most - 1, most / 2}) {
    CHECK_THROWS_AS((void)reads(static_cast<const void*>(m.x), most), error);
    CHECK_THROWS_AS((void)m.memory.host_read(reinterpret_cast<const std::byte*>(m.x), n), error);
    CHECK_THROWS_AS(m.memory.prefetch(m.x, bytes{n}, location::device()), error);
    CHECK_THROWS_AS(m.memory.mark_inactive(m.x, bytes{n}), error);
    CHECK_THROWS_AS(m.memory.mark_active(m.x, bytes{n}), error);
    CHECK_THROWS_AS(m.memory.discard(m.x, bytes{n}), error);
    CHECK_THROWS_AS(m.s.memset(m.x, 0, bytes{n}), error);
    CHECK_THROWS_AS(m.memory.split(m.x, std::vector<bytes>{1_MiB, bytes{n}}), error);
  }
}

TEST_CASE("sizes that are written out do not wrap around") {
  CHECK(17179869184_GiB == bytes{most});
  CHECK(17179869183_GiB == bytes{std::uint64_t{17179869183} << 30U});
  CHECK(18446744073709551615_KiB == bytes{most});
  CHECK(18446744073709551615_MiB == bytes{most});
  machine<sim::managed_memory> m;
  CHECK_THROWS_AS((void)m.memory.allocate_bytes(17179869184_GiB), error);
}

}  // namespace element_counts_test
