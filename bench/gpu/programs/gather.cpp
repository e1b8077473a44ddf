// Launches that update scattered pieces of a table and declare none of them, under each memory system and budget.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/report.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/step_flags.hpp"
#include "gpu/library/system_flags.hpp"
#include "gpu/programs/gather_runs.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(std::uint32_t, pieces, 640, "pieces of 2 MiB in the table");
ABSL_FLAG(std::uint32_t, launches, 12, "launches in a step");
ABSL_FLAG(std::uint32_t, each, 32, "pieces that one of them updates");
ABSL_FLAG(std::int64_t, change, 6, "steps until they update other pieces");
ABSL_FLAG(std::string, budgets, "75,50,35", "device memory, in percent of the table, with commas");
ABSL_FLAG(std::int64_t, link_mib, 768, "memory that moves to measure the links");

namespace deepum::gpu_bench {
namespace {

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  absl::StatusOr<std::vector<double>> budgets = percentages_from("budgets", absl::GetFlag(FLAGS_budgets));
  if (!budgets.ok()) return budgets.status();
  settings.budgets = *std::move(budgets);
  const gather_shape shape{.pieces = absl::GetFlag(FLAGS_pieces),
                           .launches = absl::GetFlag(FLAGS_launches),
                           .each = absl::GetFlag(FLAGS_each),
                           .change = absl::GetFlag(FLAGS_change)};
  const std::int64_t link_mib = absl::GetFlag(FLAGS_link_mib);
  if (absl::Status status =
          first_error({systems_into(settings, {"resident", "um", "once", "lru", "deepum", "auto"}),
                       steps_into(settings), in_range("pieces", shape.pieces, 1, 2048),
                       in_range("launches", shape.launches, 1, 1000), in_range("each", shape.each, 1, shape.pieces),
                       in_range("change", shape.change, 1, 10'000), in_range("link-mib", link_mib, 128, 2048)});
      !status.ok()) {
    return status;
  }
  const bytes link = of_mib(link_mib);
  const absl::StatusOr<std::unique_ptr<session>> here = session::begin(
      settings,
      {.managed = std::max(capacity_of(shape.table() + block_size * shape.launches), managed_for_links(link))});
  if (!here.ok()) return here.status();
  (*here)->measure_links(true, link);
  const program_report report = gather_runs(settings, shape).run();
  (*here)->add(report, table_of(report));
  return (*here)->end();
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(argc, argv, "deepum-bench-gather",
                                        "measures launches that find what they update through indices in device memory",
                                        deepum::gpu_bench::run);
}
