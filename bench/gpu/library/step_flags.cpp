#include "gpu/library/step_flags.hpp"

#include "absl/flags/flag.h"
#include "gpu/library/flag_values.hpp"

#include <cstdint>

ABSL_FLAG(std::int64_t, steps, 10, "steps to measure");
ABSL_FLAG(std::int64_t, warm_up, 5, "steps before them, in which the systems learn and results are checked");
ABSL_FLAG(std::int64_t, audit, 3, "steps behind them, in which the driver reports what it moves; 0: none");

namespace deepum::gpu_bench {

absl::Status steps_into(bench_settings& settings) {
  settings.steps = absl::GetFlag(FLAGS_steps);
  settings.warm_up = absl::GetFlag(FLAGS_warm_up);
  settings.audit = absl::GetFlag(FLAGS_audit);
  return first_error({in_range("steps", settings.steps, 1, 10'000), in_range("warm-up", settings.warm_up, 2, 10'000),
                      in_range("audit", settings.audit, 0, 1000)});
}

}  // namespace deepum::gpu_bench
