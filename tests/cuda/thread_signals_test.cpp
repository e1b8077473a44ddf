// The library's threads take none of the program's signals.

#include "support/thread_signals.hpp"

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace thread_signals_test {

using namespace deepum_test;
using namespace deepum::literals;

TEST_CASE_TEMPLATE("all threads that an arena starts block all signals, and the program's own do as before", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  const fake_gpu gpu(256_MiB);
  deepum::cuda::device_options o;
  o.chunk = 2_MiB;
  o.faults = deepum::cuda::fault_source::none;
  deepum::cuda::device device(0, o);
  const std::map<std::string, std::uint64_t> before = blocked_signals();
  deepum::arena<Memory> arena(device, {.capacity = 64_MiB, .device_budget = 16_MiB, .log = {}});
  const std::uint64_t streams = fake_cuda::calls("cudaStreamCreateWithFlags");  // each has a thread in the fake
  std::size_t blocking = 0;
  std::size_t others = 0;
  for (const auto& [thread, mask] : blocked_signals()) {
    if (const auto it = before.find(thread); it != before.end()) {
      CHECK(mask == it->second);
    } else if (blocks_all(mask)) {
      ++blocking;
    } else {
      ++others;
    }
  }
  CHECK(others <= streams);
  CHECK(blocking >= (std::is_same_v<Memory, deepum::cuda::managed_memory> ? 4U : 2U));
}

}  // namespace thread_signals_test
