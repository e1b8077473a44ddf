#pragma once

#include "cublas_products.hpp"
#include "element_math.hpp"
#include "host_kernels.hpp"
#include "kernels_cuda.hpp"
#include "shape.hpp"
#include <deepum/dim.hpp>
#include <deepum/error.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>

namespace train_gpt {

/// Launches a kernel as a part of a `call`; the arguments become what it takes.
/// @errors  `deepum::status::device_failure`.
template <class... Parameters, class... Args>
void enqueue(cudaStream_t stream, deepum::dim grid, deepum::dim block, void (*kernel)(Parameters...), Args... args) {
  std::tuple<Parameters...> values{static_cast<Parameters>(args)...};
  std::apply(
      [&](auto&... each) {
        void* pointers[] = {&each...};
        check_cuda(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(grid.x, grid.y, grid.z),
                                    dim3(block.x, block.y, block.z), pointers, 0, stream),
                   "cudaLaunchKernel");
      },
      values);
}

/// What the model computes, on a GPU: own kernels, matrix products by cuBLAS, the mean loss by CUB.
///
/// The same in every run on one kind of GPU, bit by bit, and so under every policy. Sums are taken in another order
/// than on the simulated GPU, exponentials come from another library, and products and sums are fused; so in single
/// precision a loss agrees with the simulated GPU's to a relative 1e-4 over the first ten steps, and a gradient to 1e-3
/// of its tensor's length. In bf16, whose elements have 8 significant bits, it is 2e-2 for the loss and 1e-1 for a
/// gradient.
/// @tparam Stream  A `deepum::stream` of a GPU.
/// @tparam T       float or bf16: of activations, their gradients, and the weights that are read.
template <class Stream, class T>
class cuda_operations {
 public:
  using element = T;

  /// @errors  `deepum::status::device_failure`; `deepum::status::unsupported` where the sum of the losses needs more
  ///          memory than `scratch_size` counts.
  template <class Arena>
  cuda_operations(Arena& arena, Stream& stream, const model_shape& shape, purpose use)
      : stream_(&stream),
        d_scores_(arena.template allocate<T>(static_cast<std::size_t>(d_scores_of(shape, use)))),
        sum_storage_(arena.allocate_bytes(sum_storage_size)),
        sum_(arena.template allocate<double>(1)) {
    std::size_t needed = 0;
    check_cuda(sum_of(nullptr, needed, nullptr, nullptr, shape.rows(), nullptr), "cub::DeviceReduce::Reduce");
    if (needed > sum_storage_size.count) {
      throw deepum::error(deepum::status::unsupported, "on this GPU a sum of the losses needs " +
                                                           std::to_string(needed) + " bytes, not " +
                                                           std::to_string(sum_storage_size.count));
    }
  }

  /// What the operations allocate for themselves in the arena.
  [[nodiscard]] static bytes scratch_size(const model_shape& shape, purpose use) {
    return bytes{static_cast<std::uint64_t>(d_scores_of(shape, use)) * sizeof(T)} + sum_storage_size +
           bytes{sizeof(double)};
  }

  void embed_forward(T* x, const std::int32_t* tokens, const T* token_table, const T* position_table, index rows,
                     index context, index width) {
    launch("embed_forward", elements(rows * width), threads, kernels().embed_forward,
           overwrites(x, count(rows * width)), tokens, token_table, position_table, rows, context, width);
  }
  /// Adds to both tables.
  void embed_backward(float* d_token_table, float* d_position_table, const T* dx, const std::int32_t* tokens,
                      index rows, index context, index width) {
    const index entries = model_shape::vocabulary + context;
    launch("embed_backward", {static_cast<unsigned>(entries), elements(width).x}, threads, kernels().embed_backward,
           d_token_table, d_position_table, reads(dx, count(rows * width)), tokens, rows, context, width,
           model_shape::vocabulary);
  }
  void layernorm_forward(T* y, float* moments, const T* x, const T* scale, const T* shift, index rows, index width) {
    launch("layernorm_forward", rows_grid(rows), threads_for(width), kernels().layernorm_forward,
           overwrites(y, count(rows * width)), overwrites(moments, count(rows * 2)), x, scale, shift, width);
  }
  /// Adds to dx, d_scale and d_shift.
  void layernorm_backward(T* dx, float* d_scale, float* d_shift, const T* dy, const T* x, const float* moments,
                          const T* scale, index rows, index width) {
    stream_->call("layernorm_backward",
                  {updates(dx), updates(d_scale), updates(d_shift), reads(dy, count(rows * width)), reads(x),
                   reads(moments), reads(scale)},
                  [&](cudaStream_t q) {
                    enqueue(q, columns_grid(width), columns, kernels().layernorm_backward_weight, d_scale, d_shift, dy,
                            x, moments, rows, width);
                    enqueue(q, rows_grid(rows), threads_for(width), kernels().layernorm_backward_input, dx, dy, x,
                            moments, scale, width);
                  });
  }
  void linear_forward(T* y, const T* x, const T* weight, const T* bias, index rows, index inputs, index outputs) {
    stream_->call(
        "linear_forward", {overwrites(y, count(rows * outputs)), reads(x), reads(weight), reads(bias)},
        [&](cudaStream_t q) {
          enqueue(q, elements(rows * outputs), threads, kernels().bias_forward, y, bias, rows, outputs);
          products_.multiply<T, T>(q, result::add, {y, rows, outputs}, {x, rows, inputs}, {weight, inputs, outputs});
        });
  }
  /// Adds to d_weight and d_bias.
  void linear_backward_weight(float* d_weight, float* d_bias, const T* x, const T* dy, index rows, index inputs,
                              index outputs) {
    stream_->call("linear_backward_weight",
                  {updates(d_weight), updates(d_bias), reads(x), reads(dy, count(rows * outputs))},
                  [&](cudaStream_t q) {
                    products_.multiply<float, T>(q, result::add, {d_weight, inputs, outputs},
                                                 matrix<const T>{x, rows, inputs}.transposed(), {dy, rows, outputs});
                    enqueue(q, columns_grid(outputs), columns, kernels().bias_backward, d_bias, dy, rows, outputs);
                  });
  }
  void linear_backward_input(T* dx, const T* dy, const T* weight, index rows, index inputs, index outputs) {
    stream_->call("linear_backward_input",
                  {overwrites(dx, count(rows * inputs)), reads(dy, count(rows * outputs)), reads(weight)},
                  [&](cudaStream_t q) {
                    products_.multiply<T, T>(q, result::overwrite, {dx, rows, inputs}, {dy, rows, outputs},
                                             matrix<const T>{weight, inputs, outputs}.transposed());
                  });
  }
  void residual_forward(T* y, const T* a, const T* b, index n) {
    launch("residual_forward", elements(n), threads, kernels().residual_forward, overwrites(y, count(n)), a, b, n);
  }
  void gelu_forward(T* y, const T* x, index n) {
    launch("gelu_forward", elements(n), threads, kernels().gelu_forward, overwrites(y, count(n)), x, n);
  }
  /// d *= gelu'(x)
  void gelu_backward(T* d, const T* x, index n) {
    launch("gelu_backward", elements(n), threads, kernels().gelu_backward, d, x, n);
  }
  /// `probabilities` is [sequences x heads x context x context] and zero above the diagonal.
  void attention_forward(T* y, T* probabilities, const T* qkv, index sequences, index context, index heads,
                         index width) {
    const index rows = sequences * context;
    const index head_width = width / heads;
    stream_->call(
        "attention_forward",
        {overwrites(y, count(rows * width)), overwrites(probabilities, count(rows * heads * context)), reads(qkv)},
        [&](cudaStream_t q) {
          // One batch of all heads for each sequence.
          const auto each = [&](auto multiply) {
            for (index s = 0; s < sequences; ++s) {
              multiply(host::head_view<const T>{qkv, s, 0, context, width, head_width},
                       matrix<T>{probabilities + s * heads * context * context, context, context},
                       matrix<T>{y + s * context * width, context, head_width, width});
            }
          };
          each([&](const auto& in, matrix<T> p, matrix<T> /*out*/) {
            products_.multiply<T, T>(q, result::overwrite, p, in.query, in.key.transposed(),
                                     {heads, head_width, head_width, context * context});
          });
          enqueue(q, rows_grid(rows * heads), threads_for(context), kernels().softmax_forward, probabilities, context,
                  scale_of(head_width));
          each([&](const auto& in, matrix<T> p, matrix<T> out) {
            products_.multiply<T, T>(q, result::overwrite, out, {p.data, context, context}, in.value,
                                     {heads, context * context, head_width, head_width});
          });
        });
  }
  void attention_backward(T* d_qkv, const T* dy, const T* probabilities, const T* qkv, index sequences, index context,
                          index heads, index width) {
    const index rows = sequences * context;
    const index head_width = width / heads;
    const index square = context * context;
    stream_->call("attention_backward",
                  {overwrites(d_qkv, count(rows * 3 * width)), overwrites(d_scores_, count(heads * square)),
                   reads(dy, count(rows * width)), reads(probabilities), reads(qkv)},
                  [&](cudaStream_t q) {
                    const matrix<T> d_scores{d_scores_, context, context};
                    const matrix<const T> d_scores_in{d_scores_, context, context};
                    for (index s = 0; s < sequences; ++s) {
                      const host::head_view<const T> in{qkv, s, 0, context, width, head_width};
                      const host::head_view<T> d{d_qkv, s, 0, context, width, head_width};
                      const matrix<const T> p{probabilities + s * heads * square, context, context};
                      const matrix<const T> d_out{dy + s * context * width, context, head_width, width};
                      products_.multiply<T, T>(q, result::overwrite, d.value, p.transposed(), d_out,
                                               {heads, square, head_width, head_width});
                      products_.multiply<T, T>(q, result::overwrite, d_scores, d_out, in.value.transposed(),
                                               {heads, head_width, head_width, square});
                      enqueue(q, rows_grid(heads * context), threads_for(context), kernels().softmax_backward,
                              d_scores.data, p.data, context, scale_of(head_width));
                      products_.multiply<T, T>(q, result::overwrite, d.query, d_scores_in, in.key,
                                               {heads, square, head_width, head_width});
                      products_.multiply<T, T>(q, result::overwrite, d.key, d_scores_in.transposed(), in.query,
                                               {heads, square, head_width, head_width});
                    }
                  });
  }
  void cross_entropy(float* losses, T* d_logits, const T* logits, const std::int32_t* targets, index rows,
                     index vocabulary) {
    launch("cross_entropy", rows_grid(rows), threads_for(vocabulary), kernels().cross_entropy,
           overwrites(losses, count(rows)), overwrites(d_logits, count(rows * vocabulary)), logits, targets, rows,
           vocabulary);
  }
  /// The corrections for the step number make each step's launch one that has never been seen before.
  /// @param copy  The weights as the other operations read them; `weight` itself where those are floats.
  void adamw(float* weight, T* copy, const float* gradient, float* first, float* second, index n, float learning_rate,
             float weight_decay, std::int32_t step) {
    const float correction1 = 1.0F - std::pow(element_math::beta1, static_cast<float>(step));
    const float correction2 = 1.0F - std::pow(element_math::beta2, static_cast<float>(step));
    const auto with = [&](auto copied) {
      launch("adamw", elements(n), threads, kernels().adamw, weight, copied, gradient, first, second, n, learning_rate,
             weight_decay, correction1, correction2);
    };
    if constexpr (std::is_same_v<T, float>) {
      with(nullptr);
    } else {
      with(overwrites(copy, count(n)));
    }
  }

  /// The mean of the losses. Waits for all that was launched.
  [[nodiscard]] float mean_loss(const float* losses, index rows) {
    stream_->call("sum_of_losses",
                  {overwrites(sum_, 1), uses_as_scratch(sum_storage_, sum_storage_size), reads(losses, count(rows))},
                  [&](cudaStream_t q) {
                    std::size_t size = sum_storage_size.count;
                    check_cuda(sum_of(sum_storage_, size, sum_, losses, rows, q), "cub::DeviceReduce::Reduce");
                  });
    double sum = 0;
    stream_->memcpy(&sum, sum_, bytes{sizeof sum});
    stream_->synchronize();
    return static_cast<float>(sum / static_cast<double>(rows));
  }

 private:
  static constexpr unsigned threads = 256;
  static constexpr deepum::dim columns{columns_block, columns_block};
  // Five partial sums for each block that the largest GPUs run at once are below 100 KiB.
  static constexpr bytes sum_storage_size{std::uint64_t{256} << 10};

  static const cuda_kernels<T>& kernels() { return kernels_for<T>(); }
  static std::uint64_t count(index n) { return static_cast<std::uint64_t>(n); }
  static deepum::dim elements(index n) { return static_cast<unsigned>((n + threads - 1) / threads); }
  static deepum::dim rows_grid(index rows) { return static_cast<unsigned>(rows); }
  static deepum::dim columns_grid(index width) { return static_cast<unsigned>((width + 31) / 32); }
  // Whole warps; no more than a row has work for.
  static deepum::dim threads_for(index width) {
    return static_cast<unsigned>(std::min<index>((width + 31) / 32 * 32, threads));
  }
  static float scale_of(index head_width) { return 1.0F / std::sqrt(static_cast<float>(head_width)); }
  // Gradients of the attention scores of one sequence.
  static index d_scores_of(const model_shape& shape, purpose use) {
    return use == purpose::training ? shape.heads * shape.context * shape.context : 0;
  }

  template <class Kernel, class... Args>
  void launch(const char* name, deepum::dim grid, deepum::dim block, Kernel kernel, Args... arguments) {
    stream_->launch(name, grid, block, 0, kernel, arguments...);
  }

  Stream* stream_;
  T* d_scores_;
  void* sum_storage_;
  double* sum_;
  cublas_products products_{};
};

}  // namespace train_gpt
