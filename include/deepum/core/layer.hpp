#pragma once

#include <deepum/core/block.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Which way a training step goes through the net.
enum class layer_pass : std::uint8_t { forward, backward };

/// What a layer computes, as far as it matters to what is moved (vDNN, section 3.3 of the report).
enum class layer_kind : std::uint8_t {
  conv,        ///< convolution; it computes long enough to hide the transfer of its input
  pool,        ///< pooling
  fc,          ///< fully connected
  activation,  ///< activation of its own; one that works in place belongs to the layer before it
  softmax,     ///< softmax, or the loss
  other,       ///< anything else: normalisation, concatenation, addition
};
inline constexpr unsigned layer_kind_count = 6;

/// A fact about launches: the layer of a net that they compute. It comes to the policy with each launch. A policy that
/// is not of layers ignores it.
struct layer_scope {
  std::uint32_t layer = 0;  ///< its number, as the program counts
  layer_pass pass = layer_pass::forward;
  layer_kind kind = layer_kind::other;
  std::uint64_t number = 0;          ///< of the scope among those of its stream: 1, 2, 3, ...
  std::vector<block_range> input{};  ///< whole blocks of its input X; forward only
  std::uint32_t shared = 0;          ///< blocks that hold a part of X beside other memory: they never leave for it
};

/// The word for messages and files.
[[nodiscard]] constexpr std::string_view to_string(layer_pass p) {
  return p == layer_pass::forward ? "forward" : "backward";
}
/// The word for messages and files.
[[nodiscard]] constexpr std::string_view to_string(layer_kind k) {
  constexpr std::string_view words[layer_kind_count] = {"conv", "pool", "fc", "activation", "softmax", "other"};
  return words[static_cast<unsigned>(k)];
}

}  // namespace v0
}  // namespace deepum
