#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/migration_state.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/saved_tables.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

DEEPUM_SEPARATE engine::engine(memory_space& memory, std::unique_ptr<policy> chooser, engine_options options)
    : memory_(memory),
      block_(memory.block()),
      keeps_home_copy_(memory.capabilities().keeps_home_copy),
      options_(std::move(options)),
      policy_(checked(std::move(chooser))),
      state_(static_cast<std::uint32_t>(memory.capacity() / block_), memory.place(), block_),
      host_copies_stay_(keeps_home_copy_),
      saw_faults_(memory.sees_faults()) {
  const memory_capabilities& can = memory.capabilities();
  if (!can.faults) {
    demand_.emplace(memory_, state_, *policy_);
  }
  if (options_.commands_in_flight == 0) {
    options_.commands_in_flight = can.commands_in_flight;
  }
  if (options_.bytes_in_flight.count == 0) {
    options_.bytes_in_flight = can.bytes_in_flight;
  }
  state_.map.set_backed(keeps_home_copy_);
  holds_launches_ = demand_.has_value() || policy_->holds_launches();
  refresh_budget();
}

DEEPUM_SEPARATE stream_id engine::open_stream(std::optional<std::uint32_t> lookahead) {
  message m{message::kind::open_stream};
  m.lookahead = lookahead;
  std::optional<stream_id> number = take_stream_number(closed_streams_until_asked);
  if (!number) {
    catch_up();
    number = take_stream_number(most_streams);
  }
  if (!number) {
    throw error(
        status::unsupported,
        "65536 streams of this arena are open, or closed with launches that have not finished; it numbers no more: "
        "close streams, or share them");
  }
  m.record.stream = *number;
  push(std::move(m));
  return *number;
}

DEEPUM_SEPARATE void engine::close_stream(stream_id s) {
  message m{message::kind::close_stream};
  m.record.stream = s;
  push(std::move(m));
}

DEEPUM_SEPARATE void engine::check(launch_record& record) {
  if (demand_ && !demand_->surely_fits(record)) {
    std::lock_guard lock(state_mutex_);
    absorb();
    demand_->check(record);
  }
}

DEEPUM_SEPARATE launch_id engine::report(launch_record&& record) {
  message m{message::kind::launch};
  m.record = std::move(record);
  return push(std::move(m));
}

DEEPUM_SEPARATE launch_id engine::submit(launch_record&& record) {
  check(record);
  return report(std::move(record));
}

DEEPUM_SEPARATE void engine::abandon(launch_id id, stream_id stream) {
  if (keeps_home_copy_) {
    message m{message::kind::abandon};
    m.last = id;
    m.record.stream = stream;
    push(std::move(m));
  }
}

DEEPUM_SEPARATE bool engine::tell_live(block_range range) {
  const bool at_once = push_live(range);
  if (at_once) {
    memory_.renew(range);
  }
  return at_once;
}

DEEPUM_SEPARATE void engine::catch_up() {
  std::lock_guard lock(state_mutex_);
  absorb();
  note_pressure();
}

DEEPUM_SEPARATE bool engine::settled(block_range range) {
  std::lock_guard lock(state_mutex_);
  absorb();
  return renewed(range);
}

DEEPUM_SEPARATE void engine::dead(block_range range, liveness how, launch_id last) {
  expects(how != liveness::live, "a dead block is not live");
  message m{message::kind::dead};
  m.range = range;
  m.life = how;
  m.last = last;
  push(std::move(m));
}

DEEPUM_SEPARATE void engine::host_access(block_range range, access mode) {
  message m{message::kind::host_access};
  m.range = range;
  m.mode = mode;
  push(std::move(m));
}

DEEPUM_SEPARATE void engine::begin_host_access(block_range range, access mode) {
  std::lock_guard lock(state_mutex_);
  absorb();
  demand_->begin_host_access(range, mode);
  note_pressure();
}

DEEPUM_SEPARATE bool engine::host_may_use(block_range range, access mode) {
  {
    std::lock_guard lock(state_mutex_);
    absorb();
    if (demand_->host_may_use(range, mode)) {
      return true;
    }
  }
  memory_.notify();
  return false;
}

DEEPUM_SEPARATE bool engine::relieve_host() {
  {
    std::lock_guard lock(state_mutex_);
    absorb();
    if (!demand_->relieve_host()) {
      return false;
    }
  }
  memory_.notify();
  return true;
}

DEEPUM_SEPARATE void engine::end_host_access(block_range range, access mode) {
  {
    std::lock_guard lock(state_mutex_);
    demand_->end_host_access(range, mode);
  }
  memory_.notify();
}

DEEPUM_SEPARATE void engine::prefetch(block_range range, location to) {
  message m{message::kind::request};
  m.request = {
      .what = to.is_host() ? action::evict : action::prefetch, .why = reason::requested, .to = to, .range = range};
  push(std::move(m));
}

DEEPUM_SEPARATE void engine::advise(block_range range, advice hint, location where) {
  message m{message::kind::request};
  m.request = {.what = action::advise, .why = reason::requested, .hint = hint, .to = where, .range = range};
  push(std::move(m));
}

DEEPUM_SEPARATE void engine::discard(block_range range) {
  message m{message::kind::request};
  m.request = {.what = action::discard, .why = reason::requested, .range = range};
  push(std::move(m));
}

DEEPUM_SEPARATE void engine::set_budget(bytes budget) {
  {
    std::lock_guard lock(state_mutex_);
    options_.budget = budget;
    refresh_budget();
    state_.stirred = true;
  }
  memory_.notify();
}

DEEPUM_SEPARATE bytes engine::budget() const {
  std::lock_guard lock(state_mutex_);
  return block_ * state_.map.budget();
}

DEEPUM_SEPARATE statistics engine::snapshot() {
  std::lock_guard lock(state_mutex_);
  absorb();
  statistics s = state_.statistics;
  s.policy = policy_->statistics();
  s.lost_faults = memory_.lost_faults();
  s.fault_feed = demand_ ? "engine" : memory_.fault_feed();
  return s;
}

DEEPUM_SEPARATE std::vector<std::byte> engine::save_tables() {
  std::lock_guard lock(state_mutex_);
  absorb();
  return deepum::save_tables(*policy_, block_);
}

DEEPUM_SEPARATE void engine::load_tables(std::span<const std::byte> archive) {
  std::lock_guard lock(state_mutex_);
  deepum::load_tables(*policy_, archive, state_.map.size(), block_);
}

DEEPUM_SEPARATE void engine::pump() {
  std::lock_guard lock(state_mutex_);
  absorb();
  {
    std::lock_guard inbox(inbox_mutex_);
    reported_ = 0;
    crowded_.store(false, std::memory_order_relaxed);
  }
  if (options_.budget.count == 0 && ++pumps_ % pumps_per_refresh == 0) {
    refresh_budget();
  }
  if (std::exchange(state_.stirred, false)) {
    if (demand_) {
      demand_->serve();
    }
    plan_and_issue();
  }
  if (demand_) {
    demand_->settle();
  } else {
    admit_if_stuck();
  }
  note_pressure();
}

DEEPUM_SEPARATE std::unique_ptr<policy> engine::checked(std::unique_ptr<policy> chooser) {
  expects(chooser != nullptr, "an engine has a policy");
  return chooser;
}

DEEPUM_SEPARATE void engine::plan_and_issue() {
  for (unsigned round = 0; round < rounds_per_pump; ++round) {
    plan_.clear();
    policy_->plan_next(state_.map, plan_);
    const bool nothing = plan_.commands.empty() && !plan_.supersedes;
    enqueue();
    issue();
    if (nothing || !state_.inward.planned.empty() || !state_.outward.planned.empty()) {
      return;  // what waits is enough until something happens
    }
  }
  state_.stirred = true;  // a policy with this much to say goes on at the next pump
}

DEEPUM_SEPARATE bool engine::discarding(block_range range) const {
  return std::any_of(state_.discards.issued.begin(), state_.discards.issued.end(),
                     [range](const detail::outstanding& o) { return o.what.range.overlaps(range); }) ||
         std::any_of(state_.discards.requested.begin(), state_.discards.requested.end(),
                     [range](const command& c) { return c.range.overlaps(range); });
}

DEEPUM_SEPARATE bool engine::renewed(block_range range) {
  if (discarding(range)) {
    return false;
  }
  memory_.renew(range);
  return true;
}

DEEPUM_SEPARATE void engine::refresh_budget() {
  std::uint64_t most = options_.budget / block_;
  if (options_.budget.count == 0) {
    // What is on its way holds room in the map, but may not hold memory yet: it counts as not there.
    const bytes available = memory_.free_memory() + block_ * (state_.map.occupied() - state_.map.arriving());
    most = available > options_.headroom ? (available - options_.headroom) / block_ : 0;
  }
  state_.map.set_budget(static_cast<std::uint32_t>(std::min<std::uint64_t>(most, state_.map.size())));
  // Of what others leave, changes of a tenth are worth a line.
  if (options_.budget.count == 0 && state_.map.budget() < budget_said_ - budget_said_ / 10) {
    say("the budget is " + std::to_string((block_ * state_.map.budget()).count) +
        " bytes now: others hold more of the device");
  }
  if (options_.budget.count != 0 || state_.map.budget() < budget_said_ - budget_said_ / 10 ||
      state_.map.budget() > budget_said_ + budget_said_ / 10) {
    budget_said_ = state_.map.budget();
  }
  if (demand_) {
    demand_->budget_changed();
  }
  note_pressure();
  note_spare();
}

DEEPUM_SEPARATE void engine::log_once(bool& logged, const std::string& line) {
  if (!std::exchange(logged, true)) {
    say(line);
  }
}

DEEPUM_SEPARATE void engine::say(const std::string& line) const {
  if (options_.log) {
    options_.log(line);
  }
}

}  // namespace v0
}  // namespace deepum
