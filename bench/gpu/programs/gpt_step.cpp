// A training step with large layers, under each memory system and budget, on either kind of the library's memory.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/train_gpt/bf16.hpp"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/gpt_flags.hpp"
#include "gpu/library/layered_report.hpp"
#include "gpu/library/layered_systems.hpp"
#include "gpu/library/memory_flags.hpp"
#include "gpu/library/memory_kinds.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/step_flags.hpp"
#include "gpu/library/system_flags.hpp"
#include "gpu/programs/gpt_step_runs.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(std::string, write_back, "default", "early write-back: on, off, both one after the other, or default");
ABSL_FLAG(bool, forgets, true, "the step says which contents are of no value any more");
ABSL_FLAG(std::int64_t, link_mib, 768, "memory that moves to measure the links");

namespace deepum::gpu_bench {
namespace {

std::vector<std::optional<bool>> write_backs_of(const std::string& word) {
  if (word == "both") return {true, false};
  if (word == "default") return {std::nullopt};
  return {word == "on"};
}

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  const absl::StatusOr<gpt_choice> step = gpt_from_flags();
  if (!step.ok()) return step.status();
  const std::string write_back = absl::GetFlag(FLAGS_write_back);
  const std::int64_t link_mib = absl::GetFlag(FLAGS_link_mib);
  if (absl::Status status =
          first_error({systems_into(settings, {"resident", "um", "by_hand", "lru", "deepum", "auto", "oracle"}),
                       steps_into(settings), memory_into(settings),
                       one_of("write-back", write_back, {"default", "on", "off", "both"}),
                       in_range("link-mib", link_mib, 128, 2048)});
      !status.ok()) {
    return status;
  }
  const std::string memory = memory_from_flags();
  const bytes link = of_mib(link_mib);
  machine_needs needs{.bf16_products = true};
  if (memory == "managed") {
    needs.managed = std::max(managed_capacity(step_of(step->shape)), managed_for_links(link));
  }
  const absl::StatusOr<std::unique_ptr<session>> here = session::begin(settings, needs);
  if (!here.ok()) return here.status();
  (*here)->measure_links(memory == "managed", link);
  const program_report report = with_memory(memory, [&]<class Memory>() {
    return gpt_step_runs<Memory, train_gpt::bf16>(settings, step->shape, step->budgets, absl::GetFlag(FLAGS_forgets),
                                                  write_backs_of(write_back))
        .run();
  });
  (*here)->add(report, layered_table_of(report), memory);
  return (*here)->end();
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(
      argc, argv, "deepum-bench-gpt-step",
      "measures a training step with large layers and less device memory than it needs, beside demand paging, double "
      "buffering by hand and an oracle",
      deepum::gpu_bench::run);
}
