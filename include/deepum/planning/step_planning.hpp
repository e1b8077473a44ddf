#pragma once

#include <deepum/planning/step_planner.hpp>
#include <deepum/planning/step_schedule.hpp>
#include <deepum/planning/step_segments.hpp>

#include <cstdint>
#include <optional>

namespace deepum {
inline namespace v0 {

/// A step that is to be planned, and then its plan: values alone, so that it is planned without the lock that the
/// policy is called under.
///
/// Not synchronised: one thread at a time has it.
struct step_planning {
  step_description step{};
  step_limits limits{};
  std::uint32_t position = 0;               ///< the launch of the step that was executing, or would next
  std::uint64_t generation = 0;             ///< of the recurrence; see `recurring_step`
  std::uint64_t finished = 0;               ///< launches that had finished then, ever
  std::optional<step_schedule> schedule{};  ///< nothing until it has been planned

  /// Cost: that of `plan_step`, milliseconds for a step of thousands of launches.
  void run() { schedule.emplace(step, limits, position); }
};

}  // namespace v0
}  // namespace deepum
