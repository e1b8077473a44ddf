// What it costs a program that only pages on demand that somebody learns of its page faults.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/programs/feed_runs.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

ABSL_FLAG(std::int64_t, fault_mib, 512, "memory that faults");

namespace deepum::gpu_bench {
namespace {

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  const std::int64_t mib = absl::GetFlag(FLAGS_fault_mib);
  if (absl::Status status = in_range("fault-mib", mib, 2, 4096); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<session>> here = session::begin(settings, {.managed = capacity_of(of_mib(mib))});
  if (!here.ok()) return here.status();
  feed_runs feeds(settings, of_mib(mib));
  const std::vector<feed_cost> costs = feeds.run();
  (*here)->put("feeds", feeds.json_of(costs), feeds.table_of(costs));
  return (*here)->end();
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(argc, argv, "deepum-bench-feeds",
                                        "measures what the feeds of page faults cost demand paging",
                                        deepum::gpu_bench::run);
}
