#include "replay/convnet.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

namespace deepum::replay {
namespace {

// Shares of a card's peak. Those of implicit GEMM and of Winograd are such that the report's steps come out: AlexNet
// 512 in 1473 ms and VGG-16 42 in 1722 ms without workspaces, VGG-16 42 in 864 ms with the fastest (tables 3).
struct share {
  double small_filter = 0;  // filters of 3
  double large_filter = 0;  // of 5 and more
};
constexpr share implicit_gemm{0.67, 0.68};
constexpr share precomputed_gemm{0.74, 0.74};
constexpr double winograd = 1.41;
constexpr double fft = 1.05;

constexpr double element = sizeof(float);

nanoseconds roofline(double flops, double share_of_peak, double bytes_moved, const sim::profile& card) {
  const double compute = flops / (card.peak_flops * share_of_peak);
  const double memory = bytes_moved / card.memory_bandwidth;
  return card.launch_latency + nanoseconds{static_cast<std::int64_t>(std::ceil(1e9 * std::max(compute, memory)))};
}

// Of a launch that is no convolution: feature maps that pass the memory, and weights.
nanoseconds other_time(const convnet& net, std::uint32_t batch, const sim::profile& card, const convnet_launch& l) {
  const convnet_layer& layer = net.layers[l.layer];
  const double output = element * batch * static_cast<double>(layer.elements());
  const double weights = element * static_cast<double>(layer.weights);
  if (l.what == convnet_work::activation || l.what == convnet_work::activation_gradient) {
    return roofline(0, 1, 2 * output, card);
  }
  if (l.what == convnet_work::update) {
    return roofline(0, 1, 3 * weights, card);
  }
  const double input = element * batch * static_cast<double>(net.input_elements(l.layer)) *
                       static_cast<double>(std::max<std::size_t>(1, layer.reads.size()));
  const double times = l.what == convnet_work::gradient ? 2 : 1;
  const double flops = layer.kind == layer_kind::fc ? 2.0 * static_cast<double>(layer.weights) * batch : 0;
  return roofline(flops, precomputed_gemm.small_filter, times * (input + output) + weights, card);
}

}  // namespace

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
  return describe(net, batch, block_size, [&](std::size_t i, convolution_part part) {
    return convolution_algorithms(net.layers[i], net.input_elements(i), batch, part, card);
  });
}

workload_description make_step(const convnet& net, std::uint32_t batch, const sim::profile& card,
                               const choice_net& described, const chosen_algorithms& chosen) {
  convnet_step step = make_step(net, net.name + "_b" + std::to_string(batch) + "_" + card.name, described, chosen);
  for (std::size_t k = 0; k != step.launches.size(); ++k) {
    const std::optional<layer_algorithm>& algorithm = step.algorithms[k];
    step.described.launches[k].duration = algorithm ? algorithm->time : other_time(net, batch, card, step.launches[k]);
  }
  return std::move(step.described);
}

}  // namespace deepum::replay
