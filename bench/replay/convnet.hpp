#pragma once

#include "replay/workload.hpp"
#include <deepum/core/layer.hpp>
#include <deepum/planning/algorithm_choice.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepum::replay {

/// One layer of a convolutional net, fp32, with what its kernels read and write.
struct convnet_layer {
  std::string name{};
  layer_kind kind = layer_kind::other;
  std::vector<std::size_t> reads{};  ///< layers whose output it reads, by place; none: the batch
  std::uint32_t channels = 0;        ///< of its output
  std::uint32_t side = 0;            ///< height and width of its output
  std::uint32_t filter = 0;          ///< of a convolution: height and width
  std::uint32_t stride = 1;
  std::uint64_t inputs = 0;   ///< channels of its input; elements of one image of it, where it is fully connected
  std::uint64_t weights = 0;  ///< elements

  /// Elements of one image of its output.
  [[nodiscard]] std::uint64_t elements() const { return std::uint64_t{channels} * side * side; }
};

/// A net for images of three channels.
struct convnet {
  std::string name{};
  std::uint32_t side = 0;  ///< of an image
  std::vector<convnet_layer> layers{};
};

/// The names that `make_convnet` knows: `alexnet` and `vgg16` as the report on vDNNExt trains them (activations in
/// place, no normalisation), and `forks`, a net of 32 residual blocks, in which additions read the inputs of
/// convolutions.
[[nodiscard]] std::span<const std::string_view> convnet_names();
/// @errors  `status::invalid_argument` for another name.
[[nodiscard]] convnet make_convnet(std::string_view name);

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

/// A training step of the net as a workload: layers with their scopes, algorithms as chosen, workspaces and all.
/// Weights persist and are updated at the end; the batch is written by the host before each step, that is, it persists.
/// @param described  As `describe` has made it, for the same net, batch and card.
[[nodiscard]] workload_description make_step(const convnet& net, std::uint32_t batch, const sim::profile& card,
                                             const choice_net& described, const chosen_algorithms& chosen);

/// The place of the best algorithm in each list. @param fastest  Else those that need the least workspace.
[[nodiscard]] chosen_algorithms choose_algorithms(const choice_net& net, bool fastest);

/// The same as lines of JSON, as `parse_workload` reads them.
[[nodiscard]] std::string to_text(const workload_description& step);

}  // namespace deepum::replay
