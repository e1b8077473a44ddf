#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/accounting.hpp>
#include <deepum/engine/block_contents.hpp>
#include <deepum/engine/claims.hpp>
#include <deepum/engine/demand_pager.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/launch_ends.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/uploads.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Takes in what the device reports: launches finish, blocks fault, arrive and depart, commands end.
///
/// Not synchronised: used under the engine's state lock.
class event_intake {
 public:
  /// All outlive it. @param claims, pager  Where the memory never faults; else null.
  event_intake(const memory_space& space, records& shared, policy& chooser, block_claims* claims, demand_pager* pager,
               block_contents& contents, launch_ends& ends, uploads& unfinished, accounting& account)
      : memory_(space),
        state_(shared),
        policy_(chooser),
        claims_(claims),
        pager_(pager),
        contents_(contents),
        ends_(ends),
        uploads_(unfinished),
        account_(account),
        host_copies_stay_(space.capabilities().keeps_home_copy),
        saw_faults_(space.sees_faults()) {}

  void apply(const device_event& e);

 private:
  /// @param seen  The same for observers, with what was touched in place.
  void take_finish(const device_event& e, device_event& seen);
  void count_in_place(const launch_record& record, device_event& seen);
  /// Faults are not reported: what a launch declared, and was not there, is there now.
  void take_unseen_faults(const launch_record& record, nanoseconds at);
  void take_fault(const device_event& e, launch_id launch);
  void take_arrival(const device_event& e);
  void take_departure(const device_event& e);
  /// The route whose traffic a move counts as. @param t  Null: the driver's own doing.
  [[nodiscard]] std::uint8_t way_of(const transfer* t, location from, location to) const;
  /// @returns  Whether the same command may do better next time.
  bool take_failure();
  /// A command is done, or has failed. Blocks that it did not report stayed where they were.
  /// @param again  It failed for a reason that is gone.
  void retire(std::uint64_t ticket, bool done, bool again = false);
  void retire(block_id b, location changed, const transfer& t, bool done);
  void moved() {
    if (pager_ != nullptr) {
      pager_->moved();
    }
  }

  const memory_space& memory_;
  records& state_;
  policy& policy_;
  block_claims* claims_;
  demand_pager* pager_;
  block_contents& contents_;
  launch_ends& ends_;
  uploads& uploads_;
  accounting& account_;
  std::uint32_t incomplete_finished_ = 1;  // launches that may have used any block, and one
  bool host_copies_stay_;                  // blocks may be current both here and on the host
  bool saw_faults_;                        // a feed told of faults in the beginning
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/event_intake.hpp>  // what it declares
#endif
