#pragma once

#include <deepum/policy/step_segments.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
#include <vector>

namespace deepum {
inline namespace v0 {

/// What a step is planned for.
struct step_limits {
  std::uint32_t budget = 0;     ///< blocks that the device may hold
  nanoseconds in_per_block{};   ///< time that the link takes to bring a block in
  nanoseconds out_per_block{};  ///< and to take one out
};

/// Which blocks leave the device in each step, and after which of their uses.
struct step_plan {
  /// By gap of the segments: blocks that leave in it. They are the first ones of the segment, so that those that leave
  /// in several gaps are the same.
  std::vector<std::uint32_t> leaves{};
  /// By launch: blocks on the device while it runs, if each block that leaves is gone at once and comes back at its
  /// next use. At most the budget, or what the launch itself uses.
  std::vector<std::uint32_t> occupied{};
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

/// Numbers that intervals are added to and whose least is asked for, both in logarithmic time.
class range_minimum {
 public:
  explicit range_minimum(const std::vector<std::int64_t>& values) {
    while (leaves_ < values.size()) {
      leaves_ *= 2;
    }
    nodes_.resize(2 * leaves_);
    for (std::size_t i = 0; i != values.size(); ++i) {
      nodes_[leaves_ + i].least = values[i];
    }
    for (std::size_t i = leaves_; i-- > 1;) {
      nodes_[i].least = std::min(nodes_[2 * i].least, nodes_[2 * i + 1].least);
    }
  }

  /// Adds to the numbers [begin, end).
  void add(std::size_t begin, std::size_t end, std::int64_t by) { add(1, 0, leaves_, begin, end, by); }
  /// The least of the numbers [begin, end); the greatest number there is where there are none.
  [[nodiscard]] std::int64_t least(std::size_t begin, std::size_t end) const {
    return least(1, 0, leaves_, begin, end);
  }

 private:
  static constexpr std::int64_t greatest = std::numeric_limits<std::int64_t>::max() / 2;
  struct node {
    std::int64_t least = greatest;  // of the numbers below
    std::int64_t added = 0;         // to all of them, and not to the nodes below
  };

  void add(std::size_t n, std::size_t low, std::size_t high, std::size_t begin, std::size_t end, std::int64_t by) {
    if (high <= begin || end <= low) {
      return;
    }
    if (begin <= low && high <= end) {
      nodes_[n].least += by;
      nodes_[n].added += by;
      return;
    }
    const std::size_t middle = (low + high) / 2;
    add(2 * n, low, middle, begin, end, by);
    add(2 * n + 1, middle, high, begin, end, by);
    nodes_[n].least = nodes_[n].added + std::min(nodes_[2 * n].least, nodes_[2 * n + 1].least);
  }
  [[nodiscard]] std::int64_t least(std::size_t n, std::size_t low, std::size_t high, std::size_t begin,
                                   std::size_t end) const {
    if (high <= begin || end <= low) {
      return greatest;
    }
    if (begin <= low && high <= end) {
      return nodes_[n].least;
    }
    const std::size_t middle = (low + high) / 2;
    return nodes_[n].added +
           std::min(least(2 * n, low, middle, begin, end), least(2 * n + 1, middle, high, begin, end));
  }

  std::size_t leaves_ = 1;
  std::vector<node> nodes_{};
};

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
[[nodiscard]] inline std::vector<std::uint32_t> occupied_at(const step_segments& step,
                                                            const std::vector<std::uint32_t>& leaves) {
  // Differences from launch to launch; they wrap as unsigned numbers do.
  std::vector<std::uint32_t> change(std::size_t{step.launches()} + 1, 0);
  for (std::size_t i = 0; i != step.gaps().size(); ++i) {
    const step_gap& gap = step.gaps()[i];
    const std::uint32_t stays = step.blocks_of(gap).count - (leaves.empty() ? 0 : leaves[i]);
    for_each_interval(gap, step.launches(), [&](std::uint32_t begin, std::uint32_t end) {
      change[begin] += stays;
      change[end] -= stays;
    });
  }
  std::vector<std::uint32_t> occupied(step.launches());
  std::uint32_t held = 0;
  for (std::uint32_t k = 0; k != step.launches(); ++k) {
    held += change[k];
    occupied[k] = held + step.need(k);
  }
  return occupied;
}

/// How a plan is to be made beyond what the budget asks for.
struct plan_style {
  std::uint32_t margin = 0;  ///< blocks of the budget that are left for what arrives early, where that is possible
  double slowdown = 1;       ///< how much longer than its launches a step takes
  nanoseconds window{};      ///< returns are spread over windows of this length of such a step; 0: they are not
};

/// Makes one plan. Its memory is linear in gaps and launches.
class step_planner {
 public:
  step_planner(const step_segments& step, const step_limits& limits, const plan_style& style)
      : step_(step),
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
      open_calendar();
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
  // What never comes back goes first, then what comes back last.
  struct goes_later {
    bool operator()(const candidate& a, const candidate& b) const {
      if (a.returns != b.returns) {
        return a.returns;
      }
      return a.end != b.end ? a.end < b.end : a.gap < b.gap;
    }
  };
  using candidates = std::priority_queue<candidate, std::vector<candidate>, goes_later>;

  [[nodiscard]] bool spreads() const { return style_.window.count() != 0; }
  [[nodiscard]] std::uint32_t stays(std::uint32_t gap) const {
    return step_.blocks_of(step_.gaps()[gap]).count - plan_.leaves[gap];
  }

  // --- the calendar of returns ---

  void open_calendar() {
    constexpr double most_windows = 4096;
    const double length = static_cast<double>(step_.begin_of(step_.launches()).count());
    const double windows = std::floor(
        std::clamp(style_.slowdown * length / static_cast<double>(style_.window.count()), 1.0, most_windows));
    const double room = style_.slowdown * length / windows /
                        static_cast<double>(std::max<std::int64_t>(1, limits_.in_per_block.count()));
    room_.assign(static_cast<std::size_t>(windows), static_cast<std::uint32_t>(std::min(room, 1e9)));
    for (std::uint32_t k = 0; k != step_.launches(); ++k) {
      const double part = static_cast<double>(step_.begin_of(k).count()) / length;
      window_of_.push_back(static_cast<std::uint32_t>(std::min(part * windows, windows - 1)));
    }
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
    nanoseconds time{};
    for_each_interval(g, step_.launches(), [&](std::uint32_t begin, std::uint32_t end) {
      time += step_.begin_of(end) - step_.begin_of(begin);
    });
    const nanoseconds copy =
        (dirty(gap) ? limits_.out_per_block : nanoseconds{}) + (g.returns ? limits_.in_per_block : nanoseconds{});
    return static_cast<double>(time.count()) * style_.slowdown <
           2.0 * static_cast<double>(step_.need(g.launch)) * static_cast<double>(copy.count());
  }

  // --- the choice ---

  // Goes once around the step and makes room where it is short, as Belady's rule does: what comes back last leaves. It
  // begins where the least room is taken, so that little of what it meets later is already there.
  void choose() {
    const std::uint32_t n = step_.launches();
    const std::uint32_t first = static_cast<std::uint32_t>(
        std::min_element(plan_.occupied.begin(), plan_.occupied.end()) - plan_.occupied.begin());
    ending_.assign(2 * std::size_t{n} + 1, 0);
    for (std::uint32_t gap = 0; gap != step_.gaps().size(); ++gap) {
      const step_gap& g = step_.gaps()[gap];
      const std::uint32_t after = (g.launch >= first ? g.launch - first : g.launch + n - first) + 1;
      if (after + g.held > n) {
        hold(gap, after + g.held - n);
      }
    }
    for (position_ = 0; position_ != n; ++position_) {
      const std::uint32_t launch = position_ < n - first ? first + position_ : first + position_ - n;
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
      if (give_up_ordinary(excess(wanted_[launch])) || give_up(congested_, excess(wanted_[launch]))) {
        continue;
      }
      if (excess(limits_.budget) == 0 || !give_up(short_ones_, excess(limits_.budget))) {
        return;  // short gaps only for the budget, not for the margin
      }
    }
  }
  // A gap whose return falls into a window with no time left is put aside.
  bool give_up_ordinary(std::uint32_t count) {
    while (skip_past(ordinary_)) {
      const candidate c = ordinary_.top();
      if (!spreads() || !c.returns) {
        return give_up(ordinary_, count);
      }
      std::uint32_t& room = room_[window_of_[step_.gaps()[c.gap].next]];
      if (room != 0) {
        const std::uint32_t before = plan_.leaves[c.gap];
        give_up(ordinary_, std::min(count, room));
        room -= plan_.leaves[c.gap] - before;
        return true;
      }
      ordinary_.pop();
      congested_.push(c);
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

  // Around a cycle the choice may have made more room than is needed. What fits stays after all, short gaps first: they
  // cost the link as much as long ones and take less room.
  void restore() {
    std::vector<std::int64_t> room(step_.launches());
    const std::vector<std::uint32_t> occupied = occupied_at(step_, plan_.leaves);
    for (std::uint32_t k = 0; k != step_.launches(); ++k) {
      room[k] = static_cast<std::int64_t>(wanted_[k]) - occupied[k];
    }
    range_minimum least(room);
    std::vector<std::uint32_t> order;
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
  std::vector<std::uint32_t> wanted_{};  // by launch: blocks on the device at most, as far as that is possible

  std::vector<std::uint32_t> room_{};         // by window: blocks that can still return in it
  std::vector<std::uint32_t> window_of_{};    // by launch
  std::vector<std::uint32_t> since_write_{};  // by gap
  std::vector<std::uint32_t> last_left_{};    // by segment: the gap in which blocks left last

  std::uint32_t position_ = 0;           // launches since the choice began
  std::uint32_t held_ = 0;               // blocks that gaps hold there
  std::vector<std::uint32_t> ending_{};  // by position: of those, blocks whose gap ends
  candidates ordinary_{};
  candidates congested_{};  // they return when the link is busy
  candidates short_ones_{};
};

}  // namespace detail

/// Chooses which blocks leave the device in each step so that every launch finds what it needs within the budget, and
/// so that the link has the time to bring back what left.
///
/// Room is made by Belady's rule around the cycle, with three changes. A margin of the budget is left free, so that
/// what is needed soon can arrive early. Returns are spread: no window of the step gets more of them than the link can
/// bring in, as long as another gap can be chosen. Blocks do not leave in gaps so short that the copies would not be
/// done in time, unless the budget cannot be kept without. Where all fits, nothing leaves.
///
/// What is not known of the launches' durations costs little: of the recorded models no plan made with equal durations,
/// or with the blocks of each launch for its duration, was more than 4 % slower than one made with the true ones.
///
/// A pure function. A launch that uses more than the budget keeps only itself.
/// @errors  None. Cost: O(g log g + n) for g gaps and n launches; memory linear in both.
[[nodiscard]] inline step_plan plan_step(const step_segments& step, const step_limits& limits) {
  step_plan least = detail::step_planner(step, limits, {}).make();
  if (least.idle()) {
    return least;
  }
  std::uint32_t largest = 0;
  for (std::uint32_t k = 0; k != step.launches(); ++k) {
    largest = std::max(largest, step.need(k));
  }
  const std::uint32_t unit = std::min(limits.budget / 24, largest / 8);
  const double copying = static_cast<double>(least.returning) * static_cast<double>(limits.in_per_block.count());
  const double computing = static_cast<double>(step.begin_of(step.launches()).count());
  const detail::plan_style spread{.margin = unit / 4,
                                  .slowdown = std::max(1.0, copying / computing),
                                  .window = std::max(nanoseconds{1}, limits.in_per_block * std::max(unit, 1U))};
  return detail::step_planner(step, limits, spread).make();
}

}  // namespace v0
}  // namespace deepum
