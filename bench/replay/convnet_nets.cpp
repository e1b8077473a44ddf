#include "replay/convnet_nets.hpp"

#include <deepum/error.hpp>

#include <array>
#include <utility>

namespace deepum::replay {
namespace {

constexpr std::array<std::string_view, 3> names{"alexnet", "vgg16", "forks"};

convnet alexnet() {
  convnet_builder b("alexnet", 227);
  b.conv(96, 11, 4, 0);
  b.pool(3, 2);
  b.conv(256, 5, 1, 2);
  b.pool(3, 2);
  b.conv(384, 3, 1, 1);
  b.conv(384, 3, 1, 1);
  b.conv(256, 3, 1, 1);
  b.pool(3, 2);
  b.full(4096);
  b.full(4096);
  b.full(1000);
  b.softmax();
  return b.take();
}

convnet vgg16() {
  convnet_builder b("vgg16", 224);
  for (const auto& [channels, convolutions] :
       {std::pair{64U, 2}, std::pair{128U, 2}, std::pair{256U, 3}, std::pair{512U, 3}, std::pair{512U, 3}}) {
    for (int i = 0; i != convolutions; ++i) {
      b.conv(channels, 3, 1, 1);
    }
    b.pool(2, 2);
  }
  b.full(4096);
  b.full(4096);
  b.full(1000);
  b.softmax();
  return b.take();
}

convnet forks() {
  convnet_builder b("forks", 224);
  b.conv(64, 7, 2, 3);
  b.pool(2, 2);
  for (const std::uint32_t channels : {64U, 128U, 256U, 512U}) {
    for (int i = 0; i != 8; ++i) {
      std::size_t from = b.last();
      if (i == 0 && channels != 64) {
        from = b.conv(channels, 3, 2, 1);
      }
      b.conv(channels, 3, 1, 1, {from});
      const std::size_t second = b.conv(channels, 3, 1, 1);
      b.add(second, from);
    }
  }
  b.full(1000);
  b.softmax();
  return b.take();
}

}  // namespace

std::uint64_t convnet::input_elements(std::size_t layer) const {
  const convnet_layer& l = layers[layer];
  return l.reads.empty() ? std::uint64_t{3} * side * side : layers[l.reads.front()].elements();
}

bool convnet::activates(std::size_t layer) const {
  const layer_kind kind = layers[layer].kind;
  return kind == layer_kind::conv || (kind == layer_kind::fc && layer + 2 < layers.size());
}

std::size_t convnet_builder::conv(std::uint32_t channels, std::uint32_t filter, std::uint32_t stride,
                                  std::uint32_t padding, const std::vector<std::size_t>& from) {
  const auto [in_channels, in_side] = input_of(from);
  convnet_layer l{.name = "conv", .kind = layer_kind::conv};
  l.channels = channels;
  l.side = (in_side + 2 * padding - filter) / stride + 1;
  l.filter = filter;
  l.stride = stride;
  l.padding = padding;
  l.inputs = in_channels;
  l.weights = std::uint64_t{channels} * in_channels * filter * filter + channels;
  return append(std::move(l), from);
}

std::size_t convnet_builder::pool(std::uint32_t window, std::uint32_t stride) {
  const auto [in_channels, in_side] = input_of({});
  convnet_layer l{.name = "pool", .kind = layer_kind::pool};
  l.channels = in_channels;
  l.side = (in_side - window) / stride + 1;
  l.filter = window;
  l.stride = stride;
  l.inputs = in_channels;
  return append(std::move(l), {});
}

std::size_t convnet_builder::full(std::uint32_t channels) {
  const auto [in_channels, in_side] = input_of({});
  convnet_layer l{.name = "fc", .kind = layer_kind::fc};
  l.channels = channels;
  l.side = 1;
  l.inputs = std::uint64_t{in_channels} * in_side * in_side;
  l.weights = l.inputs * channels + channels;
  return append(std::move(l), {});
}

std::size_t convnet_builder::softmax() { return same("softmax", layer_kind::softmax, {}); }
std::size_t convnet_builder::add(std::size_t a, std::size_t b) { return same("add", layer_kind::other, {a, b}); }

std::size_t convnet_builder::same(const char* name, layer_kind kind, const std::vector<std::size_t>& from) {
  const auto [in_channels, in_side] = input_of(from);
  convnet_layer l{.name = name, .kind = kind};
  l.channels = in_channels;
  l.side = in_side;
  l.inputs = in_channels;
  return append(std::move(l), from);
}

std::pair<std::uint32_t, std::uint32_t> convnet_builder::input_of(const std::vector<std::size_t>& from) const {
  if (net_.layers.empty()) {
    return {3, net_.side};
  }
  const convnet_layer& l = net_.layers[from.empty() ? last() : from.front()];
  return {l.channels, l.side};
}

std::size_t convnet_builder::append(convnet_layer l, const std::vector<std::size_t>& from) {
  l.reads = from.empty() && !net_.layers.empty() ? std::vector<std::size_t>{last()} : from;
  l.name += std::to_string(net_.layers.size());
  net_.layers.push_back(std::move(l));
  return last();
}

std::span<const std::string_view> convnet_names() { return names; }

convnet make_convnet(std::string_view name) {
  if (name == "alexnet") {
    return alexnet();
  }
  if (name == "vgg16") {
    return vgg16();
  }
  if (name == "forks") {
    return forks();
  }
  throw error(status::invalid_argument,
              "there is no net '" + std::string(name) + "'; there are alexnet, vgg16 and forks");
}

}  // namespace deepum::replay
