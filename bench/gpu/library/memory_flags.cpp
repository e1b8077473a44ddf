#include "gpu/library/memory_flags.hpp"

#include "absl/flags/flag.h"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/paged_flags.hpp"
#include "gpu/library/sizes.hpp"
#include "program/flags.hpp"

#include <cstdint>

ABSL_FLAG(std::string, memory, "managed",
          "the library's memory: managed, which has to fit into DEEPUM_MANAGED_LIMIT, or paged");
ABSL_FLAG(std::int64_t, chunk_mib, 0, "chunks of paged memory, a power of two; 0: what the library chooses");

namespace deepum::gpu_bench {

std::string memory_from_flags() { return deepum_program::memory_kind_of(absl::GetFlag(FLAGS_memory)); }

absl::Status memory_into(bench_settings& settings) {
  const std::int64_t chunk = absl::GetFlag(FLAGS_chunk_mib);
  settings.choices.chunk = of_mib(chunk);
  return first_error({one_of("memory", memory_from_flags(), {"managed", "paged"}),
                      in_range("chunk-mib", chunk, 0, 1024), paged_into(settings)});
}

}  // namespace deepum::gpu_bench
