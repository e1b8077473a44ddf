#include "gpu/library/system_flags.hpp"

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "gpu/library/flag_values.hpp"

#include <utility>

ABSL_FLAG(std::string, systems, "all",
          "memory systems, with commas, of those that this program knows: resident, managed (managed memory without "
          "the library), um (demand paging), once (prefetched when allocated), double_managed, double_pinned, by_hand "
          "(double buffering by hand), lru, deepum, auto, vdnn, vdnn_ext, oracle (told each step beforehand); or all");

namespace deepum::gpu_bench {

absl::Status systems_into(bench_settings& settings, const std::vector<std::string>& known) {
  absl::StatusOr<std::vector<std::string>> list = chosen("systems", absl::GetFlag(FLAGS_systems), known);
  if (!list.ok()) return list.status();
  settings.systems = *std::move(list);
  return absl::OkStatus();
}

}  // namespace deepum::gpu_bench
