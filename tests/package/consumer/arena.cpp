// The whole of the library on the simulated GPU: more memory than the device has.
#include <deepum/deepum.hpp>

#include <cstddef>
#include <cstdio>
#include <vector>

using namespace deepum::literals;

int main() {
  deepum::sim::device gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = 32_MiB}};
  deepum::arena arena{gpu, {.capacity = 256_MiB, .device_budget = 16_MiB}};
  deepum::stream stream{arena};

  constexpr std::size_t n = std::size_t{1} << 20;
  std::vector<float*> x;
  for (int i = 0; i < 8; ++i) {
    x.push_back(arena.allocate<float>(n));
    stream.memset(x.back(), 0x41, deepum::bytes{n * sizeof(float)});
  }
  stream.synchronize();
  for (const float* first : x) {
    if (const float value = arena.host_read(first, 1)[0]; value < 12.0F || value > 12.1F) {
      std::printf("arena: %f\n", static_cast<double>(value));
      return 1;
    }
  }
  std::printf("arena: %zu vectors, %llu bytes left the device\n", x.size(),
              static_cast<unsigned long long>(arena.statistics().out().all_bytes()));
  return arena.statistics().out().all_bytes() != 0 ? 0 : 1;
}
