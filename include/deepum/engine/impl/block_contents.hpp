#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/block_contents.hpp>
#include <deepum/separate.hpp>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void block_contents::written(block_id b) {
  if (state_.ledger.hollow(b)) {
    return;
  }
  const bool newly = !state_.ledger.dirty(b);
  state_.ledger.write(b);
  if (newly) {
    note_home_copy(b);
  }
}

DEEPUM_SEPARATE void block_contents::written_in_place(block_id b) {
  // Where the driver moves blocks, contents are in one place, and a copy that it makes meanwhile has what was written.
  if (!state_.ledger.keeps_home_copy()) {
    return;
  }
  if (state_.ledger.nowhere(b)) {
    state_.ledger.write_on_host(b);
  } else if (state_.ledger.current(b, location::host())) {
    state_.ledger.write(b, location::host());
  }
}

DEEPUM_SEPARATE void block_contents::remember(const launch_record& record) {
  for (const block_access& a : record.accesses) {
    for (const block_id b : a.range) {
      if (state_.ledger.remember(b, record.id)) {
        leave_if_hollow(b);
      }
    }
  }
}

DEEPUM_SEPARATE void block_contents::leave_if_hollow(block_id b) {
  if (state_.ledger.keeps_home_copy() && state_.ledger.hollow(b) && state_.still(b)) {
    const transfer t = transfer::drop(reason::requested, {b, 1});
    state_.queue_of(t).requested.emplace_back(t);
    state_.policy_due = true;
  }
}

DEEPUM_SEPARATE void block_contents::forgotten(block_id b) {
  state_.ledger.discard(b);
  (void)state_.ledger.note_unused(b, 0);
  note_home_copy(b);
  ++state_.statistics.discarded;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
