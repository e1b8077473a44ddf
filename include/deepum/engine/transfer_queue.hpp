#pragma once

#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/core/transfer.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <variant>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What waits for its turn: blocks that are to move, or a hint that the driver gets between two transfers.
using queue_entry = std::variant<transfer, driver_hint>;

[[nodiscard]] inline block_range& blocks_of(queue_entry& e) {
  return std::visit([](auto& what) -> block_range& { return what.blocks; }, e);
}

/// A transfer that the device has.
struct outstanding {
  std::uint64_t ticket = 0;
  transfer what{};
};

/// The transfers of one link, or those that need none: those that wait, and those that the device has.
struct transfer_queue {
  std::deque<queue_entry> demanded{};  // for the oldest launch that is held back; made anew whenever something happened
  std::deque<queue_entry> requested{};
  std::deque<queue_entry> planned{};
  sequence<outstanding> issued{};  // that begin with this link
  std::size_t passing = 0;         // that come to it from another
  std::uint64_t blocks = 0;        // of both

  /// What is in progress, the first ones first.
  [[nodiscard]] std::deque<queue_entry>& next() {
    return !demanded.empty() ? demanded : !requested.empty() ? requested : planned;
  }
  /// Transfers that the link has.
  [[nodiscard]] std::size_t moving() const { return issued.size() + passing; }
  [[nodiscard]] bool waiting() const { return !demanded.empty() || !requested.empty() || !planned.empty(); }
  [[nodiscard]] bool idle() const { return !waiting() && moving() == 0; }
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
