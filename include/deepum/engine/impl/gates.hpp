#pragma once

#include <deepum/engine/gates.hpp>
#include <deepum/separate.hpp>

#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void gates::work_out() {
  inbox_.set_launches_ask(orders_launches_ || (holds_launches_ && pressed()) || !state_.held.empty() ||
                          state_.queues.forgotten.moving() != 0 || state_.failed_uploads != 0);
  if (std::exchange(stale_, false) && faults_) {
    if (state_.queues.forgotten.idle()) {
      inbox_.no_discards();
    }
    inbox_.set_spare(state_.live, state_.ledger.budget());
  }
}

DEEPUM_SEPARATE bool gates::close() {
  const bool gives_up = !state_.queues.forgotten.idle();
  const bool leaves = gives_up || (!faults_ && !state_.queues.idle_from(state_.ledger.device()));
  state_.all_there = state_.all_there && !leaves;
  const bool life_passed = gives_up && !inbox_.announce_discards();
  const bool launches_passed = leaves && !inbox_.set_launches_ask(true);
  return life_passed || launches_passed;
}

DEEPUM_SEPARATE bool gates::pressed() const {
  return faults_ ? state_.ledger.keeps_home_copy() || state_.oversubscribed() ||
                       !state_.queues.idle_into(state_.ledger.device())
                 : !state_.all_there;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
