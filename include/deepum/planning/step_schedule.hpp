#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/planning/step_planner.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>

namespace deepum {
inline namespace v0 {

/// How far ahead of the executing launch blocks may come back without driving out what the plan keeps.
struct fetch_reach {
  std::uint32_t launches = 0;  ///< all that the executing launch and so many after it need
  std::uint32_t blocks = 0;    ///< and so many blocks of the launch after those

  friend constexpr bool operator==(const fetch_reach&, const fetch_reach&) = default;
};

namespace detail {

/// Finds the reach at each launch of a step. An early return takes room until its launch, besides what the plan
/// has on the device anyway.
class reach_finder {
 public:
  reach_finder(const step_segments& segments, const step_plan& plan, std::uint32_t budget_blocks)
      : step_(segments),
        plan_(plan),
        free_(free_at(plan, budget_blocks)),
        claimed_(plan.leaves.size()) {}

  /// Cost: each gap is claimed once; O(g log n) for g gaps and n launches.
  [[nodiscard]] sequence<fetch_reach> find() {
    const std::uint32_t n = step_.launches();
    sequence<fetch_reach> all(n);
    std::uint32_t ahead = 0;  // launches after k whose returns are claimed
    for (std::uint32_t k = 0; k != n; ++k) {
      std::int64_t part = 0;
      while (ahead != n - 1) {
        const std::int64_t room = std::max<std::int64_t>(0, least_free(k, ahead + 1));
        if (returning(after(k, ahead + 1)) > room) {
          part = room;
          break;
        }
        ++ahead;
        claim(after(k, ahead), ahead);
      }
      all[k] = {ahead, static_cast<std::uint32_t>(part)};
      if (ahead != 0) {
        unclaim(after(k, 1));  // it executes next, and the plan counts what it needs
        --ahead;
      }
    }
    return all;
  }

 private:
  static sequence<std::int64_t> free_at(const step_plan& plan, std::uint32_t budget) {
    sequence<std::int64_t> free;
    free.reserve(plan.occupied.size());
    for (const std::uint32_t occupied : plan.occupied) {
      free.push_back(static_cast<std::int64_t>(budget) - occupied);
    }
    return free;
  }
  [[nodiscard]] std::uint32_t after(std::uint32_t k, std::uint32_t launches) const {
    return (k + launches) % step_.launches();
  }
  // Calls `visit(gap)` for the gaps that end with the launch and bring blocks back.
  template <class Visit>
  void for_each_return(std::uint32_t launch, Visit&& visit) const {
    for (const std::uint32_t next : step_.gaps_after(launch)) {
      const std::uint32_t gap = step_.gap_before(next);
      if (step_.gaps()[gap].returns && plan_.leaves[gap] != 0) {
        visit(gap);
      }
    }
  }
  [[nodiscard]] std::int64_t returning(std::uint32_t launch) const {
    std::int64_t blocks = 0;
    for_each_return(launch, [&](std::uint32_t gap) { blocks += plan_.leaves[gap]; });
    return blocks;
  }
  // Calls `visit(begin, end)` for the `count` launches before one.
  template <class Visit>
  void for_each_before(std::uint32_t launch, std::uint32_t count, Visit&& visit) const {
    visit(launch - std::min(launch, count), launch);
    if (count > launch) {
      visit(step_.launches() - (count - launch), step_.launches());
    }
  }
  [[nodiscard]] std::int64_t least_free(std::uint32_t from, std::uint32_t count) const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for_each_before(from + count <= step_.launches() ? from + count : from + count - step_.launches(), count,
                    [&](std::uint32_t begin, std::uint32_t end) { least = std::min(least, free_.least(begin, end)); });
    return least;
  }
  // A return for the launch `ahead` of the executing one takes room from now on, or from when its gap begins.
  void claim(std::uint32_t launch, std::uint32_t ahead) {
    for_each_return(launch, [&](std::uint32_t gap) {
      claimed_[gap] = std::min(ahead, step_.gaps()[gap].held);
      add(launch, gap, -1);
    });
  }
  void unclaim(std::uint32_t launch) {
    for_each_return(launch, [&](std::uint32_t gap) { add(launch, gap, 1); });
  }
  void add(std::uint32_t launch, std::uint32_t gap, std::int64_t sign) {
    for_each_before(launch, claimed_[gap], [&](std::uint32_t begin, std::uint32_t end) {
      free_.add(begin, end, sign * static_cast<std::int64_t>(plan_.leaves[gap]));
    });
  }

  const step_segments& step_;
  const step_plan& plan_;
  range_minimum free_;               // by launch: room that neither the plan nor a claim takes
  sequence<std::uint32_t> claimed_;  // by gap: launches over which its return is claimed
};

}  // namespace detail

/// The plan of a step while it is carried out: what should be away now, what may be written back before it leaves, and
/// how far ahead blocks may come back.
///
/// Where neighbours hold blocks there are two plans: one for the room of the device, and one for the room of all of
/// them together. What is away in the second one is at the host; what is away in the first one only, at a neighbour.
///
/// Not synchronised. Memory is linear in the gaps of the step.
class step_schedule {
 public:
  /// What a visitor says of blocks that should leave.
  enum class verdict : std::uint8_t {
    next,   ///< visit the next blocks
    erase,  ///< visit the next blocks, and never these again
    stop,   ///< end the walk
  };
  /// Until the next use of what never comes back.
  static constexpr std::uint64_t never = std::numeric_limits<std::uint32_t>::max();

  /// @param position  The launch of the step that is executing, or will next.
  step_schedule(const step_description& step, const step_limits& limits, std::uint32_t position)
      : step_(step),
        plan_(plan_step(step_, limits)),
        reach_(detail::reach_finder(step_, plan_, limits.budget).find()),
        due_(step_.segments().size()),
        next_use_(step_.segments().size()),
        position_(position) {
    expects(position < step_.launches(), "a step is followed from a launch that it does not have");
    if (limits.beside != 0) {
      step_limits both = limits;
      both.budget += limits.beside;
      far_ = plan_step(step_, both).leaves;
      for (std::size_t i = 0; i != far_.size(); ++i) {
        far_[i] = std::min(far_[i], plan_.leaves[i]);
      }
      open_.resize(step_.segments().size());
    }
    find_write_backs();
    for (const step_segment& s : step_.segments()) {
      std::uint32_t gap = s.first_gap + s.gap_count - 1;  // the one after the last use before the position
      for (std::uint32_t i = s.first_gap; i != s.first_gap + s.gap_count && step_.gaps()[i].launch < position; ++i) {
        gap = i;
      }
      const std::uint32_t next = step_.gaps()[gap].next;
      open(gap, next >= position ? next - position : next + step_.launches() - position);
    }
  }

  [[nodiscard]] const step_segments& step() const { return step_; }

  /// Everything fits, and nothing need ever leave.
  [[nodiscard]] bool idle() const { return plan_.idle(); }
  /// The launch of the step that is executing, or will next.
  [[nodiscard]] std::uint32_t position() const { return position_; }
  /// It finished.
  /// Cost: logarithmic in the number of segments for each one that it used.
  void advance() {
    for (const std::uint32_t gap : step_.gaps_after(position_)) {
      const step_gap& g = step_.gaps()[gap];
      away_.erase({due_[g.segment], step_.gap_before(gap)});
      staying_.erase({due_[g.segment], step_.gap_before(gap)});
      open(gap, g.next > g.launch ? g.next - g.launch : g.next + step_.launches() - g.launch);
    }
    position_ = position_ + 1 != step_.launches() ? position_ + 1 : 0;
    ++clock_;
  }

  [[nodiscard]] fetch_reach reach() const { return reach_[position_]; }
  /// The launch of the step that comes so many launches after the executing one.
  [[nodiscard]] std::uint32_t launch_at(std::size_t distance) const {
    return static_cast<std::uint32_t>((position_ + distance) % step_.launches());
  }
  /// Launches from the executing one until a segment is used; 0 where that one uses it.
  [[nodiscard]] std::uint64_t launches_until_use(std::uint32_t segment) const { return next_use_[segment] - clock_; }
  /// How often blocks have come to be among those that should leave.
  [[nodiscard]] std::uint64_t gaps_opened() const { return opened_; }
  /// Blocks that leave in a gap.
  [[nodiscard]] std::uint32_t leaves(std::uint32_t gap) const { return plan_.leaves[gap]; }

  /// Neighbours hold a part of what leaves.
  [[nodiscard]] bool places_blocks() const { return !far_.empty(); }
  /// A block of the segment that leaves now goes to the host, because a plan for the device and its neighbours together
  /// has no room for it either.
  [[nodiscard]] bool goes_far(std::uint32_t segment, block_id b) const {
    const std::uint32_t gap = open_[segment];
    return b.value - step_.blocks_of(step_.gaps()[gap]).begin_value() < far_[gap];
  }

  /// Calls `visit(block_range, launches)` for blocks that are not needed until so many launches have finished, and
  /// should leave until then: those first that never come back, then those that come back last. Whether they are still
  /// on the device the visitor knows, and returns a `verdict`.
  template <class Visit>
  void for_each_leaving(Visit&& visit) {
    for (auto it = away_.rbegin(); it != away_.rend();) {
      const auto [due, gap] = *it;
      const block_range blocks{step_.blocks_of(step_.gaps()[gap]).first, plan_.leaves[gap]};
      switch (visit(blocks, step_.gaps()[gap].returns ? due - clock_ : never)) {
        case verdict::next:
          ++it;
          break;
        case verdict::erase:
          it = std::make_reverse_iterator(away_.erase(std::next(it).base()));
          break;
        case verdict::stop:
          return;
      }
    }
  }

  /// Calls `visit(block_range)` for blocks that should leave, as `for_each_leaving` does, of the gaps that have opened
  /// since the last call. The visitor returns whether the next call visits them again.
  template <class Visit>
  void for_each_just_opened(Visit&& visit) {
    std::size_t kept = 0;
    for (const std::uint32_t gap : just_opened_) {
      const step_gap& g = step_.gaps()[gap];
      if (away_.count({due_[g.segment], gap}) != 0 && visit(block_range{step_.blocks_of(g).first, plan_.leaves[gap]})) {
        just_opened_[kept++] = gap;
      }
    }
    just_opened_.resize(kept);
  }

  /// Calls `visit(block_range)` for blocks that stay for now, will leave, and are not written until they do: a copy of
  /// them to the host can be made ahead. Those first that are used next. The visitor returns a `verdict`.
  template <class Visit>
  void for_each_write_back(Visit&& visit) {
    for (auto it = staying_.begin(); it != staying_.end();) {
      const std::uint32_t gap = it->second;
      switch (visit(block_range{step_.blocks_of(step_.gaps()[gap]).first, write_back_[gap]})) {
        case verdict::next:
          ++it;
          break;
        case verdict::erase:
          it = staying_.erase(it);
          break;
        case verdict::stop:
          return;
      }
    }
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    constexpr std::size_t tree_node = 48;
    return step_.memory() + plan_.memory() +
           bytes{reach_.capacity() * sizeof(fetch_reach) +
                 (far_.capacity() + open_.capacity()) * sizeof(std::uint32_t) +
                 (due_.capacity() + next_use_.capacity()) * sizeof(std::uint64_t) + away_.size() * tree_node +
                 just_opened_.capacity() * sizeof(std::uint32_t)};
  }

 private:
  // Blocks leave in the gap, the next use of which is `launches` after the executing one.
  void open(std::uint32_t gap, std::uint64_t launches) {
    next_use_[step_.gaps()[gap].segment] = clock_ + launches;
    if (places_blocks()) {
      open_[step_.gaps()[gap].segment] = gap;
    }
    constexpr std::uint64_t last = std::uint64_t{1} << 63U;
    std::uint64_t& due = due_[step_.gaps()[gap].segment];
    due = clock_ + launches + (step_.gaps()[gap].returns ? 0 : last);
    if (plan_.leaves[gap] != 0) {
      away_.insert({due, gap});
      if (just_opened_.size() == step_.gaps().size()) {
        just_opened_.clear();  // no gap is asked for
      }
      just_opened_.push_back(gap);
      ++opened_;
    } else if (write_back_[gap] != 0) {
      staying_.insert({due, gap});
    }
  }
  // By gap: blocks that leave in the first gap after it in which any do, unless they are written or die before.
  void find_write_backs() {
    const sequence<std::uint32_t>& to_host = places_blocks() ? far_ : plan_.leaves;
    write_back_.resize(step_.gaps().size());
    for (const step_segment& s : step_.segments()) {
      for (std::uint32_t i = 2 * s.gap_count; i-- != 0;) {  // twice around, because the last gap looks at the first one
        const std::uint32_t gap = s.first_gap + i % s.gap_count;
        const std::uint32_t next = s.first_gap + (i + 1) % s.gap_count;
        const bool stays_as_it_is = step_.gaps()[gap].returns && !step_.gaps()[next].writes;
        const std::uint32_t later = to_host[next] != 0 ? to_host[next] : write_back_[next];
        write_back_[gap] = stays_as_it_is ? later : 0;
      }
    }
  }

  step_segments step_;
  step_plan plan_;
  sequence<std::uint32_t> far_{};     // by gap: of the blocks that leave, those that go to the host; empty: all do
  sequence<std::uint32_t> open_{};    // by segment: the gap that is open, where neighbours hold blocks
  sequence<fetch_reach> reach_;       // by launch
  sequence<std::uint64_t> due_;       // by segment: when the gap that is open ends
  sequence<std::uint64_t> next_use_;  // by segment: in `clock_`
  std::set<std::pair<std::uint64_t, std::uint32_t>>
      away_{};                             // gaps that are open in which blocks leave, by when they end
  sequence<std::uint32_t> just_opened_{};  // of those, gaps that have not been visited, or should be again
  sequence<std::uint32_t> write_back_{};   // by gap
  std::set<std::pair<std::uint64_t, std::uint32_t>>
      staying_{};  // gaps that are open in which nothing leaves, by when they end
  std::uint32_t position_ = 0;
  std::uint64_t clock_ = 0;   // launches that have finished since
  std::uint64_t opened_ = 0;  // gaps that were added to `away_`
};

}  // namespace v0
}  // namespace deepum
