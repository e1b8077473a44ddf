#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/transfer.hpp>
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
#include <variant>

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
  for (driver_hint h : state_.inward.urgent) {
    for_each_run(
        h.blocks, [&](block_id b) { return state_.ledger.of(b)->read_mostly; },  // not yet ended for an earlier launch
        [&](block_range run) {
          h.blocks = run;
          advise(h);
        });
  }
  state_.inward.urgent.clear();
}

DEEPUM_SEPARATE void dispatcher::enqueue(const plan& made) {
  if (made.supersedes) {
    planned_.assign(state_.ledger.size(), false);
    for (const transfer& t : made.transfers) {
      if (t.takes_room()) {
        for_each_block(t.blocks, [&](block_id b) { planned_[b.value] = true; });
      }
    }
    for (const queue_entry& o : state_.inward.planned) {
      if (const transfer* t = std::get_if<transfer>(&o)) {
        cancel(*t);
      }
    }
    state_.inward.planned.clear();
    state_.outward.planned.clear();
    state_.discards.planned.clear();
  }
  state_.inward.planned.insert(state_.inward.planned.end(), made.hints.begin(), made.hints.end());
  for (const transfer& t : made.transfers) {
    if (t.cleans() &&
        !state_.ledger.keeps_home_copy()) {  // a copy that leaves the device's one is something else there
      state_.statistics.dropped += t.blocks.count;
    } else if (t.forgets()) {
      enqueue_discard(t);
    } else {
      state_.queue_of(t).planned.emplace_back(t);
    }
  }
}

DEEPUM_SEPARATE void dispatcher::enqueue_discard(transfer t) {
  block_range rest = t.blocks;
  while (!rest.empty()) {
    const std::uint32_t dead = count_prefix(rest, [&](block_id b) { return state_.ledger.life(b) != liveness::live; });
    if (dead > 0) {
      t.blocks = {rest.first, dead};
      state_.discards.planned.emplace_back(t);
      advance(rest, dead);
    } else {
      ++state_.statistics.refused;
      advance(rest, 1);
    }
  }
}

DEEPUM_SEPARATE void dispatcher::cancel(const transfer& t) {
  for_each_block(t.blocks, [&](block_id b) {
    if (!planned_[b.value]) {
      planned_[b.value] = true;
      ++state_.statistics.prefetches_cancelled;
    }
  });
}

DEEPUM_SEPARATE void dispatcher::issue_inward() {
  while (std::deque<queue_entry>* queue = waiting(state_.inward)) {
    if (const driver_hint* h = std::get_if<driver_hint>(&queue->front())) {
      advise(*h);
      queue->pop_front();
      continue;
    }
    transfer& c = std::get<transfer>(queue->front());
    if (c.why != reason::requested && c.why != reason::fault && state_.paused()) {
      state_.statistics.prefetches_cancelled += c.blocks.count;
      queue->pop_front();
      continue;
    }
    const bool keep = c.why == reason::keep;
    advance(c.blocks, count_prefix(c.blocks, [&](block_id b) {
              return state_.ledger.life(b) == liveness::unallocated ||
                     (state_.ledger.present(b) != keep && !state_.going(b)) || facts_.with_host(b) ||
                     (keep && state_.ledger.of(b).has_ticket());
            }));
    if (c.blocks.empty()) {
      queue->pop_front();
      continue;
    }
    if (state_.going(c.blocks.first)) {
      return;  // it can come back when it has left
    }
    if (keep && state_.ledger.keeps_home_copy()) {  // no driver looks at the order
      state_.ledger.touch_migrated(c.blocks.first);
      advance(c.blocks, 1);
      continue;
    }
    const std::uint32_t most = std::min(c.blocks.count, keep ? c.blocks.count : state_.room());
    if (most == 0) {
      if (c.why != reason::requested || !state_.nothing_executes() || !state_.outward.idle() ||
          !state_.discards.idle()) {
        return;  // room comes when something leaves
      }
      state_.statistics.dropped += c.blocks.count;
      queue->pop_front();
      continue;
    }
    const bool empty = state_.ledger.nowhere(c.blocks.first);
    const bool at_once = state_.ledger.keeps_home_copy() && empty;  // no copy, so the link does not matter
    if (!at_once && full(state_.inward)) {
      return;
    }
    const std::uint32_t limit = at_once ? most : std::min(most, blocks_left(state_.inward));
    const std::uint32_t run = count_prefix({c.blocks.first, limit}, [&](block_id b) {
      return (keep ? stays(b) : facts_.may_arrive(b)) &&
             (!state_.ledger.keeps_home_copy() || state_.ledger.nowhere(b) == empty);
    });
    transfer piece = take_piece(*queue, run);
    piece.to = state_.ledger.device();
    piece.from = at_once ? piece.to : location::host();
    piece.contents = at_once ? payload::none : payload::current;
    if (const std::uint64_t ticket = begin(state_.inward, piece, "a prefetch")) {
      for_each_block(piece.blocks, [&](block_id b) {
        state_.ledger.give_ticket(b, piece.to, ticket);
        if (!keep) {
          state_.ledger.start_arriving(b, piece.to, piece.from);
        }
      });
    }
  }
}

DEEPUM_SEPARATE void dispatcher::advise(const driver_hint& h) {
  const bool duplicates = h.what == advice::set_read_mostly;
  if (h.blocks.empty() || (duplicates && h.why == reason::learned && !state_.oversubscribed())) {
    return;
  }
  if (!memory_.advise(h.blocks, h.what, h.where)) {
    account_.failed("advice");
    return;
  }
  if (duplicates || h.what == advice::unset_read_mostly) {
    for_each_block(h.blocks, [&](block_id b) { state_.ledger.set_read_mostly(b, duplicates); });
  }
}

DEEPUM_SEPARATE void dispatcher::issue_outward() {
  while (std::deque<queue_entry>* queue = waiting(state_.outward)) {
    transfer& c = std::get<transfer>(queue->front());
    if (c.cleans()) {
      if (full(state_.outward)) {
        return;
      }
      issue_clean(*queue);
      continue;
    }
    const auto refuses = [&](block_id b) {  // what is being cleaned may be dropped when it is done
      return !c.copies() && state_.ledger.resident(b) && state_.ledger.moving(b) != motion::cleaning &&
             !facts_.may_release(b);
    };
    while (!c.blocks.empty() && refuses(c.blocks.first)) {
      ++state_.statistics.refused;
      advance(c.blocks, 1);
    }
    advance(c.blocks, count_prefix(c.blocks, [&](block_id b) { return !state_.ledger.present(b) || state_.going(b); }));
    if (c.blocks.empty()) {
      queue->pop_front();
      continue;
    }
    if (const std::uint32_t kept = count_prefix(c.blocks, [&](block_id b) { return stays_for_now(b, c.why); });
        kept != 0) {
      state_.statistics.dropped += c.why == reason::host ? 0 : kept;
      advance(c.blocks, kept);
      continue;
    }
    const bool droppable = facts_.may_release(c.blocks.first);
    const bool at_once = state_.ledger.keeps_home_copy() && droppable;  // no copy, so the link does not matter
    if (!at_once && full(state_.outward)) {
      return;
    }
    const std::uint32_t limit = at_once ? c.blocks.count : std::min(c.blocks.count, blocks_left(state_.outward));
    const std::uint32_t run = count_prefix({c.blocks.first, limit}, [&](block_id b) {
      const bool release = facts_.may_release(b);
      return (c.copies() || release) && (!state_.ledger.keeps_home_copy() || release == droppable) &&
             facts_.may_leave(b);
    });
    if (run == 0) {
      if (refuses(c.blocks.first)) {
        continue;  // above
      }
      return;  // the arrival or copy will end, and so will the launch
    }
    transfer piece = take_piece(*queue, run);
    piece.from = state_.ledger.device();
    piece.to = location::host();
    piece.contents = at_once ? payload::none : piece.contents;
    if (const std::uint64_t ticket = begin(state_.outward, piece, "an eviction")) {
      for_each_block(piece.blocks, [&](block_id b) {
        state_.ledger.give_ticket(b, piece.from, ticket);
        state_.ledger.start_leaving(b);
      });
    }
  }
}

DEEPUM_SEPARATE void dispatcher::issue_clean(std::deque<queue_entry>& queue) {
  transfer& c = std::get<transfer>(queue.front());
  const auto may_be_copied = [&](block_id b) { return facts_.may_copy_home(b, c.why == reason::host); };
  advance(c.blocks, count_prefix(c.blocks, [&](block_id b) { return !may_be_copied(b); }));
  if (c.blocks.empty()) {
    queue.pop_front();
    return;
  }
  const std::uint32_t run =
      count_prefix({c.blocks.first, std::min(c.blocks.count, blocks_left(state_.outward))}, may_be_copied);
  transfer piece = take_piece(queue, run);
  piece.from = state_.ledger.device();
  if (const std::uint64_t ticket = begin(state_.outward, piece, "a copy to the host")) {
    for_each_block(piece.blocks, [&](block_id b) {
      state_.ledger.give_ticket(b, piece.to, ticket);
      state_.ledger.start_cleaning(b);
    });
  }
}

DEEPUM_SEPARATE void dispatcher::issue_discards() {
  for (; !state_.discards.demanded.empty(); state_.discards.demanded.pop_front()) {
    const block_id b = blocks_of(state_.discards.demanded.front()).first;
    if (facts_.may_forget(b, law::because::died)) {
      issue_discard({b, 1}, reason::dead);
    }
  }
  for (; !state_.discards.requested.empty(); state_.discards.requested.pop_front()) {
    block_range rest = blocks_of(state_.discards.requested.front());
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
    transfer c = std::get<transfer>(state_.discards.planned.front());
    state_.discards.planned.pop_front();
    while (!c.blocks.empty()) {
      advance(c.blocks, count_prefix(c.blocks, [&](block_id b) {  // alive again, or nothing there to give up
                return state_.ledger.life(b) == liveness::live ||
                       (!state_.ledger.present(b) && state_.ledger.nowhere(b));
              }));
      const std::uint32_t run =
          count_prefix(c.blocks, [&](block_id b) { return facts_.may_forget(b, law::because::died); });
      if (run == 0 || state_.discards.issued.size() >= options_.commands_in_flight) {
        break;
      }
      issue_discard({c.blocks.first, run}, c.why);
      advance(c.blocks, run);
    }
    if (!c.blocks.empty()) {
      state_.discards.planned.emplace_back(c);
    }
  }
}

DEEPUM_SEPARATE void dispatcher::issue_discard(block_range blocks, reason why) {
  transfer t = transfer::discard(why, blocks);
  t.from = state_.ledger.device();
  if (const std::uint64_t ticket = begin(state_.discards, t, "a discard")) {
    for_each_block(blocks, [&](block_id b) {
      state_.ledger.give_ticket(b, t.from, ticket);
      state_.ledger.start_forgetting(b);
    });
  }
}

DEEPUM_SEPARATE transfer dispatcher::take_piece(std::deque<queue_entry>& queue, std::uint32_t blocks) {
  transfer& t = std::get<transfer>(queue.front());
  transfer piece = t;
  piece.blocks.count = blocks;
  advance(t.blocks, blocks);
  if (t.blocks.empty()) {
    queue.pop_front();
  }
  return piece;
}

DEEPUM_SEPARATE std::deque<queue_entry>* dispatcher::waiting(transfer_queue& q) {
  std::deque<queue_entry>& queue = q.next();
  return queue.empty() ? nullptr : &queue;
}

DEEPUM_SEPARATE bool dispatcher::full(const transfer_queue& q) const {
  return q.issued.size() >= options_.commands_in_flight || blocks_left(q) == 0;
}

DEEPUM_SEPARATE std::uint32_t dispatcher::blocks_left(const transfer_queue& q) const {
  const std::uint64_t most = std::max<std::uint64_t>(1, options_.bytes_in_flight / state_.ledger.grid().block());
  return static_cast<std::uint32_t>(most - std::min(most, q.blocks));
}

DEEPUM_SEPARATE std::uint64_t dispatcher::begin(transfer_queue& q, const transfer& t, const char* what) {
  if (!memory_.start(t, next_ticket_)) {
    account_.failed(what);
    return 0;
  }
  q.issued.push_back({next_ticket_, t});
  q.blocks += t.blocks.count;
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
