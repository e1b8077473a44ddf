#pragma once

#include "nlohmann/json.hpp"
#include "replay/card.hpp"
#include "replay/machine.hpp"
#include "replay/program.hpp"
#include "replay/replay.hpp"
#include "replay/workload.hpp"
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace deepum::replay {

/// What the flags of `deepum-replay` say of all policies' runs.
struct run_options {
  std::vector<std::string> policies{};
  bytes budget{};
  std::int64_t steps = 0;
  link_costs costs{};
  std::shared_ptr<const machine> on{};  ///< null: a device with one link each way
  std::size_t run_ahead = 1;
  std::optional<std::uint32_t> lookahead{};
  const sim::profile* card = nullptr;  ///< null: `costs` are those of the flags
  std::string recorded_on{};           ///< with `card`
};

/// One policy's run.
struct policy_run {
  std::string policy{};
  replay_memory memory = replay_memory::home_copy;
  replay_result result{};
  double host_seconds = 0;  ///< what the replay took here
};

/// Mean time of the steps after the second and before the last, as the referee counts; of few steps, of the last.
[[nodiscard]] double steady_ns(const replay_result& result);

/// What a person reads: of a step that is repeated, or of a program whose regimes change.
[[nodiscard]] std::string table_of(const workload& w, const run_options& options, const std::vector<policy_run>& runs);
[[nodiscard]] std::string table_of(const program& what, const std::vector<policy_run>& runs);

/// All that was measured, step by step.
/// @param scaled  What `on_card` did, if there is a card.
[[nodiscard]] nlohmann::json json_of(const workload& w, const program& what, const run_options& options,
                                     const std::vector<policy_run>& runs, const std::vector<scaled_kernels>& scaled);

}  // namespace deepum::replay
