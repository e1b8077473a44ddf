#include "gpu/library/kernels.hpp"

#include <cstdint>

namespace deepum_gpu_bench_kernels {
namespace {

__device__ std::uint64_t first() { return static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::uint64_t step() { return static_cast<std::uint64_t>(gridDim.x) * blockDim.x; }

__global__ void tiny(float* x, std::uint64_t n) {
  const std::uint64_t i = first();
  if (i < n) x[i] += 1.0F;
}

__global__ void touch_pieces(word* table, const word* which, word n, word value) {
  for (word p = blockIdx.x; p < n; p += gridDim.x) {
    word* piece = table + which[p] * piece_words;
    for (std::uint64_t i = threadIdx.x; i < piece_words; i += blockDim.x)
      piece[i] = 3U * piece[i] + value + static_cast<word>(i);
  }
}

__global__ void checksum(const word* x, std::uint64_t n, unsigned long long* total) {
  unsigned long long sum = 0;
  for (std::uint64_t i = first(); i < n; i += step())
    sum += static_cast<unsigned long long>(x[i]) * (i + 1);
  atomicAdd(total, sum);  // of integers: the order does not matter
}

__global__ void read_strided(const word* x, std::uint64_t n, std::uint64_t stride, unsigned long long* total) {
  unsigned long long sum = 0;
  for (std::uint64_t i = first() * stride; i < n; i += step() * stride)
    sum += x[i];
  atomicAdd(total, sum);
}

__global__ void advance(word* x, std::uint64_t n, word value) {
  for (std::uint64_t i = first(); i < n; i += step())
    x[i] = 3U * x[i] + value + static_cast<word>(i);
}

__global__ void compute(float* x, word rounds) {
  float a = static_cast<float>(threadIdx.x);
  float b = 1.0F;
  for (word i = 0; i < rounds; ++i) {
    a = a * 0.999F + b;
    b = b * 0.998F + 0.5F;
  }
  if (a + b < 0.0F) *x = a;  // never, but the compiler does not know
}

__global__ void adamw(float* weight, float* first_moment, float* second, const float* gradient, std::uint64_t n,
                      float rate) {
  for (std::uint64_t i = first(); i < n; i += step()) {
    first_moment[i] = 0.9F * first_moment[i] + 0.1F * gradient[i];
    second[i] = 0.999F * second[i] + 0.001F * gradient[i] * gradient[i];
    weight[i] -= rate * first_moment[i] / (sqrtf(second[i]) + 1e-8F);
  }
}

// What tests/property/random_program.hpp computes on the host.
__device__ word filled(word i, word value) { return (i * 2654435761U) ^ value; }
__device__ word mixed(word old, word other, word value) { return old * 3U + (other ^ value) + 1U; }

__global__ void fill(word* a, word n, word value) {
  for (std::uint64_t i = first(); i < n; i += step())
    a[i] = filled(static_cast<word>(i), value);
}

__global__ void mix(word* a, word n, const word* b, word m, word value) {
  for (std::uint64_t i = first(); i < n; i += step())
    a[i] = mixed(a[i], b[i % m], value);
}

__global__ void gather(word* a, word n, const word* b, word m, const word* index, word k, word value) {
  for (std::uint64_t i = first(); i < n; i += step())
    a[i] = mixed(a[i], b[index[i % k] % m], value);
}

__global__ void chase(word* a, word n, word* const* where, word m, word value) {
  const word* b = *where;
  for (std::uint64_t i = first(); i < n; i += step())
    a[i] = mixed(a[i], b[i % m], value);
}

}  // namespace

const kernels& all() {
  static const kernels made{tiny,  touch_pieces, checksum, read_strided, advance, compute,
                            adamw, fill,         mix,      gather,       chase};
  return made;
}

}  // namespace deepum_gpu_bench_kernels
