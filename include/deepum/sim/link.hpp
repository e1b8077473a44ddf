#pragma once

#include <deepum/core/fifo.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/shared_lines.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <functional>

namespace deepum {
inline namespace v0 {
namespace sim {

/// Who waits for a transfer. The service of page faults goes first, between two blocks.
enum class urgency : std::uint8_t { fault, command };

/// One direction of the connection between host and device, or what goes out from a device to its neighbours: one
/// transfer at a time, each of at most a block.
///
/// Not synchronised: used under the lock of its event loop.
class link {
 public:
  using cost = std::function<nanoseconds()>;

  /// @param shared  What it shares with other links; null: nothing. Outlives it.
  explicit link(event_loop& loop, host_bandwidth* shared = nullptr) : loop_(loop), host_(shared) {}

  /// Queues a transfer. `time()` is asked when it starts, because it may depend on what the other direction does.
  /// @param into  Where it comes in, which it has for as long as it lasts; null: nothing else. Outlives the transfer.
  void submit(urgency who, cost time, event_loop::action done, inlet* into = nullptr);

  [[nodiscard]] bool busy() const { return busy_; }
  /// When the transfer began that is under way; in its `done`, that one.
  [[nodiscard]] nanoseconds began() const { return began_; }

 private:
  struct transfer {
    cost time{};
    event_loop::action done{};
    inlet* into = nullptr;
  };

  void start_next();
  void run(transfer next);

  event_loop& loop_;
  host_bandwidth* host_;
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
