// The largest batch that a training step runs with, under each memory system at equal memory.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/train_gpt/bf16.hpp"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/gpt_flags.hpp"
#include "gpu/library/layered_systems.hpp"
#include "gpu/library/memory_flags.hpp"
#include "gpu/library/memory_kinds.hpp"
#include "gpu/library/paged_flags.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/system_flags.hpp"
#include "gpu/programs/largest_batch_runs.hpp"
#include <deepum/cuda/managed_limit.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(std::int64_t, most, 256, "sequences in a step at most");

namespace deepum::gpu_bench {
namespace {

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  const absl::StatusOr<gpt_choice> step = gpt_from_flags();
  if (!step.ok()) return step.status();
  const std::int64_t most = absl::GetFlag(FLAGS_most);
  if (absl::Status status = first_error({systems_into(settings, {"resident", "um", "by_hand", "lru", "deepum", "auto"}),
                                         memory_into(settings), in_range("most", most, 1, 65'536)});
      !status.ok()) {
    return status;
  }
  const std::string memory = memory_from_flags();
  machine_needs needs{.bf16_products = true};
  if (memory == "managed") needs.managed = managed_capacity(step_of(step->shape));
  const absl::StatusOr<std::unique_ptr<session>> here = session::begin(settings, needs);
  if (!here.ok()) return here.status();
  with_memory(memory, [&]<class Memory>() {
    largest_batch_runs<Memory, train_gpt::bf16> runs(settings, step->shape, step->budgets, host_memory_from_flags(),
                                                     cuda::managed_limit::from_environment().value_or(bytes{}), most);
    const std::vector<batch_result> results = runs.run();
    (*here)->put("largest_batch", runs.json_of(results), runs.table_of(results));
  });
  return (*here)->end();
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(argc, argv, "deepum-bench-largest-batch",
                                        "looks for the largest batch that trains with given device and host memory",
                                        deepum::gpu_bench::run);
}
