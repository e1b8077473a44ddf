#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <queue>

namespace deepum {
inline namespace v0 {

/// What a step is planned for.
struct step_limits {
  std::uint32_t budget = 0;     ///< blocks that the device may hold
  nanoseconds in_per_block{};   ///< time that the link takes to bring a block in
  nanoseconds out_per_block{};  ///< and to take one out
  std::uint32_t in_flight = 0;  ///< blocks that are on their way when the links have enough to do, both ways together
  bool copies_ahead = false;    ///< what is not written any more until it leaves is copied out before, while it stays
  std::uint32_t beside = 0;     ///< blocks that neighbours may hold
};
/// For `step_limits::in_flight`.
inline constexpr bytes enough_in_flight = 64_MiB;

namespace detail {

/// Estimates when the launches of a step that is repeated begin, if blocks leave and come back as a plan says. Both
/// links are taken for fluids.
///
/// Blocks leave as soon as their gap begins; those that the host has no current copy of have to be copied out. Where
/// copies are made ahead, that begins after the last write, while nothing else leaves, earliest departure first. Blocks
/// come back in the order of need, as early as the plan leaves room for. A launch waits until what returns for it is
/// there, and until so much of what should be away has left that there is room.
///
/// Cost: linear in gaps and launches; copies ahead are kept in order of departure.
class step_timer {
 public:
  /// @param leaves    By gap: blocks that leave in it.
  /// @param occupied  By launch: blocks on the device, if those that leave are gone at once.
  step_timer(const step_segments& segments, const step_limits& limits, const sequence<std::uint32_t>& leaves,
             const sequence<std::uint32_t>& occupied)
      : step_(segments),
        limits_(limits),
        arriving_(segments.launches()),
        leaving_(segments.launches()),
        free_(segments.launches()),
        most_early_(segments.launches()) {
    for (std::uint32_t k = 0; k != segments.launches(); ++k) {
      free_[k] = limits.budget > occupied[k] ? limits.budget - occupied[k] : 0;
    }
    for (std::size_t i = 0; i != leaves.size(); ++i) {
      arriving_[segments.gaps()[i].next] += segments.gaps()[i].returns ? leaves[i] : 0;
    }
    add_copies_out(leaves);
    std::sort(ahead_.begin(), ahead_.end(),
              [](const copy_ahead& a, const copy_ahead& b) { return a.written < b.written; });
    find_most_early();
  }

  /// By launch when it begins to wait or to run, since the step began, in nanoseconds; and when the step ends.
  [[nodiscard]] sequence<double> begins() const {
    const std::uint32_t n = step_.launches();
    sequence<double> begins(std::size_t{n} + 1);
    // In a first step nothing is early; from the second one on they are alike.
    double out = 0;    // blocks that should have left and have not
    double early = 0;  // blocks that are there for launches that have not begun
    copies_waiting waiting;
    for (std::uint32_t round = 0; round != 2; ++round) {
      double now = 0;
      std::size_t written = 0;  // of `ahead_`
      for (std::uint32_t k = 0; k != n; ++k) {
        const auto pass = [&](double time) {
          now += time;
          const double copies = time / per_block(limits_.out_per_block);
          copy_out_ahead(waiting, copies - out);
          out = std::max(0.0, out - copies);
          const double most = std::min(most_early_[k], arriving_[k] + free_[k] - out);
          early = std::min(early + time / per_block(limits_.in_per_block), std::max(early, most));
        };
        begins[k] = now;
        pass(std::max({0.0, (out - free_[k]) * per_block(limits_.out_per_block),
                       (arriving_[k] - early) * per_block(limits_.in_per_block)}));
        pass(static_cast<double>((step_.begin_of(k + 1) - step_.begin_of(k)).count()));
        early = std::max(0.0, early - arriving_[k]);
        out += leaving_[k];
        for (; !waiting.empty() && waiting.top().departs <= round * n + k; waiting.pop()) {
          out += waiting.top().blocks;
        }
        for (; written != ahead_.size() && ahead_[written].written == k; ++written) {
          const std::uint32_t departs = ahead_[written].departs;
          waiting.push({(round + (departs > k ? 0 : 1)) * n + departs, ahead_[written].blocks});
        }
      }
      begins[n] = now;
    }
    return begins;
  }

 private:
  // Blocks that a launch wrote last and that leave after another one.
  struct copy_ahead {
    std::uint32_t written = 0;
    std::uint32_t departs = 0;
    double blocks = 0;
  };
  struct waiting_copy {
    std::uint32_t departs = 0;  // counted on from step to step
    double blocks = 0;
    friend bool operator<(const waiting_copy& a, const waiting_copy& b) { return a.departs > b.departs; }
  };
  using copies_waiting = std::priority_queue<waiting_copy, sequence<waiting_copy>>;

  static void copy_out_ahead(copies_waiting& waiting, double copies) {
    while (copies > 0 && !waiting.empty()) {
      waiting_copy first = waiting.top();
      waiting.pop();
      if (first.blocks > copies) {
        first.blocks -= copies;
        waiting.push(first);
        return;
      }
      copies -= first.blocks;
    }
  }
  static double per_block(nanoseconds time) { return std::max(1e-3, static_cast<double>(time.count())); }

  // Of the blocks of a segment, the first ones leave. The host's copy of some of these is current from when they left
  // until they are written.
  void add_copies_out(const sequence<std::uint32_t>& leaves) {
    for (const step_segment& s : step_.segments()) {
      std::uint32_t current = s.blocks.count;
      std::uint32_t written = 0;
      for (std::uint32_t i = 0; i != 2 * s.gap_count; ++i) {
        const std::uint32_t gap = s.first_gap + i % s.gap_count;
        const step_gap& g = step_.gaps()[gap];
        if (g.writes) {
          current = 0;
          written = g.launch;
        }
        if (i >= s.gap_count && leaves[gap] > current) {
          if (limits_.copies_ahead && written != g.launch) {
            ahead_.push_back({written, g.launch, static_cast<double>(leaves[gap] - current)});
          } else {
            leaving_[g.launch] += leaves[gap] - current;
          }
        }
        current = std::max(current, leaves[gap]);
      }
    }
  }
  // An early return takes room until its launch, besides what the plan has on the device at the launches before.
  void find_most_early() {
    const std::uint32_t n = step_.launches();
    double most = std::numeric_limits<double>::max();  // of the launches from k on, for those before it have begun
    for (std::uint32_t i = 2 * n; i-- != 0;) {
      const std::uint32_t k = i % n;
      most = arriving_[k] + std::min(most, free_[k]);
      most_early_[k] = most;
    }
  }

  const step_segments& step_;
  step_limits limits_;
  sequence<double> arriving_;     // by launch: blocks that return for it
  sequence<double> leaving_;      // by launch: blocks that have to be copied out and may be when it has run
  sequence<copy_ahead> ahead_{};  // those that may be before they leave, by `written`
  sequence<double> free_;         // by launch: blocks of the budget that the plan does not use
  sequence<double> most_early_;   // by launch: blocks that may be there for it and those after it when it has not begun
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
