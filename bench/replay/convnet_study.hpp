#pragma once

#include "replay/convnet.hpp"
#include <deepum/planning/algorithm_choice.hpp>
#include <deepum/planning/layer_offload.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace deepum::replay {

/// A net under one policy: steady steps, of a budget that is no limit, or of one that is.
struct convnet_run {
  std::string name{};
  double ms = 0;                    ///< of a step
  double in_mb = 0;                 ///< 10^6 bytes a step
  double out_mb = 0;                ///< 10^6 bytes a step
  double peak_mib = 0;              ///< on the device at most
  std::optional<double> auto_ms{};  ///< of a step under `auto` with that peak as its budget
};

/// All of them, with the same algorithms but for the choice's.
struct convnet_study {
  double base_ms = 0;          ///< no input leaves
  double removed_percent = 0;  ///< of what `vdnn` with all inputs loses against the base, `vdnn_ext` with all removes
  double auto_at_80_ms = 0;    ///< of a step under `auto` with 80 % of the base's peak as its budget
  choice_outcome outcome = choice_outcome::untrainable;  ///< for the card's memory
  std::vector<convnet_run> runs{};
};

/// One replay.
/// @param budget  Of the device.
[[nodiscard]] convnet_run run_convnet(const workload_description& step, const std::string& policy, offload chosen,
                                      bytes budget, const sim::profile& card);

/// Base, {conv, all, dynamic choice} x {vdnn, vdnn_ext}, each `vdnn_ext` with the peak of `vdnn` as its budget, and
/// `auto` at the peak of each.
/// @param layer_cost  What `vdnn` and `vdnn_ext` take at each layer in each pass beside its launches.
[[nodiscard]] convnet_study study_convnet(const convnet& net, std::uint32_t batch, const sim::profile& card,
                                          bool fastest, nanoseconds layer_cost = {});

}  // namespace deepum::replay
