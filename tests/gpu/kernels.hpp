#pragma once

#include <deepum/grid_slice.hpp>

#include <cstdint>

/// Kernels of the tests on a GPU. In a translation unit of their own, so that tests are compiled by the host compiler;
/// a kernel's name is there an ordinary function, its stub, which `deepum::stream::launch` takes.
namespace gpu_kernels {

/// x[i] = first + i * step
void fill(std::uint32_t* x, std::uint32_t first, std::uint32_t step, std::uint64_t n);
/// to[i] = to[i] * 3 + from[i]
void mix(std::uint32_t* to, const std::uint32_t* from, std::uint64_t n);
/// Each thread block (x, y, z) of a grid {1, rows, depth}: out[z][y][i] = in[z][y - 1][i] + in[z][y + 1][i] + the
/// number of the thread block in the whole grid, counted x first. Planes have `rows` rows of `n` words; what is beyond
/// one is 0.
void neighbours(deepum::grid_slice at, std::uint32_t* out, const std::uint32_t* in, std::uint64_t n);
/// One thread adds 1 to a word of each block that `blocks` names. `base` is hidden from the library.
void touch_blocks(std::uintptr_t base, const std::uint32_t* blocks, std::uint32_t n);
/// Keeps one multiprocessor busy for a time on the GPU's clock.
void spin(std::uint64_t nanoseconds);
void nothing();
/// Adds 1 to a word of x, one after the other, again and again, until *flag is not 0; then *outcome becomes 1. After
/// `longest` nanoseconds it gives up, and *outcome becomes 2. One thread; flag and outcome lie on the host, pinned.
void work_until(const std::uint32_t* flag, std::uint32_t* outcome, std::uint32_t* x, std::uint64_t n,
                std::uint64_t longest);

/// What tests/property/random_program.hpp computes, in the same order. One thread.
void program_fill(std::uint32_t* a, std::uint32_t n, std::uint32_t value);
void program_mix(std::uint32_t* a, std::uint32_t n, const std::uint32_t* b, std::uint32_t m, std::uint32_t value);
void program_gather(std::uint32_t* a, std::uint32_t n, const std::uint32_t* b, std::uint32_t m,
                    const std::uint32_t* index, std::uint32_t k, std::uint32_t value);
void program_chase(std::uint32_t* a, std::uint32_t n, std::uint32_t* const* where, std::uint32_t m,
                   std::uint32_t value);

}  // namespace gpu_kernels
