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
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace deepum {
inline namespace v0 {

DEEPUM_SEPARATE void engine::take(const device_event& e) {
  launch_id launch = e.launch;
  device_event seen = e;
  if (const detail::outstanding* o = options_.observer ? find(e.ticket) : nullptr) {
    seen.why = o->what.why;
    seen.did = o->what.what;
    seen.range = e.range.empty() ? o->what.range : e.range;
  }
  switch (e.what) {
    case device_event::kind::launch_finished:
      take_finish(e);
      break;
    case device_event::kind::fault:
      launch = e.timed ? state_.launches.executing_at(e.at) : launch_id{};
      take_fault(e, launch);
      break;
    case device_event::kind::arrived:
      take_arrival(e);
      break;
    case device_event::kind::departed:
      take_departure(e);
      break;
    case device_event::kind::completed:
      failures_in_a_row_ = 0;
      retire(e.ticket, true);
      break;
    case device_event::kind::failed:
      retire(e.ticket, false, take_failure());
      break;
    case device_event::kind::copied:
      break;
    case device_event::kind::launch_issued:
    case device_event::kind::launch_released:
    case device_event::kind::launch_refused:
    case device_event::kind::died:
      return;  // no memory kind reports them
  }
  if (options_.observer) {
    options_.observer(seen, launch);
  }
}

DEEPUM_SEPARATE void engine::take_finish(const device_event& e) {
  const std::optional<launch_record> record = state_.launches.finish(e.launch, e.began, e.at, e.timed);
  if (!record) {
    return;
  }
  ++state_.statistics.finished;
  state_.note_live();
  state_.holds -= record->hold ? 1 : 0;
  if (demand_) {
    demand_->unpin(*record);
  }
  state_.statistics.stalled += e.stalled;
  last_finish_ = e.at;
  if (!memory_.sees_faults()) {
    if (std::exchange(saw_faults_, false)) {
      say("the fault feed is lost; what launches do not declare is not learned any more");
    }
    take_unseen_faults(*record, e.at);
  }
  for (const block_access& a : record->accesses) {
    for_each_block(a.range, [&](block_id b) {
      state_.map.remove_user(b, a.mode);
      if (a.mode != access::read && state_.map.resident(b)) {
        written(b);
      }
      if (state_.notes[b.value].forgotten_by == record->id.value) {
        state_.notes[b.value].forgotten_by = 0;
      }
      if (std::exchange(state_.notes[b.value].prefetched_at, 0) != 0) {
        ++state_.statistics.prefetches_used;
      }
    });
  }
  if (!record->complete) {
    incomplete_finished_at_ = ++clock_;
    if (host_copies_stay_) {  // it may have written any of them
      state_.map.for_each_least_recently_migrated([&](block_id b) {
        written(b);
        return true;
      });
    }
  }
  policy_->on_finish(record->id, record->stream, state_.map);
  give_back_if_over(record->stream);
}

DEEPUM_SEPARATE void engine::written(block_id b) {
  if (state_.map.hollow(b)) {
    return;
  }
  const bool newly = !state_.map[b].dirty;
  state_.map.write(b);
  if (newly) {
    note_host_copy(b);
  }
}

DEEPUM_SEPARATE void engine::note_host_copy(block_id b) {
  if (demand_) {
    demand_->note_host_copy(b);
  }
}

DEEPUM_SEPARATE void engine::take_unseen_faults(const launch_record& record, nanoseconds at) {
  for (const block_access& a : record.accesses) {
    for_each_block(a.range, [&](block_id b) {
      if (!state_.map.present(b)) {
        take(device_event{.what = device_event::kind::arrived, .why = reason::fault, .range = {b, 1}, .at = at});
      }
    });
  }
}

DEEPUM_SEPARATE void engine::take_fault(const device_event& e, launch_id launch) {
  ++state_.statistics.faults;
  const block_id b = e.range.first;
  detail::block_note& n = state_.notes[b.value];
  if (state_.map[b].moving == motion::arriving && !n.late) {
    n.late = true;
    ++state_.statistics.prefetches_late;
  }
  policy_->on_fault({b, e.mode, launch, e.at}, state_.map);
}

DEEPUM_SEPARATE void engine::take_arrival(const device_event& e) {
  const detail::outstanding* o = find(e.ticket);
  const reason why = o != nullptr ? o->what.why : e.why;
  if (demand_) {
    demand_->moved();
  }
  host_copies_stay_ = host_copies_stay_ || e.host_copy_stays;
  for_each_block(e.range, [&](block_id b) {
    detail::block_note& n = state_.notes[b.value];
    if (!state_.map.resident(b)) {
      count(state_.statistics.in, why, !state_.map[b].copies.empty());
      n.prefetched_at = o != nullptr && why != reason::fault && !n.late ? ++clock_ : 0;
    }
    if (!keeps_home_copy_) {
      state_.map.arrive(b, e.host_copy_stays, o != nullptr);
    } else if (state_.map[b].copies.empty() || (o != nullptr && n.room_only)) {
      state_.map.arrive_empty(b);
      leave_if_hollow(b);
    } else {
      state_.map.arrive(b, !state_.map[b].dirty);  // what is dirty was there, and stays so
    }
  });
  policy_->on_migrated(e.range, state_.map.device(), state_.map);
}

DEEPUM_SEPARATE void engine::take_departure(const device_event& e) {
  const detail::outstanding* o = find(e.ticket);
  const bool discarded = o != nullptr && o->what.what == action::discard;
  if (demand_) {
    demand_->moved();
  }
  for_each_block(e.range, [&](block_id b) {
    if (!state_.map.resident(b)) {
      return;  // it had not arrived as far as we know: the end of its command settles it
    }
    detail::block_note& n = state_.notes[b.value];
    if (n.prefetched_at > incomplete_finished_at_) {
      ++state_.statistics.prefetches_wasted;
    }
    n.prefetched_at = 0;
    if (discarded) {
      gone(b);
    } else {
      const bool copied = keeps_home_copy_ && o != nullptr ? o->what.what == action::evict : state_.map[b].dirty;
      count(state_.statistics.out, o != nullptr ? o->what.why : e.why, copied);
      state_.map.depart(b);
    }
  });
  policy_->on_migrated(e.range, location::host(), state_.map);
}

DEEPUM_SEPARATE bool engine::take_failure() {
  if (demand_) {
    if (demand_->may_try_again()) {
      return true;
    }
  }
  failed("a migration");
  return false;
}

DEEPUM_SEPARATE void engine::retire(std::uint64_t ticket, bool done, bool again) {
  for (detail::lane* l : {&state_.inward, &state_.outward, &state_.discards}) {
    const auto it = std::find_if(l->issued.begin(), l->issued.end(),
                                 [ticket](const detail::outstanding& o) { return o.ticket == ticket; });
    if (it == l->issued.end()) {
      continue;
    }
    const command c = it->what;
    l->blocks -= c.range.count;
    l->issued.erase(it);
    if (demand_) {
      demand_->ended(c, done, again);
    }
    for_each_block(c.range, [&](block_id b) {
      if (state_.notes[b.value].ticket != ticket) {
        return;
      }
      detail::block_note& n = state_.notes[b.value];
      n.ticket = 0;
      if (std::exchange(n.discarding, false) && done) {
        gone(b);
      } else if (state_.map[b].moving == motion::arriving) {
        state_.map.cancel_arriving(b);
      } else if (state_.map[b].moving == motion::cleaning && done) {
        state_.statistics.out.bytes[static_cast<unsigned>(c.why)] += block_.count;
        if (n.spoiled) {
          state_.map.stop_moving(b);
        } else {
          state_.map.clean(b);
        }
      } else {
        state_.map.stop_moving(b);
      }
      if (c.why == reason::keep && done && state_.map.resident(b)) {
        state_.map.touch_migrated(b);
      }
      note_host_copy(b);  // whatever became of the command
    });
    return;
  }
}

DEEPUM_SEPARATE void engine::gone(block_id b) {
  state_.map.discard(b);
  state_.notes[b.value].prefetched_at = 0;
  state_.notes[b.value].discarding = false;
  note_host_copy(b);
  ++state_.statistics.discarded;
}

DEEPUM_SEPARATE const detail::outstanding* engine::find(std::uint64_t ticket) const {
  if (ticket != 0) {
    for (const detail::lane* l : {&state_.inward, &state_.outward, &state_.discards}) {
      for (const detail::outstanding& o : l->issued) {
        if (o.ticket == ticket) {
          return &o;
        }
      }
    }
  }
  return nullptr;
}

DEEPUM_SEPARATE void engine::count(traffic& t, reason why, bool copied) const {
  ++t.blocks[static_cast<unsigned>(why)];
  t.bytes[static_cast<unsigned>(why)] += copied ? block_.count : 0;
}

}  // namespace v0
}  // namespace deepum
