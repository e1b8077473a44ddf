#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/demand_paging.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/migration_state.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE bool demand_paging::surely_fits(const launch_record& record) const {
  std::uint64_t declared = 0;
  for (const block_access& a : record.accesses) {
    declared += a.range.count;
  }
  return record.complete && declared <= budget_now_.load(std::memory_order_relaxed) &&
         host_writes_.load(std::memory_order_relaxed) == 0;
}

DEEPUM_SEPARATE void demand_paging::check(launch_record& record) {
  const bool complete = std::exchange(record.complete, true);
  if (!complete) {
    for_each_run(
        {block_id{0}, map().size()}, [&](block_id b) { return map()[b].life == liveness::live; },
        [&](block_range run) {
          record.accesses.push_back({run, access::update});
        });
  }
  if (const std::uint64_t needed = distinct_blocks(record); needed > map().budget()) {
    throw error(status::out_of_device_memory,
                complete ? too_large(record.name, needed)
                         : "launch '" + record.name + "' may touch more than it declares, and all that is allocated, " +
                               in_bytes(needed) + " bytes, does not fit the budget of " + in_bytes(map().budget()) +
                               "; declare its operands: reads(p, n), updates(p, n), overwrites(p, n)");
  }
  for (const block_access& a : record.accesses) {
    for_each_block(a.range, [&](block_id b) {
      if (claims_[b.value].host_writes != 0) {
        throw error(status::invalid_argument,
                    "launch '" + record.name +
                        "' touches memory that a host view is writing, or that lies in one block of " + in_bytes(1) +
                        " bytes with it; end the view first, or write by stream::memcpy");
      }
    });
  }
}

DEEPUM_SEPARATE void demand_paging::pin(const launch_record& record) {
  for_each_declared(record, [&](block_id b) {
    claims& c = claims_[b.value];
    ++c.pins;
    all_there_ = all_there_ && map().ready(b);  // it may read a block of which nothing is in use
    if (record.hold && c.holds++ == 0) {
      ++blocks_of_holds_;
    }
  });
}

DEEPUM_SEPARATE void demand_paging::unpin(const launch_record& record) {
  for_each_declared(record, [&](block_id b) {
    claims& c = claims_[b.value];
    --c.pins;
    if (record.hold && --c.holds == 0) {
      --blocks_of_holds_;
    }
  });
}

DEEPUM_SEPARATE bool demand_paging::hopeless(launch_id id) {
  const auto it = state_.find_held(id);
  return it != state_.held.end() && it->hopeless;
}

DEEPUM_SEPARATE error demand_paging::refusal(const launch_record& record) const {
  const std::uint64_t needed = distinct_blocks(record);
  if (needed > map().budget()) {
    return error(status::out_of_device_memory, too_large(record.name, needed));
  }
  const std::string why = memory_.last_failure();
  return error(memory_.host_is_full() ? status::out_of_host_memory : status::out_of_device_memory,
               "launch '" + record.name + "' cannot get its memory onto the device: " +
                   (why.empty() ? std::string("nothing that is there may leave") : why));
}

DEEPUM_SEPARATE void demand_paging::begin_host_access(block_range range, access mode) {
  for_each_block(range, [&](block_id b) {
    ++claims_[b.value].host_views;
    claims_[b.value].host_writes += mode != access::read ? 1 : 0;
  });
  host_writes_.fetch_add(mode != access::read ? 1 : 0, std::memory_order_relaxed);
  host_wait_.succeeded();  // who asks now gets a try of his own
  all_there_ = false;
  policy_.on_host_access(range, mode, map());
  state_.stirred = true;
}

DEEPUM_SEPARATE bool demand_paging::host_may_use(block_range range, access mode) {
  bool there = true;
  std::deque<command> wanted;
  for_each_block(range, [&](block_id b) {
    const bool done = host_may_use(b, mode);
    there = there && done;
    if (!done && map().resident(b) && state_.still(b) && (mode == access::read || !held_down(b))) {
      wanted.push_back({.what = mode == access::read ? action::clean : action::evict,
                        .why = reason::host,
                        .to = location::host(),
                        .range = {b, 1}});
    }
  });
  if (there) {
    if (mode != access::read) {
      for_each_block(range, [&](block_id b) { map().write_on_host(b); });
    }
    return true;
  }
  if (host_wait_.hopeless()) {
    throw host_refusal(range);
  }
  if (host_wait_.failing() && memory_.host_is_full()) {
    (void)relieve_host();
  }
  if (state_.outward.requested.empty()) {
    state_.outward.requested = std::move(wanted);
  }
  state_.stirred = true;
  return false;
}

DEEPUM_SEPARATE bool demand_paging::relieve_host() {
  if (give_up_host_copies()) {
    return true;
  }
  if (state_.inward.idle()) {
    std::uint32_t left = room();
    for_each_block({block_id{0}, map().size()}, [&](block_id b) {
      if (left != 0 && map()[b].life == liveness::live && !map().present(b) && state_.still(b) &&
          map()[b].copies.at(location::host()) && claims_[b.value].host_views == 0) {
        state_.inward.requested.push_back(
            {.what = action::prefetch, .why = reason::requested, .to = map().device(), .range = {b, 1}});
        --left;
      }
    });
  }
  if (state_.inward.idle()) {
    return false;
  }
  state_.stirred = true;
  return true;
}

DEEPUM_SEPARATE void demand_paging::end_host_access(block_range range, access mode) {
  for_each_block(range, [&](block_id b) {
    --claims_[b.value].host_views;
    claims_[b.value].host_writes -= mode != access::read ? 1 : 0;
    note_host_copy(b);
  });
  host_writes_.fetch_sub(mode != access::read ? 1 : 0, std::memory_order_relaxed);
  state_.stirred = true;
}

DEEPUM_SEPARATE bool demand_paging::host_copy_is_worthless(block_id b) const {
  const block_state& s = map()[b];
  return (s.dirty || (s.copies.empty() && s.users == 0)) && claims_[b.value].host_views == 0 && state_.still(b);
}

DEEPUM_SEPARATE void demand_paging::note_host_copy(block_id b) {
  if (host_copy_is_worthless(b)) {
    memory_.outdated({b, 1});
  }
}

DEEPUM_SEPARATE void demand_paging::serve() {
  state_.inward.demanded.clear();
  state_.outward.demanded.clear();
  starving_ = false;
  std::uint64_t missing = 0;
  held_launch* const next = next_served();
  if (const std::uint64_t before = std::exchange(served_, next != nullptr ? next->id.value : 0); before != served_) {
    launch_wait_.succeeded();  // the failures were of another one
  }
  if (next != nullptr) {
    const launch_record& record = *state_.launches.find(next->id, next->stream);
    for_each_declared(record, [&](block_id b) { claims_[b.value].wanted_by = served_; });
    if (next->let_go || !policy_.holds_launches() || state_.paused() || policy_.ready(next->id, next->stream, map())) {
      missing = demand(record, std::exchange(next->faulted, true));
    }
  }
  if (missing == 0 && !state_.oversubscribed() && state_.inward.requested.empty() && state_.inward.planned.empty()) {
    bring_all();
  }
  make_room_for(missing);
}

DEEPUM_SEPARATE void demand_paging::settle() {
  look_for_all();
  if (state_.held.empty() || state_.stirred || !state_.nothing_executes() || !state_.nothing_moves()) {
    return;
  }
  const auto it = state_.find_held(launch_id{served_});
  if (it == state_.held.end()) {
    return;  // all wait for the program
  }
  if (std::exchange(short_until_, 0) > state_.statistics.finished) {
    state_.stirred = true;  // others may have given memory back
  } else if (it->let_go && it->faulted) {
    it->hopeless = it->hopeless || !all_of_it_there(*state_.launches.find(it->id, it->stream));
  } else {
    it->let_go = true;
    state_.stirred = true;
  }
}

DEEPUM_SEPARATE void demand_paging::moved() {
  launch_wait_.something_moved();
  host_wait_.something_moved();
}

DEEPUM_SEPARATE void demand_paging::ended(const command& c, bool done, bool again) {
  const bool for_launch = c.why == reason::fault || c.why == reason::make_room;
  failing_wait& wait = for_launch ? launch_wait_ : host_wait_;
  if (done || again) {
    moved();
  }
  if (again || (!for_launch && c.why != reason::host)) {
    return;
  }
  if (done) {
    wait.succeeded();
    return;
  }
  if (c.why == reason::fault && !memory_.host_is_full()) {
    fitted_ = map().occupied() - map().arriving();
    short_until_ = state_.statistics.finished + launches_of_shortage;
  }
  wait.failed(memory_.now(),
              state_.nothing_executes() && state_.inward.issued.empty() && state_.outward.issued.empty());
  if (for_launch && wait.hopeless()) {
    for (held_launch& h : state_.held) {
      h.hopeless = h.hopeless || h.id.value == served_;
    }
  }
}

DEEPUM_SEPARATE bool demand_paging::may_try_again() {
  if (memory_.host_is_full() && give_up_host_copies()) {
    state_.stirred = true;
    return true;
  }
  return false;
}

DEEPUM_SEPARATE void demand_paging::budget_changed() {
  memory_.set_limit(map().budget());
  short_until_ = 0;
  budget_now_.store(map().budget(), std::memory_order_relaxed);
  all_there_ = all_there_ && map().occupied() <= map().budget();
}

DEEPUM_SEPARATE bool demand_paging::held_down(block_id b) const {
  const claims& c = claims_[b.value];
  return c.pins != 0 || (c.wanted_by != 0 && c.wanted_by == served_ && c.host_writes == 0 && !map().hollow(b));
}

DEEPUM_SEPARATE std::uint32_t demand_paging::room() const {
  const std::uint32_t most = most_on_device();
  return most - std::min(most, map().occupied());
}

DEEPUM_SEPARATE bool demand_paging::host_may_use(block_id b, access mode) const {
  const block_state& s = map()[b];
  const bool current = !s.dirty || s.life != liveness::live;  // what is of no value may be anything
  return mode == access::read ? !(map().resident(b) && (!current || s.moving == motion::leaving))
                              : !map().present(b) && !state_.notes[b.value].discarding;
}

DEEPUM_SEPARATE error demand_paging::host_refusal(block_range range) const {
  const bool full = memory_.host_is_full();
  const std::string why = memory_.last_failure();
  return error(full ? status::out_of_host_memory : status::device_failure,
               "the host cannot get " + in_bytes(range.count) +
                   " bytes of the arena, counted in whole blocks, from the device: " +
                   (why.empty() ? std::string("the device gives no reason") : why));
}

DEEPUM_SEPARATE std::string demand_paging::too_large(const std::string& name, std::uint64_t blocks) const {
  return "launch '" + name + "' touches " + in_bytes(blocks) + " bytes, counted in whole blocks of " +
         std::to_string(block_.count) + "; the budget is " + in_bytes(map().budget()) +
         ": raise it, or launch less at a time";
}

DEEPUM_SEPARATE held_launch* demand_paging::next_served() {
  held_launch* found = nullptr;
  for (held_launch& h : state_.held) {
    if (found != nullptr && found->id < h.id) {
      continue;
    }
    const launch_record& record = *state_.launches.find(h.id, h.stream);
    if (distinct_blocks(record) > map().budget()) {
      h.hopeless = true;
    } else if (!awaits_program(record)) {
      found = &h;
    }
  }
  return found;
}

DEEPUM_SEPARATE bool demand_paging::awaits_program(const launch_record& record) const {
  bool awaits = false;
  if (host_writes_.load(std::memory_order_relaxed) != 0) {
    for_each_declared(record, [&](block_id b) { awaits = awaits || with_host(b); });
  }
  if (!awaits && blocks_of_holds_ != 0) {
    std::uint64_t beside = 0;
    for_each_distinct_run(record, [&](block_range run) {
      for_each_block(run, [&](block_id b) { beside += claims_[b.value].holds == 0 ? 1 : 0; });
    });
    awaits = beside + blocks_of_holds_ > map().budget();
  }
  return awaits;
}

DEEPUM_SEPARATE bool demand_paging::all_of_it_there(const launch_record& record) const {
  for (const block_access& a : record.accesses) {
    for (std::uint32_t b = a.range.begin_value(); b < a.range.end_value(); ++b) {
      if (!map().ready(block_id{b}) || claims_[b].host_writes != 0) {
        return false;
      }
    }
  }
  return true;
}

DEEPUM_SEPARATE std::uint64_t demand_paging::demand(const launch_record& record, bool told) {
  std::uint64_t missing = 0;
  for (const block_access& a : record.accesses) {
    for_each_block(a.range, [&](block_id b) {
      if (map().present(b) && map()[b].moving != motion::leaving && !map().hollow(b)) {
        return;
      }
      ++missing;
      if (!told) {
        ++state_.statistics.faults;
        policy_.on_fault({b, a.mode == access::read ? access::read : access::update, record.id, memory_.now()}, map());
      }
      demand(b, reason::fault);
    });
  }
  return missing;
}

DEEPUM_SEPARATE void demand_paging::demand(block_id b, reason why) {
  std::deque<command>& queue = state_.inward.demanded;
  if (!queue.empty() && queue.back().range.end_value() == b.value) {
    ++queue.back().range.count;
  } else {
    queue.push_back({.what = action::prefetch, .why = why, .to = map().device(), .range = {b, 1}});
  }
}

DEEPUM_SEPARATE void demand_paging::bring_all() {
  for_each_block({block_id{0}, map().size()}, [&](block_id b) {
    if (map()[b].life != liveness::live || map().present(b) || !state_.still(b) || claims_[b.value].host_views != 0) {
      return;
    }
    demand(b, reason::predicted);
  });
}

DEEPUM_SEPARATE std::uint32_t demand_paging::most_on_device() const {
  return state_.statistics.finished < short_until_ ? std::min(fitted_, map().budget()) : map().budget();
}

DEEPUM_SEPARATE void demand_paging::make_room_for(std::uint64_t missing) {
  const std::uint64_t staying = map().occupied() - map().leaving() + missing;
  std::uint64_t surplus = staying - std::min<std::uint64_t>(staying, most_on_device());
  for (const bool dead : {true, false}) {
    if (surplus == 0) {
      return;
    }
    map().for_each_least_recently_migrated([&](block_id b) {
      if ((map()[b].life != liveness::live && map()[b].users == 0) != dead || !state_.still(b) || held_down(b)) {
        return true;
      }
      const command c{.what = dead ? action::discard : action::evict,
                      .why = missing != 0 ? reason::make_room : reason::over_budget,
                      .to = location::host(),
                      .range = {b, 1}};
      (dead ? state_.discards : state_.outward).demanded.push_back(c);
      return --surplus != 0;
    });
  }
  starving_ = surplus != 0 && missing != 0;
}

DEEPUM_SEPARATE bool demand_paging::give_up_host_copies() {
  std::vector<block_id> found;
  map().for_each_least_recently_migrated([&](block_id b) {
    if (map()[b].copies.at(map().device()) && map()[b].copies.at(location::host()) && state_.still(b) &&
        claims_[b.value].host_views == 0) {
      found.push_back(b);
    }
    return true;
  });
  const std::size_t first =
      found.size() - std::min<std::size_t>(found.size(), map().blocks_in(copies_given_up));  // they stay longest
  for (std::size_t i = first; i < found.size(); ++i) {
    map().write(found[i]);
    note_host_copy(found[i]);
  }
  return !found.empty();
}

DEEPUM_SEPARATE void demand_paging::look_for_all() {
  if (all_there_ || state_.oversubscribed() || !state_.held.empty() || !state_.inward.idle() ||
      !state_.outward.idle() || !state_.discards.idle() || map().occupied() > map().budget()) {
    return;
  }
  for (std::uint32_t b = 0; b < map().size(); ++b) {
    const block_state& s = map()[block_id{b}];
    if (claims_[b].host_writes != 0 || ((s.life == liveness::live || s.users != 0) && !map().ready(block_id{b}))) {
      return;
    }
  }
  all_there_ = true;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
