#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// The boundary between the kernels, which nvcc compiles, and the program, which it does not.
namespace deepum_gpu_bench_kernels {

using word = std::uint32_t;

/// Words of a piece that `touch_pieces` looks up: one block of managed memory.
inline constexpr std::uint64_t piece_words = (std::uint64_t{2} << 20) / sizeof(word);

/// Pointers to `__global__` functions, which the host compiler can launch. Grids and blocks are one-dimensional, and
/// any number of threads does the work.
struct kernels {
  /// x[i] += 1. As little as a launch can be.
  void (*tiny)(float* x, std::uint64_t n);
  /// For each of the `n` pieces that `which` names: word i becomes 3 * word i + value + i.
  void (*touch_pieces)(word* table, const word* which, word n, word value);
  /// total[0] += the sum of all words, each times its place + 1.
  void (*checksum)(const word* x, std::uint64_t n, unsigned long long* total);
  /// total[0] += the sum of one word in each `stride`.
  void (*read_strided)(const word* x, std::uint64_t n, std::uint64_t stride, unsigned long long* total);
  /// Word i becomes 3 * word i + value + i.
  void (*advance)(word* x, std::uint64_t n, word value);
  /// Each thread multiplies and adds `rounds` times, and touches no memory but one word that it never writes.
  void (*compute)(float* x, word rounds);
  /// A step of AdamW on the elements of four arrays.
  void (*adamw)(float* weight, float* first, float* second, const float* gradient, std::uint64_t n, float rate);
  /// The launches of random programs (tests/property/random_program.hpp).
  void (*fill)(word* a, word n, word value);
  void (*mix)(word* a, word n, const word* b, word m, word value);
  void (*gather)(word* a, word n, const word* b, word m, const word* index, word k, word value);
  void (*chase)(word* a, word n, word* const* where, word m, word value);
};

[[nodiscard]] const kernels& all();

}  // namespace deepum_gpu_bench_kernels
