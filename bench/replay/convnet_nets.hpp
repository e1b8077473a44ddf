#pragma once

#include <deepum/core/layer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum::replay {

/// One layer of a convolutional net, fp32, with what its kernels read and write.
struct convnet_layer {
  std::string name{};
  layer_kind kind = layer_kind::other;
  std::vector<std::size_t> reads{};  ///< layers whose output it reads, by place; none: the batch
  std::uint32_t channels = 0;        ///< of its output
  std::uint32_t side = 0;            ///< height and width of its output
  std::uint32_t filter = 0;          ///< of a convolution or pooling: height and width of its window
  std::uint32_t stride = 1;
  std::uint32_t padding = 0;
  std::uint64_t inputs = 0;   ///< channels of its input; elements of one image of it, where it is fully connected
  std::uint64_t weights = 0;  ///< elements: the weights, then a bias for each channel

  /// Elements of one image of its output.
  [[nodiscard]] std::uint64_t elements() const { return std::uint64_t{channels} * side * side; }
};

/// A net for images of three channels.
struct convnet {
  std::string name{};
  std::uint32_t side = 0;  ///< of an image
  std::vector<convnet_layer> layers{};

  /// Elements of one image of the input of a layer.
  [[nodiscard]] std::uint64_t input_elements(std::size_t layer) const;
  /// Whether a layer has an activation, which works in place.
  [[nodiscard]] bool activates(std::size_t layer) const;
};

/// Builds a net, layer by layer. A layer reads the one before it where it does not say what else. Each call gives the
/// place of the layer.
class convnet_builder {
 public:
  convnet_builder(std::string name, std::uint32_t side) : net_{.name = std::move(name), .side = side, .layers = {}} {}

  std::size_t conv(std::uint32_t channels, std::uint32_t filter, std::uint32_t stride, std::uint32_t padding,
                   const std::vector<std::size_t>& from = {});
  std::size_t pool(std::uint32_t window, std::uint32_t stride);
  std::size_t full(std::uint32_t channels);
  std::size_t softmax();
  /// The sum of two outputs of one shape.
  std::size_t add(std::size_t a, std::size_t b);
  [[nodiscard]] std::size_t last() const { return net_.layers.size() - 1; }
  [[nodiscard]] convnet take() { return std::move(net_); }

 private:
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> input_of(const std::vector<std::size_t>& from) const;
  std::size_t append(convnet_layer l, const std::vector<std::size_t>& from);
  std::size_t same(const char* name, layer_kind kind, const std::vector<std::size_t>& from);

  convnet net_;
};

/// The names that `make_convnet` knows: `alexnet` and `vgg16` as the report on vDNNExt trains them (activations in
/// place, no normalisation), and `forks`, a net of 32 residual blocks, in which additions read the inputs of
/// convolutions.
[[nodiscard]] std::span<const std::string_view> convnet_names();
/// @errors  `status::invalid_argument` for another name.
[[nodiscard]] convnet make_convnet(std::string_view name);

}  // namespace deepum::replay
