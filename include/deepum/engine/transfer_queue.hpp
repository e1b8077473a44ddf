#pragma once

#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/core/transfer.hpp>

#include <cstdint>
#include <deque>
#include <variant>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What waits for its turn: blocks that are to move, or a hint that the driver gets between two transfers.
using queue_entry = std::variant<transfer, driver_hint>;

[[nodiscard]] inline block_range& blocks_of(queue_entry& o) {
  return std::visit([](auto& what) -> block_range& { return what.blocks; }, o);
}

/// A transfer that the device has.
struct outstanding {
  std::uint64_t ticket = 0;
  transfer what{};
};

/// The transfers of one direction: those that wait, and those that the device has.
struct transfer_queue {
  std::vector<driver_hint>
      urgent{};  // hints that have to be given before launches begin: when the state lock is given back
  std::deque<queue_entry> demanded{};  // by the oldest launch that is held back; made anew whenever something happened
  std::deque<queue_entry> requested{};
  std::deque<queue_entry> planned{};
  sequence<outstanding> issued{};
  std::uint64_t blocks = 0;  // in `issued`

  /// What is in progress, the first ones first.
  [[nodiscard]] std::deque<queue_entry>& next() {
    return !demanded.empty() ? demanded : !requested.empty() ? requested : planned;
  }
  [[nodiscard]] bool idle() const { return demanded.empty() && requested.empty() && planned.empty() && issued.empty(); }
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
