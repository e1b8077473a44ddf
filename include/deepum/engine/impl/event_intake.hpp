#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/event_intake.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/transfer_queue.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void event_intake::apply(const device_event& e) {
  launch_id launch = e.launch;
  device_event seen = e;
  if (const transfer* t = account_.observed() ? state_.queues.find(e.ticket) : nullptr) {
    seen.why = t->why;
    seen.did = *t;
    seen.range = e.range.empty() ? t->blocks : e.range;
  }
  switch (e.what) {
    case device_event::kind::launch_finished:
      take_finish(e, seen);
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
      account_.command_completed();
      retire(e.ticket, true);
      break;
    case device_event::kind::failed:
      retire(e.ticket, false, take_failure());
      break;
    case device_event::kind::reachable:
      for (const block_id b : e.range) {
        state_.ledger.set_reachable(b, !state_.ledger.present(b));
      }
      moved();
      return;
    case device_event::kind::unreachable:
      for (const block_id b : e.range) {
        state_.ledger.set_in_place(b, false);
        state_.ledger.set_reachable(b, false);
      }
      account_.failed("advice");
      moved();
      return;
    case device_event::kind::copied:
      break;
    case device_event::kind::launch_issued:
    case device_event::kind::launch_released:
    case device_event::kind::launch_refused:
    case device_event::kind::died:
      return;  // no memory kind reports them
  }
  account_.notify(seen, launch);
}

DEEPUM_SEPARATE void event_intake::take_finish(const device_event& e, device_event& seen) {
  const std::optional<launch_record> record = state_.launches.finish(e.launch, e.began, e.at, e.timed);
  if (!record) {
    return;
  }
  ++state_.statistics.finished;
  state_.note_live();
  state_.held.finished(*record);
  if (claims_ != nullptr) {
    claims_->unpin(*record);
  }
  state_.statistics.stalled += e.stalled;
  state_.last_finish = e.at;
  if (!memory_.sees_faults()) {
    if (std::exchange(saw_faults_, false)) {
      account_.log("the fault feed is lost; what launches do not declare is not learned any more");
    }
    take_unseen_faults(*record, e.at);
  }
  count_in_place(*record, seen);
  for (const block_access& a : record->accesses) {
    for (const block_id b : a.range) {
      state_.ledger.remove_user(b, a.mode);
      if (a.mode != access::read && state_.ledger.resident(b)) {
        contents_.written(b);
      } else if (a.mode != access::read && a.sparse && state_.ledger.in_place(b)) {
        contents_.written_in_place(b);
      }
      (void)state_.ledger.take_overwriter(b, record->id);
      if (state_.ledger.note_unused(b, 0) != 0) {
        ++state_.statistics.prefetches_used;
      }
    }
  }
  if (!record->complete) {
    ++incomplete_finished_;
    if (host_copies_stay_) {  // it may have written any of them
      state_.ledger.for_each_least_recently_migrated([&](block_id b) {
        contents_.written(b);
        return true;
      });
    }
  }
  uploads_.launch_ended(*record);
  ends_.ended(record->id, record->stream);
}

DEEPUM_SEPARATE void event_intake::count_in_place(const launch_record& record, device_event& seen) {
  for (const block_access& a : record.accesses) {
    if (!a.sparse || a.touched == 0) {
      continue;
    }
    const auto there = std::count_if(a.range.begin(), a.range.end(), [&](block_id b) {
      return state_.ledger.in_place(b) && !state_.ledger.resident(b);
    });
    // Nobody knows which blocks the rows are in: they are taken to be spread evenly.
    const auto part = static_cast<std::uint64_t>(static_cast<double>(a.touched) * static_cast<double>(there) /
                                                 static_cast<double>(a.range.count));
    seen.read_in_place += bytes{part};
    seen.written_in_place += bytes{a.mode == access::read ? 0 : part};
  }
  state_.statistics.read_in_place += seen.read_in_place.count;
  state_.statistics.written_in_place += seen.written_in_place.count;
}

DEEPUM_SEPARATE void event_intake::take_unseen_faults(const launch_record& record, nanoseconds at) {
  for (const block_access& a : record.accesses) {
    for (const block_id b : a.sparse ? block_range{} : a.range) {  // of rows nobody knows which blocks they brought
      if (!state_.ledger.present(b)) {
        apply(device_event{.what = device_event::kind::arrived, .why = reason::fault, .range = {b, 1}, .at = at});
      }
    }
  }
}

DEEPUM_SEPARATE void event_intake::take_fault(const device_event& e, launch_id launch) {
  ++state_.statistics.faults;
  const block_id b = e.range.first;
  state_.statistics.prefetches_late += state_.ledger.mark_late(b) ? 1 : 0;
  policy_.on_fault({b, e.mode, launch, e.at, e.pages}, state_.ledger);
}

DEEPUM_SEPARATE void event_intake::take_arrival(const device_event& e) {
  const transfer* const t = state_.queues.find(e.ticket);
  block_ledger& ledger = state_.ledger;
  const location at = t != nullptr ? t->to : ledger.device();
  const bool here = at == ledger.device();
  const bool from_host = t == nullptr || t->from.is_host() || t->from == at;
  const reason why = t != nullptr ? t->why : e.why;
  moved();
  host_copies_stay_ = host_copies_stay_ || e.host_copy_stays;
  for (const block_id b : e.range) {
    if (!ledger.of(b).at(at).holds()) {
      account_.count(way_of(t, location::host(), at), why, !ledger.nowhere(b));
      if (here) {
        const bool prefetched = t != nullptr && why != reason::fault && !ledger.late(b);
        (void)ledger.note_unused(b, prefetched ? incomplete_finished_ : 0);
      }
    }
    if (!ledger.keeps_home_copy() && from_host) {
      ledger.arrive(b, at, e.host_copy_stays, t != nullptr);
    } else if (ledger.nowhere(b) || (t != nullptr && !t->copies())) {
      ledger.arrive_empty(b, at);
      contents_.leave_if_hollow(b);
    } else {
      ledger.arrive_at(b, at);
    }
  }
  if (here) {
    policy_.on_migrated(e.range, at, ledger);
  }
}

DEEPUM_SEPARATE void event_intake::take_departure(const device_event& e) {
  const transfer* const t = state_.queues.find(e.ticket);
  block_ledger& ledger = state_.ledger;
  const location from = t != nullptr ? t->from : ledger.device();
  const location to = t != nullptr ? t->to : location::host();
  const bool discarded = t != nullptr && t->forgets();
  moved();
  for (const block_id b : e.range) {
    if (!ledger.of(b).at(from).holds()) {
      continue;  // it had not arrived as far as we know: the end of its command settles it
    }
    if (from == ledger.device() && ledger.note_unused(b, 0) == incomplete_finished_) {
      ++state_.statistics.prefetches_wasted;
    }
    if (discarded) {
      contents_.forgotten(b);
    } else if (!to.is_host()) {
      ledger.move_on(b, from, to);  // it was counted when it arrived
    } else {
      const bool copied = ledger.keeps_home_copy() && t != nullptr
                              ? t->copies()
                              : ledger.current(b, from) && !ledger.current(b, location::host());
      account_.count(way_of(t, from, to), t != nullptr ? t->why : e.why, copied);
      const bool by_command = t != nullptr && from != ledger.device();
      if (!copied && (by_command || ledger.of(b).current_beside(from))) {
        ledger.release(b, from);  // whoever has them, or is about to get them, the host gets nothing
      } else {
        ledger.depart(b, from);
      }
    }
  }
  if (from == ledger.device()) {
    policy_.on_migrated(e.range, to, ledger);
  }
}

DEEPUM_SEPARATE std::uint8_t event_intake::way_of(const transfer* t, location from, location to) const {
  return t != nullptr && t->copies() ? t->via : state_.queues.places().cheapest(from, to);
}

DEEPUM_SEPARATE bool event_intake::take_failure() {
  if (pager_ != nullptr && pager_->may_try_again()) {
    return true;
  }
  account_.failed("a migration");
  return false;
}

DEEPUM_SEPARATE void event_intake::retire(std::uint64_t ticket, bool done, bool again) {
  const std::optional<transfer> t = state_.queues.end(ticket);
  if (!t) {
    return;
  }
  if (pager_ != nullptr) {
    pager_->ended(*t, done, again);
  }
  for (const block_id b : t->blocks) {
    while (const std::optional<location> changed = state_.ledger.take_ticket(b, ticket)) {
      retire(b, *changed, *t, done);
    }
  }
}

DEEPUM_SEPARATE void event_intake::retire(block_id b, location changed, const transfer& t, bool done) {
  if (t.forgets() && done && state_.ledger.of(b)->forgetting) {
    contents_.forgotten(b);
  } else if (t.forgets()) {
    state_.ledger.stop_moving(b);
  } else if (t.cleans() && done && state_.ledger.of(b).read_at(t.from)) {
    account_.count_copy(t.via, t.why);
    (void)state_.ledger.clean(b);
  } else {
    state_.ledger.stop_moving(b, changed);
  }
  if (t.why == reason::keep && done && state_.ledger.resident(b)) {
    state_.ledger.touch_migrated(b);
  }
  contents_.note_home_copy(b);  // whatever became of the command
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
