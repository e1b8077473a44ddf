#pragma once

#include "kernels_sim.hpp"
#include "options.hpp"
#include <deepum/arena.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <memory>

namespace train_gpt {

/// The simulated GPU, as the model and the training loop name its parts.
struct sim_backend {
  using device = deepum::sim::device;
  using arena = deepum::arena<device::default_memory>;
  using stream = deepum::stream<device::default_memory>;
  using kernels = sim_kernels;

  [[nodiscard]] static std::unique_ptr<device> make_device(const run_options& options, deepum::bytes memory) {
    deepum::sim::profile profile = deepum::sim::find_profile(options.profile);
    profile.peak_flops /= options.compute_slowdown;
    profile.memory_bandwidth /= options.compute_slowdown;
    return std::make_unique<device>(profile, deepum::sim::device_options{.memory = memory});
  }
};

}  // namespace train_gpt
