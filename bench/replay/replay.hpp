#pragma once

#include "replay/gpu.hpp"
#include "replay/program.hpp"
#include <deepum/core/launch.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace deepum::replay {

/// Which memory a program is replayed on.
enum class replay_memory : std::uint8_t {
  managed,    ///< contents are in one place, and whatever leaves is copied: what the driver of managed memory does
  home_copy,  ///< the host's copy stays: what was not written leaves without a copy, and blocks are cleaned ahead
};

struct replay_options {
  replay_memory memory = replay_memory::home_copy;
  bytes budget{};  ///< and these, of a device with one link each way
  link_costs costs{};
  std::shared_ptr<const machine> on{};  ///< instead: the machine that it runs on
  std::size_t run_ahead = 1;            ///< launches that the host enqueues beyond the executing one
  /// Takes everything that happens. Empty: nobody.
  gpu::schedule_sink schedule{};
  /// As `engine_options::observer`. Empty: nobody.
  std::function<void(const device_event&, launch_id)> observer{};
  /// Called when a turn has been enqueued and the one before it is over, with the number of turns. Empty: nobody.
  std::function<void(std::size_t)> progress{};
};

/// What one turn of a program cost.
struct replayed_turn {
  nanoseconds time{};  ///< from the end of the turn before to the end of this one
  statistics used{};   ///< what the engine did in that time
  bytes peak{};        ///< on the device at most
};

struct replay_result {
  std::vector<replayed_turn> turns{};
  std::string policy{};
};

/// Replays a program under a policy: the real engine on the simulated GPU, in virtual time.
///
/// The host issues launches in order, as far ahead as `run_ahead` says, allocates the blocks of a tensor before its
/// first launch and frees them after the last. The policy learns what a program's policy learns: launches as they are
/// issued with what they declare, facts about contents, faults and migrations. Data-dependent accesses are not
/// declared, but for how many rows of a tensor they look up, on machines where rows can be touched in place.
///
/// Deterministic.
/// @param chooser  A policy that has seen nothing yet.
/// @errors  `status::invalid_argument` where a launch uses more blocks than the budget has.
[[nodiscard]] replay_result replay(const program& what, std::unique_ptr<policy> chooser, const replay_options& options);

}  // namespace deepum::replay
