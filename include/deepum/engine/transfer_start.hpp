#pragma once

#include <deepum/core/transfer.hpp>
#include <deepum/engine/accounting.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/transfer_queue.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Gives transfers to the device, each with a ticket of its own, by which its events are told apart.
///
/// Not synchronised: used under the engine's state lock.
class transfer_start {
 public:
  /// All outlive it.
  transfer_start(memory_space& space, records& shared, accounting& account)
      : memory_(space),
        state_(shared),
        account_(account) {}

  /// @param q     Where it counts as under way.
  /// @param what  It is, for people, where the call fails.
  /// @returns     Its ticket; 0 where the call failed.
  std::uint64_t begin(transfer_queue& q, const transfer& t, const char* what) {
    if (!memory_.start(t, next_ticket_)) {
      account_.failed(what);
      return 0;
    }
    state_.queues.begin(q, next_ticket_, t);
    return next_ticket_++;
  }

 private:
  memory_space& memory_;
  records& state_;
  accounting& account_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
