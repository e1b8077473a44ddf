#pragma once

#include "replay/program.hpp"
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace deepum::replay {

/// How a policy coped with a change: the turns from one change of regime to the next.
struct regime_report {
  std::uint32_t regime = 0;
  std::size_t first_turn = 0;
  std::size_t turns = 0;
  /// Median of the last half of all turns of this regime in the program, the lower one of two; or of the last half of
  /// four turns or more without a change, where that is less. So what never gets as fast again as it was has not
  /// recovered.
  nanoseconds steady{};
  /// The first turn since the change that has at least 90 % of the steady speed: 1 where there is nothing to recover
  /// from. Only turns of this regime count, and those after later changes back to it do too. Nothing: there is none.
  std::optional<std::size_t> recovered_in{};
  nanoseconds worst{};  ///< the longest turn
  nanoseconds total{};  ///< of all turns

  friend bool operator==(const regime_report&, const regime_report&) = default;
};

/// One report for the start of a program, and one for every change of regime.
/// @param durations  Of all turns.
[[nodiscard]] std::vector<regime_report> report_regimes(const program& what, std::span<const nanoseconds> durations);

}  // namespace deepum::replay
