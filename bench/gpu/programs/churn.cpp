// Everything comes and goes, both ways at once: paged memory beside copies of pinned memory.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/paged_flags.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/system_flags.hpp"
#include "gpu/programs/churn_runs.hpp"
#include "gpu/programs/churn_shape.hpp"
#include <deepum/cuda/paged_memory.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(double, gib, 6, "memory to sweep over, in GiB");
ABSL_FLAG(double, budget_gib, 2, "device memory for it, in GiB");
ABSL_FLAG(std::int64_t, group_mib, 64, "what a launch updates");
ABSL_FLAG(std::string, chunks_mib, "2,4,8,16,32", "chunks to try, with commas; 0: the library's choice");
ABSL_FLAG(std::int64_t, compute, 200000, "multiplications of a thread in a launch that computes beside");

namespace deepum::gpu_bench {
namespace {

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  const double gib = absl::GetFlag(FLAGS_gib);
  const double budget_gib = absl::GetFlag(FLAGS_budget_gib);
  const std::int64_t group = absl::GetFlag(FLAGS_group_mib);
  const std::int64_t compute = absl::GetFlag(FLAGS_compute);
  const absl::StatusOr<std::vector<std::int64_t>> chunks_mib =
      numbers_from<std::int64_t>("chunks-mib", absl::GetFlag(FLAGS_chunks_mib), 0, 1024);
  if (!chunks_mib.ok()) return chunks_mib.status();
  if (absl::Status status =
          first_error({systems_into(settings, {"um", "lru", "deepum", "auto"}), paged_into(settings),
                       gib_in_range("gib", gib), gib_in_range("budget-gib", budget_gib),
                       in_range("group-mib", group, 2, 4096), in_range("compute", compute, 1, 100'000'000)});
      !status.ok()) {
    return status;
  }
  std::vector<bytes> chunks;
  for (const std::int64_t each : *chunks_mib) {
    chunks.push_back(of_mib(each));
  }
  const absl::StatusOr<std::unique_ptr<session>> here = session::begin(settings, {});
  if (!here.ok()) return here.status();
  churn_runs<cuda::paged_memory> churn(settings,
                                       {.size = of_gib(gib), .budget = of_gib(budget_gib), .group = of_mib(group)},
                                       chunks, static_cast<unsigned>(compute));
  const std::vector<churn_result> results = churn.run();
  (*here)->put("churn", churn.json_of(results), churn.table_of(results));
  return (*here)->end();
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(
      argc, argv, "deepum-bench-churn",
      "measures how fast contents of paged memory come and go at once, beside copies of pinned memory",
      deepum::gpu_bench::run);
}
