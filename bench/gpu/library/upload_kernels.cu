#include "gpu/library/upload_kernels.hpp"

#include <cstdint>

namespace deepum_gpu_bench_kernels {
namespace {

using word = std::uint32_t;

__device__ std::uint64_t first() { return static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::uint64_t step() { return static_cast<std::uint64_t>(gridDim.x) * blockDim.x; }
__device__ float unit(word w) { return static_cast<float>(w >> 8U) * 0x1p-24F; }

__global__ void vector_add(word* out, const word* a, const word* b, std::uint64_t n) {
  for (std::uint64_t i = first(); i < n; i += step())
    out[i] = a[i] + b[i];
}

/// Products of tiles of 16 rows, each with the tile of the other matrix at the same place.
__global__ void sgemm(word* out, const word* a, const word* b, std::uint64_t n) {
  __shared__ word x[16][16];
  __shared__ word y[16][17];
  const unsigned row = threadIdx.x / 16;
  const unsigned column = threadIdx.x % 16;
  for (std::uint64_t tile = blockIdx.x; tile < n / 256; tile += gridDim.x) {
    word sum = 0;
    for (unsigned k = 0; k < 16; ++k) {
      x[row][column] = a[tile * 256 + threadIdx.x] + k;
      y[row][column] = b[(tile + k) % (n / 256) * 256 + threadIdx.x];
      __syncthreads();
      for (unsigned i = 0; i < 16; ++i)
        sum += x[row][i] * y[i][column];
      __syncthreads();
    }
    out[tile * 256 + threadIdx.x] = sum;
  }
}

/// A row has eight elements, whose columns are in `b`.
__global__ void spmv(word* out, const word* a, const word* b, std::uint64_t n) {
  for (std::uint64_t row = first(); row < n / 8; row += step()) {
    word sum = 0;
    for (unsigned k = 0; k < 8; ++k)
      sum += a[row * 8 + k] * a[(row * 8 + b[row * 8 + k] % 4096) % n];
    for (unsigned k = 0; k < 8; ++k)
      out[row * 8 + k] = sum;
  }
}

__global__ void black_scholes(word* out, const word* a, const word* b, std::uint64_t n) {
  for (std::uint64_t i = first(); i < n; i += step()) {
    const float s = 5.0F + 25.0F * unit(a[i]);
    const float x = 1.0F + 99.0F * unit(b[i]);
    const float t = 0.25F + 9.75F * unit(a[i] ^ b[i]);
    const float d = (logf(s / x) + 0.065F * t) / (0.3F * sqrtf(t));
    out[i] = __float_as_uint(s * normcdff(d) - x * expf(-0.02F * t) * normcdff(d - 0.3F * sqrtf(t)));
  }
}

/// Looks up keys in a tree of 256-word nodes.
__global__ void tree_lookups(word* out, const word* a, const word* b, std::uint64_t n) {
  const std::uint64_t nodes = n / 256;
  for (std::uint64_t i = first(); i < n; i += step()) {
    std::uint64_t node = 0;
    word found = b[i];
    for (unsigned level = 0; level < 4; ++level) {
      found = a[node * 256 + found % 256] ^ found;
      node = (node * 256 + found) % nodes;
    }
    out[i] = found;
  }
}

/// Sorts runs of 256 words (bitonic), as a hybrid sort does before it merges.
__global__ void block_sort(word* out, const word* a, const word*, std::uint64_t n) {
  __shared__ word run[256];
  const unsigned i = threadIdx.x;
  for (std::uint64_t begin = blockIdx.x * 256ULL; begin + 256 <= n; begin += gridDim.x * 256ULL) {
    run[i] = a[begin + i];
    __syncthreads();
    for (unsigned size = 2; size <= 256; size *= 2) {
      for (unsigned half = size / 2; half > 0; half /= 2) {
        const unsigned other = i ^ half;
        const bool up = (i & size) == 0;
        if (other > i && (run[i] > run[other]) == up) {
          const word w = run[i];
          run[i] = run[other];
          run[other] = w;
        }
        __syncthreads();
      }
    }
    out[begin + i] = run[i];
    __syncthreads();
  }
}

/// The lengths of codes, from the bits of symbols.
__global__ void huffman(word* out, const word* a, const word*, std::uint64_t n) {
  for (std::uint64_t i = first(); i < n; i += step()) {
    word code = 0;
    for (unsigned k = 0; k < 4; ++k)
      code = code * 33U + static_cast<word>(__clz(static_cast<int>((a[i] >> (8 * k) & 0xffU) | 1U)));
    out[i] = code;
  }
}

/// Sums of the words before each one, within its run of 256.
__global__ void scan(word* out, const word* a, const word*, std::uint64_t n) {
  __shared__ word sums[256];
  const unsigned i = threadIdx.x;
  for (std::uint64_t begin = blockIdx.x * 256ULL; begin + 256 <= n; begin += gridDim.x * 256ULL) {
    sums[i] = a[begin + i];
    __syncthreads();
    for (unsigned d = 1; d < 256; d *= 2) {
      const word before = i >= d ? sums[i - d] : 0;
      __syncthreads();
      sums[i] += before;
      __syncthreads();
    }
    out[begin + i] = sums[i];
    __syncthreads();
  }
}

/// A matrix of 4096 columns.
__global__ void transpose(word* out, const word* a, const word*, std::uint64_t n) {
  const std::uint64_t columns = 4096;
  const std::uint64_t rows = n / columns;
  for (std::uint64_t i = first(); i < rows * columns; i += step())
    out[i] = a[i % rows * columns + i / rows];
}

/// Diffusion in an image of 4096 columns.
__global__ void srad(word* out, const word* a, const word*, std::uint64_t n) {
  const std::uint64_t columns = 4096;
  for (std::uint64_t i = first(); i < n; i += step()) {
    const float here = unit(a[i]) + 0.01F;
    const float up = unit(a[i >= columns ? i - columns : i]);
    const float down = unit(a[i + columns < n ? i + columns : i]);
    const float left = unit(a[i > 0 ? i - 1 : i]);
    const float right = unit(a[i + 1 < n ? i + 1 : i]);
    const float gradient = (up + down + left + right - 4 * here) / here;
    out[i] = __float_as_uint(here + 0.25F * gradient / (1.0F + gradient * gradient));
  }
}

/// The cheapest of three ways from the row before, sixteen rows on.
__global__ void pathfinder(word* out, const word* a, const word*, std::uint64_t n) {
  for (std::uint64_t i = first(); i < n; i += step()) {
    word cost = a[i] & 0xffffU;
    for (unsigned row = 1; row <= 16; ++row) {
      const std::uint64_t at = (i + row * 4096ULL) % n;
      const word least = min(a[at] & 0xffU, min(a[at > 0 ? at - 1 : at] & 0xffU, a[at + 1 < n ? at + 1 : at] & 0xffU));
      cost += least;
    }
    out[i] = cost;
  }
}

__global__ void monte_carlo(word* out, const word* a, const word*, std::uint64_t n) {
  for (std::uint64_t i = first(); i < n; i += step()) {
    word random = a[i] | 1U;
    float sum = 0;
    for (unsigned path = 0; path < 256; ++path) {
      random ^= random << 13U;
      random ^= random >> 17U;
      random ^= random << 5U;
      sum += expf(0.3F * (unit(random) - 0.5F));
    }
    out[i] = __float_as_uint(sum);
  }
}

}  // namespace

const upload_program* upload_programs() {
  // The kernel much shorter than the copy, about as long, and much longer.
  static const upload_program all[upload_program_count] = {
      {"vectorAdd", vector_add, 2, 1, 0}, {"BlackScholes", black_scholes, 2, 1, 0},
      {"transpose", transpose, 1, 1, 0},  {"scan", scan, 1, 2, 0},
      {"huffman", huffman, 1, 1, 8},      {"hybridsort", block_sort, 1, 4, 8},
      {"spmv", spmv, 2, 20, 0},           {"b+tree", tree_lookups, 2, 10, 0},
      {"srad", srad, 1, 40, 0},           {"pathfinder", pathfinder, 1, 60, 0},
      {"sgemm", sgemm, 2, 40, 0},         {"MonteCarlo", monte_carlo, 1, 10, 0},
  };
  return all;
}

}  // namespace deepum_gpu_bench_kernels
