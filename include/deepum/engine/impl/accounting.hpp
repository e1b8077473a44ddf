#pragma once

#include <deepum/core/topology.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/accounting.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/separate.hpp>

#include <bit>
#include <cstdint>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void accounting::count(std::uint8_t way, reason why, bool copied) const {
  if (way == route::none) {
    return;
  }
  state_.queues.places().routes()[way].for_each_link(
      [&](std::uint8_t l) { ++state_.statistics.links[l].moved.blocks[static_cast<unsigned>(why)]; });
  if (copied) {
    count_copy(way, why);
  }
}

DEEPUM_SEPARATE void accounting::count_copy(std::uint8_t way, reason why) const {
  const std::uint64_t bytes_of_block = state_.ledger.grid().block().count;
  state_.queues.places().routes()[way].for_each_link(
      [&](std::uint8_t l) { state_.statistics.links[l].moved.bytes[static_cast<unsigned>(why)] += bytes_of_block; });
}

DEEPUM_SEPARATE void accounting::failed(const char* what) {
  ++state_.statistics.failed_calls;
  log_once(logged_failure_,
           std::string(what) + " failed; the program goes on without it (logged once, all are counted)");
  if (++failures_in_a_row_ >= options_.failures_until_pause) {
    failures_in_a_row_ = 0;
    state_.paused_until = state_.statistics.finished + options_.launches_of_pause;
    if (std::has_single_bit(++pauses_)) {  // what goes on failing does not fill the log
      log(std::to_string(options_.failures_until_pause) +
          " commands failed in a row; nothing is prefetched for the next " +
          std::to_string(options_.launches_of_pause) + " launches" +
          (pauses_ == 1 ? "" : " (pause " + std::to_string(pauses_) + "; logged less and less often)"));
    }
  }
}

DEEPUM_SEPARATE void accounting::notify(const device_event& e, launch_id launch) const {
  if (options_.observer) {
    device_event seen = e;
    seen.block = state_.ledger.grid().block();
    options_.observer(seen, launch);
  }
}

DEEPUM_SEPARATE void accounting::log_once(bool& logged, const std::string& line) const {
  if (!std::exchange(logged, true)) {
    log(line);
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
