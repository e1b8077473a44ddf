#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/prediction/footprint.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace deepum {
inline namespace v0 {

/// A step that recurs: its launches in order, which blocks each uses, and which contents die after it.
///
/// The step is a cycle: its first launch follows its last one.
class step_description {
 public:
  /// One launch.
  struct launch {
    nanoseconds duration{};
    std::span<const block_access> uses{};
    std::span<const block_range> last_uses{};
  };

  /// Appends a launch.
  /// @param duration  How long it runs. Where nothing is known of any of them, they are taken for equal.
  void add_launch(nanoseconds duration = {}) {
    expects(duration.count() >= 0, "a launch takes less than no time");
    launches_.push_back({duration, uses_.size(), last_uses_.size()});
  }
  /// The last launch uses these blocks. Blocks that it names twice are used once, in both ways.
  /// @param mode  `access::overwrite` only where the old contents need not be brought back for it.
  void add_use(block_range range, access mode) {
    expects(!launches_.empty(), "a use without a launch");
    if (!range.empty()) {
      uses_.push_back({range, mode});
    }
  }
  /// The contents of these blocks are dead once the last launch has run, until something uses them again.
  void add_last_use(block_range range) {
    expects(!launches_.empty(), "a last use without a launch");
    if (!range.empty()) {
      last_uses_.push_back(range);
    }
  }

  /// Number of launches.
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(launches_.size()); }
  /// Valid until something is added.
  [[nodiscard]] launch operator[](std::uint32_t k) const {
    const bool last = k + 1 == size();
    const std::size_t use_end = last ? uses_.size() : launches_[k + 1].first_use;
    const std::size_t last_use_end = last ? last_uses_.size() : launches_[k + 1].first_last_use;
    return {launches_[k].duration,
            {uses_.data() + launches_[k].first_use, use_end - launches_[k].first_use},
            {last_uses_.data() + launches_[k].first_last_use, last_use_end - launches_[k].first_last_use}};
  }
  void clear() {
    launches_.clear();
    uses_.clear();
    last_uses_.clear();
  }

 private:
  struct entry {
    nanoseconds duration{};
    std::size_t first_use = 0;
    std::size_t first_last_use = 0;
  };
  sequence<entry> launches_{};
  std::vector<block_access> uses_{};
  std::vector<block_range> last_uses_{};
};

/// Adjacent blocks that a step treats alike: the same launches use them in the same ways, and their contents die
/// together.
struct step_segment {
  block_range blocks{};
  std::uint32_t first_gap = 0;  ///< its gaps are adjacent, in the order of launches
  std::uint32_t gap_count = 0;  ///< as many as it has uses in a step
};

/// What lies between one use of a segment and the next: its blocks may leave the device and come back.
struct step_gap {
  std::uint32_t segment = 0;
  std::uint32_t launch = 0;  ///< the use before it
  std::uint32_t next = 0;    ///< the use after it; the same launch in the next step where a step has one use only
  std::uint32_t held = 0;    ///< launches from `launch + 1` on over which blocks that stay take room for something
  bool writes = false;       ///< the use before it writes
  bool returns = true;       ///< false: the contents die in it, or are overwritten after it, and never come back

  friend constexpr bool operator==(const step_gap&, const step_gap&) = default;
};

/// A step, cut into segments and gaps: what a planner looks at instead of blocks.
///
/// Immutable. Cost of making it: linear in launches, gaps and the blocks between the lowest and the highest one.
class step_segments {
 public:
  explicit step_segments(const step_description& described) : launches_(described.size()) {
    expects(launches_ <= std::numeric_limits<std::uint32_t>::max() / 4, "a step has more launches than can be counted");
    add_up_times(described);
    const pieces cut = cut_into_pieces(described);
    sequence<std::uint32_t> first_gap;
    sequence<step_gap> gaps = find_gaps(described, cut, first_gap);
    end_at_deaths(described, cut, first_gap, gaps);
    join_pieces(cut, first_gap, gaps);
    sort_by_launch();
  }

  /// Number of launches of the step.
  [[nodiscard]] std::uint32_t launches() const { return launches_; }
  /// In the order of addresses. Blocks that no launch uses are in none.
  [[nodiscard]] std::span<const step_segment> segments() const { return {segments_.data(), segments_.size()}; }
  /// Those of a segment are adjacent.
  [[nodiscard]] std::span<const step_gap> gaps() const { return {gaps_.data(), gaps_.size()}; }
  /// The gaps that begin after a launch, as places in `gaps()`, ascending: one for each segment that it uses.
  [[nodiscard]] std::span<const std::uint32_t> gaps_after(std::uint32_t launch) const {
    return {by_launch_.data() + first_by_launch_[launch], first_by_launch_[launch + 1] - first_by_launch_[launch]};
  }
  /// The gap of the same segment that ends where this one begins.
  [[nodiscard]] std::uint32_t gap_before(std::uint32_t gap) const {
    const step_segment& s = segments_[gaps_[gap].segment];
    return gap != s.first_gap ? gap - 1 : s.first_gap + s.gap_count - 1;
  }
  /// Blocks of the segment that a gap belongs to.
  [[nodiscard]] block_range blocks_of(const step_gap& gap) const { return segments_[gap.segment].blocks; }
  /// Blocks that a launch uses.
  [[nodiscard]] std::uint32_t need(std::uint32_t launch) const { return need_[launch]; }
  /// From the beginning of the step to that of a launch; to the end of the step for `launches()`. A step takes time:
  /// where none is known each launch takes a nanosecond.
  [[nodiscard]] nanoseconds begin_of(std::uint32_t launch) const { return begin_[launch]; }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return bytes{segments_.capacity() * sizeof(step_segment) + gaps_.capacity() * sizeof(step_gap) +
                 begin_.capacity() * sizeof(nanoseconds) +
                 (by_launch_.capacity() + first_by_launch_.capacity() + need_.capacity()) * sizeof(std::uint32_t)};
  }

 private:
  // The blocks, cut wherever the blocks of a use begin or end. No two blocks of a piece are treated differently.
  struct pieces {
    std::uint32_t origin = 0;            // the lowest block
    sequence<std::uint32_t> of_block{};  // from the lowest block on, and one more
    sequence<std::uint32_t> first{};     // by piece: its first block, and one more

    [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(first.size() - 1); }
    [[nodiscard]] std::uint32_t end() const { return origin + static_cast<std::uint32_t>(of_block.size() - 1); }
    [[nodiscard]] std::uint32_t size(std::uint32_t piece) const { return first[piece + 1] - first[piece]; }
    // Calls `visit` for the pieces of a range, as far as any launch uses blocks there.
    template <class Visit>
    void for_each(block_range range, Visit&& visit) const {
      const std::uint32_t begin = std::max(range.begin_value(), origin);
      const std::uint32_t end = std::min(range.end_value(), this->end());
      if (begin < end) {
        for (std::uint32_t p = of_block[begin - origin]; p != of_block[end - origin]; ++p) {
          visit(p);
        }
      }
    }
  };

  void add_up_times(const step_description& step) {
    nanoseconds all{};
    begin_.push_back(all);
    for (std::uint32_t k = 0; k != launches_; ++k) {
      begin_.push_back(all += step[k].duration);
    }
    if (all == nanoseconds{}) {
      for (std::uint32_t k = 0; k <= launches_; ++k) {
        begin_[k] = nanoseconds{k};
      }
    }
  }

  [[nodiscard]] pieces cut_into_pieces(const step_description& step) const {
    pieces cut;
    std::uint32_t low = std::numeric_limits<std::uint32_t>::max();
    std::uint32_t high = 0;
    for (std::uint32_t k = 0; k != launches_; ++k) {
      for (const block_access& use : step[k].uses) {
        low = std::min(low, use.range.begin_value());
        high = std::max(high, use.range.end_value());
      }
    }
    if (high == 0) {
      cut.of_block.assign(1, 0);
      cut.first.assign(1, 0);
      return cut;
    }
    cut.origin = low;
    cut.of_block.assign(std::size_t{high - low} + 1, 0);
    const auto mark = [&](block_range range) {
      cut.of_block[std::max(range.begin_value(), low) - low] = 1;
      cut.of_block[std::min(range.end_value(), high) - low] = 1;
    };
    for (std::uint32_t k = 0; k != launches_; ++k) {
      for (const block_access& use : step[k].uses) {
        mark(use.range);
      }
      for (const block_range last_use : step[k].last_uses) {
        if (last_use.overlaps({block_id{low}, high - low})) {
          mark(last_use);
        }
      }
    }
    for (std::uint32_t i = 0; i <= high - low; ++i) {
      if (cut.of_block[i] != 0) {
        cut.first.push_back(low + i);
      }
      cut.of_block[i] = static_cast<std::uint32_t>(cut.first.size() - 1);
    }
    return cut;
  }

  // The gaps of all pieces, as if nothing died. `first_gap`: by piece, and one more.
  [[nodiscard]] sequence<step_gap> find_gaps(const step_description& step, const pieces& cut,
                                             sequence<std::uint32_t>& first_gap) {
    // How often each piece is used; a launch that names it twice counts once.
    sequence<std::uint32_t> uses(cut.count(), 0);
    sequence<std::uint32_t> used_by(cut.count(), launches_);
    need_.assign(launches_, 0);
    for (std::uint32_t k = 0; k != launches_; ++k) {
      for (const block_access& use : step[k].uses) {
        cut.for_each(use.range, [&](std::uint32_t p) {
          if (used_by[p] != k) {
            used_by[p] = k;
            ++uses[p];
            need_[k] += cut.size(p);
          }
        });
      }
    }
    first_gap.assign(1, 0);
    for (const std::uint32_t count : uses) {
      first_gap.push_back(first_gap.back() + count);
    }

    struct piece_use {
      std::uint32_t launch = 0;
      access mode = access::read;
    };
    sequence<piece_use> all(first_gap.back());
    std::fill(uses.begin(), uses.end(), 0);
    for (std::uint32_t k = 0; k != launches_; ++k) {
      for (const block_access& use : step[k].uses) {
        cut.for_each(use.range, [&](std::uint32_t p) {
          piece_use* const here = all.data() + first_gap[p];
          if (uses[p] != 0 && here[uses[p] - 1].launch == k) {
            access& mode = here[uses[p] - 1].mode;
            mode = join(mode, use.mode);
          } else {
            here[uses[p]++] = {k, use.mode};
          }
        });
      }
    }

    sequence<step_gap> gaps;
    gaps.reserve(all.size());
    for (std::uint32_t p = 0; p != cut.count(); ++p) {
      for (std::uint32_t i = first_gap[p]; i != first_gap[p + 1]; ++i) {
        const piece_use& next = all[i + 1 != first_gap[p + 1] ? i + 1 : first_gap[p]];
        gaps.push_back({.segment = p,
                        .launch = all[i].launch,
                        .next = next.launch,
                        .held = distance(all[i].launch + 1, next.launch),
                        .writes = all[i].mode != access::read,
                        .returns = next.mode != access::overwrite});
      }
    }
    return gaps;
  }

  // A gap holds room no longer than its contents live.
  void end_at_deaths(const step_description& step, const pieces& cut, const sequence<std::uint32_t>& first_gap,
                     sequence<step_gap>& gaps) const {
    for (std::uint32_t k = 0; k != launches_; ++k) {
      for (const block_range last_use : step[k].last_uses) {
        cut.for_each(last_use, [&](std::uint32_t p) {
          const auto begin = gaps.begin() + first_gap[p];
          const auto end = gaps.begin() + first_gap[p + 1];
          if (begin == end) {
            return;
          }
          const auto after =
              std::upper_bound(begin, end, k, [](std::uint32_t l, const step_gap& g) { return l < g.launch; });
          step_gap& gap = *((after == begin ? end : after) - 1);
          gap.held = std::min(gap.held, distance(gap.launch, k));
          gap.returns = false;
        });
      }
    }
  }

  // Adjacent pieces that are treated alike become one segment.
  void join_pieces(const pieces& cut, const sequence<std::uint32_t>& first_gap, const sequence<step_gap>& gaps) {
    const auto alike = [&](const step_segment& s, std::uint32_t p) {
      return s.blocks.end_value() == cut.first[p] &&
             std::equal(gaps.begin() + first_gap[p], gaps.begin() + first_gap[p + 1], gaps_.begin() + s.first_gap,
                        gaps_.begin() + s.first_gap + s.gap_count, [&](step_gap a, const step_gap& b) {
                          a.segment = b.segment;
                          return a == b;
                        });
    };
    for (std::uint32_t p = 0; p != cut.count(); ++p) {
      const std::uint32_t count = first_gap[p + 1] - first_gap[p];
      if (count == 0) {
        continue;
      }
      if (!segments_.empty() && alike(segments_.back(), p)) {
        segments_.back().blocks.count += cut.size(p);
        continue;
      }
      const auto number = static_cast<std::uint32_t>(segments_.size());
      segments_.push_back({{block_id{cut.first[p]}, cut.size(p)}, static_cast<std::uint32_t>(gaps_.size()), count});
      for (std::uint32_t i = first_gap[p]; i != first_gap[p + 1]; ++i) {
        gaps_.push_back(gaps[i]);
        gaps_.back().segment = number;
      }
    }
  }

  void sort_by_launch() {
    first_by_launch_.assign(std::size_t{launches_} + 1, 0);
    for (const step_gap& g : gaps_) {
      ++first_by_launch_[g.launch + 1];
    }
    for (std::uint32_t k = 0; k != launches_; ++k) {
      first_by_launch_[k + 1] += first_by_launch_[k];
    }
    sequence<std::uint32_t> place = first_by_launch_;
    by_launch_.resize(gaps_.size());
    for (std::uint32_t i = 0; i != gaps_.size(); ++i) {
      by_launch_[place[gaps_[i].launch]++] = i;
    }
  }

  // Launches from one to another, around the cycle. @param from  May be `launches_`, which is the first one again.
  [[nodiscard]] std::uint32_t distance(std::uint32_t from, std::uint32_t to) const {
    return to >= from ? to - from : to + launches_ - from;
  }

  std::uint32_t launches_;
  sequence<nanoseconds> begin_{};   // by launch, and one more
  sequence<std::uint32_t> need_{};  // by launch
  sequence<step_segment> segments_{};
  sequence<step_gap> gaps_{};
  sequence<std::uint32_t> first_by_launch_{};  // into by_launch_, and one more
  sequence<std::uint32_t> by_launch_{};        // places in gaps_
};

}  // namespace v0
}  // namespace deepum
