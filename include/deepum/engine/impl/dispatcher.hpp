#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/dispatcher.hpp>
#include <deepum/engine/law.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/transfer_queues.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <variant>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void dispatcher::dispatch() {
  issue_urgent();
  discards_.issue();
  do {
    moved_on_ = false;
    for (const std::uint8_t l : state_.queues.in_order()) {
      issue(state_.queues.link(l));
    }
  } while (moved_on_);
}

DEEPUM_SEPARATE void dispatcher::issue_urgent() {
  for (driver_hint h : state_.queues.urgent) {
    if (h.what == advice::set_in_place || h.what == advice::unset_in_place) {
      advise(h);
      continue;
    }
    for_each_run(
        h.blocks, [&](block_id b) { return state_.ledger.of(b)->read_mostly; },  // not yet ended for an earlier launch
        [&](block_range run) {
          h.blocks = run;
          advise(h);
        });
  }
  state_.queues.urgent.clear();
}

DEEPUM_SEPARATE void dispatcher::enqueue(const plan& made) {
  driver_makes_room_ = made.driver_makes_room && memory_.capabilities().faults;
  const auto brings = [this](const transfer& t) { return t.takes_room() && t.to == state_.ledger.device(); };
  if (made.supersedes) {
    planned_.assign(state_.ledger.size(), false);
    for (const transfer& t : made.transfers) {
      if (brings(t)) {
        for (const block_id b : t.blocks) {
          planned_[b.value] = true;
        }
      }
    }
    state_.queues.for_each([&](transfer_queue& q) {
      for (const queue_entry& e : q.planned) {
        if (const transfer* t = std::get_if<transfer>(&e); t != nullptr && brings(*t)) {
          cancel(*t);
        }
      }
      q.planned.clear();
    });
  }
  for (const driver_hint& h : made.hints) {
    if (h.what == advice::set_in_place || h.what == advice::unset_in_place) {
      advise(h);  // launches wait for it, and it waits for nothing
    } else {
      state_.queue_of(h).planned.emplace_back(h);
    }
  }
  for (const transfer& t : made.transfers) {
    if (t.cleans() &&
        !state_.ledger.keeps_home_copy()) {  // a copy that leaves the device's one is something else there
      state_.statistics.dropped += t.blocks.count;
    } else if (t.forgets()) {
      discards_.enqueue(t);
    } else {
      state_.queue_of(t).planned.emplace_back(t);
    }
  }
}

DEEPUM_SEPARATE void dispatcher::cancel(const transfer& t) {
  for (const block_id b : t.blocks) {
    if (!planned_[b.value]) {
      planned_[b.value] = true;
      ++state_.statistics.prefetches_cancelled;
    }
  }
}

DEEPUM_SEPARATE void dispatcher::issue(transfer_queue& q) {
  bool goes_on = true;
  while (goes_on && q.waiting()) {
    std::deque<queue_entry>& waiting = q.next();
    if (const driver_hint* h = std::get_if<driver_hint>(&waiting.front())) {
      advise(*h);
      waiting.pop_front();
      continue;
    }
    const transfer& t = std::get<transfer>(waiting.front());
    goes_on = t.cleans()                                       ? issue_copy(q, waiting)
              : t.releases() && t.to != state_.ledger.device() ? issue_departure(q, waiting)
                                                               : issue_arrival(q, waiting);
  }
}

DEEPUM_SEPARATE bool dispatcher::issue_arrival(transfer_queue& q, std::deque<queue_entry>& waiting) {
  transfer& t = std::get<transfer>(waiting.front());
  block_ledger& ledger = state_.ledger;
  const location to = t.to;
  if (t.why != reason::requested && t.why != reason::fault && state_.paused()) {
    state_.statistics.prefetches_cancelled += t.blocks.count;
    waiting.pop_front();
    return true;
  }
  const bool keep = t.why == reason::keep;
  advance(t.blocks, count_prefix(t.blocks, [&](block_id b) {
            return ledger.life(b) == liveness::unallocated || (ledger.present(b, to) != keep && !state_.going(b, to)) ||
                   facts_.with_host(b) || ledger.of(b)->filling || (keep && ledger.of(b).has_ticket());
          }));
  if (t.blocks.empty()) {
    waiting.pop_front();
    return true;
  }
  const block_id first = t.blocks.first;
  if (state_.going(first, to)) {
    return false;  // it can come back when it has left
  }
  if (keep && ledger.keeps_home_copy()) {  // no driver looks at the order
    ledger.touch_migrated(first, to);
    advance(t.blocks, 1);
    return true;
  }
  const bool any_room = keep || (driver_makes_room_ && to == ledger.device());
  const std::uint32_t most = any_room ? t.blocks.count : std::min(t.blocks.count, state_.room(to));
  if (most == 0) {
    if (t.why != reason::requested || !state_.nothing_executes() || !state_.queues.idle_from(to) ||
        !state_.queues.forgotten.idle()) {
      return false;  // room comes when something leaves
    }
    drop_rest(waiting);
    return true;
  }
  const bool empty = ledger.nowhere(first);
  if (empty && to != ledger.device()) {
    ++state_.statistics.dropped;  // nothing is written there, so room alone is of no use
    advance(t.blocks, 1);
    return true;
  }
  const bool at_once = ledger.keeps_home_copy() && empty;  // no copy, so the link does not matter
  if (!t.copies() && !empty) {
    ++state_.statistics.refused;  // a launch would find room where there are contents
    advance(t.blocks, 1);
    return true;
  }
  const location from = at_once ? to : source(t, first);
  if (!at_once && !keep && goes_elsewhere(q, waiting, from)) {
    return true;
  }
  const std::optional<std::uint8_t> via = at_once ? std::optional<std::uint8_t>{std::uint8_t{0}} : route_for(from, to);
  if (!via) {
    return waits_for_link(waiting, from);
  }
  const bool moves = !at_once && t.releases() && from.is_device();  // a neighbour gives the block back
  const bool beside = !at_once && from == ledger.device();          // launches go on there
  const std::uint32_t limit = at_once ? most : std::min({most, blocks_left(*via), piece(*via, t.blocks.count)});
  const std::uint32_t run = count_prefix({first, limit}, [&](block_id b) {
    return (keep ? stays(b) : facts_.may_arrive(b, to)) && (!ledger.keeps_home_copy() || ledger.nowhere(b) == empty) &&
           (at_once || source(t, b) == from) && (!beside || facts_.may_copy(b, from, to)) &&
           (!moves || facts_.may_leave(b, from));
  });
  if (run == 0) {
    return leave_out(t);
  }
  transfer piece = take_piece(waiting, run);
  piece.from = from;
  piece.via = *via;
  piece.contents = at_once ? payload::none : payload::current;
  if (const std::uint64_t ticket = start_.begin(q, piece, "a prefetch")) {
    for (const block_id b : piece.blocks) {
      ledger.give_ticket(b, to, ticket);
      if (!keep) {
        ledger.start_arriving(b, to, from);
        ledger.set_reachable(b, ledger.of(b)->reachable && to != ledger.device());
      }
      if (moves) {
        start_leaving(b, from, ticket);
      }
    }
  }
  return true;
}

DEEPUM_SEPARATE void dispatcher::advise(const driver_hint& h) {
  const bool duplicates = h.what == advice::set_read_mostly;
  const bool in_place = h.what == advice::set_in_place;
  if ((in_place || h.what == advice::unset_in_place) && state_.ledger.shortest_row().count == 0) {
    state_.statistics.dropped += h.blocks.count;  // nothing that this memory can do
    return;
  }
  if (h.blocks.empty() || (duplicates && h.why == reason::learned && !state_.oversubscribed())) {
    return;
  }
  if (!memory_.advise(h.blocks, h.what, h.where)) {
    account_.failed("advice");
    return;
  }
  if (duplicates || h.what == advice::unset_read_mostly) {
    for (const block_id b : h.blocks) {
      state_.ledger.set_read_mostly(b, duplicates);
    }
  }
  if (in_place || h.what == advice::unset_in_place) {
    for (const block_id b : h.blocks) {
      state_.ledger.set_in_place(b, in_place);  // launches that have begun go on finding what they found
    }
  }
}

DEEPUM_SEPARATE bool dispatcher::issue_departure(transfer_queue& q, std::deque<queue_entry>& waiting) {
  transfer& t = std::get<transfer>(waiting.front());
  block_ledger& ledger = state_.ledger;
  const location to = t.to;
  const auto refuses = [&](block_id b) {  // what is being copied out may be released when it is done
    const location at = source(t, b);
    return !t.copies() && ledger.of(b).at(at).holds() &&
           !(ledger.of(b).at(at).is == block_copy::phase::there && ledger.of(b).read_at(at)) &&
           !facts_.may_release(b, at);
  };
  while (!t.blocks.empty() && refuses(t.blocks.first)) {
    ++state_.statistics.refused;
    advance(t.blocks, 1);
  }
  advance(t.blocks, count_prefix(t.blocks, [&](block_id b) {
            const location at = source(t, b);
            return !ledger.present(b, at) || state_.going(b, at);
          }));
  if (t.blocks.empty()) {
    waiting.pop_front();
    return true;
  }
  if (const std::uint32_t kept = count_prefix(
          t.blocks, [&](block_id b) { return source(t, b) == ledger.device() && stays_for_now(b, t.why); });
      kept != 0) {
    state_.statistics.dropped += t.why == reason::host ? 0 : kept;
    advance(t.blocks, kept);
    return true;
  }
  const block_id first = t.blocks.first;
  const location from = source(t, first);
  const auto needs_no_copy = [&](block_id b) {
    return ledger.keeps_home_copy() && facts_.may_release(b, from) &&
           (to.is_host() || !t.copies() || ledger.current(b, to));
  };
  const bool at_once = needs_no_copy(first);  // then the link does not matter
  const bool onward = !to.is_host() && !at_once;
  if (onward && !facts_.may_arrive(first, to)) {
    return leave_out(t);
  }
  if (!at_once && goes_elsewhere(q, waiting, from)) {
    return true;
  }
  const std::optional<std::uint8_t> via = at_once ? std::optional<std::uint8_t>{std::uint8_t{0}} : route_for(from, to);
  if (!via) {
    return waits_for_link(waiting, from);
  }
  std::uint32_t limit = at_once ? t.blocks.count : std::min(blocks_left(*via), piece(*via, t.blocks.count));
  if (onward) {
    limit = std::min(limit, state_.room(to));
    if (limit == 0) {
      if (t.why != reason::requested || !state_.nothing_executes() || !state_.queues.idle_from(to)) {
        return false;  // room comes when something leaves
      }
      drop_rest(waiting);
      return true;
    }
  }
  const std::uint32_t run = count_prefix({first, limit}, [&](block_id b) {
    return source(t, b) == from && (t.copies() || facts_.may_release(b, from)) && needs_no_copy(b) == at_once &&
           facts_.may_leave(b, from) && (!onward || facts_.may_arrive(b, to));
  });
  if (run == 0) {
    return refuses(first);  // or the arrival or copy will end, and so will the launch
  }
  transfer piece = take_piece(waiting, run);
  piece.from = from;
  piece.via = *via;
  if (at_once) {
    piece.contents = payload::none;
    piece.to = location::host();  // whoever has the contents, none is sent any
  }
  if (const std::uint64_t ticket = start_.begin(q, piece, "an eviction")) {
    for (const block_id b : piece.blocks) {
      if (onward) {
        ledger.give_ticket(b, to, ticket);
        ledger.start_arriving(b, to, from);
      }
      start_leaving(b, from, ticket);
    }
  }
  return true;
}

DEEPUM_SEPARATE bool dispatcher::issue_copy(transfer_queue& q, std::deque<queue_entry>& waiting) {
  transfer& t = std::get<transfer>(waiting.front());
  const auto may_be_copied = [&](block_id b) { return facts_.may_copy(b, source(t, b), t.to, t.why == reason::host); };
  if (!t.blocks.empty() && !route_for(source(t, t.blocks.first), t.to)) {
    return waits_for_link(waiting, source(t, t.blocks.first));
  }
  advance(t.blocks, count_prefix(t.blocks, [&](block_id b) { return !may_be_copied(b); }));
  if (t.blocks.empty()) {
    waiting.pop_front();
    return true;
  }
  const location from = source(t, t.blocks.first);
  if (goes_elsewhere(q, waiting, from)) {
    return true;
  }
  const std::optional<std::uint8_t> via = route_for(from, t.to);
  if (!via) {
    return waits_for_link(waiting, from);
  }
  const std::uint32_t run = count_prefix({t.blocks.first, std::min(blocks_left(*via), piece(*via, t.blocks.count))},
                                         [&](block_id b) { return source(t, b) == from && may_be_copied(b); });
  transfer piece = take_piece(waiting, run);
  piece.from = from;
  piece.via = *via;
  if (const std::uint64_t ticket = start_.begin(q, piece, "a copy to the host")) {
    for (const block_id b : piece.blocks) {
      state_.ledger.give_ticket(b, piece.to, ticket);
      state_.ledger.start_arriving(b, piece.to, from);
    }
  }
  return true;
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

DEEPUM_SEPARATE location dispatcher::source(const transfer& t, block_id b) const {
  return state_.queues.source(state_.ledger, t, b);
}

DEEPUM_SEPARATE bool dispatcher::goes_elsewhere(transfer_queue& q, std::deque<queue_entry>& waiting, location from) {
  const transfer t = std::get<transfer>(waiting.front());
  transfer_queue& right = state_.queues.between(from, t.to);
  if (&right == &q) {
    return false;
  }
  (&waiting == &q.demanded    ? right.demanded
   : &waiting == &q.requested ? right.requested
                              : right.planned)
      .emplace_back(t);
  waiting.pop_front();
  moved_on_ = true;
  return true;
}

DEEPUM_SEPARATE std::optional<std::uint8_t> dispatcher::route_for(location from, location to) const {
  return state_.queues.choose(from, to, options_.commands_in_flight, most_blocks());
}

DEEPUM_SEPARATE bool dispatcher::waits_for_link(std::deque<queue_entry>& waiting, location from) {
  if (!state_.queues.places().between(from, std::get<transfer>(waiting.front()).to).empty()) {
    return false;
  }
  drop_rest(waiting);  // there is no way from there
  return true;
}

DEEPUM_SEPARATE bool dispatcher::leave_out(transfer& t) {
  if (state_.ledger.of(t.blocks.first).in_motion()) {
    return false;  // that will end
  }
  state_.statistics.dropped += facts_.used_in_place(t.blocks.first) ? 0 : 1;  // who wants it asks again
  advance(t.blocks, 1);
  return true;
}

DEEPUM_SEPARATE void dispatcher::drop_rest(std::deque<queue_entry>& waiting) {
  state_.statistics.dropped += blocks_of(waiting.front()).count;
  waiting.pop_front();
}

DEEPUM_SEPARATE void dispatcher::start_leaving(block_id b, location from, std::uint64_t ticket) {
  state_.ledger.give_ticket(b, from, ticket);
  state_.ledger.start_leaving(b, from);
}

DEEPUM_SEPARATE std::uint64_t dispatcher::most_blocks() const {
  return std::max<std::uint64_t>(1, options_.bytes_in_flight / state_.ledger.grid().block());
}

DEEPUM_SEPARATE std::uint32_t dispatcher::blocks_left(std::uint8_t via) const {
  return static_cast<std::uint32_t>(most_blocks() - std::min(most_blocks(), state_.queues.blocks_on(via)));
}

DEEPUM_SEPARATE std::uint32_t dispatcher::piece(std::uint8_t via, std::uint32_t count) const {
  return state_.queues.piece(via, count, state_.ledger.blocks_in(bytes_per_piece));
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
