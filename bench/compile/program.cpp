// What `./run bench compile` compiles by a C++ compiler: saxpy on an arena with a stream on the simulated GPU or,
// without WITH_DEEPUM, on the host.

#ifdef WITH_DEEPUM
#include <deepum/deepum.hpp>
#endif

#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

void saxpy(float* y, const float* x, float a, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    y[i] += a * x[i];
}

constexpr std::size_t n = std::size_t{1} << 20;

}  // namespace

#ifdef WITH_DEEPUM

int main() try {
  using namespace deepum::literals;
  const deepum::sim::kernel kernel{saxpy, [](deepum::sim::work& w, float* y, const float* x, float, std::size_t count) {
                                     w.reads(x, count * sizeof(float));
                                     w.updates(y, count * sizeof(float));
                                   }};
  deepum::sim::device gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = 16_MiB}};
  deepum::arena arena{gpu, {.capacity = 64_MiB, .device_budget = 8_MiB}};
  deepum::stream s{arena, {.lookahead = 32}};
  std::vector<float*> v;
  for (int i = 0; i != 5; ++i) {
    v.push_back(arena.allocate<float>(n));
    s.memset(v.back(), 0, deepum::bytes{n * sizeof(float)});
  }
  s.synchronize();
  for (float& first : arena.host_write(v[0], 1))
    first = 1.0F;
  for (int step = 0; step != 4; ++step)
    for (std::size_t i = 1; i != v.size(); ++i)
      s.launch("saxpy", 1024, 256, 0, kernel, v[i], v[i - 1], 0.5F, n);
  s.synchronize();
  std::printf("%f\n", static_cast<double>(arena.host_read(v[1], 1)[0]));
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "program: %s\n", e.what());
  return 1;
}

#else

int main() {
  std::vector<std::vector<float>> v(5, std::vector<float>(n));
  v[0][0] = 1.0F;
  for (int step = 0; step != 4; ++step)
    for (std::size_t i = 1; i != v.size(); ++i)
      saxpy(v[i].data(), v[i - 1].data(), 0.5F, n);
  std::printf("%f\n", static_cast<double>(v[1][0]));
  return 0;
}

#endif
