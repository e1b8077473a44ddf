#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/declared_blocks.hpp>
#include <deepum/engine/demand_pager.hpp>
#include <deepum/engine/held_launches.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE bool demand_pager::surely_fits(const launch_record& record) const {
  std::uint64_t declared = 0;
  for (const block_access& a : record.accesses) {
    declared += a.range.count;
  }
  return record.complete && declared <= budget_now_.load(std::memory_order_relaxed) && claims_.host_writes() == 0;
}

DEEPUM_SEPARATE void demand_pager::check(launch_record& record) {
  const bool complete = std::exchange(record.complete, true);
  if (!complete) {
    for_each_run(
        {block_id{0}, state_.ledger.size()}, [&](block_id b) { return state_.ledger.life(b) == liveness::live; },
        [&](block_range run) {
          record.accesses.push_back({run, access::update});
        });
  }
  if (const std::uint64_t needed = needed_blocks(record); needed > state_.ledger.budget()) {
    throw error(status::out_of_device_memory,
                complete
                    ? too_large(record.name, needed)
                    : "launch '" + record.name + "' may touch more than it declares, and all that is allocated, " +
                          in_bytes(needed) + " bytes, does not fit the budget of " + in_bytes(state_.ledger.budget()) +
                          "; declare its operands: reads(p, n), updates(p, n), overwrites(p, n)");
  }
  for (const block_access& a : record.accesses) {
    for (const block_id b : a.range) {
      if (facts_.with_host(b)) {
        throw error(status::invalid_argument,
                    "launch '" + record.name +
                        "' touches memory that a host view is writing, or that lies in one block of " + in_bytes(1) +
                        " bytes with it; end the view first, or write by stream::memcpy");
      }
    }
  }
}

DEEPUM_SEPARATE bool demand_pager::all_of_it_there(const launch_record& record) const {
  // Who came later does not take the room that the one which is served is waiting for.
  return (!starving_ || claims_.served() >= record.id) && complete(record);
}

DEEPUM_SEPARATE void demand_pager::begin(const launch_record& record) {
  for (const block_access& a : record.accesses) {
    for (const block_id b : a.range) {
      if (a.mode != access::read) {
        state_.ledger.may_be_written(b);
      }
      if (state_.ledger.resident(b)) {
        state_.ledger.touch_migrated(b);
      }
    }
  }
}

DEEPUM_SEPARATE error demand_pager::refusal(const launch_record& record) const {
  const std::uint64_t needed = needed_blocks(record);
  if (needed > state_.ledger.budget()) {
    return error(status::out_of_device_memory, too_large(record.name, needed));
  }
  const std::string why = memory_.last_failure();
  if (why.empty() && policy_.orders_launches()) {
    std::uint64_t missing = 0;
    for_each_distinct_run(record, [&](block_range run) {
      missing += static_cast<std::uint64_t>(
          std::count_if(run.begin(), run.end(), [&](block_id b) { return !state_.ledger.present(b); }));
    });
    return error(status::out_of_device_memory,
                 "launch '" + record.name + "' lacks " +
                     in_bytes(missing - std::min<std::uint64_t>(missing, state_.ledger.room())) +
                     " bytes of the budget of " + in_bytes(state_.ledger.budget()) + ", and the policy '" +
                     std::string(policy_.name()) +
                     "' takes room from inputs of layers alone: raise the budget, have the inputs of more layers "
                     "offloaded, or choose another policy");
  }
  return error(memory_.host_is_full() ? status::out_of_host_memory : status::out_of_device_memory,
               "launch '" + record.name + "' cannot get its memory onto the device: " +
                   (why.empty() ? std::string("nothing that is there may leave") : why));
}

DEEPUM_SEPARATE void demand_pager::serve() {
  for (const std::uint8_t l : state_.queues.in_order()) {
    state_.queues.link(l).demanded.clear();
  }
  starving_ = false;
  std::uint64_t missing = 0;
  bool awaits_policy = false;
  held_launch* const next = next_served();
  const launch_id before = claims_.served();
  if (next == nullptr) {
    claims_.serve_none();
  } else {
    const launch_record& record = *state_.launches.find(next->id, next->stream);
    claims_.serve(record);
    awaits_policy = !next->forced && (policy_.holds_launches() || policy_.orders_launches()) && !state_.paused() &&
                    !policy_.ready(next->id, next->stream, state_.ledger);
    if (!awaits_policy) {
      missing = demand(record, std::exchange(next->faulted, true));
    }
  }
  if (before != claims_.served()) {
    wait_.succeeded();  // the failures were of another one
  }
  if (missing == 0 && !awaits_policy && !policy_.orders_launches() && !state_.oversubscribed() &&
      state_.queues.all_into(state_.ledger.device(),
                             [](const transfer_queue& q) { return q.requested.empty() && q.planned.empty(); })) {
    bring_all();
  }
  make_room_for(missing);
}

DEEPUM_SEPARATE void demand_pager::settle() {
  look_for_all();
  if (state_.held.empty() || state_.policy_due || !state_.nothing_executes() || !state_.nothing_moves()) {
    return;
  }
  const auto it = state_.held.find(claims_.served());
  if (it == state_.held.end()) {
    return;  // all wait for the program
  }
  if (awaits_reach(*state_.launches.find(it->id, it->stream))) {
    return;  // the memory will say so
  }
  if (std::exchange(state_.short_until, 0) > state_.statistics.finished) {
    state_.policy_due = true;  // others may have given memory back
  } else if (it->forced && it->faulted) {
    it->unsatisfiable = it->unsatisfiable || !complete(*state_.launches.find(it->id, it->stream));
  } else {
    it->forced = true;
    state_.policy_due = true;
  }
}

DEEPUM_SEPARATE void demand_pager::ended(const transfer& t, bool done, bool again) {
  const bool for_launch = t.why == reason::fault || t.why == reason::make_room;
  if (done || again) {
    moved();
  }
  if (again || (!for_launch && t.why != reason::host)) {
    return;
  }
  if (!done && t.why == reason::fault && !memory_.host_is_full()) {
    state_.fitted = state_.ledger.occupied() - state_.ledger.arriving();
    state_.short_until = state_.statistics.finished + launches_of_shortage;
  }
  if (!for_launch) {
    host_.ended(done);
    return;
  }
  if (done) {
    wait_.succeeded();
    return;
  }
  wait_.failed(memory_.now(), state_.nothing_executes() && state_.queues.links_free());
  if (wait_.unsatisfiable()) {
    for (held_launch& h : state_.held) {
      h.unsatisfiable = h.unsatisfiable || h.id == claims_.served();
    }
  }
}

DEEPUM_SEPARATE bool demand_pager::may_try_again() {
  if (memory_.host_is_full() && host_.give_up_home_copies()) {
    state_.policy_due = true;
    return true;
  }
  return false;
}

DEEPUM_SEPARATE void demand_pager::budget_changed() {
  memory_.set_limit(state_.ledger.budget());
  state_.short_until = 0;
  budget_now_.store(state_.ledger.budget(), std::memory_order_relaxed);
  state_.all_there = state_.all_there && state_.ledger.occupied() <= state_.ledger.budget();
}

DEEPUM_SEPARATE std::string demand_pager::too_large(const std::string& name, std::uint64_t blocks) const {
  return "launch '" + name + "' touches " + in_bytes(blocks) + " bytes, counted in whole blocks of " +
         std::to_string(state_.ledger.grid().block().count) + "; the budget is " + in_bytes(state_.ledger.budget()) +
         ": raise it, or launch less at a time";
}

DEEPUM_SEPARATE held_launch* demand_pager::next_served() {
  held_launch* found = nullptr;
  for (held_launch& h : state_.held) {
    if (found != nullptr && found->id < h.id) {
      continue;
    }
    const launch_record& record = *state_.launches.find(h.id, h.stream);
    if (needed_blocks(record) > state_.ledger.budget()) {
      h.unsatisfiable = true;
    } else if (!awaits_program(record)) {
      found = &h;
    }
  }
  return found;
}

DEEPUM_SEPARATE bool demand_pager::awaits_program(const launch_record& record) const {
  bool awaits = uploads_ != nullptr && uploads_->hold_back(record);
  if (claims_.host_writes() != 0) {
    for_each_declared_block(record, [&](block_id b) { awaits = awaits || facts_.with_host(b); });
  }
  if (!awaits && claims_.blocks_of_holds() != 0) {
    std::uint64_t beside = 0;
    for_each_distinct_run(
        record,
        [&](block_range run) {
          for (const block_id b : run) {
            beside += state_.ledger.of(b)->holds == 0 ? 1 : 0;
          }
        },
        state_.ledger.shortest_row().count == 0);
    awaits = beside + claims_.blocks_of_holds() > state_.ledger.budget();
  }
  return awaits;
}

DEEPUM_SEPARATE bool demand_pager::complete(const launch_record& record) const {
  for (const block_access& a : record.accesses) {
    for (std::uint32_t b = a.range.begin_value(); b < a.range.end_value(); ++b) {
      if (!state_.ledger.ready(block_id{b}) && !(a.sparse && state_.ledger.reached_in_place(block_id{b}))) {
        return false;
      }
    }
  }
  return true;
}

DEEPUM_SEPARATE std::uint64_t demand_pager::needed_blocks(const launch_record& record) const {
  return distinct_blocks(record, state_.ledger.shortest_row().count == 0);
}

DEEPUM_SEPARATE bool demand_pager::can_be_reached(block_id b) const {
  return state_.ledger.in_place(b) && !state_.ledger.present(b) && !state_.ledger.of(b)->forgetting &&
         (state_.ledger.current(b, location::host()) || state_.ledger.nowhere(b));
}

DEEPUM_SEPARATE bool demand_pager::awaits_reach(const launch_record& record) const {
  return std::any_of(record.accesses.begin(), record.accesses.end(), [&](const block_access& a) {
    return a.sparse && std::any_of(a.range.begin(), a.range.end(),
                                   [&](block_id b) { return can_be_reached(b) && !state_.ledger.of(b)->reachable; });
  });
}

DEEPUM_SEPARATE void demand_pager::reach_in_place(const launch_record& record) {
  if (state_.ledger.shortest_row().count == 0 || distinct_blocks(record) <= state_.ledger.budget()) {
    return;
  }
  for (const block_access& a : record.accesses) {
    for_each_run(
        a.sparse ? a.range : block_range{}, [&](block_id b) { return !state_.ledger.in_place(b); },
        [&](block_range run) {
          if (memory_.advise(run, advice::set_in_place, state_.ledger.device())) {
            for (const block_id b : run) {
              state_.ledger.set_in_place(b, true);
            }
          }
        });
  }
}

DEEPUM_SEPARATE std::uint64_t demand_pager::demand(const launch_record& record, bool notified) {
  reach_in_place(record);
  std::uint64_t missing = 0;
  for (const block_access& a : record.accesses) {
    for (const block_id b : a.range) {
      if (a.sparse && can_be_reached(b)) {
        continue;
      }
      if (state_.ledger.present(b) && state_.ledger.moving(b) != motion::leaving && !state_.ledger.hollow(b)) {
        continue;
      }
      ++missing;
      if (state_.ledger.hollow(b) && state_.still(b)) {
        const transfer t = transfer::drop(reason::make_room, {b, 1});
        state_.queue_of(t).demanded.emplace_back(t);
      }
      if (!notified) {
        ++state_.statistics.faults;
        policy_.on_fault({b, a.mode == access::read ? access::read : access::update, record.id, memory_.now()},
                         state_.ledger);
      }
      demand(b, reason::fault);
    }
  }
  return missing;
}

DEEPUM_SEPARATE void demand_pager::demand(block_id b, reason why) {
  const transfer t = transfer::prefetch(state_.ledger.device(), why, {b, 1});
  std::deque<queue_entry>& queue = state_.queue_of(t).demanded;
  if (!queue.empty() && blocks_of(queue.back()).end_value() == b.value) {
    ++blocks_of(queue.back()).count;
  } else {
    queue.emplace_back(t);
  }
}

DEEPUM_SEPARATE void demand_pager::bring_all() {
  for (const block_id b : block_range{block_id{0}, state_.ledger.size()}) {
    if (state_.ledger.life(b) != liveness::live || state_.ledger.present(b) || !state_.still(b) ||
        state_.ledger.of(b)->host_views != 0 || state_.ledger.in_place(b)) {
      continue;
    }
    demand(b, reason::predicted);
  }
}

DEEPUM_SEPARATE void demand_pager::make_room_for(std::uint64_t missing) {
  std::uint64_t hollow = 0;
  state_.queues.for_each_into(location::host(), [&](const transfer_queue& q) { hollow += q.demanded.size(); });
  const std::uint64_t staying = state_.ledger.occupied() - state_.ledger.leaving() - hollow + missing;
  std::uint64_t surplus = staying - std::min<std::uint64_t>(staying, state_.most_on_device());
  if (surplus != 0) {
    tier_.begin();
  }
  for (const bool dead : {true, false}) {
    if (surplus == 0) {
      return;
    }
    state_.ledger.for_each_least_recently_migrated([&](block_id b) {
      if ((state_.ledger.life(b) != liveness::live && state_.ledger.users(b) == 0) != dead || !state_.still(b) ||
          facts_.in_use(b) || (missing != 0 && !dead && !policy_.gives_up(b, state_.ledger))) {
        return true;
      }
      const reason why = missing != 0 ? reason::make_room : reason::over_budget;
      if (dead) {
        state_.queues.forgotten.demanded.emplace_back(transfer::discard(why, {b, 1}));
      } else {
        demand_to_leave(b, why);
      }
      return --surplus != 0;
    });
  }
  starving_ = surplus != 0 && missing != 0;
}

DEEPUM_SEPARATE void demand_pager::demand_to_leave(block_id b, reason why) {
  const location to = tier_.place_for(b);
  if (tier_.has_to_release(b, to)) {
    transfer older = transfer::drop(why, {b, 1});
    older.from = to;
    state_.queue_of(older).demanded.emplace_back(older);
  }
  transfer t = transfer::evict(to, why, {b, 1});
  t.from = to.is_host() ? t.from : state_.ledger.device();
  state_.queue_of(t).demanded.emplace_back(t);
}

DEEPUM_SEPARATE void demand_pager::look_for_all() {
  if (state_.all_there || state_.oversubscribed() || !state_.held.empty() || !state_.queues.idle() ||
      state_.ledger.occupied() > state_.ledger.budget()) {
    return;
  }
  for (std::uint32_t b = 0; b < state_.ledger.size(); ++b) {
    const block_view block = state_.ledger.of(block_id{b});
    if (block->host_writes != 0 ||
        ((block->life == liveness::live || block->users != 0) && !state_.ledger.ready(block_id{b}))) {
      return;
    }
  }
  state_.all_there = true;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
