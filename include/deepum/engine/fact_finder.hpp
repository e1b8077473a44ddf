#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_record.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/claims.hpp>
#include <deepum/engine/law.hpp>
#include <deepum/engine/records.hpp>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Asks the law about blocks, with what the records say of the launches in flight.
///
/// Not synchronised: used under the engine's state lock.
class fact_finder {
 public:
  /// @param claims  Where the memory never faults; else null. Both outlive it.
  fact_finder(const records& shared, const block_claims* claims) : state_(shared), claims_(claims) {}

  /// @name What the law says
  /// @{
  [[nodiscard]] bool may_arrive(block_id b, location to) const {
    return law::may_arrive(state_.ledger.of(b), to) && !(to == state_.ledger.device() && used_in_place(b));
  }
  /// Cost: on memory that faults it asks the launches that execute, where the block could leave otherwise.
  [[nodiscard]] bool may_leave(block_id b, location from) const {
    law::circumstances c = circumstances_of(b);
    if (!law::may_leave(state_.ledger.of(b), from, c)) {
      return false;
    }
    c.in_use = from == state_.ledger.device() && in_use(b);
    return law::may_leave(state_.ledger.of(b), from, c);
  }
  [[nodiscard]] bool may_release(block_id b, location from) const {
    return law::may_release(state_.ledger.of(b), from, circumstances_of(b));
  }
  [[nodiscard]] bool may_copy(block_id b, location from, location to, bool for_host = false) const {
    return law::may_copy(state_.ledger.of(b), from, to, circumstances_of(b), for_host);
  }
  [[nodiscard]] bool may_forget(block_id b, law::because why) const {
    return law::may_forget(state_.ledger.of(b), why, circumstances_of(b));
  }
  [[nodiscard]] bool may_release_home(block_id b) const { return law::may_release_home(state_.ledger.of(b)); }
  [[nodiscard]] bool may_reclaim_home(block_id b) const { return law::may_reclaim_home(state_.ledger.of(b)); }
  /// @}

  /// A launch that executes, or that waits for its turn, needs the block where it is.
  [[nodiscard]] bool in_use(block_id b) const {
    return claims_ != nullptr ? claims_->held_down(b) : state_.launches.executing_on(b);
  }
  /// A launch that may execute touches rows of the block where it is, or could, and would find nothing there while the
  /// block changes its place. Where the driver serves faults it sees to that.
  [[nodiscard]] bool used_in_place(block_id b) const {
    const block_view block = state_.ledger.of(b);
    return claims_ != nullptr && block->reachable && block->pins != 0 && !state_.ledger.present(b);
  }
  /// The host is writing the block, or about to.
  [[nodiscard]] bool with_host(block_id b) const { return state_.ledger.of(b)->host_writes != 0; }
  /// It is not worth to wait until the block may leave: a hold keeps it, which ends when the program likes.
  [[nodiscard]] bool held_by_program(block_id b) const {
    return claims_ != nullptr ? state_.ledger.of(b)->holds != 0
                              : state_.held.holds() != 0 && state_.launches.held_on(b);
  }

 private:
  [[nodiscard]] law::circumstances circumstances_of(block_id b) const {
    const block_view block = state_.ledger.of(b);
    return {.home_stays = state_.ledger.keeps_home_copy(),
            .writer_executes = claims_ == nullptr || block->pins != block->holds,
            .unknown_users = state_.launches.incomplete_in_flight(),
            .unknown_before_death = state_.launches.incomplete_up_to(launch_id{block->dead_after})};
  }

  const records& state_;
  const block_claims* claims_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
