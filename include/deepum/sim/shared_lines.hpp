#pragma once

#include <deepum/core/fifo.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

/// Where all transfers into one device come in from its neighbours: one at a time.
///
/// Not synchronised: used under the lock of the event loop.
class inlet {
 public:
  /// @returns  Whether the caller has it now. Else `then` is called when it has.
  [[nodiscard]] bool take(event_loop::action then) {
    if (!std::exchange(taken_, true)) {
      return true;
    }
    waiting_.push_back(std::move(then));
    return false;
  }
  /// Whoever waited longest has it next.
  void give() {
    taken_ = !waiting_.empty();
    if (taken_) {
      const event_loop::action next = std::move(waiting_.front());
      waiting_.pop_front();
      next();
    }
  }

 private:
  bool taken_ = false;
  fifo<event_loop::action> waiting_;
};

/// The memory of the host under the links of all devices: where more of them work than it can feed, each is slower.
///
/// Not synchronised: used under the lock of the event loop.
class host_bandwidth {
 public:
  /// @param links  That it feeds at their full rate. 0: any number.
  void limit(double links) { most_ = links; }
  /// A link begins a transfer that takes `time` alone. @returns  What it takes beside those that are under way.
  [[nodiscard]] nanoseconds begin(nanoseconds time) {
    const double crowd = most_ > 0 ? static_cast<double>(++busy_) / most_ : 0;
    return crowd <= 1 ? time : nanoseconds{static_cast<std::int64_t>(static_cast<double>(time.count()) * crowd)};
  }
  void end() { busy_ -= most_ > 0 ? 1 : 0; }

 private:
  double most_ = 0;
  unsigned busy_ = 0;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
