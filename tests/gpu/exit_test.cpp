// How a program ends: with an arena and its streams as globals, with launches in flight. ./run gpu runs it.

#include "gpu/alone.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cstdlib>

namespace gpu_exit_test {

using namespace deepum::literals;

/// Launches on an arena that ends as a global does, and leaves in their midst.
template <class Memory>
[[noreturn]] void leave_with_launches_in_flight() {
  static deepum::cuda::device gpu{0};
  static deepum::arena<Memory> arena(gpu, {.capacity = 256_MiB, .device_budget = 64_MiB, .log = {}});
  static deepum::stream<Memory> s{arena};
  for (int step = 0; step < 20; ++step) {
    static float* const x[] = {arena.template allocate<float>(8 << 20), arena.template allocate<float>(8 << 20),
                               arena.template allocate<float>(8 << 20)};
    for (float* const each : x) {
      s.memset(each, step, 32_MiB);
    }
  }
  gpu_alone::say("leaving");
  std::exit(7);
}

TEST_CASE("child: globals on managed memory" * doctest::skip()) {
  if (gpu_alone::is_child()) {
    leave_with_launches_in_flight<deepum::cuda::managed_memory>();
  }
}
TEST_CASE("child: globals on paged memory" * doctest::skip()) {
  if (gpu_alone::is_child()) {
    leave_with_launches_in_flight<deepum::cuda::paged_memory>();
  }
}

TEST_CASE("exit() with a global arena and launches in flight ends the program with its own status") {
  for (const char* child : {"child: globals on managed memory", "child: globals on paged memory"}) {
    const gpu_alone::child_result result = gpu_alone::run_alone(child);
    CAPTURE(child);
    CAPTURE(result.output);
    CHECK(result.said("leaving"));
    CHECK(result.status == 7);
  }
}

}  // namespace gpu_exit_test
