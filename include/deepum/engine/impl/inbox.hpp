#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/engine/migration_state.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {

DEEPUM_SEPARATE launch_id engine::push(message&& m) {
  launch_id id{};
  push(std::move(m), [&](message& put) {
    if (put.what == message::kind::launch) {
      id = launch_id{last_launch_.load(std::memory_order_relaxed) + 1};
      put.record.id = id;
      last_launch_.store(id.value, std::memory_order_release);
    }
    discards_ = discards_ || asks_for_discard(put);
    streams_closing_ += put.what == message::kind::close_stream ? 1 : 0;
  });
  return id;
}

DEEPUM_SEPARATE std::optional<stream_id> engine::take_stream_number(std::uint32_t closing) {
  std::lock_guard lock(inbox_mutex_);
  if (!free_streams_.empty()) {
    const stream_id number = free_streams_.back();
    free_streams_.pop_back();
    return number;
  }
  if (next_stream_ == most_streams || streams_closing_ >= closing) {
    return std::nullopt;
  }
  return stream_id{static_cast<std::uint16_t>(next_stream_++)};
}

DEEPUM_SEPARATE void engine::give_back_if_over(stream_id s) {
  if (state_.launches.over(s)) {
    policy_->on_stream_closed(s);
    std::lock_guard lock(inbox_mutex_);
    free_streams_.push_back(s);
    --streams_closing_;
  }
}

DEEPUM_SEPARATE bool engine::push_live(block_range range) {
  message m{message::kind::live};
  m.range = range;
  bool at_once = false;
  push(std::move(m), [&](const message& put) {
    at_once = !demand_ && !discards_ && put.range.count <= spare_;
    spare_ -= at_once ? put.range.count : 0;
  });
  return at_once;
}

DEEPUM_SEPARATE bool engine::asks_for_discard(const message& m) {
  return m.what == message::kind::request && m.request.what == action::discard;
}

DEEPUM_SEPARATE void engine::absorb() {
  events_.clear();
  memory_.poll(events_);
  take_inbox();
  state_.stirred = state_.stirred || !events_.empty();
  for (const device_event& e : events_) {
    take(e);
  }
  finished_up_to_.store(state_.launches.finished_up_to().value, std::memory_order_release);
}

DEEPUM_SEPARATE void engine::take_inbox() {
  unread_ = false;
  {
    std::lock_guard lock(inbox_mutex_);
    discards_ = discards_ && !(state_.discards.idle() && std::none_of(inbox_.begin(), inbox_.end(), asks_for_discard));
    std::swap(inbox_, taken_);
  }
  for (message& m : taken_) {
    take(m);
  }
  if (!taken_.empty()) {
    state_.stirred = true;
    taken_.clear();
    note_spare();
  }
}

DEEPUM_SEPARATE void engine::note_spare() {
  if (!demand_) {
    std::uint64_t live = state_.live;
    std::lock_guard lock(inbox_mutex_);
    for (const message& m : inbox_) {
      live += m.what == message::kind::live ? m.range.count : 0;
    }
    spare_ = state_.map.budget() - std::min<std::uint64_t>(live, state_.map.budget());
  }
}

DEEPUM_SEPARATE void engine::take(message& m) {
  switch (m.what) {
    case message::kind::open_stream:
      state_.launches.open(m.record.stream);
      policy_->on_stream(m.record.stream, m.lookahead);
      break;
    case message::kind::close_stream:
      state_.launches.close(m.record.stream);
      give_back_if_over(m.record.stream);
      break;
    case message::kind::launch:
      take_launch(std::move(m.record));
      break;
    case message::kind::abandon:
      if (const launch_record* record = state_.launches.find(m.last, m.record.stream)) {
        remember_contents(*record);
      }
      break;
    case message::kind::dead:
      take_death(m);
      break;
    case message::kind::live:
      revive(m.range);
      break;
    case message::kind::host_access:
      if (m.mode != access::read) {
        for_each_block(m.range, [&](block_id b) {
          // Contents on the device are on their way to the host then, and the device will report that.
          if (!state_.map[b].copies.at(state_.map.device())) {
            state_.map.write_on_host(b);
          }
        });
      }
      policy_->on_host_access(m.range, m.mode, state_.map);
      break;
    case message::kind::request:
      take_request(m.request);
      break;
  }
}

DEEPUM_SEPARATE void engine::take_request(const command& c) {
  std::deque<command>& requested = lane_of(c.what).requested;
  if (c.what != action::discard && requested.size() >= most_requests) {
    state_.statistics.dropped += c.range.count;
    return;
  }
  requested.push_back(c);
}

DEEPUM_SEPARATE void engine::take_launch(launch_record&& r) {
  const launch_record& record = state_.launches.issue(std::move(r));
  ++state_.statistics.launches;
  if (options_.observer) {
    options_.observer({.what = device_event::kind::launch_issued,
                       .at = memory_.now(),
                       .record = &record,
                       .period = policy_->period()},
                      record.id);
  }
  std::uint64_t declared = 0;
  for (const block_access& a : record.accesses) {
    for_each_block(a.range, [&](block_id b) { state_.map.add_user(b, a.mode); });
    declared += a.range.count;
  }
  state_.holds += record.hold ? 1 : 0;
  if (demand_) {
    demand_->pin(record);  // until it is known to be held back
  }
  if (keeps_home_copy_) {
    take_writes(record);
  }
  end_read_mostly(record);
  if (declared > state_.map.budget() && detail::distinct_blocks(record) > state_.map.budget()) {
    ++state_.statistics.oversized_launches;
    log_once(logged_oversized_, "launch '" + record.name + "' touches more than the budget of " +
                                    std::to_string(state_.map.budget()) +
                                    " blocks; what fits is prefetched and the rest faults (logged once)");
  }
  policy_->on_launch(record, state_.map);
}

DEEPUM_SEPARATE void engine::take_writes(const launch_record& record) {
  if (!record.complete) {
    for (const detail::outstanding& o : state_.outward.issued) {
      if (o.what.what == action::clean) {
        for_each_block(o.what.range, [&](block_id b) { state_.notes[b.value].spoiled = true; });
      }
    }
  }
  for (const block_access& a : record.accesses) {
    if (a.mode == access::read) {
      continue;
    }
    for_each_block(a.range, [&](block_id b) {
      detail::block_note& n = state_.notes[b.value];
      n.spoiled = true;
      n.forgotten_by = 0;  // what the host has may be older than what an earlier launch writes
      if (a.mode == access::overwrite && state_.map[b].users == 1 && !incomplete_in_flight() &&
          !state_.map.present(b) && state_.still(b)) {
        n.forgotten_by = state_.map[b].copies.at(location::host()) ? record.id.value : 0;
        state_.map.forget(b);
      }
    });
  }
}

DEEPUM_SEPARATE void engine::remember_contents(const launch_record& record) {
  for (const block_access& a : record.accesses) {
    for_each_block(a.range, [&](block_id b) {
      if (state_.notes[b.value].forgotten_by == record.id.value) {
        state_.notes[b.value].forgotten_by = 0;
        state_.map.remember(b);
        leave_if_hollow(b);
      }
    });
  }
}

DEEPUM_SEPARATE void engine::leave_if_hollow(block_id b) {
  if (keeps_home_copy_ && state_.map.hollow(b) && state_.still(b)) {
    state_.outward.requested.push_back(
        {.what = action::drop, .why = reason::requested, .to = location::host(), .range = {b, 1}});
    state_.stirred = true;
  }
}

DEEPUM_SEPARATE void engine::end_read_mostly(const launch_record& record) {
  for (const block_access& a : record.accesses) {
    if (a.mode == access::read) {
      continue;
    }
    for_each_run(
        a.range, [&](block_id b) { return state_.notes[b.value].read_mostly; },
        [&](block_range run) {
          advise({.what = action::advise, .hint = advice::unset_read_mostly, .to = state_.map.device(), .range = run});
        });
  }
}

DEEPUM_SEPARATE void engine::revive(block_range range) {
  for_each_block(range, [&](block_id b) { set_liveness(b, liveness::live); });
  policy_->on_live(range, state_.map);
}

DEEPUM_SEPARATE void engine::take_death(const message& m) {
  const auto was_alive = [&](block_id b) { return state_.map[b].life == liveness::live; };
  block_range rest = m.range;
  while (!rest.empty()) {
    const bool died = was_alive(rest.first);
    const std::uint32_t run = count_prefix(rest, [&](block_id b) { return was_alive(b) == died; });
    const block_range part{rest.first, run};
    for_each_block(part, [&](block_id b) {
      set_liveness(b, m.life);
      state_.notes[b.value].dead_after = m.last.value;
    });
    if (died) {
      policy_->on_dead(part, m.last, state_.map);
      if (options_.observer) {
        options_.observer({.what = device_event::kind::died, .launch = m.last, .range = part, .at = memory_.now()},
                          m.last);
      }
    }
    advance(rest, run);
  }
}

DEEPUM_SEPARATE void engine::set_liveness(block_id b, liveness life) {
  state_.live += life == liveness::live ? 1 : 0;
  state_.live -= state_.map[b].life == liveness::live ? 1 : 0;
  state_.note_live();
  state_.map.set_liveness(b, life);
  if (demand_) {
    if (life == liveness::live) {
      demand_->became_alive(b);
    }
  }
  note_pressure();
}

}  // namespace v0
}  // namespace deepum
