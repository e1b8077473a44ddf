#include <deepum/grid_slice.hpp>

#include <cstdint>

namespace gpu_kernels {

__global__ void fill(std::uint32_t* x, std::uint32_t first, std::uint32_t step, std::uint64_t n) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    x[i] = first + static_cast<std::uint32_t>(i) * step;
  }
}

__global__ void mix(std::uint32_t* to, const std::uint32_t* from, std::uint64_t n) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    to[i] = to[i] * 3 + from[i];
  }
}

__global__ void neighbours(deepum::grid_slice at, std::uint32_t* out, const std::uint32_t* in, std::uint64_t n) {
  const uint3 b = at.block();
  const std::uint32_t number = (b.z * at.grid.y + b.y) * at.grid.x + b.x;
  const std::uint64_t row = (std::uint64_t{b.z} * at.grid.y + b.y) * n;
  for (std::uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const std::uint32_t above = b.y > 0 ? in[row - n + i] : 0;
    const std::uint32_t below = b.y + 1 < at.grid.y ? in[row + n + i] : 0;
    out[row + i] = above + below + number;
  }
}

__global__ void touch_blocks(std::uintptr_t base, const std::uint32_t* blocks, std::uint32_t n) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    auto* word = reinterpret_cast<std::uint32_t*>(base + (std::uintptr_t{blocks[i]} << 21U));
    *word += 1;
  }
}

__global__ void spin(std::uint64_t nanoseconds) {
  std::uint64_t begin = 0;
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

__global__ void nothing() {}

__global__ void work_until(const std::uint32_t* flag, std::uint32_t* outcome, std::uint32_t* x, std::uint64_t n,
                           std::uint64_t longest) {
  std::uint64_t begin = 0;
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  const volatile std::uint32_t* seen = flag;
  volatile std::uint32_t* word = x;
  for (std::uint64_t i = 0; *seen == 0; i = i + 1 < n ? i + 1 : 0) {
    word[i] = word[i] + 1;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now - begin > longest) {
      *outcome = 2;
      return;
    }
  }
  *outcome = 1;
}

namespace {

using word = std::uint32_t;

__device__ word filled(word i, word value) { return (i * 2654435761U) ^ value; }
__device__ word mixed(word old, word other, word value) { return old * 3U + (other ^ value) + 1U; }

// a[i] = mixed(a[i], other(i), value), some at a time, so that their loads overlap. What `other` reads does not change
// but for a[i] itself.
template <class Other>
__device__ void mix_with(word* a, word n, word value, Other other) {
  constexpr word at_once = 16;
  word i = 0;
  for (; i + at_once <= n; i += at_once) {
    word old[at_once];
    word more[at_once];
#pragma unroll
    for (word j = 0; j < at_once; ++j) {
      old[j] = a[i + j];
      more[j] = other(i + j);
    }
#pragma unroll
    for (word j = 0; j < at_once; ++j) {
      a[i + j] = mixed(old[j], more[j], value);
    }
  }
  for (; i < n; ++i) {
    a[i] = mixed(a[i], other(i), value);
  }
}

}  // namespace

__global__ void program_fill(word* a, word n, word value) {
  for (word i = 0; i < n; ++i) {
    a[i] = filled(i, value);
  }
}

__global__ void program_mix(word* a, word n, const word* b, word m, word value) {
  mix_with(a, n, value, [=](word i) { return b[i % m]; });
}

__global__ void program_gather(word* a, word n, const word* b, word m, const word* index, word k, word value) {
  if (a == b || a == index) {
    for (word i = 0; i < n; ++i) {
      a[i] = mixed(a[i], b[index[i % k] % m], value);
    }
  } else {
    mix_with(a, n, value, [=](word i) { return b[index[i % k] % m]; });
  }
}

__global__ void program_chase(word* a, word n, word* const* where, word m, word value) {
  const word* b = *where;
  mix_with(a, n, value, [=](word i) { return b[i % m]; });
}

}  // namespace gpu_kernels
