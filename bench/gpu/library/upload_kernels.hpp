#pragma once

#include <cstddef>
#include <cstdint>

/// Kernels in the manner of Parboil, Rodinia and the CUDA samples, for `deepum-bench-uploads`. nvcc compiles them.
namespace deepum_gpu_bench_kernels {

/// One kernel of a program: reads the words of its inputs, and adds what it finds to a checksum. What it reads in what
/// order, and how much it computes, is that of the program that it is named after.
/// @param a, b  Inputs of `n` words each; a program with one input gives it twice.
/// @param out   `n` words that it overwrites.
using upload_kernel = void (*)(std::uint32_t* out, const std::uint32_t* a, const std::uint32_t* b, std::uint64_t n);

struct upload_program {
  const char* name;
  upload_kernel kernel;
  unsigned inputs;     ///< 1 or 2
  unsigned launches;   ///< of the kernel, one after the other: with many it takes much longer than the copy
  unsigned host_work;  ///< passes of the host over a hundredth of the input, between the copy and the result
};

inline constexpr std::size_t upload_program_count = 12;

/// All programs, in the order in which they are shown.
[[nodiscard]] const upload_program* upload_programs();

}  // namespace deepum_gpu_bench_kernels
