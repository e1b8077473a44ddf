#pragma once

#include <deepum/core/range_minimum.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/link_windows.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/planning/step_styles.hpp>
#include <deepum/planning/step_timer.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <queue>
#include <utility>

namespace deepum {
inline namespace v0 {

/// Which blocks leave the device in each step, and after which of their uses.
struct step_plan {
  /// By gap of the segments: blocks that leave in it. They are the first ones of the segment, so that those that leave
  /// in several gaps are the same.
  sequence<std::uint32_t> leaves{};
  /// By launch: blocks on the device while it runs, if each block that leaves is gone at once and comes back at its
  /// next use. At most the budget, or what the launch itself uses.
  sequence<std::uint32_t> occupied{};
  /// Blocks that come back in a step.
  std::uint64_t returning = 0;

  /// Everything stays.
  [[nodiscard]] bool idle() const {
    return std::all_of(leaves.begin(), leaves.end(), [](std::uint32_t blocks) { return blocks == 0; });
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return bytes{(leaves.capacity() + occupied.capacity()) * sizeof(std::uint32_t)};
  }
};

namespace detail {

/// Calls `visit(begin, end)` for the launches over which a gap holds room: one interval, or two around the end of the
/// step.
template <class Visit>
void for_each_interval(const step_gap& gap, std::uint32_t launches, Visit&& visit) {
  const std::uint32_t begin = gap.launch + 1;
  const std::uint32_t end = begin + gap.held;
  if (begin < std::min(end, launches)) {
    visit(begin, std::min(end, launches));
  }
  if (end > launches) {
    visit(std::uint32_t{0}, end - launches);
  }
}

/// Blocks on the device at each launch. @param leaves  By gap; empty: none.
[[nodiscard]] inline sequence<std::uint32_t> occupied_at(const step_segments& step,
                                                         const sequence<std::uint32_t>& leaves) {
  // Differences from launch to launch; they wrap as unsigned numbers do.
  sequence<std::uint32_t> change(std::size_t{step.launches()} + 1, 0);
  for (std::size_t i = 0; i != step.gaps().size(); ++i) {
    const step_gap& gap = step.gaps()[i];
    const std::uint32_t stays = step.blocks_of(gap).count - (leaves.empty() ? 0 : leaves[i]);
    for_each_interval(gap, step.launches(), [&](std::uint32_t begin, std::uint32_t end) {
      change[begin] += stays;
      change[end] -= stays;
    });
  }
  sequence<std::uint32_t> occupied(step.launches());
  std::uint32_t held = 0;
  for (std::uint32_t k = 0; k != step.launches(); ++k) {
    held += change[k];
    occupied[k] = held + step.need(k);
  }
  return occupied;
}

/// Makes one plan. Its memory is linear in gaps and launches.
class step_planner {
 public:
  step_planner(const step_segments& segments, const step_limits& limits, const plan_style& style)
      : step_(segments),
        limits_(limits),
        style_(style) {}

  [[nodiscard]] step_plan make() {
    plan_.leaves.assign(step_.gaps().size(), 0);
    plan_.occupied = occupied_at(step_, {});
    for (std::uint32_t k = 0; k != step_.launches(); ++k) {
      const std::uint32_t margin = std::min(style_.margin, limits_.budget);
      wanted_.push_back(std::max(step_.need(k), limits_.budget - margin));
    }
    if (spreads()) {
      links_ = link_windows(style_.begins, style_.window, limits_, style_.both_ways);
      find_writes();
    }
    choose();
    restore();
    plan_.occupied = occupied_at(step_, plan_.leaves);
    for (std::size_t i = 0; i != plan_.leaves.size(); ++i) {
      plan_.returning += step_.gaps()[i].returns ? plan_.leaves[i] : 0;
    }
    return std::move(plan_);
  }

 private:
  // A gap in which blocks may leave, while it holds room for them.
  struct candidate {
    std::uint32_t gap = 0;
    std::uint32_t end = 0;  // position of the first launch over which it does not
    bool returns = true;
  };
  // Blocks that never come back go first, then those that come back last.
  struct goes_later {
    bool operator()(const candidate& a, const candidate& b) const {
      if (a.returns != b.returns) {
        return a.returns;
      }
      return a.end != b.end ? a.end < b.end : a.gap < b.gap;
    }
  };
  using candidates = std::priority_queue<candidate, sequence<candidate>, goes_later>;

  [[nodiscard]] bool spreads() const { return style_.window.count() != 0; }
  [[nodiscard]] std::uint32_t stays(std::uint32_t gap) const {
    return step_.blocks_of(step_.gaps()[gap]).count - plan_.leaves[gap];
  }

  // --- the times of copies ---

  // Takes the time to copy blocks out for a launch that lies in the gap. @returns  For how many of so many.
  std::uint32_t take_departure(std::uint32_t gap, std::uint32_t launch, std::uint32_t count) {
    if (!style_.both_ways || !dirty(gap)) {
      return count;
    }
    return links_.take_departure(limits_.copies_ahead ? written_at(gap) : step_.gaps()[gap].launch, launch, count);
  }
  // The launch that wrote what is dirty in the gap.
  [[nodiscard]] std::uint32_t written_at(std::uint32_t gap) const {
    const step_segment& s = step_.segments()[step_.gaps()[gap].segment];
    const std::uint32_t place = gap - s.first_gap;
    const std::uint32_t since = since_write_[gap];
    return step_.gaps()[s.first_gap + (place >= since ? place - since : place + s.gap_count - since)].launch;
  }

  // For each gap, how many gaps of the segment have begun since the last use that wrote it.
  void find_writes() {
    since_write_.assign(step_.gaps().size(), never);
    for (const step_segment& s : step_.segments()) {
      std::uint32_t since = never;
      for (std::uint32_t i = 0; i != 2 * s.gap_count; ++i) {
        const std::uint32_t gap = s.first_gap + i % s.gap_count;
        since = step_.gaps()[gap].writes ? 0 : since == never ? never : since + 1;
        since_write_[gap] = since;
      }
    }
    last_left_.assign(step_.segments().size(), never);
  }
  // Whether the host's copy is out of date in the gap, as far as the gaps before it are chosen.
  [[nodiscard]] bool dirty(std::uint32_t gap) const {
    const step_gap& g = step_.gaps()[gap];
    const std::uint32_t last = last_left_[g.segment];
    if (since_write_[gap] == never || last == never) {
      return since_write_[gap] != never;
    }
    const std::uint32_t count = step_.segments()[g.segment].gap_count;
    return since_write_[gap] < (last < gap ? gap - last : gap + count - last);
  }
  // A gap is too short where the link could hardly take out and bring back what the launch before it uses.
  [[nodiscard]] bool too_short(std::uint32_t gap) const {
    const step_gap& g = step_.gaps()[gap];
    double time = 0;
    for_each_interval(g, step_.launches(), [&](std::uint32_t begin, std::uint32_t end) {
      time += style_.begins[end] - style_.begins[begin];
    });
    const nanoseconds copy =
        (dirty(gap) ? limits_.out_per_block : nanoseconds{}) + (g.returns ? limits_.in_per_block : nanoseconds{});
    return time < 2.0 * static_cast<double>(step_.need(g.launch)) * static_cast<double>(copy.count());
  }

  // --- the choice ---

  // Goes once around the step and makes room where it is short, as Belady's rule does: what comes back last leaves. It
  // begins where the least room is taken, so that little of what it meets later is already there.
  void choose() {
    const std::uint32_t n = step_.launches();
    const std::uint32_t first = static_cast<std::uint32_t>(
        std::min_element(plan_.occupied.begin(), plan_.occupied.end()) - plan_.occupied.begin());
    first_ = first;
    ending_.assign(2 * std::size_t{n} + 1, 0);
    back_.assign(2 * std::size_t{n} + 1, 0);
    early_.assign(std::size_t{n} + 1, 0);
    for (std::uint32_t gap = 0; gap != step_.gaps().size(); ++gap) {
      const step_gap& g = step_.gaps()[gap];
      const std::uint32_t after = (g.launch >= first ? g.launch - first : g.launch + n - first) + 1;
      if (after + g.held > n) {
        hold(gap, after + g.held - n);
      }
    }
    for (position_ = 0; position_ != n; ++position_) {
      const std::uint32_t launch = position_ < n - first ? first + position_ : first + position_ - n;
      held_ += back_[position_];
      held_ -= ending_[position_];
      make_room(launch);
      for (const std::uint32_t gap : step_.gaps_after(launch)) {
        if (step_.gaps()[gap].held != 0 && stays(gap) != 0) {
          hold(gap, position_ + 1 + step_.gaps()[gap].held);
        }
      }
    }
  }
  void hold(std::uint32_t gap, std::uint32_t end) {
    held_ += stays(gap);
    ending_[end] += stays(gap);
    const candidate c{gap, end, step_.gaps()[gap].returns};
    (spreads() && too_short(gap) ? short_ones_ : ordinary_).push(c);
  }
  void make_room(std::uint32_t launch) {
    const auto excess = [&](std::uint32_t limit) {
      const std::uint32_t all = held_ + step_.need(launch);
      return all > limit ? all - limit : 0;
    };
    while (excess(wanted_[launch]) != 0) {
      if (give_up_ordinary(excess(wanted_[launch]), launch) || give_up_late(excess(wanted_[launch]), launch) ||
          give_up(stuck_, excess(wanted_[launch]))) {
        continue;
      }
      if (excess(limits_.budget) == 0 || !give_up(short_ones_, excess(limits_.budget))) {
        return;  // short gaps only for the budget, not for the margin
      }
    }
  }
  // A gap is put aside where the link has no time left to bring its blocks back, or to take them out until now.
  bool give_up_ordinary(std::uint32_t count, std::uint32_t launch) {
    while (skip_past(ordinary_)) {
      const candidate c = ordinary_.top();
      if (!spreads()) {
        return give_up(ordinary_, count);
      }
      if (style_.early_returns && c.returns) {
        if (give_up_for_a_while(c, count, launch)) {
          return true;
        }
        continue;
      }
      const std::uint32_t next = step_.gaps()[c.gap].next;
      const std::uint32_t fits = std::min(count, stays(c.gap));
      const std::uint32_t return_in_time = c.returns ? links_.room_to_return(next, fits) : fits;
      const std::uint32_t in_time = return_in_time != 0 ? take_departure(c.gap, launch, return_in_time) : 0;
      if (in_time != 0) {
        if (c.returns) {
          links_.take_return(next, in_time);
        }
        return give_up(ordinary_, in_time);
      }
      ordinary_.pop();
      (return_in_time == 0 ? late_ : stuck_).push(c);
    }
    return false;
  }
  // The same for blocks that come back when the link has time, the latest there is; until then they give room.
  bool give_up_for_a_while(const candidate& c, std::uint32_t count, std::uint32_t launch) {
    const link_windows::early_return time = links_.latest_return(launch, c.end - position_);
    const std::uint32_t in_time =
        time.launches != 0 ? take_departure(c.gap, launch, std::min({count, stays(c.gap), time.room})) : 0;
    if (in_time == 0) {
      ordinary_.pop();
      (time.launches == 0 ? late_ : stuck_).push(c);
      return false;
    }
    links_.take(time, in_time);
    if (const std::uint32_t back = position_ + time.launches; back != c.end) {
      back_[back] += in_time;
      ending_[c.end] += in_time;
      const std::uint32_t n = step_.launches();
      const step_gap early{.launch = (first_ + back + n - 1) % n, .held = c.end - back};
      for_each_interval(early, n, [&](std::uint32_t begin, std::uint32_t end) {
        early_[begin] += in_time;
        early_[end] -= in_time;
      });
    }
    return give_up(ordinary_, in_time);
  }
  // Blocks that have to come back anyway can come a little sooner or later. Room that is not made in time stops
  // the launch.
  bool give_up_late(std::uint32_t count, std::uint32_t launch) {
    while (skip_past(late_)) {
      const candidate c = late_.top();
      if (const std::uint32_t in_time = take_departure(c.gap, launch, std::min(count, stays(c.gap))); in_time != 0) {
        return give_up(late_, in_time);
      }
      late_.pop();
      stuck_.push(c);
    }
    return false;
  }
  // Lets up to `count` blocks leave in the first gap of the queue. Returns whether there was one.
  bool give_up(candidates& from, std::uint32_t count) {
    if (!skip_past(from)) {
      return false;
    }
    const candidate c = from.top();
    count = std::min(count, stays(c.gap));
    plan_.leaves[c.gap] += count;
    held_ -= count;
    ending_[c.end] -= count;
    if (spreads()) {
      last_left_[step_.gaps()[c.gap].segment] = c.gap;
    }
    return true;
  }
  // Removes gaps that hold room no longer, or for no block. Returns whether any is left.
  bool skip_past(candidates& from) const {
    while (!from.empty() && (from.top().end <= position_ || stays(from.top().gap) == 0)) {
      from.pop();
    }
    return !from.empty();
  }

  // Around a cycle the choice may have made more room than is needed. Blocks that fit stay after all, short gaps first:
  // they cost the link as much as long ones and take less room.
  void restore() {
    sequence<std::int64_t> room(step_.launches());
    const sequence<std::uint32_t> occupied = occupied_at(step_, plan_.leaves);
    std::uint32_t early = 0;
    for (std::uint32_t k = 0; k != step_.launches(); ++k) {
      early += early_[k];
      room[k] = static_cast<std::int64_t>(wanted_[k]) - occupied[k] - early;
    }
    range_minimum least(room);
    sequence<std::uint32_t> order;
    for (std::uint32_t gap = 0; gap != plan_.leaves.size(); ++gap) {
      if (plan_.leaves[gap] != 0) {
        order.push_back(gap);
      }
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return step_.gaps()[a].held < step_.gaps()[b].held; });
    for (const std::uint32_t gap : order) {
      std::int64_t fits = plan_.leaves[gap];
      for_each_interval(step_.gaps()[gap], step_.launches(), [&](std::uint32_t begin, std::uint32_t end) {
        fits = std::min(fits, least.least(begin, end));
      });
      if (fits > 0) {
        plan_.leaves[gap] -= static_cast<std::uint32_t>(fits);
        for_each_interval(step_.gaps()[gap], step_.launches(),
                          [&](std::uint32_t begin, std::uint32_t end) { least.add(begin, end, -fits); });
      }
    }
  }

  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();

  const step_segments& step_;
  step_limits limits_;
  plan_style style_;
  step_plan plan_{};
  sequence<std::uint32_t> wanted_{};  // by launch: blocks on the device at most, as far as that is possible

  link_windows links_{};
  sequence<std::uint32_t> since_write_{};  // by gap
  sequence<std::uint32_t> last_left_{};    // by segment: the gap in which blocks left last

  std::uint32_t position_ = 0;        // launches since the choice began
  std::uint32_t first_ = 0;           // launch that it began with
  std::uint32_t held_ = 0;            // blocks that gaps hold there
  sequence<std::uint32_t> ending_{};  // by position: of those, blocks whose gap ends
  sequence<std::uint32_t> back_{};    // by position: blocks that are back early from then on
  sequence<std::uint32_t>
      early_{};  // by launch: the change of blocks that are back before their gap ends; and one more
  candidates ordinary_{};
  candidates late_{};   // they return when the link is busy
  candidates stuck_{};  // they could not be taken out in time
  candidates short_ones_{};
};

}  // namespace detail

/// Chooses which blocks leave the device in each step so that every launch finds what it needs within the budget, and
/// so that the link has the time to take them out and to bring them back.
///
/// Room is made by Belady's rule around the cycle, with three changes. A margin of the budget is left free, so that
/// what is needed soon can arrive early, and copies go on while the next launch still needs all that it uses. Copies
/// are spread: no window of the step gets more of them than the link has the time for in either direction, as long as
/// another gap can be chosen. Blocks do not leave in gaps so short that the copies would not be done in time, unless
/// the budget cannot be kept without. Where all fits, nothing leaves.
///
/// How long each part of the step takes depends on the plan, and what is spread moves more. So three are made: one for
/// a step that is longer than its launches by a factor all over, which spreads returns alone; one for launches that
/// take as long as they compute or as their share of the returns does, which spreads both directions; and one that
/// spreads nothing. Where copies are made ahead the last one is another one for the longer step: it spreads both
/// directions, and blocks may come back earlier than they are needed. The one that `detail::step_timer` expects to be
/// fastest is taken; of equal ones, that with fewest returns. Where copies are made ahead the model often finds no wait
/// in several of them; then the one that spreads more is taken, for it leaves the links more time.
///
/// Unknown durations of launches cost little: of the recorded models no plan made with equal durations,
/// or with the blocks of each launch for its duration, was more than 4 % slower than one made with the true ones.
///
/// A pure function. A launch that uses more than the budget keeps only itself.
/// @errors  None. Cost: O(g log g + n) for g gaps and n launches; memory linear in both.
[[nodiscard]] inline step_plan plan_step(const step_segments& step, const step_limits& limits) {
  step_plan least = detail::step_planner(step, limits, {}).make();
  if (least.idle()) {
    return least;
  }
  detail::plan_style style = detail::spread_returns(step, limits, least.returning);
  const auto cost = [&](const step_plan& plan) {
    return std::pair{detail::step_timer(step, limits, plan.leaves, plan.occupied).begins().back(), plan.returning};
  };
  step_plan best = detail::step_planner(step, limits, style).make();
  auto least_cost = cost(best);
  const auto consider = [&](step_plan&& other) {
    const auto c = cost(other);
    if (c < least_cost || (limits.copies_ahead && c == least_cost)) {
      best = std::move(other);
      least_cost = c;
    }
  };
  style.begins = detail::shared_begins(step, limits, least.returning);
  style.both_ways = true;
  consider(detail::step_planner(step, limits, style).make());
  if (limits.copies_ahead) {
    style.begins = detail::stretched_begins(step, limits, least.returning);
    style.early_returns = true;
  } else {
    style = {.margin = style.margin};
  }
  consider(detail::step_planner(step, limits, style).make());
  return best;
}

}  // namespace v0
}  // namespace deepum
