#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/block_record.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/neighbour_tier.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/engine/transfer_queues.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <cstdint>
#include <variant>

namespace deepum {
inline namespace v0 {
namespace detail {

template <class Visit>
void neighbour_tier::for_each_lender(Visit&& visit) const {
  const block_map& map = state_.ledger;
  for (unsigned l = 1; l != map.places(); ++l) {
    const location at = location::at(l);
    if (at != map.device() && (map.budget(at) != 0 || map.occupied(at) != 0)) {
      visit(at);
    }
  }
}

DEEPUM_SEPARATE bool neighbour_tier::lends() const {
  if (state_.ledger.places() == 2 || !state_.ledger.keeps_home_copy()) {
    return false;
  }
  bool any = false;
  for_each_lender([&](location) { any = true; });
  return any;
}

DEEPUM_SEPARATE void neighbour_tier::begin() {
  for_each_lender([&](location at) {
    std::uint32_t asked = 0;
    state_.queues.for_each_into(at, [&](const transfer_queue& q) {
      for (const auto* waiting : {&q.demanded, &q.requested}) {
        for (const queue_entry& e : *waiting) {
          asked += std::visit([](const auto& what) { return what.blocks.count; }, e);
        }
      }
    });
    const std::uint32_t room = state_.ledger.room(at);
    places_[at.index()].left = room - std::min(room, asked);
  });
}

DEEPUM_SEPARATE location neighbour_tier::place_for(block_id b) {
  const block_map& map = state_.ledger;
  if (!lends()) {
    return location::host();
  }
  const block_view block = map.of(b);
  if (block->life != liveness::live || !block.current(map.device())) {
    return location::host();
  }
  location best = location::host();
  bool needs_no_room = false;
  bool is_there = false;
  for_each_lender([&](location at) {
    const copy_state is = block.state(at);
    is_there = is_there || is == copy_state::current;
    // Older contents go first, and what moves there already ends; until then it waits.
    const bool reuses = is != copy_state::absent && map.occupied(at) <= map.budget(at);
    if (!reuses && (is != copy_state::absent || places_[at.index()].left == 0)) {
      return;
    }
    const bool nearer = best.is_host() || map.rank(at) < map.rank(best) ||
                        (map.rank(at) == map.rank(best) && places_[at.index()].left > places_[best.index()].left);
    if (reuses ? !needs_no_room || nearer : !needs_no_room && nearer) {
      best = at;
      needs_no_room = reuses;
    }
  });
  if (is_there) {
    return location::host();  // whoever has it, no copy is needed
  }
  if (!best.is_host()) {
    places_[best.index()].left -= needs_no_room ? 0 : 1;
    entered_.resize(map.size());
    entered_[b.value] = passed_by();
  }
  return best;
}

DEEPUM_SEPARATE void neighbour_tier::complete(plan& made) {
  if (!lends()) {
    return;
  }
  begin();
  if (!policy_.places_blocks()) {
    redirect(made);
  }
  const block_map& map = state_.ledger;
  for_each_lender([&](location at) {
    if (!is_settled(at, made.supersedes)) {
      return;
    }
    const std::uint32_t stays = map.occupied(at) - map.leaving(at);
    if (stays > map.budget(at)) {
      give_back(at, std::min(stays - map.budget(at), map.blocks_in(given_back_at_once)), made);
    } else if (!policy_.places_blocks()) {
      free_room(at, made);
      write_back(at, made);
    }
  });
}

DEEPUM_SEPARATE void neighbour_tier::redirect(plan& made) {
  const block_map& map = state_.ledger;
  const auto leaves = [&](const transfer& t) {
    return t.to.is_host() && !t.exactly && !t.forgets() && t.why != reason::host &&
           (t.from.is_any() || t.from == map.device());
  };
  if (std::none_of(made.transfers.begin(), made.transfers.end(), leaves)) {
    return;
  }
  redirected_.clear();
  for (const transfer& t : made.transfers) {
    if (!leaves(t)) {
      redirected_.push_back(t);
      continue;
    }
    location last = location::any();
    for (const block_id b : t.blocks) {
      const location to = place_for(b);
      if (has_to_release(b, to)) {
        transfer older = transfer::drop(reason::make_room, {b, 1});
        older.from = to;
        redirected_.push_back(older);
        last = location::any();
      }
      if (to == last) {
        ++redirected_.back().blocks.count;
        continue;
      }
      transfer part = t;
      if (!to.is_host()) {
        part = t.cleans() ? transfer::prefetch(to, t.why) : transfer::evict(to, t.why);
        part.from = map.device();
      }
      part.blocks = {b, 1};
      redirected_.push_back(part);
      last = to;
    }
  }
  made.transfers.assign(redirected_.begin(), redirected_.end());
}

DEEPUM_SEPARATE bool neighbour_tier::is_settled(location at, bool supersedes) const {
  return state_.queues.all_from(at, [&](const transfer_queue& q) {
    return q.demanded.empty() && q.requested.empty() && (supersedes || q.planned.empty());
  });
}

DEEPUM_SEPARATE void neighbour_tier::give_back(location at, std::uint32_t count, plan& made) const {
  for (const bool copies : {false, true}) {
    state_.ledger.for_each_least_recently_migrated(at, [&](block_id b) {
      if (count != 0 && !state_.ledger.of(b).in_motion(at) && is_free(b, at, true) != copies) {
        let_go(b, at, reason::over_budget, made);
        --count;
      }
      return count != 0;
    });
  }
}

DEEPUM_SEPARATE void neighbour_tier::free_room(location at, plan& made) {
  const block_map& map = state_.ledger;
  place& mine = places_[at.index()];
  const std::uint32_t floor = std::min(std::max(1U, map.budget(at) / 8), map.blocks_in(kept_free));
  const std::uint32_t free = map.room(at) + map.leaving(at);
  if (free >= floor || map.migrations(map.device()) < mine.searched + floor / 2) {
    return;
  }
  std::uint32_t wanted = floor - free;
  bool found = false;
  const std::uint64_t passed = passed_by();
  map.for_each_least_recently_migrated(at, [&](block_id b) {
    const bool old = b.value < entered_.size() && passed > entered_[b.value] + map.size() && !map.present(b);
    if (!map.of(b).in_motion(at) && (old || is_free(b, at, false))) {
      let_go(b, at, reason::make_room, made);
      found = true;
      --wanted;
    }
    return wanted != 0;
  });
  mine.searched = found ? 0 : map.migrations(map.device());
}

DEEPUM_SEPARATE void neighbour_tier::write_back(location at, plan& made) {
  const block_map& map = state_.ledger;
  place& mine = places_[at.index()];
  const std::uint8_t way = state_.queues.places().cheapest(at, location::host());
  if (way == route::none || state_.queues.blocks_on(way) != 0 ||
      (mine.fruitless >= map.size() && mine.seen == map.migrations(at))) {
    return;
  }
  if (mine.seen != map.migrations(at)) {
    mine.seen = map.migrations(at);
    mine.fruitless = 0;
  }
  std::uint32_t wanted = map.blocks_in(written_back);
  for (std::uint32_t n = 0; n != std::min(looks, map.size()) && wanted != 0; ++n) {
    const block_id b{mine.cursor};
    mine.cursor = mine.cursor + 1 != map.size() ? mine.cursor + 1 : 0;
    ++mine.fruitless;
    if (map.life(b) != liveness::live || !map.present(b, at) || map.of(b).in_motion(at) || !map.current(b, at) ||
        map.present(b) || map.current(b, location::host())) {
      continue;
    }
    transfer copy = transfer::clean(reason::write_back);
    copy.from = at;
    transfer* const last = made.transfers.empty() ? nullptr : &made.transfers.back();
    if (last != nullptr && last->cleans() && last->from == at && last->blocks.end_value() == b.value) {
      ++last->blocks.count;
    } else {
      copy.blocks = {b, 1};
      made.transfers.push_back(copy);
    }
    mine.fruitless = 0;
    --wanted;
  }
}

DEEPUM_SEPARATE bool neighbour_tier::is_free(block_id b, location at, bool for_owner) const {
  const block_view block = state_.ledger.of(b);
  const bool dead = block->life != liveness::live && block->users == 0 && !block.in_motion();
  return dead || !block.current(at) ||
         (for_owner ? block.current_beside(at) : block.state(state_.ledger.device()) == copy_state::current);
}

DEEPUM_SEPARATE void neighbour_tier::let_go(block_id b, location at, reason why, plan& made) const {
  const block_view block = state_.ledger.of(b);
  const bool needed = block.current(at) && !block.current_beside(at);
  if (needed && block->life != liveness::live && block->users == 0) {
    made.transfers.push_back(transfer::discard(reason::dead, {b, 1}));
    return;
  }
  transfer t = needed ? transfer::evict(location::host(), why) : transfer::drop(why);
  t.from = at;
  transfer* const last = made.transfers.empty() ? nullptr : &made.transfers.back();
  if (last != nullptr && last->blocks.end_value() == b.value) {
    t.blocks = last->blocks;
    if (t == *last) {
      ++last->blocks.count;
      return;
    }
  }
  t.blocks = {b, 1};
  made.transfers.push_back(t);
}

DEEPUM_SEPARATE std::uint64_t neighbour_tier::passed_by() const {
  std::uint64_t blocks = 0;
  for (const link_traffic& l : state_.statistics.links) {
    blocks += l.to.is_host() ? l.moved.all_blocks() : 0;
  }
  return blocks;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
