#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/claims.hpp>
#include <deepum/engine/law.hpp>
#include <deepum/engine/records.hpp>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Collects from the records what the law asks about a block.
///
/// Not synchronised: used under the engine's state lock.
class fact_finder {
 public:
  /// @param claims  Where the memory never faults; else null. Both outlive it.
  fact_finder(const records& shared, const block_claims* claims) : state_(shared), claims_(claims) {}

  /// Cost: on memory that faults `in_use` asks the launches that execute, so it is found out only where the block could
  /// leave.
  [[nodiscard]] law::block_facts of(block_id b) const {
    const block_state& s = state_.map[b];
    law::block_facts f{.life = s.life,
                       .on_device = state_.map.resident(b),
                       .arriving = s.moving == motion::arriving,
                       .moving = !state_.still(b),
                       .written = s.dirty,
                       .current_on_device = s.copies.at(state_.map.device()),
                       .current_at_home = s.copies.at(location::host()),
                       .home_stays = state_.map.keeps_home_copy(),
                       .users = s.users,
                       .writers = s.writers,
                       .unknown_users = state_.launches.incomplete_in_flight(),
                       .unknown_before_death = state_.launches.incomplete_up_to(launch_id{state_.note(b).dead_after})};
    f.in_use = f.on_device && !f.moving && in_use(b);
    if (claims_ != nullptr) {
      const claim& c = (*claims_)[b];
      f.writer_executes = claims_->executed_on(b);
      f.host_views = c.host_views;
      f.host_writes = c.host_writes;
    }
    return f;
  }
  /// A launch that executes, or that waits for its turn, needs the block where it is.
  [[nodiscard]] bool in_use(block_id b) const {
    return claims_ != nullptr ? claims_->held_down(b, state_.map) : state_.launches.executing_on(b);
  }
  /// The host is writing the block, or about to.
  [[nodiscard]] bool with_host(block_id b) const { return claims_ != nullptr && (*claims_)[b].host_writes != 0; }
  /// It is not worth to wait until the block may leave: a hold keeps it, which ends when the program likes.
  [[nodiscard]] bool held_by_program(block_id b) const {
    return claims_ != nullptr ? (*claims_)[b].holds != 0 : state_.held.holds() != 0 && state_.launches.held_on(b);
  }

 private:
  const records& state_;
  const block_claims* claims_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
