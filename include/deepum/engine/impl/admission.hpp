#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/admission.hpp>
#include <deepum/engine/declared_blocks.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/held_launches.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE bool admission::try_begin(launch_id id, stream_id stream, std::size_t outer) {
  const launch_record* record = state_.launches.find(id, stream);
  expects(record != nullptr, "a launch asks to begin that was not submitted");
  const auto it = state_.held.find(id);
  const bool held = it != state_.held.end();
  if (held && it->unsatisfiable) {
    const launch_record taken_back = take_back(id, stream);
    throw pager_->refusal(taken_back);
  }
  if (!uploads_.none()) {
    try {
      uploads_.refuse_failed(*record);
    } catch (...) {
      if (!held) {
        hold_back(*record, outer);
      }
      (void)take_back(id, stream);
      throw;
    }
  }
  if (may_begin(*record, held ? &*it : nullptr)) {
    uploads_.launch_submitted(*record);  // what has failed meanwhile is overwritten
    if (claims_ != nullptr && held) {
      claims_->pin(*record);
    }
    if (pager_ != nullptr) {
      pager_->begin(*record);
    }
    if (held) {
      release(it);
    }
    return true;
  }
  if (!held) {
    hold_back(*record, outer);
  }
  return false;
}

DEEPUM_SEPARATE void admission::hold_back(const launch_record& record, std::size_t outer) {
  if (claims_ != nullptr) {
    claims_->unpin(record);
  }
  state_.held.hold_back(record, memory_.now(), outer);
  state_.policy_due = true;
  uploads_.launch_held();
}

DEEPUM_SEPARATE bool admission::skip_policy(launch_id id) {
  const auto it = state_.held.find(id);
  if (it == state_.held.end()) {
    return true;
  }
  const bool skipped = std::exchange(it->forced, true);
  if (!may_begin(*state_.launches.find(id, it->stream), &*it) || pager_ != nullptr) {
    state_.policy_due = true;
    return false;
  }
  state_.statistics.unprepared_launches += skipped ? 0 : 1;
  release(it);
  return true;
}

DEEPUM_SEPARATE bool admission::let_pass(launch_id id) {
  const auto it = state_.held.find(id);
  const bool waits = it != state_.held.end() && uploads_.hold_back(*state_.launches.find(id, it->stream));
  if (it != state_.held.end() && !waits) {
    release(it);
  }
  return !waits;
}

DEEPUM_SEPARATE bool admission::may_begin(const launch_record& record, const held_launch* held) const {
  const bool policy_skipped = held != nullptr && held->forced;
  return facts_allow(record) && memory_allows(record) && (policy_skipped || policy_allows(record));
}

DEEPUM_SEPARATE bool admission::facts_allow(const launch_record& record) const {
  bool allow = !uploads_.hold_back(record);
  if (claims_ != nullptr || state_.queues.forgotten.moving() != 0) {
    for_each_declared_block(record, [&](block_id b) {
      // A view that writes has what it asked for when the block is not there, and not before.
      const bool with_host = facts_.with_host(b) && !state_.ledger.ready(b);
      allow = allow && !state_.ledger.of(b)->forgetting && !with_host;
    });
  }
  return allow;
}

DEEPUM_SEPARATE bool admission::memory_allows(const launch_record& record) const {
  return pager_ == nullptr || pager_->all_of_it_there(record);
}

DEEPUM_SEPARATE bool admission::policy_allows(const launch_record& record) const {
  // Where memory never faults, the policy was waited for while the launch's blocks were brought.
  const bool asked = policy_.orders_launches() || (pager_ == nullptr && policy_.holds_launches() && gates_.pressed());
  return !asked || state_.paused() || policy_.ready(record.id, record.stream, state_.ledger);
}

DEEPUM_SEPARATE launch_record admission::take_back(launch_id id, stream_id stream) {
  state_.held.take_back(state_.held.find(id));
  launch_record record = *state_.launches.finish(id, {}, state_.last_finish, false);
  uploads_.launch_ended(record);
  contents_.remember(record);
  for (const block_access& a : record.accesses) {
    for (const block_id b : a.range) {
      state_.ledger.remove_user(b, a.mode);
    }
  }
  ends_.ended(id, stream);
  if (pager_ != nullptr) {
    pager_->moved();
  }
  ++state_.statistics.refused_launches;
  if (account_.observed()) {
    account_.notify({.what = device_event::kind::launch_refused, .launch = id, .at = memory_.now()}, id);
  }
  state_.policy_due = true;
  return record;
}

DEEPUM_SEPARATE bool admission::fits_beside(launch_id id, stream_id stream,
                                            std::span<const std::pair<launch_id, stream_id>> others) const {
  launch_record together;
  const auto add = [&](launch_id which, stream_id on) {
    if (const launch_record* r = state_.launches.find(which, on)) {
      together.accesses.insert(together.accesses.end(), r->accesses.begin(), r->accesses.end());
    }
  };
  add(id, stream);
  for (const auto& [which, on] : others) {
    add(which, on);
  }
  return distinct_blocks(together, state_.ledger.shortest_row().count == 0) <= state_.ledger.budget();
}

DEEPUM_SEPARATE void admission::release(held_launches::iterator it) {
  if (state_.nothing_executes()) {
    const nanoseconds now = memory_.now();
    const nanoseconds since = std::max(it->since, state_.last_finish);
    state_.statistics.stalled += std::max(now - since, nanoseconds{});
    if (account_.observed() && now > since) {
      account_.notify({.what = device_event::kind::launch_released, .at = now, .began = since}, it->id);
    }
  }
  state_.held.start(it);
}

DEEPUM_SEPARATE void admission::settle() {
  if (pager_ != nullptr) {
    pager_->settle();
    return;
  }
  if (!state_.held.empty() && !state_.policy_due && state_.nothing_executes() && state_.nothing_moves() &&
      !state_.held.front().forced &&
      !uploads_.hold_back(*state_.launches.find(state_.held.front().id, state_.held.front().stream))) {
    state_.held.front().forced = true;
    ++state_.statistics.unprepared_launches;
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
