#pragma once

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "gpu/library/bench_system.hpp"
#include "nlohmann/json.hpp"

#include <string>

// Flags that all programs of the benchmark have, and what they mean.
ABSL_DECLARE_FLAG(std::string, json);
ABSL_DECLARE_FLAG(std::string, trace);
ABSL_DECLARE_FLAG(std::string, commit);

namespace deepum::gpu_bench {

/// What these flags say of a run.
/// @errors  `InvalidArgument`; `FailedPrecondition` where the environment would replace the policies of a run.
[[nodiscard]] absl::StatusOr<bench_settings> settings_from_flags();

/// All flags of this program with their values, for the file of results.
[[nodiscard]] nlohmann::ordered_json flags_as_json();

}  // namespace deepum::gpu_bench
