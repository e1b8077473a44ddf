#pragma once

#include "replay/convnet_nets.hpp"
#include "replay/workload.hpp"
#include <deepum/planning/algorithm_choice.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace deepum::replay {

/// The net as the dynamic choice needs it.
/// @param found  found(layer, part): the algorithms of a convolution.
[[nodiscard]] choice_net describe(
    const convnet& net, std::uint32_t batch, bytes block,
    const std::function<std::vector<layer_algorithm>(std::size_t layer, convolution_part part)>& found);

/// The place of the best algorithm in each list. @param fastest  Else those that need the least workspace.
[[nodiscard]] chosen_algorithms choose_algorithms(const choice_net& net, bool fastest);

/// What a launch of a training step computes.
enum class convnet_work : std::uint8_t {
  forward,              ///< Y of X and W
  activation,           ///< of Y, in place
  loss_gradient,        ///< dY of the softmax's Y and the answers
  activation_gradient,  ///< of Y and dY, in place
  filter_gradient,      ///< dW of X and dY
  data_gradient,        ///< dX of W and dY; of a softmax: of dY alone
  gradient,             ///< dX of dY, of a layer without weights
  update,               ///< W of dW
};

/// A launch of a training step. It belongs to one layer.
struct convnet_launch {
  convnet_work what = convnet_work::forward;
  std::size_t layer = 0;  ///< place
};

/// A tensor of a layer.
enum class convnet_tensor : std::uint8_t {
  output,
  output_gradient,
  weights,
  weights_gradient,
  forward_workspace,
  backward_workspace
};
/// The batch's number among the tensors of a step.
inline constexpr std::int64_t convnet_batch = 0;
/// A tensor's number.
[[nodiscard]] constexpr std::int64_t convnet_tensor_of(std::size_t layer, convnet_tensor which) {
  return 8 * (static_cast<std::int64_t>(layer) + 1) + static_cast<std::int64_t>(which);
}

/// A training step of a net: what its launches compute, and what they touch.
struct convnet_step {
  workload_description described{};
  std::vector<convnet_launch> launches{};                    ///< as many as are described
  std::vector<std::optional<layer_algorithm>> algorithms{};  ///< by launch, of those of convolutions
};

/// A training step of the net: layers with their scopes, algorithms as chosen, workspaces and all. Weights persist and
/// are updated at the end; the batch is written by the host before each step, that is, it persists. Launches take no
/// time yet.
/// @param choice  Of the same net, as `describe` has made it.
[[nodiscard]] convnet_step make_step(const convnet& net, const std::string& name, const choice_net& choice,
                                     const chosen_algorithms& chosen);

/// A step as lines of JSON, as `parse_workload` reads them.
/// @param source  Where its times are from.
[[nodiscard]] std::string to_text(const workload_description& step, const std::string& source);

}  // namespace deepum::replay
