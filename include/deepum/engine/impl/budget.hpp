#pragma once

#include <deepum/core/block_ledger.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/budget.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void budget::refresh() {
  const bytes block = state_.ledger.grid().block();
  std::uint64_t most = options_.budget / block;
  if (options_.budget.count == 0) {
    // Blocks on their way hold room in the ledger, but perhaps no memory yet: they count as not there.
    const bytes available = memory_.free_memory() + block * (state_.ledger.occupied() - state_.ledger.arriving());
    most = available > options_.headroom ? (available - options_.headroom) / block : 0;
  }
  state_.ledger.set_budget(static_cast<std::uint32_t>(std::min<std::uint64_t>(most, state_.ledger.size())));
  blocks_.store(state_.ledger.budget(), std::memory_order_relaxed);
  // Of what others leave, changes of a tenth are worth a line.
  if (options_.budget.count == 0 && state_.ledger.budget() < said_ - said_ / 10) {
    account_.log("the budget is " + std::to_string((block * state_.ledger.budget()).count) +
                 " bytes now: others hold more of the device");
  }
  if (options_.budget.count != 0 || state_.ledger.budget() < said_ - said_ / 10 ||
      state_.ledger.budget() > said_ + said_ / 10) {
    said_ = state_.ledger.budget();
  }
  if (pager_ != nullptr) {
    pager_->budget_changed();
  }
  gates_.mark_stale();
}

DEEPUM_SEPARATE void budget::refresh_neighbours() {
  block_ledger& ledger = state_.ledger;
  const bytes block = ledger.grid().block();
  for (unsigned l = 1; l != ledger.places(); ++l) {
    const location at = location::at(l);
    if (at == ledger.device() || (lent_[l].count == 0 && ledger.budget(at) == 0)) {
      continue;
    }
    const std::uint64_t now = memory_.lendable(at) / block + ledger.occupied(at);
    const std::uint64_t most = std::min<std::uint64_t>({lent_[l] / block, now, ledger.size()});
    state_.policy_due = state_.policy_due || most < ledger.occupied(at);
    ledger.set_budget(at, static_cast<std::uint32_t>(most));
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
