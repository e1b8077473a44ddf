// Places that hints name: the host, and the one device of an arena.

#include "support/failure.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

namespace place_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::failure;
using deepum_test::mentions;

TEST_CASE_TEMPLATE("a prefetch or advice to a device that the arena does not have is refused", Memory,
                   sim::managed_memory, sim::paged_memory) {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 256_MiB});
  arena<Memory> memory(gpu, {.capacity = 64_MiB, .device_budget = 32_MiB, .policy = "um", .log = {}});
  constexpr std::size_t n = (8_MiB).count / sizeof(float);
  float* const x = memory.template allocate<float>(n);
  (void)memory.host_overwrite(x, n);
  for (const unsigned other : {1U, 7U}) {
    CHECK(mentions(failure(status::invalid_argument, [&] { memory.prefetch(x, 8_MiB, location::device(other)); }),
                   "device " + std::to_string(other)));
    CHECK(mentions(
        failure(status::invalid_argument, [&] { memory.prefetch(std::span<float>(x, n), location::device(other)); }),
        "location::device()"));
    CHECK(mentions(failure(status::invalid_argument,
                           [&] { memory.advise(x, 8_MiB, advice::set_preferred_location, location::device(other)); }),
                   "location::device()"));
  }
  memory.prefetch(x, 8_MiB, location::device());
  gpu.host_work(std::chrono::milliseconds(10));
  CHECK(memory.statistics().in().all_blocks() == 4);
  memory.prefetch(x, 8_MiB, location::host());
}

}  // namespace place_test
