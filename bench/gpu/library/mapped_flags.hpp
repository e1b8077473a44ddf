#pragma once

#include "absl/status/status.h"
#include "gpu/library/bench_system.hpp"
#include <deepum/units.hpp>

// Flags of mapped memory.
namespace deepum::gpu_bench {

/// Host memory that contents may need.
[[nodiscard]] bytes host_memory_from_flags();

/// Puts what the flags say of mapped memory into the settings.
/// @errors  `InvalidArgument`.
[[nodiscard]] absl::Status mapped_into(bench_settings& settings);

}  // namespace deepum::gpu_bench
