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

// The row that is picked as number i, of `rows`: the finaliser of splitmix64.
__device__ std::uint64_t picked(std::uint64_t i, std::uint64_t rows) {
  i = (i + 1) * 0x9E3779B97F4A7C15U;
  i = (i ^ (i >> 30U)) * 0xBF58476D1CE4E5B9U;
  i = (i ^ (i >> 27U)) * 0x94D049BB133111EBU;
  return (i ^ (i >> 31U)) % rows;
}

__global__ void gather(const word* x, std::uint64_t n, std::uint32_t pieces, std::uint64_t picks, word* sink) {
  const uint4* from = reinterpret_cast<const uint4*>(x);
  const std::uint64_t rows = n / 4 / pieces;
  word sum = 0;
  for (std::uint64_t i = first(); i < picks * pieces; i += step()) {
    const uint4 v = from[picked(i / pieces, rows) * pieces + i % pieces];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 123456789U) *sink = sum;
}

__global__ void scatter(word* x, std::uint64_t n, word seed, std::uint32_t pieces, std::uint64_t picks) {
  uint4* to = reinterpret_cast<uint4*>(x);
  const std::uint64_t rows = n / 4 / pieces;
  for (std::uint64_t i = first(); i < picks * pieces; i += step()) {
    const std::uint64_t at = picked(i / pieces, rows) * pieces + i % pieces;
    to[at] = make_uint4(content(4 * at, seed), content(4 * at + 1, seed), content(4 * at + 2, seed),
                        content(4 * at + 3, seed));
  }
}

__global__ void add_to_rows(word* x, std::uint64_t n, std::uint32_t words, std::uint64_t picks, word value) {
  const std::uint64_t rows = n / words;
  for (std::uint64_t i = first(); i < picks * words; i += step())
    atomicAdd(x + picked(i / words, rows) * words + i % words, value);
}

__global__ void wait(unsigned long long ns, unsigned long long* began) {
  const unsigned long long t = timer();
  *began = t;
  while (timer() - t < ns) {
  }
}

}  // namespace

const kernels& all() {
  static const kernels made{nothing, fill, read, count_wrong, gather, scatter, add_to_rows, wait};
  return made;
}

}  // namespace deepum_driver_facts_kernels
