// Whether the library computes the same under every policy and budget: losses of training, and random programs.

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gpu/library/common_flags.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/memory_kinds.hpp"
#include "gpu/library/session.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/system_flags.hpp"
#include "gpu/programs/model_runs.hpp"
#include "gpu/programs/policy_checks.hpp"
#include "program/flags.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

ABSL_FLAG(std::int64_t, steps, 200, "training steps whose losses are compared, on managed memory; 0: none");
ABSL_FLAG(std::int64_t, programs, 50, "random programs whose memory is compared; 0: none");
ABSL_FLAG(std::string, memory, "managed", "the memory of the random programs: managed or paged");
ABSL_FLAG(std::string, budgets, "75,50,35", "device memory for training, in percent of the footprint, with commas");

namespace deepum::gpu_bench {
namespace {

absl::Status run() {
  absl::StatusOr<bench_settings> read = settings_from_flags();
  if (!read.ok()) return read.status();
  bench_settings settings = *std::move(read);
  absl::StatusOr<std::vector<double>> budgets = percentages_from("budgets", absl::GetFlag(FLAGS_budgets));
  if (!budgets.ok()) return budgets.status();
  settings.budgets = *std::move(budgets);
  const std::int64_t steps = absl::GetFlag(FLAGS_steps);
  const std::int64_t programs = absl::GetFlag(FLAGS_programs);
  const std::string memory = deepum_program::memory_kind_of(absl::GetFlag(FLAGS_memory));
  if (absl::Status status =
          first_error({systems_into(settings, {"um", "lru", "deepum", "auto"}), in_range("steps", steps, 0, 100'000),
                       in_range("programs", programs, 0, 10'000), one_of("memory", memory, {"managed", "paged"})});
      !status.ok()) {
    return status;
  }
  machine_needs needs;
  if (programs != 0 && memory == "managed") needs.managed = block_size * 128;
  if (steps != 0) {
    constexpr auto use = train_gpt::purpose::training;
    needs.managed = std::max(needs.managed, capacity_of(model_runs<float>::footprint(checked_shape, use)));
  }
  const absl::StatusOr<std::unique_ptr<session>> here = session::begin(settings, needs);
  if (!here.ok()) return here.status();
  std::string wrong;
  if (steps != 0) check_losses(settings, steps, wrong);
  with_memory(memory, [&]<class Memory>() {
    check_random_programs<Memory>(settings, static_cast<std::uint64_t>(programs), wrong);
  });
  if (absl::Status status = (*here)->end(); !status.ok()) return status;
  if (!wrong.empty()) {
    print(wrong);
    return absl::InternalError("the library has computed something else");
  }
  print(absl::StrFormat(
      "the same under %s: the losses of %d steps with budgets of %s %%, and %d random programs on %s "
      "memory\n",
      absl::StrJoin(checked_policies(settings), ", "), steps, absl::StrJoin(settings.budgets, ", "), programs, memory));
  return absl::OkStatus();
}

}  // namespace
}  // namespace deepum::gpu_bench

int main(int argc, char** argv) {
  return deepum::gpu_bench::run_program(
      argc, argv, "deepum-bench-check",
      "checks that training and random programs compute the same under every policy as where everything is resident",
      deepum::gpu_bench::run);
}
