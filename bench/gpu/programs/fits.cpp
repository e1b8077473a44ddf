// What the library costs where everything fits: small launches, and a training step.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/train_gpt/bf16.hpp"
#include "examples/train_gpt/shape.hpp"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/gpt_layers.hpp"
#include "gpu/library/layered_report.hpp"
#include "gpu/library/memory_flags.hpp"
#include "gpu/library/memory_kinds.hpp"
#include "gpu/library/model_flags.hpp"
#include "gpu/library/report.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/step_flags.hpp"
#include "gpu/library/system_flags.hpp"
#include "gpu/programs/fits_runs.hpp"
#include "gpu/programs/gpt_step_runs.hpp"
#include "gpu/programs/model_runs.hpp"
#include <deepum/cuda/paged_memory.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(
    double, paged_gib, 8,
    "footprint in GiB of the training step on paged memory, which is that of deepum-bench-gpt-step; the budget is "
    "an eighth larger");
ABSL_FLAG(std::int64_t, link_mib, 768, "memory that moves to measure the links, before a step on paged memory");

namespace deepum::gpu_bench {
namespace {

template <class Memory>
void small_launches(const bench_settings& settings, session& here) {
  using fits = fits_runs<Memory>;
  const std::vector<launch_costs> costs = fits(settings).run();
  here.put("small_launches", fits::json_of(costs), fits::table_of(costs));
}

/// Steps of the model take turns with the resident ones.
absl::Status on_managed_memory(bench_settings& settings, const model_choice& model) {
  constexpr auto use = train_gpt::purpose::training;
  const bytes footprint = model.with_precision([&]<class T>() { return model_runs<T>::footprint(model.shape, use); });
  const absl::StatusOr<std::unique_ptr<session>> here =
      session::begin(settings, {.managed = std::max(capacity_of(footprint), block_size * 128)});
  if (!here.ok()) return here.status();
  small_launches<cuda::managed_memory>(settings, **here);
  const program_report report =
      model.with_precision([&]<class T>() { return model_runs<T>(settings, model.shape, use).run_in_turns(); });
  (*here)->add(report, table_of(report));
  return (*here)->end();
}

absl::Status on_paged_memory(bench_settings& settings, bytes size, bytes link) {
  gpt_shape shape;
  shape.layers = layers_for(shape, size);
  const absl::StatusOr<std::unique_ptr<session>> here = session::begin(settings, {.bf16_products = true});
  if (!here.ok()) return here.status();
  (*here)->measure_links(false, link);
  small_launches<cuda::paged_memory>(settings, **here);
  const std::vector<bytes> budgets{whole_blocks(static_cast<double>(size.count) * 1.125)};
  const program_report report =
      gpt_step_runs<cuda::paged_memory, train_gpt::bf16>(settings, shape, budgets, true, {std::nullopt}).run();
  (*here)->add(report, layered_table_of(report), "paged");
  return (*here)->end();
}

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  const absl::StatusOr<model_choice> model = model_from_flags();
  if (!model.ok()) return model.status();
  const double gib = absl::GetFlag(FLAGS_paged_gib);
  const std::int64_t link_mib = absl::GetFlag(FLAGS_link_mib);
  if (absl::Status status = first_error({systems_into(settings, {"resident", "managed", "um", "lru", "deepum", "auto"}),
                                         steps_into(settings), memory_into(settings), gib_in_range("paged-gib", gib),
                                         in_range("link-mib", link_mib, 128, 2048)});
      !status.ok()) {
    return status;
  }
  return memory_from_flags() == "managed" ? on_managed_memory(settings, *model)
                                          : on_paged_memory(settings, of_gib(gib), of_mib(link_mib));
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(
      argc, argv, "deepum-bench-fits",
      "measures what the library costs where everything fits: small launches, and a training step",
      deepum::gpu_bench::run);
}
