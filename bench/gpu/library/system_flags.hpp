#pragma once

#include "absl/status/status.h"
#include "gpu/library/bench_system.hpp"

#include <string>
#include <vector>

// Which memory systems run.
namespace deepum::gpu_bench {

/// Puts the systems that --systems names into the settings.
/// @param known  Those that this program knows, in the order in which it shows them.
/// @errors  `InvalidArgument`.
[[nodiscard]] absl::Status systems_into(bench_settings& settings, const std::vector<std::string>& known);

}  // namespace deepum::gpu_bench
