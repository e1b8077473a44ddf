// Launches larger than the budget: a stencil over a volume, and AdamW over all weights of a model, each three times as
// large as the device memory that the arena may use, on memory where such a launch would be refused. Each says which
// part of its operands a thread block has, and runs in slices that fit.
//
// On the simulated GPU:
//     cmake --preset release && cmake --build build --target slices && build/bin/slices

#include <deepum/deepum.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

using namespace deepum::literals;
using deepum::by_z;
using deepum::overwrites;
using deepum::piece_size;
using deepum::reads;
using deepum::updates;

constexpr std::size_t plane = std::size_t{128} << 10;  // elements

// A kernel of a slice of the grid. Each thread block computes a plane from those below and above.
void smooth_planes(const deepum::grid_slice& at, float* out, const float* in) {
  at.for_each_block([&](deepum::dim b) {  // b stands for blockIdx, at.grid for gridDim
    for (std::size_t i = 0; i < plane; ++i) {
      const float below = b.z > 0 ? in[(b.z - 1) * plane + i] : 0;
      const float above = b.z + 1 < at.grid.z ? in[(b.z + 1) * plane + i] : 0;
      out[b.z * plane + i] = (below + above) / 2;
    }
  });
}
const deepum::sim::kernel smooth{smooth_planes, [](deepum::sim::work& w, const deepum::grid_slice& at, float* out,
                                                   const float* in) {  // what that touches and costs
                                   const std::size_t begin = at.begin.z;
                                   const std::size_t end = begin + at.blocks.z;
                                   const std::size_t from = begin == 0 ? 0 : begin - 1;
                                   const std::size_t to = end == at.grid.z ? end : end + 1;
                                   w.overwrites(out + begin * plane, (end - begin) * plane * sizeof(float));
                                   w.reads(in + from * plane, (to - from) * plane * sizeof(float));
                                   w.flops(2.0 * static_cast<double>((end - begin) * plane));
                                 }};

// Elementwise work: an ordinary kernel.
const deepum::sim::kernel adamw{
    [](float* weight, float* first, float* second, const float* gradient, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) {
        first[i] = 0.9F * first[i] + 0.1F * gradient[i];
        second[i] = 0.999F * second[i] + 0.001F * gradient[i] * gradient[i];
        weight[i] -= 1e-3F * first[i] / (std::sqrt(second[i]) + 1e-8F);
      }
    },
    [](deepum::sim::work& w, float* weight, float* first, float* second, const float* gradient, std::size_t n) {
      const std::size_t size = n * sizeof(float);
      w.updates(weight, size).updates(first, size).updates(second, size);
      w.reads(gradient, size);
      w.flops(14.0 * static_cast<double>(n));
    }};

int main() try {
  deepum::sim::device gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = 96_MiB}};
  deepum::arena<deepum::sim::paged_memory> arena{gpu, {.capacity = 256_MiB, .device_budget = 32_MiB}};
  deepum::stream s{arena};
  const double link = deepum::sim::find_profile("h200_pcie5").pinned_both;  // bytes a second, each way at once

  // Runs a launch and says what it took, and what its bytes take on the link at least.
  const auto measured = [&](const char* name, auto&& launch) {
    const deepum::statistics before = arena.statistics();
    const deepum::nanoseconds began = gpu.now();
    launch();
    s.synchronize();
    const deepum::statistics did = arena.statistics() - before;
    const auto moved = std::max(did.in().all_bytes(), did.out().all_bytes());
    std::printf("%-8s %5.1f MiB, budget 32: %2d launches, %.2f ms, on the link %.2f ms\n", name, 96.0,
                static_cast<int>(did.launches), static_cast<double>((gpu.now() - began).count()) / 1e6,
                static_cast<double>(moved) / link * 1e3);
  };

  constexpr unsigned planes = 96;  // 48 MiB
  constexpr std::size_t n = planes * plane;
  float* const in = arena.allocate<float>(n);
  float* const out = arena.allocate<float>(n);
  std::ranges::fill(arena.host_overwrite(in, n), 1.0F);
  measured("smooth", [&] {
    s.launch("smooth", deepum::dim{64, 1, planes}, 256, 0, deepum::sliced(smooth),
             by_z(overwrites(out, n), plane),    // what one place along z writes,
             by_z(reads(in, n), plane, plane));  // and reads: a plane more on either side
  });
  {
    const auto view = arena.host_read(out, n);
    if (view[0] != 0.5F || view[plane] != 1 || view[(planes - 1) * plane] != 0.5F) {
      std::puts("smooth is wrong");
      return 1;
    }
  }

  constexpr std::size_t weights = std::size_t{6} << 20;  // 24 MiB each
  std::vector<float*> state(4);
  for (float*& p : state) {
    p = arena.allocate<float>(weights);
    std::ranges::fill(arena.host_overwrite(p, weights), p == state[3] ? 1.0F : 0.0F);
  }
  for (int step = 0; step < 3; ++step) {
    measured("adamw", [&] {
      s.launch_in_pieces("adamw", {.elements = weights}, adamw, updates(state[0], weights), updates(state[1], weights),
                         updates(state[2], weights), reads(state[3], weights), piece_size);
    });
  }
  const auto view = arena.host_read(state[0], weights);
  const bool same = std::ranges::all_of(view, [&](float w) { return w == view[0] && w < 0; });
  std::puts(same ? "all weights went the same way" : "adamw is wrong");
  return same ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
