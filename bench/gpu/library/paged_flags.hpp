#pragma once

#include "absl/status/status.h"
#include "gpu/library/bench_system.hpp"
#include <deepum/units.hpp>

// Flags of paged memory.
namespace deepum::gpu_bench {

/// Host memory that contents may need.
[[nodiscard]] bytes host_memory_from_flags();

/// Puts what the flags say of paged memory into the settings.
/// @errors  `InvalidArgument`.
[[nodiscard]] absl::Status paged_into(bench_settings& settings);

}  // namespace deepum::gpu_bench
