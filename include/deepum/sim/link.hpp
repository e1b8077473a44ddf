#pragma once

#include <deepum/core/fifo.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <functional>

namespace deepum {
inline namespace v0 {
namespace sim {

/// Who waits for a transfer. The service of page faults goes first, between two blocks.
enum class urgency : std::uint8_t { fault, command };

/// One direction of the connection between host and device: one transfer at a time, each of at most a block.
///
/// Not synchronised: used under the lock of its event loop.
class link {
 public:
  using cost = std::function<nanoseconds()>;

  explicit link(event_loop& loop) : loop_(loop) {}

  /// Queues a transfer. `time()` is asked when it starts, because it may depend on what the other direction does.
  void submit(urgency who, cost time, event_loop::action done);

  [[nodiscard]] bool busy() const { return busy_; }
  /// When the transfer began that is under way; in its `done`, that one.
  [[nodiscard]] nanoseconds began() const { return began_; }

 private:
  struct transfer {
    cost time{};
    event_loop::action done{};
  };

  void start_next();

  event_loop& loop_;
  fifo<transfer> urgent_;
  fifo<transfer> normal_;
  bool busy_ = false;
  nanoseconds began_{};
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/link.hpp>  // what it declares
#endif
