#pragma once

#include "replay/workload.hpp"
#include <deepum/policy/step_segments.hpp>

namespace deepum::replay {

/// The step of a workload as a planner sees it: how long its launches run, what they use and what dies after them.
/// Where data-dependent accesses differ from step to step it is as many steps, one after another.
[[nodiscard]] step_description step_of(const workload& w);

}  // namespace deepum::replay
