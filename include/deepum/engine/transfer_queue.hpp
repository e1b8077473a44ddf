#pragma once

#include <deepum/core/plan.hpp>

#include <cstdint>
#include <deque>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// A command that the device has.
struct outstanding {
  std::uint64_t ticket = 0;
  command what{};
  bool room_only = false;  ///< inward: no contents come
};

/// The commands of one direction: those that wait, and those that the device has.
struct transfer_queue {
  std::vector<command>
      urgent{};  // advice that has to be given before launches begin: when the state lock is given back
  std::deque<command> demanded{};  // by the oldest launch that is held back; made anew whenever something happened
  std::deque<command> requested{};
  std::deque<command> planned{};
  std::vector<outstanding> issued{};
  std::uint64_t blocks = 0;  // in `issued`

  /// Commands in progress, the first ones first.
  [[nodiscard]] std::deque<command>& next() {
    return !demanded.empty() ? demanded : !requested.empty() ? requested : planned;
  }
  [[nodiscard]] bool idle() const { return demanded.empty() && requested.empty() && planned.empty() && issued.empty(); }
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
