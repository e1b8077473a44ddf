// What a program does for long goes on taking the memory that it took at first, and goes on looking at as much.

#include "support/counted_heap.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace growth_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::held_since;

const auto nothing = sim::kernel(
    "nothing", [](float*, std::uint64_t) {},
    [](sim::work& w, float* x, std::uint64_t) { w.updates(x, sizeof(float)); });

sim::device_options small() {
  sim::device_options o;
  o.memory = 64_MiB;
  return o;
}

template <class Memory>
struct bench {
  explicit bench(const std::string& policy, bytes capacity = 256_MiB)
      : memory(gpu, {.capacity = capacity, .device_budget = 32_MiB, .policy = policy, .log = {}}) {}

  sim::device gpu{sim::find_profile("h200_pcie5"), small()};
  arena<Memory> memory;
};

constexpr std::uint64_t repetitions = 10'000;  // more than the engine lets wait, or remembers of a stream

/// When it has been done often, doing it as often again takes no more memory at any moment: less than two bytes for
/// each.
template <class Operation>
void check_level(Operation&& operation) {
  const held_since held;
  const auto peak_of = [&](std::uint64_t from) {
    std::int64_t peak = 0;
    for (std::uint64_t i = from; i != from + repetitions; ++i) {
      operation(i);
      peak = std::max(peak, static_cast<std::int64_t>(held().count));
    }
    return peak;
  };
  const std::int64_t before = peak_of(0);
  CHECK(peak_of(repetitions) - before < static_cast<std::int64_t>(2 * repetitions));
}

template <class Memory>
struct with_data : bench<Memory> {
  explicit with_data(const char* policy) : bench<Memory>(policy), x(this->memory.template allocate<float>(n)) {
    this->memory.host_overwrite(x, n)[0] = 1;
  }
  static constexpr std::size_t n = 3 << 20;
  float* x;
};
TEST_CASE_TEMPLATE("host accesses without a launch take no memory", Memory, sim::managed_memory, sim::paged_memory) {
  for (const char* policy : {"auto", "lru"}) {
    CAPTURE(std::string(policy));
    with_data<Memory> b(policy);
    check_level([&](std::uint64_t i) { b.memory.host_write(b.x, 1024)[i % 1024] = 1; });
  }
}

TEST_CASE_TEMPLATE("facts that are told without a launch take no memory", Memory, sim::managed_memory,
                   sim::paged_memory) {
  for (const char* policy : {"auto", "deepum", "ideal"}) {
    CAPTURE(std::string(policy));
    with_data<Memory> b(policy);
    check_level([&](std::uint64_t i) {
      b.memory.mark_inactive(b.x, 8_MiB);
      b.memory.mark_active(b.x, 8_MiB);
      b.memory.deallocate(b.memory.allocate_bytes(bytes{1 + i * 997 % 5'000'000}));
    });
  }
}

TEST_CASE_TEMPLATE("hints that nobody can follow so fast take no memory", Memory, sim::managed_memory,
                   sim::paged_memory) {
  for (const char* policy : {"auto"}) {
    CAPTURE(std::string(policy));
    with_data<Memory> b(policy);
    check_level(
        [&](std::uint64_t i) { b.memory.prefetch(b.x, 8_MiB, i % 2 == 0 ? location::device() : location::host()); });
  }
}

TEST_CASE_TEMPLATE("launches, streams and holds take no memory once they are over", Memory, sim::managed_memory,
                   sim::paged_memory) {
  for (const char* policy : {"auto", "lru"}) {
    CAPTURE(std::string(policy));
    with_data<Memory> b(policy);
    {
      stream s{b.memory};
      check_level([&](std::uint64_t i) { s.launch("k", 1, 1, 0, nothing, b.x, i % 7); });
    }
    std::uint16_t highest = 0;
    check_level([&](std::uint64_t i) {
      stream s{b.memory};
      highest = std::max(highest, s.id().value);
      s.launch("k", 1, 1, 0, nothing, b.x, i % 7);
    });
    CHECK(highest < 128);
    check_level([&](std::uint64_t) { const auto held = b.memory.hold({reads(b.x, 1024)}); });
  }
}

TEST_CASE("a launch looks at no more streams because others are open") {
  const auto looked_at = [](std::size_t open) {
    bench<sim::managed_memory> b("auto");
    std::vector<std::unique_ptr<stream<sim::managed_memory>>> others;
    float* const x = b.memory.allocate<float>(1024);
    for (std::size_t i = 0; i != open; ++i) {
      others.push_back(std::make_unique<stream<sim::managed_memory>>(b.memory));
      others.back()->launch("k", 1, 1, 0, nothing, x, std::uint64_t{0});
      others.back()->synchronize();
    }
    const std::uint64_t before = b.gpu.operations().streams_visited();
    for (std::uint64_t i = 0; i != 1000; ++i) {
      others[0]->launch("k", 1, 1, 0, nothing, x, i % 3);
    }
    others[0]->synchronize();
    return b.gpu.operations().streams_visited() - before;
  };
  CHECK(looked_at(500) == looked_at(1));
}

}  // namespace growth_test
