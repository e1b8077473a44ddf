#include "gpu/library/gpt_flags.hpp"

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/sizes.hpp"

#include <cstdint>
#include <string>
#include <utility>

ABSL_FLAG(double, gib, 24, "footprint of the step in GiB, from which its layers follow");
ABSL_FLAG(std::int64_t, width, 2048, "width of the model");
ABSL_FLAG(std::int64_t, context, 1024, "tokens in a sequence");
ABSL_FLAG(std::int64_t, batch, 8, "sequences in a step");
ABSL_FLAG(std::string, update, "layer", "when weights are updated: layer (each behind its backward pass), or end");
ABSL_FLAG(std::string, budgets_gib, "8,12,16", "device memory, in GiB, with commas");

namespace deepum::gpu_bench {

absl::StatusOr<gpt_choice> gpt_from_flags() {
  const double gib = absl::GetFlag(FLAGS_gib);
  const std::string update = absl::GetFlag(FLAGS_update);
  gpt_choice c{.shape = {.width = absl::GetFlag(FLAGS_width),
                         .context = absl::GetFlag(FLAGS_context),
                         .batch = absl::GetFlag(FLAGS_batch),
                         .update_at_end = update == "end"}};
  if (absl::Status status =
          first_error({gib_in_range("gib", gib), in_range("width", c.shape.width, 32, 32'768),
                       in_range("context", c.shape.context, 1, 65'536), in_range("batch", c.shape.batch, 1, 65'536),
                       one_of("update", update, {"layer", "end"})});
      !status.ok()) {
    return status;
  }
  if (c.shape.width % 8 != 0) return absl::InvalidArgumentError("--width has to be a multiple of 8");
  c.shape.layers = layers_for(c.shape, of_gib(gib));
  absl::StatusOr<std::vector<bytes>> budgets = sizes_from("budgets-gib", absl::GetFlag(FLAGS_budgets_gib));
  if (!budgets.ok()) return budgets.status();
  c.budgets = *std::move(budgets);
  return c;
}

}  // namespace deepum::gpu_bench
