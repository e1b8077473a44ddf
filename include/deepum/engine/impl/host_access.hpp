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
  std::vector<transfer> wanted;
  for (const block_id b : range) {
    const bool done = may_use(b, mode);
    there = there && done;
    if (!done && state_.ledger.of(b).on_any_device() && state_.still(b) &&
        (mode == access::read || (!facts_.in_use(b) && !state_.discarding({b, 1})))) {
      wanted.emplace_back(mode == access::read ? transfer::clean(reason::host, {b, 1})
                                               : transfer::evict(location::host(), reason::host, {b, 1}));
    }
  }
  if (there) {
    if (mode != access::read) {
      for (const block_id b : range) {
        state_.ledger.write_on_host(b);
      }
    }
    return true;
  }
  if (wait_.unsatisfiable()) {
    throw refusal(range);
  }
  if (wait_.failing() && memory_.host_is_full()) {
    (void)relieve();
  }
  bool asked = false;
  state_.queues.for_each_into(location::host(), [&](const transfer_queue& q) {
    asked = asked || (!q.requested.empty() && std::get<transfer>(q.requested.front()).why == reason::host);
  });
  for (std::size_t i = wanted.size(); i != 0 && !asked; --i) {
    state_.queue_of(wanted[i - 1]).requested.emplace_front(wanted[i - 1]);
  }
  state_.policy_due = true;
  return false;
}

DEEPUM_SEPARATE bool host_access::relieve() {
  if (give_up_home_copies()) {
    return true;
  }
  const location here = state_.ledger.device();
  if (state_.queues.idle_into(here)) {
    std::uint32_t left = state_.room();
    for (const block_id b : block_range{block_id{0}, state_.ledger.size()}) {
      if (left != 0 && state_.ledger.life(b) == liveness::live && !state_.ledger.present(b) && state_.still(b) &&
          state_.ledger.current(b, location::host()) && state_.ledger.of(b)->host_views == 0) {
        const transfer t = transfer::prefetch(here, reason::requested, {b, 1});
        state_.queue_of(t).requested.emplace_back(t);
        --left;
      }
    }
  }
  const bool stuck = state_.room() == 0 && state_.nothing_executes() && state_.queues.idle_from(here) &&
                     state_.queues.all_into(here, [](const transfer_queue& q) { return q.moving() == 0; }) &&
                     state_.queues.forgotten.idle();  // what is to come never will
  if (state_.queues.idle_into(here) || stuck) {
    return false;
  }
  state_.policy_due = true;
  return true;
}

DEEPUM_SEPARATE void host_access::end(block_range range, access mode) {
  claims_.end_view(range, mode);
  for (const block_id b : range) {
    note_home_copy(b);
  }
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
  if (state_.queues.forgotten.demanded.empty()) {
    for (const block_id b : block_range{block_id{0}, state_.ledger.size()}) {
      if (state_.ledger.life(b) != liveness::live && !state_.ledger.present(b) && !state_.ledger.nowhere(b) &&
          facts_.may_forget(b, law::because::died)) {
        state_.queues.forgotten.demanded.emplace_back(transfer::discard(reason::dead, {b, 1}));
      }
    }
  }
  state_.policy_due = state_.policy_due || !state_.queues.forgotten.demanded.empty();
  return !state_.queues.forgotten.demanded.empty() || !state_.queues.forgotten.issued.empty();
}

DEEPUM_SEPARATE void host_access::ended(bool done) {
  if (done) {
    wait_.succeeded();
    return;
  }
  wait_.failed(memory_.now(), state_.nothing_executes() && state_.queues.links_free());
}

DEEPUM_SEPARATE bool host_access::may_use(block_id b, access mode) const {
  const block_ledger& l = state_.ledger;
  const block_view block = l.of(b);
  if (facts_.used_in_place(b) && (mode != access::read || block->writers != 0)) {
    return false;  // until the launches have ended
  }
  if (mode != access::read) {
    return !block.on_any_device() && !block->forgetting;
  }
  const bool current = l.current(b, location::host()) || l.nowhere(b);
  return (current || l.life(b) != liveness::live) &&  // what is of no value may be anything
         l.moving(b) != motion::leaving;
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
