#pragma once

#include "absl/status/status.h"
#include "gpu/library/bench_system.hpp"

#include <string>

// Flags of the library's memory, for the programs that run on either kind of it.
namespace deepum::gpu_bench {

/// The name of the kind of memory: managed or paged.
[[nodiscard]] std::string memory_from_flags();

/// Puts what the flags say of the memory into the settings.
/// @errors  `InvalidArgument`.
[[nodiscard]] absl::Status memory_into(bench_settings& settings);

}  // namespace deepum::gpu_bench
