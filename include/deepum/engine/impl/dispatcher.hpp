#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/dispatcher.hpp>
#include <deepum/engine/law.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/transfer_queue.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void dispatcher::dispatch() {
  issue_urgent();
  issue_discards();
  issue_outward();
  issue_inward();
}

DEEPUM_SEPARATE void dispatcher::issue_urgent() {
  for (command c : state_.inward.urgent) {
    for_each_run(
        c.range, [&](block_id b) { return state_.ledger.of(b)->read_mostly; },  // not yet ended for an earlier launch
        [&](block_range run) {
          c.range = run;
          advise(c);
        });
  }
  state_.inward.urgent.clear();
}

DEEPUM_SEPARATE void dispatcher::enqueue(const plan& made) {
  if (made.supersedes) {
    planned_.assign(state_.ledger.size(), false);
    for (const command& c : made.commands) {
      if (c.what == action::prefetch) {
        for_each_block(c.range, [&](block_id b) { planned_[b.value] = true; });
      }
    }
    for (const command& c : state_.inward.planned) {
      cancel(c);
    }
    state_.inward.planned.clear();
    state_.outward.planned.clear();
    state_.discards.planned.clear();
  }
  for (const command& c : made.commands) {
    if (c.what == action::clean &&
        !state_.ledger.keeps_home_copy()) {  // a copy that leaves the device's one is something else there
      state_.statistics.dropped += c.range.count;
    } else if (c.what == action::discard) {
      enqueue_discard(c);
    } else {
      state_.queue_of(c.what).planned.push_back(c);
    }
  }
}

DEEPUM_SEPARATE void dispatcher::enqueue_discard(command c) {
  block_range rest = c.range;
  while (!rest.empty()) {
    const std::uint32_t dead = count_prefix(rest, [&](block_id b) { return state_.ledger.life(b) != liveness::live; });
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

DEEPUM_SEPARATE void dispatcher::cancel(const command& c) {
  if (c.what == action::prefetch) {
    for_each_block(c.range, [&](block_id b) {
      if (!planned_[b.value]) {
        planned_[b.value] = true;
        ++state_.statistics.prefetches_cancelled;
      }
    });
  }
}

DEEPUM_SEPARATE void dispatcher::issue_inward() {
  while (std::deque<command>* queue = waiting(state_.inward)) {
    command& c = queue->front();
    if (c.what == action::advise) {
      advise(c);
      queue->pop_front();
      continue;
    }
    if (c.why != reason::requested && c.why != reason::fault && state_.paused()) {
      state_.statistics.prefetches_cancelled += c.range.count;
      queue->pop_front();
      continue;
    }
    const bool keep = c.why == reason::keep;
    advance(c.range, count_prefix(c.range, [&](block_id b) {
              return state_.ledger.life(b) == liveness::unallocated ||
                     (state_.ledger.present(b) != keep && !state_.going(b)) || facts_.with_host(b) ||
                     (keep && state_.ledger.of(b).has_ticket());
            }));
    if (c.range.empty()) {
      queue->pop_front();
      continue;
    }
    if (state_.going(c.range.first)) {
      return;  // it can come back when it has left
    }
    if (keep && state_.ledger.keeps_home_copy()) {  // no driver looks at the order
      state_.ledger.touch_migrated(c.range.first);
      advance(c.range, 1);
      continue;
    }
    const std::uint32_t most = std::min(c.range.count, keep ? c.range.count : state_.room());
    if (most == 0) {
      if (c.why != reason::requested || !state_.nothing_executes() || !state_.outward.idle() ||
          !state_.discards.idle()) {
        return;  // room comes when something leaves
      }
      state_.statistics.dropped += c.range.count;
      queue->pop_front();
      continue;
    }
    const bool empty = state_.ledger.nowhere(c.range.first);
    const bool at_once = state_.ledger.keeps_home_copy() && empty;  // no copy, so the link does not matter
    if (!at_once && full(state_.inward)) {
      return;
    }
    const std::uint32_t limit = at_once ? most : std::min(most, blocks_left(state_.inward));
    const std::uint32_t run = count_prefix({c.range.first, limit}, [&](block_id b) {
      return (keep ? stays(b) : facts_.may_arrive(b)) &&
             (!state_.ledger.keeps_home_copy() || state_.ledger.nowhere(b) == empty);
    });
    const command piece = take_piece(*queue, run);
    if (const std::uint64_t ticket = begin(state_.inward, piece, bring(piece.range, empty), "a prefetch")) {
      state_.inward.issued.back().room_only = at_once;
      const location here = state_.ledger.device();
      for_each_block(piece.range, [&](block_id b) {
        state_.ledger.give_ticket(b, here, ticket);
        if (!keep) {
          state_.ledger.start_arriving(b, here, at_once ? here : location::host());
        }
      });
    }
  }
}

DEEPUM_SEPARATE void dispatcher::advise(const command& c) {
  if (c.range.empty() || (c.hint == advice::set_read_mostly && c.why == reason::learned && !state_.oversubscribed())) {
    return;
  }
  if (!memory_.advise(c.range, c.hint, c.to)) {
    account_.failed("advice");
    return;
  }
  if (c.hint == advice::set_read_mostly || c.hint == advice::unset_read_mostly) {
    for_each_block(c.range, [&](block_id b) { state_.ledger.set_read_mostly(b, c.hint == advice::set_read_mostly); });
  }
}

DEEPUM_SEPARATE void dispatcher::issue_outward() {
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
      return c.what == action::drop && state_.ledger.resident(b) && state_.ledger.moving(b) != motion::cleaning &&
             !facts_.may_release(b);
    };
    while (!c.range.empty() && refuses(c.range.first)) {
      ++state_.statistics.refused;
      advance(c.range, 1);
    }
    advance(c.range, count_prefix(c.range, [&](block_id b) { return !state_.ledger.present(b) || state_.going(b); }));
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
    const bool droppable = facts_.may_release(c.range.first);
    const bool at_once = state_.ledger.keeps_home_copy() && droppable;  // no copy, so the link does not matter
    if (!at_once && full(state_.outward)) {
      return;
    }
    const std::uint32_t limit = at_once ? c.range.count : std::min(c.range.count, blocks_left(state_.outward));
    const std::uint32_t run = count_prefix({c.range.first, limit}, [&](block_id b) {
      const bool release = facts_.may_release(b);
      return (c.what != action::drop || release) && (!state_.ledger.keeps_home_copy() || release == droppable) &&
             facts_.may_leave(b);
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
        state_.ledger.give_ticket(b, state_.ledger.device(), ticket);
        state_.ledger.start_leaving(b);
      });
    }
  }
}

DEEPUM_SEPARATE bool dispatcher::bring(block_range range, bool empty) {
  return state_.ledger.keeps_home_copy() && empty ? memory_.populate(range, next_ticket_)
                                                  : memory_.prefetch(range, next_ticket_);
}

DEEPUM_SEPARATE bool dispatcher::send_away(const command& c) {
  return state_.ledger.keeps_home_copy() && c.what == action::drop ? memory_.drop(c.range, next_ticket_)
                                                                   : memory_.evict(c.range, next_ticket_);
}

DEEPUM_SEPARATE void dispatcher::issue_clean(std::deque<command>& queue) {
  command& c = queue.front();
  const auto may_be_copied = [&](block_id b) { return facts_.may_copy_home(b, c.why == reason::host); };
  advance(c.range, count_prefix(c.range, [&](block_id b) { return !may_be_copied(b); }));
  if (c.range.empty()) {
    queue.pop_front();
    return;
  }
  const std::uint32_t run =
      count_prefix({c.range.first, std::min(c.range.count, blocks_left(state_.outward))}, may_be_copied);
  const command piece = take_piece(queue, run);
  if (const std::uint64_t ticket =
          begin(state_.outward, piece, memory_.clean(piece.range, next_ticket_), "a copy to the host")) {
    for_each_block(piece.range, [&](block_id b) {
      state_.ledger.give_ticket(b, location::host(), ticket);
      state_.ledger.start_cleaning(b);
    });
  }
}

DEEPUM_SEPARATE void dispatcher::issue_discards() {
  for (; !state_.discards.demanded.empty(); state_.discards.demanded.pop_front()) {
    const block_id b = state_.discards.demanded.front().range.first;
    if (facts_.may_forget(b, law::because::died)) {
      issue_discard({b, 1}, reason::dead);
    }
  }
  for (; !state_.discards.requested.empty(); state_.discards.requested.pop_front()) {
    block_range rest = state_.discards.requested.front().range;
    while (!rest.empty()) {
      const std::uint32_t run =
          count_prefix(rest, [&](block_id b) { return facts_.may_forget(b, law::because::requested); });
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
                return state_.ledger.life(b) == liveness::live ||
                       (!state_.ledger.present(b) && state_.ledger.nowhere(b));
              }));
      const std::uint32_t run =
          count_prefix(c.range, [&](block_id b) { return facts_.may_forget(b, law::because::died); });
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

DEEPUM_SEPARATE void dispatcher::issue_discard(block_range range, reason why) {
  const command c{.what = action::discard, .why = why, .range = range};
  if (const std::uint64_t ticket = begin(state_.discards, c, memory_.discard(range, next_ticket_), "a discard")) {
    for_each_block(range, [&](block_id b) {
      state_.ledger.give_ticket(b, state_.ledger.device(), ticket);
      state_.ledger.start_forgetting(b);
    });
  }
}

DEEPUM_SEPARATE command dispatcher::take_piece(std::deque<command>& queue, std::uint32_t blocks) {
  command& c = queue.front();
  command piece = c;
  piece.range.count = blocks;
  advance(c.range, blocks);
  if (c.range.empty()) {
    queue.pop_front();
  }
  return piece;
}

DEEPUM_SEPARATE std::deque<command>* dispatcher::waiting(transfer_queue& q) {
  std::deque<command>& queue = q.next();
  return queue.empty() ? nullptr : &queue;
}

DEEPUM_SEPARATE bool dispatcher::full(const transfer_queue& q) const {
  return q.issued.size() >= options_.commands_in_flight || blocks_left(q) == 0;
}

DEEPUM_SEPARATE std::uint32_t dispatcher::blocks_left(const transfer_queue& q) const {
  const std::uint64_t most = std::max<std::uint64_t>(1, options_.bytes_in_flight / state_.ledger.grid().block());
  return static_cast<std::uint32_t>(most - std::min(most, q.blocks));
}

DEEPUM_SEPARATE std::uint64_t dispatcher::begin(transfer_queue& q, const command& c, bool taken, const char* what) {
  if (!taken) {
    account_.failed(what);
    return 0;
  }
  q.issued.push_back({next_ticket_, c});
  q.blocks += c.range.count;
  return next_ticket_++;
}

DEEPUM_SEPARATE bool dispatcher::stays(block_id b) const {
  return state_.ledger.life(b) != liveness::unallocated && state_.ledger.resident(b) && !state_.going(b) &&
         !facts_.with_host(b) && !state_.ledger.of(b).has_ticket();
}

DEEPUM_SEPARATE bool dispatcher::stays_for_now(block_id b, reason why) const {
  return facts_.held_by_program(b) || (why == reason::host && facts_.in_use(b));
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
