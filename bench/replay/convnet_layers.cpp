#include "replay/convnet.hpp"
#include "replay/convnet_times.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace deepum::replay {
namespace {

constexpr std::array<std::string_view, 3> names{"alexnet", "vgg16", "forks"};

class builder {
 public:
  builder(std::string name, std::uint32_t side) : net_{.name = std::move(name), .side = side, .layers = {}} {}

  std::size_t conv(std::uint32_t channels, std::uint32_t filter, std::uint32_t stride, std::uint32_t padding,
                   std::vector<std::size_t> from = {}) {
    const auto [in_channels, in_side] = input_of(from);
    convnet_layer l{.name = "conv", .kind = layer_kind::conv};
    l.channels = channels;
    l.side = (in_side + 2 * padding - filter) / stride + 1;
    l.filter = filter;
    l.stride = stride;
    l.inputs = in_channels;
    l.weights = std::uint64_t{channels} * in_channels * filter * filter + channels;
    return add(std::move(l), std::move(from));
  }
  std::size_t pool(std::uint32_t window, std::uint32_t stride) {
    const auto [in_channels, in_side] = input_of({});
    convnet_layer l{.name = "pool", .kind = layer_kind::pool};
    l.channels = in_channels;
    l.side = (in_side - window) / stride + 1;
    l.inputs = in_channels;
    return add(std::move(l), {});
  }
  std::size_t full(std::uint32_t channels) {
    const auto [in_channels, in_side] = input_of({});
    convnet_layer l{.name = "fc", .kind = layer_kind::fc};
    l.channels = channels;
    l.side = 1;
    l.inputs = std::uint64_t{in_channels} * in_side * in_side;
    l.weights = l.inputs * channels + channels;
    return add(std::move(l), {});
  }
  std::size_t same(const char* name, layer_kind kind, std::vector<std::size_t> from = {}) {
    const auto [in_channels, in_side] = input_of(from);
    convnet_layer l{.name = name, .kind = kind};
    l.channels = in_channels;
    l.side = in_side;
    l.inputs = in_channels;
    return add(std::move(l), std::move(from));
  }
  [[nodiscard]] std::size_t last() const { return net_.layers.size() - 1; }
  convnet take() { return std::move(net_); }

 private:
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> input_of(const std::vector<std::size_t>& from) const {
    if (net_.layers.empty()) {
      return {3, net_.side};
    }
    const convnet_layer& l = net_.layers[from.empty() ? last() : from.front()];
    return {l.channels, l.side};
  }
  std::size_t add(convnet_layer l, std::vector<std::size_t> from) {
    l.reads = from.empty() && !net_.layers.empty() ? std::vector<std::size_t>{last()} : std::move(from);
    l.name += std::to_string(net_.layers.size());
    net_.layers.push_back(std::move(l));
    return last();
  }

  convnet net_;
};

convnet alexnet() {
  builder b("alexnet", 227);
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
  b.same("softmax", layer_kind::softmax);
  return b.take();
}

convnet vgg16() {
  builder b("vgg16", 224);
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
  b.same("softmax", layer_kind::softmax);
  return b.take();
}

convnet forks() {
  builder b("forks", 224);
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
      b.same("add", layer_kind::other, {second, from});
    }
  }
  b.full(1000);
  b.same("softmax", layer_kind::softmax);
  return b.take();
}

bytes in_bytes(std::uint64_t elements) { return bytes{elements * sizeof(float)}; }

}  // namespace

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

std::vector<layer_algorithm> convolution_algorithms(const convnet_layer& of, std::uint64_t input, std::uint32_t batch,
                                                    convolution_part part, const sim::profile& card) {
  const double maps = static_cast<double>(input + of.elements()) * batch;
  const double flops =
      2.0 * static_cast<double>(of.elements()) * batch * static_cast<double>(of.inputs) * of.filter * of.filter;
  const double moved = element * (maps + static_cast<double>(of.weights));
  const bool large = of.filter > 3;
  const auto by_share = [&](int number, double share_of_peak, double workspace) {
    return layer_algorithm{.number = number,
                           .time = roofline(flops, share_of_peak, moved, card),
                           .workspace = bytes{static_cast<std::uint64_t>(workspace)}};
  };
  std::vector<layer_algorithm> found;
  found.push_back(by_share(0, large ? implicit_gemm.large_filter : implicit_gemm.small_filter, 0));
  found.push_back(by_share(1, large ? precomputed_gemm.large_filter : precomputed_gemm.small_filter,
                           element * static_cast<double>(of.weights)));
  if (of.stride == 1 && of.filter == 3) {  // fused: transformed filters; their gradient: transformed maps
    found.push_back(by_share(2, winograd,
                             part == convolution_part::backward_filter
                                 ? element * maps / 2
                                 : element * static_cast<double>(of.weights) * 16 / 9));
  } else if (of.stride == 1 && large) {
    found.push_back(by_share(3, fft, element * maps * 2));
  }
  return found;
}

choice_net describe(const convnet& net, std::uint32_t batch, const sim::profile& card) {
  choice_net made{.input = in_bytes(std::uint64_t{3} * net.side * net.side * batch), .layers = {}, .block = block_size};
  for (std::size_t i = 0; i != net.layers.size(); ++i) {
    const convnet_layer& l = net.layers[i];
    choice_layer c{.kind = l.kind,
                   .output = in_bytes(l.elements() * batch),
                   .weights = in_bytes(l.weights),
                   .reads = l.reads,
                   .algorithms = {}};
    if (l.kind == layer_kind::conv) {
      for (std::size_t part = 0; part != convolution_parts; ++part) {
        c.algorithms[part] =
            convolution_algorithms(l, input_elements(net, i), batch, static_cast<convolution_part>(part), card);
      }
    }
    made.layers.push_back(std::move(c));
  }
  return made;
}

chosen_algorithms choose_algorithms(const choice_net& net, bool fastest) {
  chosen_algorithms chosen(net.layers.size());
  for (std::size_t i = 0; i != net.layers.size(); ++i) {
    for (std::size_t part = 0; part != convolution_parts; ++part) {
      const std::vector<layer_algorithm>& found = net.layers[i].algorithms[part];
      const auto best = std::min_element(found.begin(), found.end(), [&](const auto& a, const auto& b) {
        return fastest ? a.time < b.time : a.workspace < b.workspace;
      });
      chosen[i][part] = found.empty() ? 0 : static_cast<std::size_t>(best - found.begin());
    }
  }
  return chosen;
}

}  // namespace deepum::replay
