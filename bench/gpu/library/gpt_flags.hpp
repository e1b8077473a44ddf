#pragma once

#include "absl/status/statusor.h"
#include "gpu/library/gpt_layers.hpp"
#include <deepum/units.hpp>

#include <vector>

// The training step of large layers, as flags choose it.
namespace deepum::gpu_bench {

struct gpt_choice {
  gpt_shape shape{};
  std::vector<bytes> budgets{};
};

/// @errors  `InvalidArgument`.
[[nodiscard]] absl::StatusOr<gpt_choice> gpt_from_flags();

}  // namespace deepum::gpu_bench
