#pragma once

#include <cstdint>

/// Kernels of the tests on a GPU. In a translation unit of their own, so that tests are compiled by the host compiler;
/// a kernel's name is there an ordinary function, its stub, which `deepum::stream::launch` takes.
namespace gpu_kernels {

/// x[i] = first + i * step
void fill(std::uint32_t* x, std::uint32_t first, std::uint32_t step, std::uint64_t n);
/// to[i] = to[i] * 3 + from[i]
void mix(std::uint32_t* to, const std::uint32_t* from, std::uint64_t n);
/// One thread adds 1 to a word of each block that `blocks` names. `base` is hidden from the library.
void touch_blocks(std::uintptr_t base, const std::uint32_t* blocks, std::uint32_t n);
/// Keeps one multiprocessor busy for a time on the GPU's clock.
void spin(std::uint64_t nanoseconds);
void nothing();

}  // namespace gpu_kernels
