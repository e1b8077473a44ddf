#include "gpu/library/model_flags.hpp"

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "gpu/library/flag_values.hpp"

#include <cstdint>
#include <string>

ABSL_FLAG(std::int64_t, layers, 12,
          "layers of the model; drawing the weights of 56 of width 1024, 3 GiB, takes half a minute for each system");
ABSL_FLAG(std::int64_t, width, 1024, "its width");
ABSL_FLAG(std::int64_t, heads, 16, "its attention heads");
ABSL_FLAG(std::int64_t, context, 128, "bytes in a sequence");
ABSL_FLAG(std::int64_t, batch, 4, "sequences in a step");
ABSL_FLAG(std::string, precision, "fp32", "fp32 or bf16");

namespace deepum::gpu_bench {

absl::StatusOr<model_choice> model_from_flags() {
  const std::string precision = absl::GetFlag(FLAGS_precision);
  const model_choice m{.shape = {.layers = absl::GetFlag(FLAGS_layers),
                                 .width = absl::GetFlag(FLAGS_width),
                                 .heads = absl::GetFlag(FLAGS_heads),
                                 .context = absl::GetFlag(FLAGS_context),
                                 .batch = absl::GetFlag(FLAGS_batch)},
                       .bf16 = precision == "bf16"};
  if (absl::Status status =
          first_error({in_range("layers", m.shape.layers, 1, 1000), in_range("width", m.shape.width, 32, 16'384),
                       in_range("heads", m.shape.heads, 1, 256), in_range("context", m.shape.context, 8, 4096),
                       in_range("batch", m.shape.batch, 1, 4096), one_of("precision", precision, {"fp32", "bf16"})});
      !status.ok()) {
    return status;
  }
  if (m.shape.width % m.shape.heads != 0 || m.shape.width / m.shape.heads % 2 != 0) {
    return absl::InvalidArgumentError("--width has to be a multiple of twice --heads");
  }
  return m;
}

}  // namespace deepum::gpu_bench
