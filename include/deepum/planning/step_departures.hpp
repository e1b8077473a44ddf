#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/dead_blocks.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/planning/step_schedule.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/planning/unplanned_blocks.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What leaves the device while the plan of a step is carried out.
///
/// What needs no copy leaves first and in any number: behind copies its room would wait for the link. Of the rest a
/// plan asks for what keeps the link busy.
///
/// Not synchronised. Cost: a plan looks at the blocks that it asks to leave, at those of gaps that have just opened,
/// and at those that are still on their way.
class step_departures {
 public:
  /// @param places  Says how large its blocks are.
  explicit step_departures(const block_map& places)
      : most_(places.blocks_in(each_way)),
        most_write_backs_(places.blocks_in(written_back)) {}

  /// Plans that what the schedule wants away leaves, from what is needed last on. All of it goes now, so it goes in the
  /// order of addresses: a copy of many blocks is faster than many copies.
  /// @param keep  What is needed in fewer launches stays.
  /// @returns     How many blocks.
  std::int64_t write(const block_map& map, step_schedule& schedule, const sequence<std::uint32_t>& segment_of,
                     std::uint64_t keep, plan& out) {
    copied_.clear();
    free_.clear();
    const auto is_kept = [&](block_range blocks) {
      return schedule.launches_until_use(segment_of[blocks.begin_value()]) < keep;
    };
    const auto needs_no_copy = [&](block_id b) {
      return !schedule.places_blocks() || schedule.goes_far(segment_of[b.value], b) ? is_current_at_home(map, b)
                                                                                    : is_current_beside(map, b);
    };
    collect_just_opened(map, schedule, is_kept, needs_no_copy);
    collect(map, schedule, is_kept, needs_no_copy);
    sort_once(free_);
    sort_once(copied_);
    for (const sequence<block_id>* const blocks : {&free_, &copied_}) {
      for (const block_id b : *blocks) {
        give_up(map, b, out, schedule.places_blocks() && schedule.goes_far(segment_of[b.value], b));
      }
    }
    return static_cast<std::int64_t>(free_.size() + copied_.size());
  }
  /// Of what the last plan asks to leave: blocks that have to be copied.
  [[nodiscard]] std::size_t copies() const { return copied_.size(); }
  /// It asked for as many of those as it may.
  [[nodiscard]] bool is_full() const { return copied_.size() >= most_; }

  /// Plans to copy out ahead what stays for now, where the outward link has nothing else to do. Few blocks at a time,
  /// because one that is being copied cannot leave.
  void write_back(const block_map& map, step_schedule& schedule, plan& out) const {
    std::uint32_t count = 0;
    transfer copy = transfer::clean(reason::write_back);
    copy.exactly = schedule.places_blocks();
    schedule.for_each_write_back([&](block_range blocks) {
      bool clean = true;
      for (const block_id b : blocks) {
        const block_state& s = map[b];
        if (count == most_write_backs_ || !map.resident(b) || !s.dirty || is_dead(s)) {
          continue;
        }
        clean = false;
        if (s.moving == motion::none && s.writers == 0) {
          append(out, copy, b, std::max(1U, most_write_backs_ / 2));
          ++count;
        }
      }
      if (count == most_write_backs_) {
        return step_schedule::verdict::stop;
      }
      return clean ? step_schedule::verdict::erase : step_schedule::verdict::next;
    });
  }

  /// Plans that up to `count` blocks leave that nothing needs for so many launches, those first that are needed last.
  /// @returns  How many.
  std::int64_t write_farthest(const block_map& map, const step_schedule& schedule, std::uint64_t near,
                              std::int64_t count, plan& out) {
    const step_segments& step = schedule.step();
    order_.clear();
    for (std::uint32_t s = 0; s != step.segments().size(); ++s) {
      if (schedule.launches_until_use(s) >= near) {
        order_.push_back(s);
      }
    }
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return schedule.launches_until_use(a) > schedule.launches_until_use(b);
    });
    std::int64_t made = 0;
    for (const std::uint32_t s : order_) {
      if (made == count) {
        break;
      }
      for (const block_id b : step.segments()[s].blocks) {
        if (made != count && map.resident(b) && may_leave(map, b)) {
          give_up(map, b, out);
          ++made;
        }
      }
    }
    return made;
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return bytes{(copied_.capacity() + free_.capacity()) * sizeof(block_id) +
                 order_.capacity() * sizeof(std::uint32_t)};
  }

  /// What one plan asks for in each direction; it is asked again whenever something arrives or leaves.
  static constexpr bytes each_way = 128_MiB;

 private:
  static constexpr bytes written_back = 32_MiB;  // in a plan, at most

  [[nodiscard]] static bool is_current_at_home(const block_map& map, block_id b) {
    return map.keeps_home_copy() && map[b].copies.at(location::host()) && !map[b].dirty;
  }
  [[nodiscard]] static bool is_current_beside(const block_map& map, block_id b) {
    bool any = false;
    for (unsigned l = 1; l != map.places(); ++l) {
      any = any || (location::at(l) != map.device() && map.state(b, location::at(l)) == copy_state::current);
    }
    return any;
  }
  static void sort_once(sequence<block_id>& blocks) {
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  }
  template <class Kept, class Free>
  void collect_just_opened(const block_map& map, step_schedule& schedule, Kept&& is_kept, Free&& needs_no_copy) {
    schedule.for_each_just_opened([&](block_range leaving) {
      bool again = false;
      for (const block_id at : leaving) {
        if (map.resident(at) && !is_dead(map[at]) && needs_no_copy(at)) {
          again = true;
          if (map[at].users == 0 && may_leave(map, at) && !is_kept(leaving)) {
            free_.push_back(at);
          }
        }
      }
      return again;
    });
  }
  template <class Kept, class Free>
  void collect(const block_map& map, step_schedule& schedule, Kept&& is_kept, Free&& needs_no_copy) {
    schedule.for_each_leaving([&](block_range leaving, std::uint64_t until_use) {
      if (is_full()) {
        return step_schedule::verdict::stop;
      }
      if (is_kept(leaving)) {
        return until_use == step_schedule::never ? step_schedule::verdict::next : step_schedule::verdict::stop;
      }
      bool gone = true;
      for (const block_id at : leaving) {
        if (map.resident(at) && !is_dead(map[at])) {
          gone = false;
          if (may_leave(map, at)) {
            (needs_no_copy(at) && map[at].users == 0 ? free_ : copied_).push_back(at);
          }
        }
      }
      return gone ? step_schedule::verdict::erase : step_schedule::verdict::next;
    });
  }

  std::uint32_t most_;
  std::uint32_t most_write_backs_;
  // Of the plan being made; kept for their memory.
  sequence<block_id> copied_{};
  sequence<block_id> free_{};  // they need no copy
  sequence<std::uint32_t> order_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
