#pragma once

#include <deepum/core/layer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Layers whose input X goes to the host after its last use in the forward pass, and comes back for the backward pass
/// (vDNN, section 3.4 of the report).
///
/// The last layer of a net that is neither softmax nor activation keeps its X in any case: it would come straight back.
enum class offload : std::uint8_t {
  none,            ///< of no layer
  conv,            ///< of convolutions
  all,             ///< of all but activations, softmax and fully connected layers
  alternate_conv,  ///< of the first, third, fifth, ... convolution
};
inline constexpr std::array<std::string_view, 4> offload_names{"none", "conv", "all", "alternate_conv"};

/// The word for flags and files.
[[nodiscard]] constexpr std::string_view to_string(offload o) { return offload_names[static_cast<unsigned>(o)]; }
/// The reverse; nothing for a word that is none of `offload_names`.
[[nodiscard]] constexpr std::optional<offload> try_parse_offload(std::string_view word) {
  for (std::size_t i = 0; i != offload_names.size(); ++i) {
    if (offload_names[i] == word) {
      return static_cast<offload>(i);
    }
  }
  return std::nullopt;
}

/// Whether X of a layer of this kind is to leave.
/// @param convolutions_before  In the order of the forward pass.
[[nodiscard]] constexpr bool offloads(offload chosen, layer_kind kind, std::size_t convolutions_before) {
  switch (chosen) {
    case offload::none:
      return false;
    case offload::conv:
      return kind == layer_kind::conv;
    case offload::all:
      return kind == layer_kind::conv || kind == layer_kind::pool || kind == layer_kind::other;
    case offload::alternate_conv:
      return kind == layer_kind::conv && convolutions_before % 2 == 0;
  }
  return false;
}

/// Whether a layer of this kind can be the last one, whose X never leaves.
[[nodiscard]] constexpr bool counts_as_last(layer_kind kind) {
  return kind != layer_kind::softmax && kind != layer_kind::activation;
}

/// For each layer, in the order of the forward pass, whether its X leaves.
[[nodiscard]] inline std::vector<bool> offloaded_layers(offload chosen, const std::vector<layer_kind>& net) {
  std::vector<bool> leaves(net.size());
  std::size_t convolutions = 0;
  std::optional<std::size_t> last;
  for (std::size_t i = 0; i != net.size(); ++i) {
    leaves[i] = offloads(chosen, net[i], convolutions);
    convolutions += net[i] == layer_kind::conv ? 1 : 0;
    if (counts_as_last(net[i])) {
      last = i;
    }
  }
  if (last) {
    leaves[*last] = false;
  }
  return leaves;
}

/// What the walk asks of a layer.
struct layer_mark {
  layer_kind kind = layer_kind::other;
  bool offloaded = false;   ///< its X is on the host
  bool prefetched = false;  ///< and was chosen to come back
};

/// The layer whose X comes back beside the backward pass of layer `current`, as published (`findPrefetchLayer`, figure
/// 6 of the report): back from the one before it, the first that was offloaded and not chosen yet. It is marked. None
/// where a convolution that is not such comes first: that one computes long enough to hide what lies before it.
[[nodiscard]] inline std::optional<std::size_t> find_prefetch_layer(std::vector<layer_mark>& net, std::size_t current) {
  for (std::size_t i = current; i-- > 0;) {
    if (net[i].offloaded && !net[i].prefetched) {
      net[i].prefetched = true;
      return i;
    }
    if (net[i].kind == layer_kind::conv) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace v0
}  // namespace deepum
