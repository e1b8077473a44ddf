#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/engine/discards.hpp>
#include <deepum/engine/law.hpp>
#include <deepum/engine/transfer_queues.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void discards::enqueue(transfer t) {
  block_range rest = t.blocks;
  while (!rest.empty()) {
    const std::uint32_t dead = count_prefix(rest, [&](block_id b) { return state_.ledger.life(b) != liveness::live; });
    if (dead > 0) {
      t.blocks = {rest.first, dead};
      state_.queues.forgotten.planned.emplace_back(t);
      advance(rest, dead);
    } else {
      ++state_.statistics.refused;
      advance(rest, 1);
    }
  }
}

DEEPUM_SEPARATE void discards::issue() {
  for (; !state_.queues.forgotten.demanded.empty(); state_.queues.forgotten.demanded.pop_front()) {
    const block_id b = blocks_of(state_.queues.forgotten.demanded.front()).first;
    if (facts_.may_forget(b, law::because::died)) {
      start_one({b, 1}, reason::dead);
    } else if (facts_.may_forget(b, law::because::uploaded)) {
      start_one({b, 1}, reason::host);
    }
  }
  for (; !state_.queues.forgotten.requested.empty(); state_.queues.forgotten.requested.pop_front()) {
    block_range rest = blocks_of(state_.queues.forgotten.requested.front());
    while (!rest.empty()) {
      const std::uint32_t run =
          count_prefix(rest, [&](block_id b) { return facts_.may_forget(b, law::because::requested); });
      if (run > 0) {
        start_one({rest.first, run}, reason::requested);
      } else {
        ++state_.statistics.dropped;
      }
      advance(rest, std::max(run, 1U));
    }
  }
  for (std::size_t left = state_.queues.forgotten.planned.size(); left > 0; --left) {
    transfer c = std::get<transfer>(state_.queues.forgotten.planned.front());
    state_.queues.forgotten.planned.pop_front();
    while (!c.blocks.empty()) {
      advance(c.blocks, count_prefix(c.blocks, [&](block_id b) {  // alive again, or nothing there to give up
                return state_.ledger.life(b) == liveness::live ||
                       (!state_.ledger.present(b) && state_.ledger.nowhere(b));
              }));
      const std::uint32_t run =
          count_prefix(c.blocks, [&](block_id b) { return facts_.may_forget(b, law::because::died); });
      if (run == 0 || state_.queues.forgotten.issued.size() >= options_.commands_in_flight) {
        break;
      }
      start_one({c.blocks.first, run}, c.why);
      advance(c.blocks, run);
    }
    if (!c.blocks.empty()) {
      state_.queues.forgotten.planned.emplace_back(c);
    }
  }
}

DEEPUM_SEPARATE void discards::start_one(block_range blocks, reason why) {
  transfer t = transfer::discard(why, blocks);
  t.from = state_.ledger.device();
  if (const std::uint64_t ticket = start_.begin(state_.queues.forgotten, t, "a discard")) {
    for (const block_id b : blocks) {
      state_.ledger.give_ticket(b, t.from, ticket);
      state_.ledger.start_forgetting(b);
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
