#pragma once

#include "replay/workload.hpp"
#include <deepum/planning/step_segments.hpp>

namespace deepum::replay {

/// The step of a workload as a planner sees it: how long its launches run, what they use and what dies after them.
///
/// What a launch writes without finding anything alive there is `access::overwrite`, all else that it writes
/// `access::update`. Where data-dependent accesses differ from step to step it is `variants` steps, one after another,
/// after which everything recurs.
/// @errors  None. Cost: linear in the block ranges of all these launches.
[[nodiscard]] step_description step_of(const workload& w);

}  // namespace deepum::replay
