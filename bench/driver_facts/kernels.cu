#include "kernels.hpp"

#include <cstdint>

namespace deepum_driver_facts_kernels {
namespace {

__device__ std::uint64_t first() { return static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::uint64_t step() { return static_cast<std::uint64_t>(gridDim.x) * blockDim.x; }

// What probe.hpp computes on the host.
__device__ word content(std::uint64_t i, word seed) { return (static_cast<word>(i) * 2654435761U) ^ seed; }

__device__ unsigned long long timer() {
  unsigned long long t = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

__global__ void nothing() {}

__global__ void fill(word* x, std::uint64_t n, word seed) {
  for (std::uint64_t i = first(); i < n; i += step())
    x[i] = content(i, seed);
}

__global__ void read(const word* x, std::uint64_t n, word* sink) {
  word sum = 0;
  for (std::uint64_t i = first(); i < n; i += step())
    sum += x[i];
  if (sum == 123456789U) *sink = sum;
}

__global__ void count_wrong(const word* x, std::uint64_t n, word seed, unsigned long long* wrong) {
  unsigned long long count = 0;
  for (std::uint64_t i = first(); i < n; i += step())
    if (x[i] != content(i, seed)) ++count;
  if (count != 0) atomicAdd(wrong, count);
}

__global__ void wait(unsigned long long ns, unsigned long long* began) {
  const unsigned long long t = timer();
  *began = t;
  while (timer() - t < ns) {
  }
}

}  // namespace

const kernels& all() {
  static const kernels made{nothing, fill, read, count_wrong, wait};
  return made;
}

}  // namespace deepum_driver_facts_kernels
