// Thirty lines: more memory than the device has, on the simulated GPU.

#include <deepum/deepum.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

using namespace deepum::literals;

// A kernel of the simulated GPU: what it computes, and what it touches and costs.
const deepum::sim::kernel saxpy{[](float* y, const float* x, float a, std::size_t n) {
                                  for (std::size_t i = 0; i < n; ++i)
                                    y[i] += a * x[i];
                                },
                                [](deepum::sim::work& w, float* y, const float* x, float, std::size_t n) {
                                  w.reads(x, n * sizeof(float));
                                  w.updates(y, n * sizeof(float));
                                  w.flops(2.0 * static_cast<double>(n));
                                }};

int main() try {
  constexpr std::size_t n = std::size_t{4} << 20;  // 16 MiB in each vector
  deepum::sim::device gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = 96_MiB}};
  deepum::arena arena{gpu, {.capacity = 1_GiB, .device_budget = 64_MiB}};
  deepum::stream s{arena, {.lookahead = 32}};

  std::vector<float*> x;
  for (int i = 0; i < 10; ++i) {
    x.push_back(arena.allocate<float>(n));
    s.memset(x.back(), 0, deepum::bytes{n * sizeof(float)});
  }
  s.synchronize();  // the host waits for what it overwrites, as with any CUDA memory
  for (float& first : arena.host_write(x[0], 1))
    first = 1.0F;

  deepum::statistics before = arena.statistics();
  for (int step = 1; step <= 4; ++step) {
    for (std::size_t i = 1; i < x.size(); ++i)
      s.launch("saxpy", 1024, 256, 0, saxpy, x[i], x[i - 1], 0.5F, n);
    s.synchronize();
    const deepum::statistics now = arena.statistics();
    const deepum::statistics step_only = now - before;
    before = now;
    std::printf("step %d: %llu faults, %.0f MiB in, %.0f MiB out\n", step,
                static_cast<unsigned long long>(step_only.faults),
                static_cast<double>(step_only.in().all_bytes()) / 1048576,
                static_cast<double>(step_only.out().all_bytes()) / 1048576);
  }
  std::printf("x[1] begins with %.2f\n", static_cast<double>(arena.host_read(x[1], 1)[0]));
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "saxpy: %s\n", e.what());
  return 1;
}
