#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/engine/migration_state.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

DEEPUM_SEPARATE bool engine::ask_to_begin(launch_id id, stream_id stream, std::size_t outer) {
  {
    std::lock_guard lock(state_mutex_);
    absorb();
    if (may_begin(id, stream, outer)) {
      return true;
    }
  }
  memory_.hurry();
  return false;
}

DEEPUM_SEPARATE bool engine::admit(launch_id id) {
  std::lock_guard lock(state_mutex_);
  const auto it = state_.find_held(id);
  if (it == state_.held.end()) {
    return true;
  }
  if (demand_) {
    it->let_go = true;  // the policy is not waited for any more
    state_.stirred = true;
    return false;
  }
  state_.statistics.unprepared_launches += it->let_go ? 0 : 1;
  release(it);
  return true;
}

DEEPUM_SEPARATE bool engine::fits_beside(launch_id id, stream_id stream,
                                         std::span<const std::pair<launch_id, stream_id>> others) {
  if (others.empty()) {
    return true;
  }
  std::lock_guard lock(state_mutex_);
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
  return detail::distinct_blocks(together) <= state_.map.budget();
}

DEEPUM_SEPARATE void engine::withdraw(launch_id id, stream_id stream) {
  std::lock_guard lock(state_mutex_);
  absorb();
  if (state_.find_held(id) != state_.held.end()) {
    (void)take_back(id, stream);
  }
}

DEEPUM_SEPARATE bool engine::may_begin(launch_id id, stream_id stream, std::size_t outer) {
  if (demand_) {
    if (demand_->hopeless(id)) {
      const launch_record record = take_back(id, stream);
      throw demand_->refusal(record);
    }
    return demand_->may_begin(id, stream, outer, [this](auto it) { release(it); });
  }
  const auto it = state_.find_held(id);
  const bool held = it != state_.held.end();
  if ((held && it->let_go) || !pressed() || state_.paused() || policy_->ready(id, stream, state_.map)) {
    if (held) {
      release(it);
    }
    return true;
  }
  if (!held) {
    state_.hold_back(*state_.launches.find(id, stream), memory_.now(), outer);
  }
  return false;
}

DEEPUM_SEPARATE launch_record engine::take_back(launch_id id, stream_id stream) {
  state_.take_back(state_.find_held(id));
  launch_record record = *state_.launches.finish(id, {}, last_finish_, false);
  remember_contents(record);
  for (const block_access& a : record.accesses) {
    for_each_block(a.range, [&](block_id b) { state_.map.remove_user(b, a.mode); });
  }
  policy_->on_finish(id, stream, state_.map);
  give_back_if_over(stream);
  if (demand_) {
    demand_->moved();
  }
  ++state_.statistics.refused_launches;
  if (options_.observer) {
    options_.observer({.what = device_event::kind::launch_refused, .launch = id, .at = memory_.now()}, id);
  }
  state_.stirred = true;
  note_pressure();
  return record;
}

DEEPUM_SEPARATE bool engine::pressed() const {
  if (demand_) {
    return !demand_->all_there();
  }
  return keeps_home_copy_ || state_.oversubscribed() || !state_.inward.idle();
}

DEEPUM_SEPARATE void engine::note_pressure() {
  const bool ask = pressed() || !state_.held.empty();
  unread_ = unread_ || (ask && !have_to_ask_.load(std::memory_order_relaxed));
  have_to_ask_.store(ask, std::memory_order_relaxed);
}

DEEPUM_SEPARATE void engine::release(std::vector<detail::held_launch>::iterator it) {
  if (state_.nothing_executes()) {
    const nanoseconds now = memory_.now();
    const nanoseconds since = std::max(it->since, last_finish_);
    state_.statistics.stalled += std::max(now - since, nanoseconds{});
    if (options_.observer && now > since) {
      options_.observer({.what = device_event::kind::launch_released, .at = now, .began = since}, it->id);
    }
  }
  state_.let_go(it);
  note_pressure();
}

DEEPUM_SEPARATE void engine::admit_if_stuck() {
  if (!state_.held.empty() && !state_.stirred && state_.nothing_executes() && state_.nothing_moves() &&
      !state_.held.front().let_go) {
    state_.held.front().let_go = true;
    ++state_.statistics.unprepared_launches;
  }
}

}  // namespace v0
}  // namespace deepum
