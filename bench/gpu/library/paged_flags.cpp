#include "gpu/library/paged_flags.hpp"

#include "absl/flags/flag.h"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/sizes.hpp"

#include <string>

ABSL_FLAG(std::string, evicted, "unmapped",
          "what is at the addresses of paged memory that is not on the GPU: unmapped, or host-mapped");
ABSL_FLAG(double, host_gib, 96,
          "host memory that contents may need, in GiB: paged memory holds to it, and so do all systems where the "
          "largest batch is looked for");

namespace deepum::gpu_bench {

bytes host_memory_from_flags() { return of_gib(absl::GetFlag(FLAGS_host_gib)); }

absl::Status paged_into(bench_settings& settings) {
  const std::string evicted = absl::GetFlag(FLAGS_evicted);
  settings.choices.host_mapped = evicted == "host-mapped";
  settings.choices.host_limit = host_memory_from_flags();
  return first_error({one_of("evicted", evicted, {"unmapped", "host-mapped"}),
                      gib_in_range("host-gib", absl::GetFlag(FLAGS_host_gib))});
}

}  // namespace deepum::gpu_bench
