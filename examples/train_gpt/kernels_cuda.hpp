#pragma once

#include "bf16.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// The boundary between the kernels, which nvcc compiles, and the program, which it does not.
namespace train_gpt {

using index = std::int64_t;

/// The kernels for activations of one type: pointers to `__global__` functions, which the host compiler can launch.
///
/// Matrices are row-major; a row is one token. Sums are taken in single precision and in an order that depends on the
/// sizes alone: no atomics. What a kernel does not say to add to, it writes as a whole. The comments say which grid
/// each expects: `elements` is one thread for each element, `rows` one block for each row, `columns` one block of
/// `columns_block` threads for 32 columns.
template <class T>
struct cuda_kernels {
  /// x[row] = token_table[tokens[row]] + position_table[row % context]. Grid: elements.
  void (*embed_forward)(T* x, const std::int32_t* tokens, const T* token_table, const T* position_table, index rows,
                        index context, index width);
  /// Adds to both tables, row by row. Grid: {vocabulary + context, blocks for the width}.
  void (*embed_backward)(float* d_token_table, float* d_position_table, const T* dx, const std::int32_t* tokens,
                         index rows, index context, index width, index vocabulary);
  /// `moments` gets each row's mean and 1 / deviation. Grid: rows.
  void (*layernorm_forward)(T* y, float* moments, const T* x, const T* scale, const T* shift, index width);
  /// Adds to dx. Grid: rows.
  void (*layernorm_backward_input)(T* dx, const T* dy, const T* x, const float* moments, const T* scale, index width);
  /// Adds to both. Grid: columns.
  void (*layernorm_backward_weight)(float* d_scale, float* d_shift, const T* dy, const T* x, const float* moments,
                                    index rows, index width);
  /// Every row of y becomes `bias`. Grid: elements.
  void (*bias_forward)(T* y, const T* bias, index rows, index width);
  /// Adds the sum of dy's rows to d_bias. Grid: columns.
  void (*bias_backward)(float* d_bias, const T* dy, index rows, index width);
  /// y = a + b. Grid: elements.
  void (*residual_forward)(T* y, const T* a, const T* b, index n);
  /// Grid: elements.
  void (*gelu_forward)(T* y, const T* x, index n);
  /// d *= gelu'(x). Grid: elements.
  void (*gelu_backward)(T* d, const T* x, index n);
  /// In place: scores become probabilities. Row i of each `context` rows sees the first i + 1 scores; the others become
  /// zero. Grid: rows.
  void (*softmax_forward)(T* scores, index context, float scale);
  /// In place: gradients of probabilities become gradients of scores. Grid: rows.
  void (*softmax_backward)(T* d, const T* probabilities, index context, float scale);
  /// Cross entropy of each row, in nats, and the gradient of the mean of all rows. Grid: rows.
  void (*cross_entropy)(float* losses, T* d_logits, const T* logits, const std::int32_t* targets, index rows,
                        index vocabulary);
  /// `weight` and the moments are updated; `copy` gets the weight in the type of the activations, and may be null.
  /// Grid: elements.
  void (*adamw)(float* weight, T* copy, const float* gradient, float* first, float* second, index n,
                float learning_rate, float weight_decay, float correction1, float correction2);
};

/// The kernels of this build.
template <class T>
[[nodiscard]] const cuda_kernels<T>& kernels_for();
template <>
const cuda_kernels<float>& kernels_for<float>();
template <>
const cuda_kernels<bf16>& kernels_for<bf16>();

/// Threads of a block that covers 32 columns.
inline constexpr unsigned columns_block = 32;

/// Sum of n floats in double precision (CUB), the same in every run on one kind of GPU.
/// @param storage  Null: only tells in `size` how many bytes of device memory it needs.
cudaError_t sum_of(void* storage, std::size_t& size, double* total, const float* values, index n, cudaStream_t stream);

}  // namespace train_gpt
