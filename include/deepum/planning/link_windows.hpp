#pragma once

#include <deepum/core/link_calendar.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/step_timer.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// When the links have time for the copies of a step that a plan is being made for: a calendar of each direction, and
/// in which of their windows launches begin.
class link_windows {
 public:
  link_windows() = default;
  /// @param begins     By launch when it begins, in nanoseconds, and when the step ends.
  /// @param window     Length of a window, about.
  /// @param until_end  Copies for a launch are made in its own time too, for it waits for them.
  link_windows(const sequence<double>& begins, nanoseconds window, const step_limits& limits, bool until_end)
      : until_end_(until_end) {
    constexpr double most_windows = 4096;
    const double length = std::max(1.0, begins.back());
    const double windows = std::floor(std::clamp(length / static_cast<double>(window.count()), 1.0, most_windows));
    const auto open = [&](nanoseconds per_block) {
      const double blocks = length / windows / static_cast<double>(std::max<std::int64_t>(1, per_block.count()));
      return link_calendar(static_cast<std::uint32_t>(windows), static_cast<std::uint32_t>(std::min(blocks, 1e9)));
    };
    inward_ = open(limits.in_per_block);
    outward_ = open(limits.out_per_block);
    window_of_.reserve(begins.size());
    for (const double begin : begins) {
      window_of_.push_back(static_cast<std::uint32_t>(std::min(begin / length * windows, windows - 1)));
    }
  }

  /// For how many of so many blocks there is time to bring them back for a launch, in the time of its own windows.
  [[nodiscard]] std::uint32_t room_to_return(std::uint32_t launch, std::uint32_t count) {
    return inward_.room(window_of_[launch], last_return(launch), count);
  }
  void take_return(std::uint32_t launch, std::uint32_t count) {
    inward_.take(window_of_[launch], last_return(launch), count);
  }

  /// Takes time to copy blocks out, behind one launch and before another one. @returns  For how many of so many.
  std::uint32_t take_departure(std::uint32_t behind, std::uint32_t launch, std::uint32_t count) {
    // Around the end of the step; but not all around it where both are in one window.
    const std::uint32_t first =
        behind < launch || window_of_[behind + 1] > window_of_[launch] ? window_of_[behind + 1] : 0;
    return outward_.take(first, window_of_[launch], count);
  }

  /// A time at which blocks come back.
  struct early_return {
    std::uint32_t window = 0;
    std::uint32_t launches = 0;  ///< from now until the launch that runs then, or is to use them; 0: there is no time
    std::uint32_t room = 0;      ///< for so many
  };
  /// The latest time that is left before a launch begins.
  /// @param now       A launch that the blocks are away over.
  /// @param launches  From it until the one that uses them; at least 1.
  [[nodiscard]] early_return latest_return(std::uint32_t now, std::uint32_t launches) {
    const std::uint32_t windows = inward_.windows();
    const std::uint32_t first = window_after(now, 0);
    const std::uint32_t next = window_after(now, launches);
    const std::uint32_t last = std::min(next, first + windows - 1);  // once around the step at most
    for (std::uint32_t turn = last / windows * windows;; turn -= windows) {
      if (const auto open = inward_.last_open(std::min(last - turn, windows - 1))) {
        const std::uint32_t window = turn + *open;
        return window < first ? early_return{}
                              : early_return{*open, running_in(now, launches, window), inward_.room_in(*open)};
      }
      if (turn <= first) {
        return {};
      }
    }
  }
  void take(const early_return& time, std::uint32_t count) { inward_.take_in(time.window, count); }

 private:
  [[nodiscard]] std::uint32_t last_return(std::uint32_t launch) const {
    return window_of_[until_end_ ? launch + 1 : launch];
  }
  // The window in which the launch begins that comes so many after one; counted on around the end of the step.
  [[nodiscard]] std::uint32_t window_after(std::uint32_t launch, std::uint32_t launches) const {
    const auto step = static_cast<std::uint32_t>(window_of_.size() - 1);
    const std::uint32_t at = launch + launches;
    return window_of_[at % step] + at / step * inward_.windows();
  }
  // Launches until the last one that has begun by then, `most` at most.
  [[nodiscard]] std::uint32_t running_in(std::uint32_t now, std::uint32_t most, std::uint32_t window) const {
    std::uint32_t low = 0;
    for (std::uint32_t high = most; low != high;) {
      const std::uint32_t middle = high - (high - low) / 2;
      if (window_after(now, middle) <= window) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  link_calendar inward_{};
  link_calendar outward_{};
  sequence<std::uint32_t> window_of_{};  // by launch: in which it begins, and the step ends
  bool until_end_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
