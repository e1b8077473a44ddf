// The simulator's threads take none of the program's signals.

#include "support/thread_signals.hpp"

#include "support/test_scale.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace thread_signals_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::blocked_signals;
using deepum_test::blocks_all;

TEST_CASE_TEMPLATE("all threads that an arena starts block all signals, and the program's own do as before", Memory,
                   sim::managed_memory, sim::paged_memory) {
  sim::device_options o{.memory = 256_MiB};
  o.worker = sim::worker_mode::thread;
  sim::device gpu(sim::find_profile("h200_pcie5"), o);
  const std::map<std::string, std::uint64_t> before = blocked_signals();
  const arena<Memory> memory(gpu, {.capacity = 64_MiB, .device_budget = 16_MiB, .log = {}});
  std::size_t started = 0;
  for (const auto& [thread, mask] : blocked_signals()) {
    if (const auto it = before.find(thread); it != before.end()) {
      CHECK(mask == it->second);
    } else {
      CHECK(blocks_all(mask));
      ++started;
    }
  }
  CHECK(started >= 1);
  if (!deepum_test::sanitized) {  // a sanitizer may start one of its own
    CHECK(started == 1);
  }
}

}  // namespace thread_signals_test
