#pragma once

#include "replay/convnet.hpp"
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace deepum::replay {

// Shares of a card's peak. Those of implicit GEMM and of Winograd are such that the report's steps come out: AlexNet
// 512 in 1473 ms and VGG-16 42 in 1722 ms without workspaces, VGG-16 42 in 864 ms with the fastest (tables 3).
struct share {
  double small_filter = 0;  // filters of 3
  double large_filter = 0;  // of 5 and more
};
inline constexpr share implicit_gemm{0.67, 0.68};
inline constexpr share precomputed_gemm{0.74, 0.74};
inline constexpr double winograd = 1.41;
inline constexpr double fft = 1.05;

inline std::uint64_t input_elements(const convnet& net, std::size_t layer) {
  const convnet_layer& l = net.layers[layer];
  return l.reads.empty() ? std::uint64_t{3} * net.side * net.side : net.layers[l.reads.front()].elements();
}

inline nanoseconds roofline(double flops, double share_of_peak, double bytes_moved, const sim::profile& card) {
  const double compute = flops / (card.peak_flops * share_of_peak);
  const double memory = bytes_moved / card.memory_bandwidth;
  return card.launch_latency + nanoseconds{static_cast<std::int64_t>(std::ceil(1e9 * std::max(compute, memory)))};
}

inline constexpr double element = sizeof(float);

}  // namespace deepum::replay
