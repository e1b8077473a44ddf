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

}  // namespace gpu_kernels
