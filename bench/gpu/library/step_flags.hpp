#pragma once

#include "absl/status/status.h"
#include "gpu/library/bench_system.hpp"

// How many steps of each system are measured.
namespace deepum::gpu_bench {

/// Puts --steps, --warm-up and --audit into the settings.
/// @errors  `InvalidArgument`.
[[nodiscard]] absl::Status steps_into(bench_settings& settings);

}  // namespace deepum::gpu_bench
