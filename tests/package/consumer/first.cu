// The first program of a user: a kernel, an arena and a stream, in one file that nvcc compiles.
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

using namespace deepum::literals;

__global__ void twice(float* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) {
    x[i] *= 2;
  }
}

int main() {
  deepum::cuda::device gpu{0};
  deepum::arena arena{gpu, {.device_budget = 32_MiB}};
  deepum::stream stream{arena};
  float* const x = arena.allocate<float>(32);
  stream.launch("twice", 1, 32, 0, twice, x, 32);
  stream.synchronize();
}
