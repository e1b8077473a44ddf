// A kernel and the headers of the CUDA device in one file that nvcc compiles. No device is needed.
#include <deepum/cuda/device.hpp>
#include <deepum/error.hpp>
#include <deepum/version.hpp>

#include <cstdio>

__global__ void twice(float* x) { *x *= 2; }

int main() {
  cudaFuncAttributes kernel{};
  try {
    const deepum::cuda::device gpu{0};
    std::printf("kernel: %s\n", gpu.properties().name.c_str());
    if (cudaFuncGetAttributes(&kernel, twice) != cudaSuccess) {
      return 1;
    }
  } catch (const deepum::error& e) {
    std::printf("kernel: %s\n", e.what());
    if (e.code() != deepum::status::unsupported) {
      return 1;
    }
  }
  return deepum::version == EXPECTED_VERSION ? 0 : 1;
}
