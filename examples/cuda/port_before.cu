// Porting, before: a program on cudaMalloc, whose buffers have to fit on the device. port_after.cu is the same program
// on an arena, and docs/porting.md goes from this one to that one line by line.
//
//     nvcc -O2 port_before.cu -o port_before && ./port_before

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using word = std::uint32_t;

__global__ void mix(word* y, const word* x, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    y[i] = 3 * y[i] + x[i];
  }
}

void check(cudaError_t result) {
  if (result != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(result));
    std::exit(1);
  }
}

int main() {
  constexpr std::size_t n = std::size_t{4} << 20;  // 16 MiB in each of ten buffers
  std::vector<word*> x(10);
  std::vector<word> host(n);

  cudaStream_t s = nullptr;
  check(cudaStreamCreate(&s));
  for (std::size_t i = 0; i < x.size(); ++i) {
    check(cudaMalloc(&x[i], n * sizeof(word)));
    host.assign(n, static_cast<word>(i));
    check(cudaMemcpyAsync(x[i], host.data(), n * sizeof(word), cudaMemcpyHostToDevice, s));
    check(cudaStreamSynchronize(s));
  }

  for (int step = 0; step < 4; ++step) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      mix<<<256, 256, 0, s>>>(x[i], x[(i + 1) % x.size()], n);
      check(cudaGetLastError());
    }
  }

  check(cudaMemcpyAsync(host.data(), x.back(), n * sizeof(word), cudaMemcpyDeviceToHost, s));
  check(cudaStreamSynchronize(s));
  for (word* p : x) {
    check(cudaFree(p));
  }
  check(cudaStreamDestroy(s));

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
