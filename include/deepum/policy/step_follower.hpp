#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/policy/plan_writing.hpp>
#include <deepum/policy/step_schedule.hpp>
#include <deepum/policy/step_segments.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Carries out the plan of a step that recurs: what the schedule says should be away leaves, and what comes next is
/// fetched in the order of need, as far ahead as the schedule allows.
///
/// Blocks that a launch is about to write for the first time take room only when it is issued. What the plan does not
/// know of and is on the device leaves first. Should an issued launch find no room all the same, because things went
/// otherwise than planned, what is needed last leaves.
///
/// Not synchronised. Cost of a plan: linear in the blocks it moves, and each block of a launch is looked at about once
/// a step.
class step_follower {
 public:
  /// @param map  As it is when the plan begins to be followed.
  step_follower(const step_description& step, const step_limits& limits, std::uint32_t position, const block_map& map)
      : schedule_(step, limits, position),
        segment_of_(map.size(), none) {
    const step_segments& segments = schedule_.step();
    for (std::uint32_t s = 0; s != segments.segments().size(); ++s) {
      const block_range blocks = segments.segments()[s].blocks;
      for (std::uint32_t b = blocks.begin_value(); b != std::min(blocks.end_value(), map.size()); ++b) {
        segment_of_[b] = s;
      }
    }
    map.for_each_least_recently_migrated([&](block_id b) {
      if (!known(b)) {
        strays_.push_back(b);
      }
      return true;
    });
  }

  /// Everything fits, and nothing need ever leave.
  [[nodiscard]] bool idle() const { return schedule_.idle(); }

  /// The launch of the step that is executing, or will next.
  [[nodiscard]] std::uint32_t position() const { return schedule_.position(); }

  /// The executing launch finished.
  void advance() {
    schedule_.advance();
    looked_ -= looked_ != 0 ? 1 : 0;
    fetched_ -= fetched_ != 0 ? 1 : 0;
  }
  /// A launch was issued, so many launches after the executing one.
  void issued(std::size_t distance) { look_again(distance); }
  /// Blocks left the device, or hold contents again.
  void look_again(block_range blocks) {
    for (std::uint32_t b = blocks.begin_value(); b != blocks.end_value(); ++b) {
      if (known(block_id{b})) {
        look_again(schedule_.launches_until_use(segment_of_[b]));
      }
    }
  }
  /// Blocks arrived on the device.
  void arrived(block_range blocks) {
    for (std::uint32_t b = blocks.begin_value(); b != blocks.end_value(); ++b) {
      if (!known(block_id{b})) {
        std::erase(strays_, block_id{b});
        strays_.emplace_back(b);
      }
    }
  }

  /// @param issued  Launches that are issued and not finished, the executing one among them.
  void write(const block_map& map, std::size_t issued, plan& out) {
    collect_missing(map, issued);
    std::int64_t room = detail::room_to_come(map);
    room += write_leaving(map, out);
    if (room < static_cast<std::int64_t>(missing_.size())) {
      room += write_strays(map, static_cast<std::int64_t>(missing_.size()) - room, out);
    }
    if (room < static_cast<std::int64_t>(urgent_)) {
      room += write_farthest(map, issued, static_cast<std::int64_t>(urgent_) - room, out);
    }
    write_prefetches(map, static_cast<std::size_t>(std::max<std::int64_t>(0, room)), out);
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return schedule_.memory() + bytes{segment_of_.capacity() * sizeof(std::uint32_t) +
                                      (missing_.capacity() + strays_.capacity()) * sizeof(block_id)};
  }

 private:
  static constexpr std::uint32_t none = 0xffffffffU;
  // What one plan asks for in each direction; it is asked again whenever something arrives or leaves.
  static constexpr std::uint32_t blocks_each_way = 64;

  [[nodiscard]] bool known(block_id b) const { return b.value < segment_of_.size() && segment_of_[b.value] != none; }
  void look_again(std::uint64_t distance) { looked_ = std::min(looked_, static_cast<std::size_t>(distance)); }

  // --- what comes ---

  // The first blocks that are not there, in the order of need. `looked_` moves past launches that miss nothing.
  void collect_missing(const block_map& map, std::size_t issued) {
    missing_.clear();
    urgent_ = 0;
    const fetch_reach reach = schedule_.reach();
    const std::size_t end = std::max<std::size_t>(issued, std::size_t{reach.launches} + 1);
    for (std::size_t d = looked_; d < end && missing_.size() < blocks_each_way; ++d) {
      const bool all_there = collect_missing_of(map, d, d < issued, none);
      looked_ += all_there && looked_ == d ? 1 : 0;
      if (d < issued) {
        urgent_ = missing_.size();
      }
    }
    if (reach.blocks != 0 && missing_.size() < blocks_each_way && looked_ >= end) {
      (void)collect_missing_of(map, end, false, reach.blocks);
    }
  }
  // @param most  Blocks that come back for the launch at most, those that have come among them.
  bool collect_missing_of(const block_map& map, std::size_t distance, bool issued, std::uint32_t most) {
    const step_segments& step = schedule_.step();
    bool all_there = true;
    std::uint32_t back = 0;
    for (const std::uint32_t gap : step.gaps_after(schedule_.launch_at(distance))) {
      const block_range blocks = step.blocks_of(step.gaps()[gap]);
      const std::uint32_t before = step.gap_before(gap);
      const bool returns = step.gaps()[before].returns;
      if (!issued && !returns) {
        continue;  // it takes room when it is written
      }
      const std::uint32_t leaves = schedule_.leaves(before);
      for (std::uint32_t b = blocks.begin_value(); b != blocks.end_value(); ++b) {
        if (most != none && b - blocks.begin_value() < leaves && back++ == most) {
          return false;
        }
        if (map.present(block_id{b}) && map[block_id{b}].moving != motion::leaving) {
          continue;
        }
        if (detail::is_dead(map[block_id{b}])) {
          continue;  // looked at again when it is alive
        }
        all_there = false;
        if (map.present(block_id{b})) {
          continue;  // it can come back when it has left
        }
        missing_.emplace_back(b);
        fetched_ = std::max(fetched_, distance);
        if (missing_.size() == blocks_each_way) {
          return false;
        }
      }
    }
    return all_there;
  }
  void write_prefetches(const block_map& map, std::size_t room, plan& out) {
    const std::size_t from = out.commands.size();
    for (std::size_t i = 0; i != std::min(room, missing_.size()); ++i) {
      detail::append(
          out, {.what = action::prefetch, .why = i < urgent_ ? reason::issued : reason::predicted, .to = map.device()},
          missing_[i], from, blocks_each_way);
    }
  }

  // --- what goes ---

  // Those first that came first: what came last has just been needed.
  std::int64_t write_strays(const block_map& map, std::int64_t count, plan& out) {
    std::int64_t made = 0;
    std::erase_if(strays_, [&](block_id b) { return !map.resident(b); });
    for (const block_id b : strays_) {
      if (made == count) {
        break;
      }
      made += give_up(map, b, reason::make_room, out) ? 1 : 0;
    }
    return made;
  }
  // What the plan wants away, from what is needed last on. Nothing leaves that is needed as soon as what has been
  // fetched.
  std::int64_t write_leaving(const block_map& map, plan& out) {
    std::uint32_t count = 0;
    schedule_.for_each_leaving([&](block_range blocks, std::uint64_t launches) {
      if (count >= blocks_each_way) {
        return step_schedule::verdict::enough;
      }
      if (schedule_.launches_until_use(segment_of_[blocks.begin_value()]) <= fetched_) {
        return launches == step_schedule::never ? step_schedule::verdict::look_on : step_schedule::verdict::enough;
      }
      bool gone = true;
      for (std::uint32_t b = blocks.begin_value(); b != blocks.end_value(); ++b) {
        if (map.resident(block_id{b})) {
          gone = false;
          count += give_up(map, block_id{b}, reason::make_room, out) ? 1 : 0;
        }
      }
      return gone ? step_schedule::verdict::gone : step_schedule::verdict::look_on;
    });
    return count;
  }
  std::int64_t write_farthest(const block_map& map, std::size_t issued, std::int64_t count, plan& out) {
    const step_segments& step = schedule_.step();
    order_.clear();
    for (std::uint32_t s = 0; s != step.segments().size(); ++s) {
      if (schedule_.launches_until_use(s) >= std::max<std::size_t>(issued, 1)) {
        order_.push_back(s);
      }
    }
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return schedule_.launches_until_use(a) > schedule_.launches_until_use(b);
    });
    std::int64_t made = 0;
    for (const std::uint32_t s : order_) {
      const block_range blocks = step.segments()[s].blocks;
      for (std::uint32_t b = blocks.begin_value(); b != blocks.end_value() && made != count; ++b) {
        if (map.resident(block_id{b}) && map[block_id{b}].users == 0) {
          made += give_up(map, block_id{b}, reason::make_room, out) ? 1 : 0;
        }
      }
    }
    return made;
  }
  static bool give_up(const block_map& map, block_id b, reason why, plan& out) {
    const block_state& s = map[b];
    if (s.moving != motion::none || (detail::is_dead(s) && s.users != 0)) {
      return false;
    }
    command c{.what = action::evict, .why = why, .to = location::host()};
    if (detail::is_dead(s)) {
      c.what = action::discard;
      c.why = reason::dead;
    }
    detail::append(out, c, b);
    return true;
  }

  step_schedule schedule_;
  std::vector<std::uint32_t> segment_of_;  // by block; none: the step does not use it
  std::vector<block_id> strays_{};         // on the device, and not used by the step
  std::size_t looked_ = 0;                 // launches from the executing one on that miss nothing
  std::size_t fetched_ = 0;                // the farthest launch that anything has been fetched for

  // Of the plan being made; kept for their memory.
  std::vector<block_id> missing_{};
  std::size_t urgent_ = 0;  // of those: for launches that are issued
  std::vector<std::uint32_t> order_{};
};

}  // namespace v0
}  // namespace deepum
