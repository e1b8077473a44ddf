// Launches that are larger than the budget: AdamW on all weights of a model, in pieces, on either kind of memory.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/memory_flags.hpp"
#include "gpu/library/memory_kinds.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/system_flags.hpp"
#include "gpu/programs/slices_runs.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(double, gib, 0, "weights, moments and gradients, in GiB; 0: 9 on paged memory, 3 on managed memory");
ABSL_FLAG(double, budget_gib, 0, "device memory for them, in GiB; 0: a third");
ABSL_FLAG(std::int64_t, passes, 6, "steps of the optimizer");

namespace deepum::gpu_bench {
namespace {

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  const std::string memory = memory_from_flags();
  const double chosen = absl::GetFlag(FLAGS_gib);
  const double gib = chosen != 0 ? chosen : memory == "managed" ? 3 : 9;
  const double chosen_budget = absl::GetFlag(FLAGS_budget_gib);
  const double budget_gib = chosen_budget != 0 ? chosen_budget : gib / 3;
  const std::int64_t passes = absl::GetFlag(FLAGS_passes);
  if (absl::Status status = first_error({systems_into(settings, {"um", "lru", "deepum", "auto"}), memory_into(settings),
                                         gib_in_range("gib", gib), gib_in_range("budget-gib", budget_gib),
                                         in_range("passes", passes, 2, 1000)});
      !status.ok()) {
    return status;
  }
  const slices_shape shape{.size = of_gib(gib), .budget = of_gib(budget_gib), .steps = passes};
  const bytes managed = memory == "managed" ? shape.size + of_mib(160) : bytes{};
  const absl::StatusOr<std::unique_ptr<session>> here = session::begin(settings, {.managed = managed});
  if (!here.ok()) return here.status();
  with_memory(memory, [&]<class Memory>() {
    slices_runs<Memory> runs(settings, shape);
    const std::vector<slices_result> results = runs.run();
    (*here)->put("slices", runs.json_of(results), runs.table_of(results));
  });
  return (*here)->end();
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(
      argc, argv, "deepum-bench-slices",
      "measures launches that are larger than the budget, in pieces, beside what their bytes take on the link",
      deepum::gpu_bench::run);
}
