#pragma once

#include <deepum/engine/inbox.hpp>
#include <deepum/engine/records.hpp>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Says what threads of the program may do without the state lock: begin launches, and use blocks that come alive.
///
/// A gate opens when the state lock is given back, worked out once from the records. It is closed before the dispatcher
/// takes anything from the device; what passed it until then is in the inbox, which is read once more.
///
/// Not synchronised: used under the engine's state lock.
class gates {
 public:
  /// @param mail, shared    Outlive it.
  /// @param faults          Of the memory.
  /// @param holds_launches   Of the policy.
  /// @param orders_launches  Of the policy: then none passes without asking.
  gates(inbox& mail, records& shared, bool faults, bool holds_launches, bool orders_launches)
      : inbox_(mail),
        state_(shared),
        faults_(faults),
        holds_launches_(holds_launches),
        orders_launches_(orders_launches) {}

  /// The inbox was read, or the budget has changed: how much may come alive has to be worked out again.
  void mark_stale() { stale_ = true; }
  /// The state lock is about to be given back.
  void work_out();
  /// Blocks are about to leave, or to be given up.
  /// @returns  Whether a thread may have passed meanwhile, so that the inbox has to be read once more.
  [[nodiscard]] bool close();
  /// Something may be missing when a launch begins: what is alive does not fit, or is on its way, or no driver would
  /// bring it.
  [[nodiscard]] bool pressed() const;

 private:
  inbox& inbox_;
  records& state_;
  const bool faults_;
  const bool holds_launches_;
  const bool orders_launches_;
  bool stale_ = true;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/gates.hpp>  // what it declares
#endif
