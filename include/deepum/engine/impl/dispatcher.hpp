#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/engine/migration_state.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {

DEEPUM_SEPARATE void engine::enqueue() {
  if (plan_.supersedes) {
    ++plans_;
    for (const command& c : plan_.commands) {
      if (c.what == action::prefetch) {
        for_each_block(c.range, [&](block_id b) { state_.notes[b.value].planned_in = plans_; });
      }
    }
    for (const command& c : state_.inward.planned) {
      cancel(c);
    }
    state_.inward.planned.clear();
    state_.outward.planned.clear();
    state_.discards.planned.clear();
  }
  for (const command& c : plan_.commands) {
    if (c.what == action::clean && !keeps_home_copy_) {  // a copy that leaves the device's one is something else there
      state_.statistics.dropped += c.range.count;
    } else if (c.what == action::discard) {
      enqueue_discard(c);
    } else {
      lane_of(c.what).planned.push_back(c);
    }
  }
}

DEEPUM_SEPARATE void engine::enqueue_discard(command c) {
  block_range rest = c.range;
  while (!rest.empty()) {
    const std::uint32_t dead = count_prefix(rest, [&](block_id b) { return state_.map[b].life != liveness::live; });
    if (dead > 0) {
      c.range = {rest.first, dead};
      state_.discards.planned.push_back(c);
      advance(rest, dead);
    } else {
      ++state_.statistics.refused;
      advance(rest, 1);
    }
  }
}

DEEPUM_SEPARATE void engine::cancel(const command& c) {
  if (c.what == action::prefetch) {
    for_each_block(c.range, [&](block_id b) {
      if (std::exchange(state_.notes[b.value].planned_in, plans_) != plans_) {
        ++state_.statistics.prefetches_cancelled;
      }
    });
  }
}

DEEPUM_SEPARATE void engine::issue() {
  if (demand_) {
    // Launches that saw all there was in place have not asked, and nothing of theirs may leave.
    if (!(state_.outward.idle() && state_.discards.idle())) {
      demand_->something_leaves();
      note_pressure();
      if (unread_) {
        take_inbox();
      }
    }
  }
  issue_discards();
  issue_outward();
  issue_inward();
}

DEEPUM_SEPARATE void engine::issue_inward() {
  while (std::deque<command>* queue = waiting(state_.inward)) {
    command& c = queue->front();
    if (c.what == action::advise) {
      advise(c);
      queue->pop_front();
      continue;
    }
    if (c.why != reason::requested && c.why != reason::fault && state_.paused()) {
      ++plans_;
      cancel(c);
      queue->pop_front();
      continue;
    }
    const bool keep = c.why == reason::keep;
    advance(c.range, count_prefix(c.range, [&](block_id b) {
              return state_.map[b].life == liveness::unallocated ||
                     (state_.map.present(b) != keep && !state_.going(b)) || kept_off(b) ||
                     (keep && state_.notes[b.value].ticket != 0);
            }));
    if (c.range.empty()) {
      queue->pop_front();
      continue;
    }
    if (state_.going(c.range.first)) {
      return;  // it can come back when it has left
    }
    if (keep && keeps_home_copy_) {  // no driver looks at the order
      state_.map.touch_migrated(c.range.first);
      advance(c.range, 1);
      continue;
    }
    const std::uint32_t most = std::min(c.range.count, keep ? c.range.count : room());
    if (most == 0) {
      if (c.why != reason::requested || !state_.nothing_executes() || !state_.outward.idle() ||
          !state_.discards.idle()) {
        return;  // room comes when something leaves
      }
      state_.statistics.dropped += c.range.count;
      queue->pop_front();
      continue;
    }
    const bool empty = state_.map[c.range.first].copies.empty();
    const bool at_once = keeps_home_copy_ && empty;  // no copy, so the link does not matter
    if (!at_once && full(state_.inward)) {
      return;
    }
    const std::uint32_t limit = at_once ? most : std::min(most, blocks_left(state_.inward));
    const std::uint32_t run = count_prefix({c.range.first, limit}, [&](block_id b) {
      return state_.map[b].life != liveness::unallocated && !state_.going(b) && !kept_off(b) &&
             state_.map.present(b) == keep && (!keep || state_.notes[b.value].ticket == 0) &&
             (!keeps_home_copy_ || state_.map[b].copies.empty() == empty);
    });
    const command piece = take_piece(*queue, run);
    if (const std::uint64_t ticket = begin(state_.inward, piece, bring(piece.range, empty), "a prefetch")) {
      for_each_block(piece.range, [&](block_id b) {
        state_.notes[b.value].ticket = ticket;
        state_.notes[b.value].room_only = at_once;
        state_.notes[b.value].late = false;
        if (!keep) {
          state_.map.start_arriving(b);
        }
      });
    }
  }
}

DEEPUM_SEPARATE void engine::advise(const command& c) {
  if (c.range.empty() || (c.hint == advice::set_read_mostly && c.why == reason::learned && !state_.oversubscribed())) {
    return;
  }
  if (!memory_.advise(c.range, c.hint, c.to)) {
    failed("advice");
    return;
  }
  if (c.hint == advice::set_read_mostly || c.hint == advice::unset_read_mostly) {
    for_each_block(c.range, [&](block_id b) { state_.notes[b.value].read_mostly = c.hint == advice::set_read_mostly; });
  }
}

DEEPUM_SEPARATE void engine::issue_outward() {
  while (std::deque<command>* queue = waiting(state_.outward)) {
    command& c = queue->front();
    if (c.what == action::clean) {
      if (full(state_.outward)) {
        return;
      }
      issue_clean(*queue);
      continue;
    }
    const auto refuses = [&](block_id b) {  // what is being cleaned may be dropped when it is done
      return c.what == action::drop && state_.map.resident(b) && state_.map[b].moving != motion::cleaning &&
             !may_drop(b);
    };
    while (!c.range.empty() && refuses(c.range.first)) {
      ++state_.statistics.refused;
      advance(c.range, 1);
    }
    advance(c.range, count_prefix(c.range, [&](block_id b) { return !state_.map.present(b) || state_.going(b); }));
    if (c.range.empty()) {
      queue->pop_front();
      continue;
    }
    if (const std::uint32_t kept = count_prefix(c.range, [&](block_id b) { return stays_for_now(b, c.why); });
        kept != 0) {
      state_.statistics.dropped += c.why == reason::host ? 0 : kept;
      advance(c.range, kept);
      continue;
    }
    const bool droppable = may_drop(c.range.first);
    const bool at_once = keeps_home_copy_ && droppable;  // no copy, so the link does not matter
    if (!at_once && full(state_.outward)) {
      return;
    }
    const std::uint32_t limit = at_once ? c.range.count : std::min(c.range.count, blocks_left(state_.outward));
    const std::uint32_t run = count_prefix({c.range.first, limit}, [&](block_id b) {
      return state_.map.resident(b) && state_.still(b) && !held_down(b) && (c.what != action::drop || may_drop(b)) &&
             (!keeps_home_copy_ || may_drop(b) == droppable);
    });
    if (run == 0) {
      if (refuses(c.range.first)) {
        continue;  // above
      }
      return;  // the arrival or copy will end, and so will the launch
    }
    command piece = take_piece(*queue, run);
    if (at_once) {
      piece.what = action::drop;
    }
    if (const std::uint64_t ticket = begin(state_.outward, piece, send_away(piece), "an eviction")) {
      for_each_block(piece.range, [&](block_id b) {
        state_.notes[b.value].ticket = ticket;
        state_.map.start_leaving(b);
      });
    }
  }
}

DEEPUM_SEPARATE bool engine::bring(block_range range, bool empty) {
  if (keeps_home_copy_) {
    if (empty) {
      return memory_.populate(range, next_ticket_);
    }
  }
  return memory_.prefetch(range, next_ticket_);
}

DEEPUM_SEPARATE bool engine::send_away(const command& c) {
  if (keeps_home_copy_) {
    if (c.what == action::drop) {
      return memory_.drop(c.range, next_ticket_);
    }
  }
  return memory_.evict(c.range, next_ticket_);
}

DEEPUM_SEPARATE void engine::issue_clean(std::deque<command>& queue) {
  command& c = queue.front();
  advance(c.range, count_prefix(c.range, [&](block_id b) { return !may_clean(b, c.why); }));
  if (c.range.empty()) {
    queue.pop_front();
    return;
  }
  if (keeps_home_copy_) {
    const std::uint32_t run = count_prefix({c.range.first, std::min(c.range.count, blocks_left(state_.outward))},
                                           [&](block_id b) { return may_clean(b, c.why); });
    const command piece = take_piece(queue, run);
    if (const std::uint64_t ticket =
            begin(state_.outward, piece, memory_.clean(piece.range, next_ticket_), "a copy to the host")) {
      for_each_block(piece.range, [&](block_id b) {
        state_.notes[b.value].ticket = ticket;
        state_.notes[b.value].spoiled = false;
        state_.map.start_cleaning(b);
      });
    }
  }
}

DEEPUM_SEPARATE void engine::announce_discards() {
  if (demand_ || state_.discards.idle()) {
    return;
  }
  bool announced = false;
  {
    std::lock_guard lock(inbox_mutex_);
    announced = std::exchange(discards_, true);
  }
  if (!announced) {
    take_inbox();
  }
}

DEEPUM_SEPARATE void engine::issue_discards() {
  announce_discards();
  for (; !state_.discards.demanded.empty(); state_.discards.demanded.pop_front()) {
    const block_id b = state_.discards.demanded.front().range.first;
    if (state_.map[b].life != liveness::live && state_.map[b].users == 0 && state_.still(b) &&
        !state_.launches.incomplete_up_to(launch_id{state_.notes[b.value].dead_after})) {
      issue_discard({b, 1}, reason::dead);
    }
  }
  for (; !state_.discards.requested.empty(); state_.discards.requested.pop_front()) {
    block_range rest = state_.discards.requested.front().range;
    while (!rest.empty()) {
      const std::uint32_t run = count_prefix(rest, [&](block_id b) { return idle(b); });
      if (run > 0) {
        issue_discard({rest.first, run}, reason::requested);
      } else {
        ++state_.statistics.dropped;
      }
      advance(rest, std::max(run, 1U));
    }
  }
  for (std::size_t left = state_.discards.planned.size(); left > 0; --left) {
    command c = state_.discards.planned.front();
    state_.discards.planned.pop_front();
    while (!c.range.empty()) {
      advance(c.range, count_prefix(c.range, [&](block_id b) {  // alive again, or nothing there to give up
                return state_.map[b].life == liveness::live || (!state_.map.present(b) && state_.map[b].copies.empty());
              }));
      const std::uint32_t run = count_prefix(c.range, [&](block_id b) {
        return state_.map[b].life != liveness::live && state_.map[b].users == 0 && state_.still(b) &&
               !state_.launches.incomplete_up_to(launch_id{state_.notes[b.value].dead_after});
      });
      if (run == 0 || state_.discards.issued.size() >= options_.commands_in_flight) {
        break;
      }
      issue_discard({c.range.first, run}, c.why);
      advance(c.range, run);
    }
    if (!c.range.empty()) {
      state_.discards.planned.push_back(c);
    }
  }
}

DEEPUM_SEPARATE void engine::issue_discard(block_range range, reason why) {
  const command c{.what = action::discard, .why = why, .range = range};
  if (const std::uint64_t ticket = begin(state_.discards, c, memory_.discard(range, next_ticket_), "a discard")) {
    for_each_block(range, [&](block_id b) {
      state_.notes[b.value].ticket = ticket;
      state_.notes[b.value].discarding = true;
      if (state_.map.resident(b)) {
        state_.map.start_leaving(b);
      }
    });
  }
}

DEEPUM_SEPARATE command engine::take_piece(std::deque<command>& queue, std::uint32_t blocks) {
  command& c = queue.front();
  command piece = c;
  piece.range.count = blocks;
  advance(c.range, blocks);
  if (c.range.empty()) {
    queue.pop_front();
  }
  return piece;
}

DEEPUM_SEPARATE std::deque<command>* engine::waiting(detail::lane& l) {
  std::deque<command>& queue = l.next();
  return queue.empty() ? nullptr : &queue;
}

DEEPUM_SEPARATE bool engine::full(const detail::lane& l) const {
  return l.issued.size() >= options_.commands_in_flight || blocks_left(l) == 0;
}

DEEPUM_SEPARATE std::uint32_t engine::blocks_left(const detail::lane& l) const {
  const std::uint64_t most = std::max<std::uint64_t>(1, options_.bytes_in_flight / block_);
  return static_cast<std::uint32_t>(most - std::min(most, l.blocks));
}

DEEPUM_SEPARATE std::uint64_t engine::begin(detail::lane& l, const command& c, bool taken, const char* what) {
  if (!taken) {
    failed(what);
    return 0;
  }
  l.issued.push_back({next_ticket_, c});
  l.blocks += c.range.count;
  return next_ticket_++;
}

DEEPUM_SEPARATE void engine::failed(const char* what) {
  ++state_.statistics.failed_calls;
  log_once(logged_failure_,
           std::string(what) + " failed; the program goes on without it (logged once, all are counted)");
  if (++failures_in_a_row_ >= options_.failures_until_pause) {
    failures_in_a_row_ = 0;
    state_.paused_until = state_.statistics.finished + options_.launches_of_pause;
    if (std::has_single_bit(++pauses_)) {  // what goes on failing does not fill the log
      say(std::to_string(options_.failures_until_pause) +
          " commands failed in a row; nothing is prefetched for the next " +
          std::to_string(options_.launches_of_pause) + " launches" +
          (pauses_ == 1 ? "" : " (pause " + std::to_string(pauses_) + "; logged less and less often)"));
    }
  }
}

DEEPUM_SEPARATE bool engine::kept_off(block_id b) const {
  if (demand_) {
    return demand_->with_host(b);
  }
  return false;
}

DEEPUM_SEPARATE bool engine::held_down(block_id b) const {
  if (demand_) {
    return demand_->held_down(b);
  }
  return state_.launches.executing_on(b);
}

DEEPUM_SEPARATE std::uint32_t engine::room() const {
  if (demand_) {
    return demand_->room();
  }
  return state_.map.room();
}

DEEPUM_SEPARATE bool engine::stays_for_now(block_id b, reason why) const {
  if (demand_) {
    return demand_->held_by_program(b) || (why == reason::host && demand_->held_down(b));
  }
  return state_.holds != 0 && state_.launches.held_on(b);
}

DEEPUM_SEPARATE bool engine::idle(block_id b) const {
  return state_.map[b].users == 0 && state_.still(b) && !incomplete_in_flight();
}

DEEPUM_SEPARATE bool engine::may_drop(block_id b) const {
  const block_state& s = state_.map[b];
  const bool worthless = !s.dirty && (s.copies.at(location::host()) || s.copies.empty());
  return worthless && !(keeps_home_copy_ && incomplete_in_flight());
}

DEEPUM_SEPARATE bool engine::may_clean(block_id b, reason why) const {
  const block_state& s = state_.map[b];
  return keeps_home_copy_ && state_.map.resident(b) && state_.still(b) && s.dirty && s.life == liveness::live &&
         (s.writers == 0 || (why == reason::host && !executes_on(b))) && !incomplete_in_flight();
}

DEEPUM_SEPARATE bool engine::executes_on(block_id b) const {
  if (demand_) {
    return demand_->executed_on(b);
  }
  return true;  // nobody holds launches back until they may
}

DEEPUM_SEPARATE detail::lane& engine::lane_of(action what) {
  switch (what) {
    case action::discard:
      return state_.discards;
    case action::prefetch:
    case action::advise:
      return state_.inward;
    case action::evict:
    case action::drop:
    case action::clean:
      break;
  }
  return state_.outward;
}

}  // namespace v0
}  // namespace deepum
