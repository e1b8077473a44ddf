// A training step of the model of examples/train_gpt, or its forward pass alone, under each memory system and budget.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/train_gpt/shape.hpp"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/model_flags.hpp"
#include "gpu/library/report.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/step_flags.hpp"
#include "gpu/library/system_flags.hpp"
#include "gpu/programs/model_runs.hpp"
#include "program/json_file.hpp"
#include "replay/step_json.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(bool, forward_alone, false, "the forward pass alone: nothing is written but activations");
ABSL_FLAG(std::string, budgets, "75,50,35", "device memory, in percent of the footprint, with commas");
ABSL_FLAG(std::int64_t, link_mib, 768, "memory that moves to measure the links");
ABSL_FLAG(std::string, step, "", "file for the step as bench/replay/lp_bound.py reads it");

namespace deepum::gpu_bench {
namespace {

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  const absl::StatusOr<model_choice> model = model_from_flags();
  if (!model.ok()) return model.status();
  absl::StatusOr<std::vector<double>> budgets = percentages_from("budgets", absl::GetFlag(FLAGS_budgets));
  if (!budgets.ok()) return budgets.status();
  settings.budgets = *std::move(budgets);
  const std::int64_t link_mib = absl::GetFlag(FLAGS_link_mib);
  const deepum_program::json_file step_file{absl::GetFlag(FLAGS_step), -1};
  if (absl::Status status =
          first_error({systems_into(settings, {"resident", "um", "once", "double_managed", "double_pinned", "lru",
                                               "deepum", "auto"}),
                       steps_into(settings), in_range("link-mib", link_mib, 128, 2048), step_file.check()});
      !status.ok()) {
    return status;
  }
  const auto use = absl::GetFlag(FLAGS_forward_alone) ? train_gpt::purpose::evaluation : train_gpt::purpose::training;
  const bytes link = of_mib(link_mib);
  const bytes footprint = model->with_precision([&]<class T>() { return model_runs<T>::footprint(model->shape, use); });

  const absl::StatusOr<std::unique_ptr<session>> here =
      session::begin(settings, {.managed = std::max(capacity_of(footprint), managed_for_links(link))});
  if (!here.ok()) return here.status();
  (*here)->measure_links(true, link);
  absl::Status step_saved;
  if (!absl::GetFlag(FLAGS_step).empty()) {
    settings.take_step = [&](const std::string& name, const step_description& step) {
      step_saved = step_file.save(replay::json_of(name, 1, step));
    };
  }
  const program_report report =
      model->with_precision([&]<class T>() { return model_runs<T>(settings, model->shape, use).run(); });
  (*here)->add(report, table_of(report));
  return first_error({step_saved, (*here)->end()});
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(
      argc, argv, "deepum-bench-train",
      "measures training, or the forward pass alone, on managed memory with less device memory than it needs, beside "
      "demand paging, double buffering by hand and memory that is large enough",
      deepum::gpu_bench::run);
}
