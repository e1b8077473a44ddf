#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/engine/host_access.hpp>
#include <deepum/engine/law.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void host_access::begin(block_range range, access mode) {
  claims_.begin_view(range, mode);
  wait_.succeeded();  // who asks now gets a try of his own
  state_.all_there = false;
  policy_.on_host_access(range, mode, state_.ledger);
  state_.policy_due = true;
}

DEEPUM_SEPARATE bool host_access::may_use(block_range range, access mode) {
  bool there = true;
  std::deque<queue_entry> wanted;
  for_each_block(range, [&](block_id b) {
    const bool done = may_use(b, mode);
    there = there && done;
    if (!done && state_.ledger.resident(b) && state_.still(b) && (mode == access::read || !facts_.in_use(b))) {
      wanted.emplace_back(mode == access::read ? transfer::clean(reason::host, {b, 1})
                                               : transfer::evict(location::host(), reason::host, {b, 1}));
    }
  });
  if (there) {
    if (mode != access::read) {
      for_each_block(range, [&](block_id b) { state_.ledger.write_on_host(b); });
    }
    return true;
  }
  if (wait_.unsatisfiable()) {
    throw refusal(range);
  }
  if (wait_.failing() && memory_.host_is_full()) {
    (void)relieve();
  }
  std::deque<queue_entry>& requested = state_.outward.requested;
  if (requested.empty() || std::get<transfer>(requested.front()).why != reason::host) {
    requested.insert(requested.begin(), wanted.begin(), wanted.end());
  }
  state_.policy_due = true;
  return false;
}

DEEPUM_SEPARATE bool host_access::relieve() {
  if (give_up_home_copies()) {
    return true;
  }
  if (state_.inward.idle()) {
    std::uint32_t left = state_.room();
    for_each_block({block_id{0}, state_.ledger.size()}, [&](block_id b) {
      if (left != 0 && state_.ledger.life(b) == liveness::live && !state_.ledger.present(b) && state_.still(b) &&
          state_.ledger.current(b, location::host()) && state_.ledger.of(b)->host_views == 0) {
        state_.inward.requested.emplace_back(transfer::prefetch(state_.ledger.device(), reason::requested, {b, 1}));
        --left;
      }
    });
  }
  const bool stuck = state_.room() == 0 && state_.nothing_executes() && state_.inward.issued.empty() &&
                     state_.outward.idle() && state_.discards.idle();  // what is to come never will
  if (state_.inward.idle() || stuck) {
    return false;
  }
  state_.policy_due = true;
  return true;
}

DEEPUM_SEPARATE void host_access::end(block_range range, access mode) {
  claims_.end_view(range, mode);
  for_each_block(range, [&](block_id b) { note_home_copy(b); });
  state_.policy_due = true;
}

DEEPUM_SEPARATE void host_access::note_home_copy(block_id b) {
  if (facts_.may_reclaim_home(b)) {
    memory_.mark_stale({b, 1});
  }
}

DEEPUM_SEPARATE bool host_access::give_up_home_copies() {
  sequence<block_id> found;
  state_.ledger.for_each_least_recently_migrated([&](block_id b) {
    if (facts_.may_release_home(b)) {
      found.push_back(b);
    }
    return true;
  });
  const std::size_t first =
      found.size() -
      std::min<std::size_t>(found.size(), state_.ledger.blocks_in(copies_given_up));  // they stay longest
  for (std::size_t i = first; i < found.size(); ++i) {
    state_.ledger.release(found[i], location::host());
    note_home_copy(found[i]);
  }
  return forget_dead() || !found.empty();
}

DEEPUM_SEPARATE bool host_access::forget_dead() {
  if (state_.discards.demanded.empty()) {
    for_each_block({block_id{0}, state_.ledger.size()}, [&](block_id b) {
      if (state_.ledger.life(b) != liveness::live && !state_.ledger.present(b) && !state_.ledger.nowhere(b) &&
          facts_.may_forget(b, law::because::died)) {
        state_.discards.demanded.emplace_back(transfer::discard(reason::dead, {b, 1}));
      }
    });
  }
  state_.policy_due = state_.policy_due || !state_.discards.demanded.empty();
  return !state_.discards.demanded.empty() || !state_.discards.issued.empty();
}

DEEPUM_SEPARATE void host_access::ended(bool done) {
  if (done) {
    wait_.succeeded();
    return;
  }
  wait_.failed(memory_.now(),
               state_.nothing_executes() && state_.inward.issued.empty() && state_.outward.issued.empty());
}

DEEPUM_SEPARATE bool host_access::may_use(block_id b, access mode) const {
  const block_ledger& l = state_.ledger;
  const bool current = !l.dirty(b) || l.life(b) != liveness::live;  // what is of no value may be anything
  return mode == access::read ? !(l.resident(b) && (!current || l.moving(b) == motion::leaving))
                              : !l.present(b) && !l.of(b)->forgetting;
}

DEEPUM_SEPARATE error host_access::refusal(block_range range) const {
  const bool full = memory_.host_is_full();
  const std::string why = memory_.last_failure();
  return error(full ? status::out_of_host_memory : status::device_failure,
               "the host cannot get " + std::to_string((state_.ledger.grid().block() * range.count).count) +
                   " bytes of the arena, counted in whole blocks, from the device: " +
                   (why.empty() ? std::string("the device gives no reason") : why));
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
