#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/planning/step_timer.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// How a plan is to be made beyond what the budget asks for.
struct plan_style {
  std::uint32_t margin = 0;   ///< blocks of the budget that are left for what arrives early, where that is possible
  nanoseconds window{};       ///< copies are spread over windows of this length; 0: they are not
  sequence<double> begins{};  ///< by launch when it begins, in nanoseconds, and when the step ends; for the windows
  /// Departures are spread too, and launches are taken to wait for what returns for them, so that all of their time is
  /// there for it.
  bool both_ways = false;
  /// Blocks come back when the link has time, however long before they are needed. They take room from then on. Else
  /// they come back in the windows of the launch that needs them.
  bool early_returns = false;
};

/// When launches begin, if their step takes longer than they do by a factor: as long as so many returns.
[[nodiscard]] inline sequence<double> stretched_begins(const step_segments& step, const step_limits& limits,
                                                       std::uint64_t returning) {
  const double copying = static_cast<double>(returning) * static_cast<double>(limits.in_per_block.count());
  const double computing = static_cast<double>(step.begin_of(step.launches()).count());
  sequence<double> begins;
  begins.reserve(std::size_t{step.launches()} + 1);
  for (std::uint32_t k = 0; k <= step.launches(); ++k) {
    begins.push_back(std::max(1.0, copying / computing) * static_cast<double>(step.begin_of(k).count()));
  }
  return begins;
}

/// The same, if each launch takes as long as it computes, or as its share of so many returns does: of all blocks that
/// could return for it, the part that returns of those of the whole step.
[[nodiscard]] inline sequence<double> shared_begins(const step_segments& step, const step_limits& limits,
                                                    std::uint64_t returning) {
  sequence<double> can_return(step.launches());
  double all = 1;
  for (const step_gap& g : step.gaps()) {
    if (g.returns && g.held != 0) {
      can_return[g.next] += step.blocks_of(g).count;
      all += step.blocks_of(g).count;
    }
  }
  const double share =
      std::min(1.0, static_cast<double>(returning) / all) * static_cast<double>(limits.in_per_block.count());
  sequence<double> begins{0.0};
  begins.reserve(std::size_t{step.launches()} + 1);
  for (std::uint32_t k = 0; k != step.launches(); ++k) {
    const auto computing = static_cast<double>((step.begin_of(k + 1) - step.begin_of(k)).count());
    begins.push_back(begins.back() + std::max(computing, share * can_return[k]));
  }
  return begins;
}

/// The style of a step that is longer than its launches by a factor all over, in which returns alone are spread.
[[nodiscard]] inline plan_style spread_returns(const step_segments& step, const step_limits& limits,
                                               std::uint64_t returning) {
  std::uint32_t largest = 0;
  for (std::uint32_t k = 0; k != step.launches(); ++k) {
    largest = std::max(largest, step.need(k));
  }
  const std::uint32_t unit = std::min(limits.budget / 24, largest / 8);
  return {.margin = std::min(limits.budget / 24, std::max(unit, limits.in_flight)),
          .window = std::max(nanoseconds{1}, limits.in_per_block * std::max(unit, 1U)),
          .begins = stretched_begins(step, limits, returning)};
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
