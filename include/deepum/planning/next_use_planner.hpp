#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/dead_blocks.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/prediction/launch_predictor.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>

namespace deepum {
inline namespace v0 {

/// What a `next_use_planner` may plan.
struct next_use_options {
  bool prefetch = true;
  bool pre_evict = true;   ///< false: room is made only where the arena holds more than its budget
  bool invalidate = true;  ///< false: dead contents are moved like live ones
};

/// Plans by the next use of each block: blocks that are missing are fetched in the order of need, and room comes from
/// dead contents first, then from the block whose next use is farthest away (Belady's rule).
///
/// A block without a known next use counts as the farthest, a clean one goes before a dirty one, then the least
/// recently migrated one. A block is never given up for one that is needed no sooner; when there is no other,
/// prefetching waits. While launches come whose blocks cannot be known, some room is kept free for their faults.
///
/// Not synchronised. Cost: a plan looks at the blocks only of launches that may miss something, from the first one on,
/// or that something may be kept for, from the last one on; where everything is there, at none. It walks through all
/// that is resident only while some of that has no known use.
class next_use_planner {
 public:
  explicit next_use_planner(next_use_options chosen) : options_(chosen) {}

  /// Blocks that the host has just touched are not fetched for predictions until the program launches something: it may
  /// well go on touching it.
  void on_host_access(block_range range, const launch_predictor& coming) {
    for (const block_id b : range) {
      held_by_host_[b] = coming.launches() + 1;
    }
  }

  /// @param coming  Its marks say which launches to look at; those go that are of no use.
  /// @param dead    Gives room before anything that has contents does.
  void write(const block_map& map, launch_predictor& coming, detail::dead_blocks& dead, plan& out) {
    missing_.clear();
    begin_marks(map);
    if (options_.prefetch) {
      collect_missing(map, coming);
    }
    std::size_t placed = missing_.size();
    const bool short_of_room = placed + room_for_faults(map, coming) > map.room() || map.occupied() > map.budget();
    coming.found_work(placed != 0 || short_of_room);
    if (short_of_room) {
      placed = make_room(map, coming, dead, out);
    }
    write_prefetches(map, out, placed);
  }

 private:
  static constexpr bytes most_room_for_faults = 256_MiB;
  static constexpr std::size_t clean_among = 128;  // blocks beyond those wanted that are looked at, to find clean ones
  static constexpr std::uint64_t room_distance = 64;  // what is needed sooner does not leave for such room
  static constexpr std::uint64_t never = launch_predictor::never;

  struct missing_block {
    block_id block{};
    std::uint64_t distance = 0;
    bool issued = false;
  };
  // Distance, stream, and the place among the launches of that stream.
  using near_launch = std::tuple<std::uint64_t, std::uint16_t, std::size_t>;
  struct victim {
    block_id block{};
    bool dead = false;
    bool clean = false;
    bool forced = false;  // the budget demands it
    std::uint64_t distance = 0;
    std::uint64_t migrated_at = 0;
  };

  // --- what comes ---

  // A block has a part in a plan once.
  void begin_marks(const block_map& map) {
    if (++plan_number_ == 0) {
      std::fill(planned_.begin(), planned_.end(), 0);
      plan_number_ = 1;
    }
    planned_.resize(map.size());
  }
  [[nodiscard]] bool is_planned(block_id b) const { return planned_.get(b) == plan_number_; }

  // The blocks that are missing, those that are needed first in front, as many as one plan may ask for.
  void collect_missing(const block_map& map, launch_predictor& coming) {
    const std::uint32_t most = detail::blocks_per_plan(map);
    // Of each stream the first launch that may miss something; the nearest of all in front.
    nearest_.clear();
    const auto look_from = [&](std::uint16_t stream, std::size_t from) {
      const stream_forecast& s = coming.stream(stream);
      const std::size_t end = s.reach();
      if (const std::size_t at = s.ahead->first_missing(from, end); at < end) {
        nearest_.emplace_back(at + coming.idle_for(s), stream, at);
        std::push_heap(nearest_.begin(), nearest_.end(), std::greater<>{});
      }
    };
    for (const std::uint16_t i : coming.active()) {
      look_from(i, 0);
    }
    while (!nearest_.empty()) {
      std::pop_heap(nearest_.begin(), nearest_.end(), std::greater<>{});
      const auto [distance, stream, at] = nearest_.back();
      nearest_.pop_back();
      collect_missing_of(map, coming, *coming.stream(stream).ahead, at, distance, most);
      if (missing_.size() == most) {
        return;
      }
      look_from(stream, at + 1);
    }
  }
  void collect_missing_of(const block_map& map, const launch_predictor& coming, upcoming_launches& ahead,
                          std::size_t at, std::uint64_t distance, std::uint32_t most) {
    const bool issued = ahead[at].issued();
    bool all_there = true;
    for (const block_range r : *ahead[at].needs) {
      for (const block_id b : r) {
        if (map.resident(b) || detail::is_dead(map[b])) {
          continue;
        }
        all_there = all_there && ahead.next_use(b) != at;  // while it arrives that may still fail
        if (map.present(b) || is_planned(b) || (!issued && held_by_host_.get(b) == coming.launches() + 1)) {
          continue;
        }
        planned_[b] = plan_number_;
        missing_.push_back({b, distance, issued});
        if (missing_.size() == most) {
          return;
        }
      }
    }
    if (all_there) {
      ahead.nothing_missing(at);
    }
  }

  // --- what goes ---

  // Plans what has to leave for the missing blocks, and for the budget. Returns how many of them have room then.
  std::size_t make_room(const block_map& map, launch_predictor& coming, detail::dead_blocks& dead, plan& out) {
    const std::int64_t room = detail::room_to_come(map);
    const std::size_t excess = room < 0 ? static_cast<std::size_t>(-room) : 0;
    const std::size_t free = room > 0 ? static_cast<std::size_t>(room) : 0;
    // The room for faults is for them and for launches that are issued.
    const std::size_t reserve = room_for_faults(map, coming);
    const auto issued = static_cast<std::size_t>(
        std::count_if(missing_.begin(), missing_.end(), [](const missing_block& m) { return m.issued; }));
    std::size_t placed = std::min(missing_.size(), std::max(std::min(issued, free), free - std::min(free, reserve)));
    const std::size_t kept_free = reserve - std::min(reserve, free - placed);
    collect_victims(map, coming, dead, excess + missing_.size() - placed + kept_free, excess);

    std::size_t taken = std::min(excess, victims_.size());
    for (std::size_t i = 0; i != taken; ++i) {
      victims_[i].forced = true;
    }
    while (excess <= taken && placed < missing_.size() && taken < victims_.size() &&
           (victims_[taken].dead || victims_[taken].distance > missing_[placed].distance)) {
      ++placed;
      ++taken;
    }
    for (std::size_t i = 0; i != kept_free && taken != victims_.size() && victims_[taken].distance > room_distance;
         ++i) {
      ++taken;
    }
    victims_.resize(taken);
    write_evictions(map, out);
    return placed;
  }
  // Blocks that are kept free while launches come whose blocks cannot be known, so that their faults find room and do
  // not wait for something to leave.
  [[nodiscard]] std::size_t room_for_faults(const block_map& map, const launch_predictor& coming) const {
    return coming.expects_surprises() && options_.pre_evict
               ? std::min(map.blocks_in(most_room_for_faults), map.budget() / 16)
               : 0;
  }

  // The `count` blocks that should leave first, in that order; fewer where the rest is needed no later than all that is
  // missing. Dead ones, those without a known use, then from the farthest launch on.
  void collect_victims(const block_map& map, launch_predictor& coming, detail::dead_blocks& dead, std::size_t count,
                       std::size_t excess) {
    victims_.clear();
    dead.for_each_on_device(map, [&](block_id b) {
      if (!is_planned(b)) {
        planned_[b] = plan_number_;
        victims_.push_back({.block = b, .dead = true, .distance = never});
      }
    });
    if (!options_.pre_evict) {
      count = excess;
    }
    if (victims_.size() < count && !coming.knows_all_used()) {
      const std::size_t from = victims_.size();
      const std::size_t enough = count + clean_among;
      std::size_t clean = 0;  // once there are enough of them, no later one would go before them
      bool all_used = true;
      map.for_each_least_recently_migrated([&](block_id b) {
        if (coming.next_use(b) == never) {
          all_used = false;
          clean += consider(map, b, never) && victims_.back().clean ? 1 : 0;
        }
        return victims_.size() < enough && from + clean < count;
      });
      if (all_used) {
        coming.found_all_used();
      }
      sort_equals(from, count);
    }
    collect_farthest(map, coming, count, excess);
    // Those that are to be had for nothing are taken first, but not more than are needed.
    victims_.resize(std::min(victims_.size(), std::max(count, excess)));
  }
  void collect_farthest(const block_map& map, launch_predictor& coming, std::size_t count, std::size_t excess) {
    const std::uint64_t nearest = excess != 0 || missing_.empty() ? 0 : missing_.front().distance;
    // Of each stream the last launch that something is kept for; the farthest of all in front, of equals the stream
    // with the lowest number.
    farthest_.clear();
    const auto look_before = [&](std::uint16_t stream, std::size_t before) {
      const stream_forecast& s = coming.stream(stream);
      const std::size_t end = s.ahead->up_to_last_kept(before);
      if (end != 0 && end - 1 + coming.idle_for(s) > nearest) {
        farthest_.emplace_back(end - 1 + coming.idle_for(s), static_cast<std::uint16_t>(~stream), end - 1);
        std::push_heap(farthest_.begin(), farthest_.end());
      }
    };
    if (victims_.size() < count) {
      for (const std::uint16_t i : coming.active()) {
        look_before(i, coming.stream(i).ahead->size());
      }
    }
    while (victims_.size() < count && !farthest_.empty()) {
      std::pop_heap(farthest_.begin(), farthest_.end());
      const auto [distance, inverted, at] = farthest_.back();
      farthest_.pop_back();
      const auto stream = static_cast<std::uint16_t>(~inverted);
      const std::size_t from = victims_.size();
      upcoming_launches& ahead = *coming.stream(stream).ahead;
      bool keeps = false;
      for (const block_range r : *ahead[at].needs) {
        for (const block_id b : r) {
          if (map.resident(b) && coming.next_use(b) == distance) {
            consider(map, b, distance);
          }
          keeps = keeps || (map.resident(b) && ahead.next_use(b) == at);
        }
      }
      if (!keeps) {
        ahead.nothing_kept(at);
      }
      sort_equals(from, count);
      look_before(stream, at);
    }
  }
  // Returns whether the block may leave.
  bool consider(const block_map& map, block_id b, std::uint64_t distance) {
    const block_state& s = map[b];
    const bool soon_free = options_.invalidate && detail::is_dead(s);  // a launch in flight may still touch it
    if (s.moving != motion::none || soon_free || is_planned(b)) {
      return false;
    }
    planned_[b] = plan_number_;
    victims_.push_back({.block = b,
                        .clean = s.copies.at(location::host()) && !s.dirty,
                        .distance = distance,
                        .migrated_at = s.migrated_at});
    return true;
  }
  // Those from `from` on are needed equally late: a clean one leaves first, then the least recently migrated one.
  void sort_equals(std::size_t from, std::size_t count) {
    const auto place = [&](std::size_t i) { return victims_.begin() + static_cast<std::ptrdiff_t>(i); };
    std::partial_sort(
        place(from), place(std::clamp(count, from, victims_.size())), victims_.end(),
        [](const victim& x, const victim& y) { return x.clean != y.clean ? x.clean : x.migrated_at < y.migrated_at; });
  }

  // --- the plan ---

  void write_evictions(const block_map& map, plan& out) {
    // Those that are equal but for their age, in the order of addresses, so that they make ranges.
    std::sort(victims_.begin(), victims_.end(), [](const victim& a, const victim& b) {
      if (a.forced != b.forced) {
        return a.forced;
      }
      if (a.dead != b.dead) {
        return a.dead;
      }
      return a.distance != b.distance ? a.distance > b.distance : a.block < b.block;
    });
    for (const victim& v : victims_) {
      transfer t = transfer::discard(reason::dead);
      if (!v.dead) {
        const reason why = v.forced ? reason::over_budget : reason::make_room;
        t = v.clean && map[v.block].users == 0 ? transfer::drop(why) : transfer::evict(location::host(), why);
      }
      detail::append(out, t, v.block, detail::blocks_per_transfer(map));
    }
  }
  void write_prefetches(const block_map& map, plan& out, std::size_t count) {
    const std::uint32_t most = count <= map.room() ? detail::blocks_per_plan(map) : detail::blocks_per_transfer(map);
    std::size_t from = out.transfers.size();
    for (std::size_t i = 0; i != count; ++i) {
      const missing_block& m = missing_[i];
      if (i == map.room()) {
        from = out.transfers.size();  // what has room now does not wait for the rest
      }
      detail::append(out, transfer::prefetch(map.device(), m.issued ? reason::issued : reason::predicted), m.block,
                     most, from);
    }
  }

  next_use_options options_;
  detail::id_map<block_id, std::uint64_t> held_by_host_{};  // launches and one more when the host touched it last

  // Of the plan being made; kept for their memory.
  sequence<missing_block> missing_{};
  sequence<victim> victims_{};
  sequence<near_launch> nearest_{};
  sequence<near_launch> farthest_{};
  detail::id_map<block_id, std::uint32_t> planned_{};  // the plan that a block had a part in last
  std::uint32_t plan_number_ = 0;
};

}  // namespace v0
}  // namespace deepum
