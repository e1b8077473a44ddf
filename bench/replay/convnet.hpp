#pragma once

#include "replay/convnet_nets.hpp"
#include "replay/convnet_step.hpp"
#include "replay/workload.hpp"
#include <deepum/planning/algorithm_choice.hpp>
#include <deepum/sim/profile.hpp>

#include <cstdint>
#include <vector>

// Convolutional nets on a card by roofline: what their algorithms take, and a training step as a workload.
namespace deepum::replay {

/// Algorithms of a convolution on a card, by part: time and workspace, by roofline.
///
/// Implicit GEMM needs no workspace; GEMM with its indices computed before a little; Winograd for filters of 3 and FFT
/// for larger ones, of stride 1, one that grows with the feature maps. Shares of the peak are chosen so that the
/// report's times of whole steps come out (docs/vdnn.md).
[[nodiscard]] std::vector<layer_algorithm> convolution_algorithms(const convnet_layer& of, std::uint64_t input_elements,
                                                                  std::uint32_t batch, convolution_part part,
                                                                  const sim::profile& card);

/// The net as the dynamic choice needs it, with all algorithms.
[[nodiscard]] choice_net describe(const convnet& net, std::uint32_t batch, const sim::profile& card);

/// A training step of the net as a workload, whose launches take their times by roofline.
/// @param described  As `describe` has made it, for the same net, batch and card.
[[nodiscard]] workload_description make_step(const convnet& net, std::uint32_t batch, const sim::profile& card,
                                             const choice_net& described, const chosen_algorithms& chosen);

}  // namespace deepum::replay
