#pragma once

#include <deepum/planning/step_segments.hpp>
#include <deepum/units.hpp>

#include <cstdint>

namespace deepum_test {

/// A training step whose activations are written faster in the forward pass than the outward link can take them out.
///
/// Each layer reads its weights and writes activations; the backward pass reads both, from the last layer on, and
/// updates the weights, so those of the first layers are written last and read first. Activations die where they have
/// been read. Weights lie from block 0 on, activations behind them, in the order of layers.
struct heavy_step {
  std::uint32_t layers = 16;
  std::uint32_t weights = 8;       ///< blocks of a layer
  std::uint32_t activations = 16;  ///< blocks of a layer
  deepum::nanoseconds forward{100};
  deepum::nanoseconds backward{220};

  [[nodiscard]] deepum::block_range weights_of(std::uint32_t layer) const {
    return {deepum::block_id{layer * weights}, weights};
  }
  [[nodiscard]] deepum::block_range activations_of(std::uint32_t layer) const {
    return {deepum::block_id{layers * weights + layer * activations}, activations};
  }
  [[nodiscard]] std::uint32_t blocks() const { return layers * (weights + activations); }
  /// With nothing to wait for.
  [[nodiscard]] deepum::nanoseconds length() const { return (forward + backward) * layers; }

  [[nodiscard]] deepum::step_description describe() const {
    using deepum::access;
    deepum::step_description step;
    for (std::uint32_t l = 0; l != layers; ++l) {
      step.add_launch(forward);
      step.add_use(weights_of(l), access::read);
      if (l != 0) {
        step.add_use(activations_of(l - 1), access::read);
      }
      step.add_use(activations_of(l), access::overwrite);
    }
    for (std::uint32_t l = layers; l-- != 0;) {
      step.add_launch(backward);
      step.add_use(weights_of(l), access::update);
      step.add_use(activations_of(l), access::read);
      step.add_last_use(activations_of(l));
    }
    return step;
  }
};

}  // namespace deepum_test
