#pragma once

#include "operations_sim.hpp"
#include "options.hpp"
#include <deepum/arena.hpp>
#include <deepum/core/block.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <memory>
#include <string>

namespace train_gpt {

/// What the simulated GPU of a run costs.
[[nodiscard]] inline deepum::sim::profile simulated_profile(const run_options& options) {
  deepum::sim::profile profile = deepum::sim::find_profile(options.profile);
  profile.peak_flops /= options.compute_slowdown;
  profile.memory_bandwidth /= options.compute_slowdown;
  return profile;
}

/// The simulated GPU, as the model and the training loop name its parts.
/// @tparam Memory  One of `deepum::sim`.
template <class Memory>
struct basic_sim_backend {
  using device = deepum::sim::device;
  using arena = deepum::arena<Memory>;
  using stream = deepum::stream<Memory>;
  using operations = sim_operations<stream>;

  [[nodiscard]] static std::unique_ptr<device> make_device(const run_options& options, deepum::bytes memory) {
    return std::make_unique<device>(simulated_profile(options), deepum::sim::device_options{.memory = memory});
  }

  /// What moves as one.
  [[nodiscard]] static deepum::bytes block(const run_options& /*options*/) { return deepum::block_size; }

  /// What an arena may hold on a device that has this memory and no more. A few blocks stay free, so that the driver
  /// need not evict when a launch faults all the same; under `um`, and where no driver moves anything, it has all.
  [[nodiscard]] static deepum::bytes device_budget(const std::string& policy, deepum::bytes memory) {
    return policy == "um" || deepum::paged_memory_kind<Memory>
               ? memory
               : memory - std::min(4 * deepum::block_size, memory - deepum::block_size);
  }
};

using sim_backend = basic_sim_backend<deepum::sim::managed_memory>;
using paged_sim_backend = basic_sim_backend<deepum::sim::paged_memory>;

}  // namespace train_gpt
