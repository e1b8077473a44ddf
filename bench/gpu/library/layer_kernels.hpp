#pragma once

#include "examples/train_gpt/bf16.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

/// The boundary between the kernels of layered models, which nvcc compiles, and the program, which it does not.
namespace deepum_gpu_bench_kernels {

using count = std::int64_t;

/// Pointers to `__global__` functions, which the host compiler can launch. Grids and blocks are one-dimensional. Of
/// elements any number of threads does the work; of rows, each block does one at a time. What a kernel does not say to
/// add to, it writes as a whole. The same in every run, bit by bit.
/// @tparam T  float or bf16: of activations, and of the weights that products read.
template <class T>
struct layer_kernels {
  /// Numbers from -scale to scale, by place and seed.
  void (*draw)(T* x, count n, std::uint64_t seed, float scale);
  /// The same numbers, in single precision.
  void (*draw_floats)(float* x, count n, std::uint64_t seed, float scale);
  /// y = each row of x by the root of its mean square. Of rows.
  void (*normalise)(T* y, const T* x, count rows, count width);
  /// Adds to d the gradient of x, of which `dy` is that of y. Of rows.
  void (*normalise_backward)(T* d, const T* dy, const T* x, count rows, count width);
  /// Rows of qkv are three rows q, k and v: y = v / (1 + exp(-q k)).
  void (*gate)(T* y, const T* qkv, count rows, count width);
  void (*gate_backward)(T* d_qkv, const T* dy, const T* qkv, count rows, count width);
  void (*gelu)(T* y, const T* x, count n);
  /// d *= gelu'(x)
  void (*gelu_backward)(T* d, const T* x, count n);
  /// y = a + b
  void (*add)(T* y, const T* a, const T* b, count n);
  /// d = factor * x: the gradient of a mean of squares.
  void (*loss)(T* d, const T* x, count n, float factor);
  /// The master weights and both moments are updated; `copy` gets the weights as products read them.
  void (*adamw)(float* master, T* copy, const float* gradient, float* first, float* second, count n, float rate,
                float correction1, float correction2);
};

/// The kernels of this build.
template <class T>
[[nodiscard]] const layer_kernels<T>& layer_kernels_for();
template <>
const layer_kernels<float>& layer_kernels_for<float>();
template <>
const layer_kernels<train_gpt::bf16>& layer_kernels_for<train_gpt::bf16>();

/// A number from -1 to 1 for each place: splitmix64 (Steele, Lea and Flood, 2014) of place and seed, its upper 24 bits.
DEEPUM_HOST_DEVICE inline float drawn(std::uint64_t place, std::uint64_t seed) {
  std::uint64_t z = place * 0x9E3779B97F4A7C15ULL + seed * 0xD1B54A32D192ED03ULL + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * (2.0F / 16777216.0F) - 1.0F;
}

}  // namespace deepum_gpu_bench_kernels
