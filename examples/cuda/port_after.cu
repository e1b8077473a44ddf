// Porting, after: the program of port_before.cu on an arena, which may hold four of the ten buffers on the device. The
// kernel is the same. docs/porting.md goes from that one to this one line by line.
//
//     nvcc -O2 -std=c++20 -I../../include port_after.cu -o port_after && ./port_after

#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace deepum::literals;
using word = std::uint32_t;

__global__ void mix(word* y, const word* x, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    y[i] = 3 * y[i] + x[i];
  }
}

int main() {
  constexpr std::size_t n = std::size_t{4} << 20;  // 16 MiB in each of ten buffers
  std::vector<word*> x(10);
  std::vector<word> host(n);

  deepum::cuda::device gpu{0};
  deepum::arena arena{gpu, {.capacity = 192_MiB, .device_budget = 64_MiB}};
  deepum::stream s{arena};
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = arena.allocate<word>(n);
    host.assign(n, static_cast<word>(i));
    s.memcpy(x[i], host.data(), deepum::bytes{n * sizeof(word)});
    s.synchronize();
  }

  for (int step = 0; step < 4; ++step) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      s.launch("mix", 256, 256, 0, mix, x[i], x[(i + 1) % x.size()], n);
    }
  }

  s.memcpy(host.data(), x.back(), deepum::bytes{n * sizeof(word)});
  s.synchronize();
  for (word* p : x) {
    arena.deallocate(p);
  }

  // The same on the host, where one word stands for a buffer.
  std::vector<word> expected(x.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = static_cast<word>(i);
  }
  for (int step = 0; step < 4; ++step) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = 3 * expected[i] + expected[(i + 1) % expected.size()];
    }
  }
  const bool right = host == std::vector<word>(n, expected.back());
  std::printf("%s: the last buffer holds %u, expected %u\n", right ? "right" : "WRONG", host[0], expected.back());
  return right ? 0 : 1;
}
