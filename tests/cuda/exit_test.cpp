// How a program ends whose arena and stream are globals, on the fake GPU. tests/gpu/exit_test.cpp is the same on a real
// one.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace exit_test {

using namespace deepum::literals;
using namespace deepum_test;

template <class Memory>
[[noreturn]] void leave_with_launches_in_flight() {
  fake_cuda::set_device_memory(1_GiB);
  static deepum::cuda::device gpu{0, {.faults = deepum::cuda::fault_source::none}};
  static deepum::arena<Memory> arena(gpu, {.capacity = 256_MiB, .device_budget = 64_MiB, .log = {}});
  static deepum::stream<Memory> s{arena};
  static std::byte* const x[] = {arena.template allocate<std::byte>(32 << 20),
                                 arena.template allocate<std::byte>(32 << 20),
                                 arena.template allocate<std::byte>(32 << 20)};
  for (int step = 0; step < 5; ++step) {
    for (std::byte* const each : x) {
      s.memset(each, step, 32_MiB);
    }
  }
  std::exit(7);
}

template <class Memory>
int status_of_leaving() {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    leave_with_launches_in_flight<Memory>();
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("exit() with a global arena and launches in flight ends the program with its own status") {
  const fake_gpu gpu;
  for (const int status :
       {status_of_leaving<deepum::cuda::managed_memory>(), status_of_leaving<deepum::cuda::paged_memory>()}) {
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
  }
}

}  // namespace exit_test
