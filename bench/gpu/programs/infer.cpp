// Calls of models whose weights are only read, under each memory system and budget.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/train_gpt/bf16.hpp"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/infer_layers.hpp"
#include "gpu/library/layered_report.hpp"
#include "gpu/library/layered_systems.hpp"
#include "gpu/library/memory_flags.hpp"
#include "gpu/library/memory_kinds.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/step_flags.hpp"
#include "gpu/library/system_flags.hpp"
#include "gpu/programs/infer_runs.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(double, gib, 12, "weights of each model, in GiB");
ABSL_FLAG(std::int64_t, width, 4096, "width of the models");
ABSL_FLAG(std::string, models, "1,2", "how many models are called, by lot; with commas");
ABSL_FLAG(std::string, tokens, "1,64,4096", "tokens in a call, with commas");
ABSL_FLAG(std::string, budgets_gib, "4,8", "device memory, in GiB, with commas");
ABSL_FLAG(std::int64_t, calls, 100, "calls to measure, for each number of tokens");
ABSL_FLAG(std::int64_t, link_mib, 768, "memory that moves to measure the links");

namespace deepum::gpu_bench {
namespace {

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  const double gib = absl::GetFlag(FLAGS_gib);
  const std::int64_t width = absl::GetFlag(FLAGS_width);
  const std::int64_t calls = absl::GetFlag(FLAGS_calls);
  const std::int64_t link_mib = absl::GetFlag(FLAGS_link_mib);
  if (absl::Status status = first_error(
          {systems_into(settings, {"resident", "um", "by_hand", "lru", "deepum", "auto", "oracle"}),
           steps_into(settings), memory_into(settings), gib_in_range("gib", gib), in_range("width", width, 32, 32'768),
           in_range("calls", calls, 1, 100'000), in_range("link-mib", link_mib, 128, 2048)});
      !status.ok()) {
    return status;
  }
  if (width % 8 != 0) return absl::InvalidArgumentError("--width has to be a multiple of 8");
  const absl::StatusOr<std::vector<std::int64_t>> tokens =
      numbers_from<std::int64_t>("tokens", absl::GetFlag(FLAGS_tokens), 1, 1'000'000);
  if (!tokens.ok()) return tokens.status();
  const absl::StatusOr<std::vector<std::int64_t>> models =
      numbers_from<std::int64_t>("models", absl::GetFlag(FLAGS_models), 1, 64);
  if (!models.ok()) return models.status();
  const absl::StatusOr<std::vector<bytes>> budgets = sizes_from("budgets-gib", absl::GetFlag(FLAGS_budgets_gib));
  if (!budgets.ok()) return budgets.status();

  const std::string memory = memory_from_flags();
  const bytes link = of_mib(link_mib);
  machine_needs needs{.bf16_products = true};
  std::vector<infer_shape> shapes;  // one for each number of models
  for (const std::int64_t n : *models) {
    infer_shape shape{.models = n, .width = width, .most_tokens = *std::max_element(tokens->begin(), tokens->end())};
    shape.layers = layers_for(shape, of_gib(gib));
    shapes.push_back(shape);
    if (memory == "managed") {
      needs.managed = std::max({needs.managed, managed_capacity(set_up_of(shape)), managed_for_links(link)});
    }
  }
  const absl::StatusOr<std::unique_ptr<session>> here = session::begin(settings, needs);
  if (!here.ok()) return here.status();
  (*here)->measure_links(memory == "managed", link);
  with_memory(memory, [&]<class Memory>() {
    for (const infer_shape& shape : shapes) {
      for (const program_report& report :
           infer_runs<Memory, train_gpt::bf16>(settings, shape, *budgets, *tokens, calls).run()) {
        (*here)->add(report, layered_table_of(report), memory);
      }
    }
  });
  return (*here)->end();
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(argc, argv, "deepum-bench-infer",
                                        "measures calls of models with less device memory than their weights need, "
                                        "beside demand paging, double buffering "
                                        "by hand and an oracle",
                                        deepum::gpu_bench::run);
}
