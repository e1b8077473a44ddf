#pragma once

#include "kernels_sim.hpp"
#include "shape.hpp"
#include <deepum/operand.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <vector>

namespace train_gpt {

/// What the model computes, as launches on the simulated GPU. Each declares its operands; whether that is what the
/// kernel touches, the kernel's description says.
/// @tparam Stream  A `deepum::stream` of the simulated GPU.
template <class Stream>
class sim_operations {
 public:
  using element = float;
  using kernels = sim_kernels;

  template <class Arena>
  sim_operations(Arena& /*arena*/, Stream& stream, const model_shape& shape, purpose /*use*/)
      : stream_(&stream),
        host_losses_(static_cast<std::size_t>(shape.rows())) {}

  /// What the operations allocate for themselves.
  [[nodiscard]] static bytes scratch_size(const model_shape& /*shape*/, purpose /*use*/) { return {}; }

  void embed_forward(float* x, const std::int32_t* tokens, const float* token_table, const float* position_table,
                     index rows, index context, index width) {
    launch("embed_forward", rows * width, kernels::embed_forward, overwrites(x, count(rows * width)), reads(tokens),
           token_table, position_table, rows, context, width);
  }
  /// Adds to both tables.
  void embed_backward(float* d_token_table, float* d_position_table, const float* dx, const std::int32_t* tokens,
                      index rows, index context, index width) {
    launch("embed_backward", rows * width, kernels::embed_backward, d_token_table, d_position_table, reads(dx),
           reads(tokens), rows, context, width);
  }
  void layernorm_forward(float* y, float* moments, const float* x, const float* scale, const float* shift, index rows,
                         index width) {
    launch("layernorm_forward", rows, kernels::layernorm_forward, overwrites(y, count(rows * width)),
           overwrites(moments, count(rows * 2)), x, scale, shift, rows, width);
  }
  /// Adds to dx, d_scale and d_shift.
  void layernorm_backward(float* dx, float* d_scale, float* d_shift, const float* dy, const float* x,
                          const float* moments, const float* scale, index rows, index width) {
    launch("layernorm_backward", rows, kernels::layernorm_backward, dx, d_scale, d_shift, reads(dy), x, moments, scale,
           rows, width);
  }
  void linear_forward(float* y, const float* x, const float* weight, const float* bias, index rows, index inputs,
                      index outputs) {
    launch("linear_forward", rows * outputs, kernels::linear_forward, overwrites(y, count(rows * outputs)), x, weight,
           bias, rows, inputs, outputs);
  }
  /// Adds to d_weight and d_bias.
  void linear_backward_weight(float* d_weight, float* d_bias, const float* x, const float* dy, index rows, index inputs,
                              index outputs) {
    launch("linear_backward_weight", inputs * outputs, kernels::linear_backward_weight, d_weight, d_bias, x, dy, rows,
           inputs, outputs);
  }
  void linear_backward_input(float* dx, const float* dy, const float* weight, index rows, index inputs, index outputs) {
    launch("linear_backward_input", rows * inputs, kernels::linear_backward_input, overwrites(dx, count(rows * inputs)),
           dy, weight, rows, inputs, outputs);
  }
  void residual_forward(float* y, const float* a, const float* b, index n) {
    launch("residual_forward", n, kernels::residual_forward, overwrites(y, count(n)), a, b, n);
  }
  void gelu_forward(float* y, const float* x, index n) {
    launch("gelu_forward", n, kernels::gelu_forward, overwrites(y, count(n)), reads(x), n);
  }
  /// d *= gelu'(x)
  void gelu_backward(float* d, const float* x, index n) {
    launch("gelu_backward", n, kernels::gelu_backward, d, reads(x), n);
  }
  void attention_forward(float* y, float* probabilities, const float* qkv, index sequences, index context, index heads,
                         index width) {
    const index rows = sequences * context;
    launch("attention_forward", rows * width, kernels::attention_forward, overwrites(y, count(rows * width)),
           overwrites(probabilities, count(rows * heads * context)), reads(qkv), sequences, context, heads, width);
  }
  void attention_backward(float* d_qkv, const float* dy, const float* probabilities, const float* qkv, index sequences,
                          index context, index heads, index width) {
    const index rows = sequences * context;
    launch("attention_backward", rows * width, kernels::attention_backward, overwrites(d_qkv, count(rows * 3 * width)),
           reads(dy), reads(probabilities), reads(qkv), sequences, context, heads, width);
  }
  void cross_entropy(float* losses, float* d_logits, const float* logits, const std::int32_t* targets, index rows,
                     index vocabulary) {
    launch("cross_entropy", rows, kernels::cross_entropy, overwrites(losses, count(rows)),
           overwrites(d_logits, count(rows * vocabulary)), reads(logits), reads(targets), rows, vocabulary);
  }
  /// The step number, which is passed by value, makes each step's launch one that has never been seen before.
  /// @param copy  The weights as the other operations read them: here `weight` itself.
  void adamw(float* weight, float* /*copy*/, const float* gradient, float* first, float* second, index n,
             float learning_rate, float weight_decay, std::int32_t step) {
    launch("adamw", n, kernels::adamw, weight, reads(gradient), first, second, n, learning_rate, weight_decay, step);
  }

  /// The mean of the losses. Waits for all that was launched.
  [[nodiscard]] float mean_loss(const float* losses, index /*rows*/) {
    stream_->memcpy(host_losses_.data(), losses, bytes{host_losses_.size() * sizeof(float)});
    stream_->synchronize();
    double sum = 0;
    for (const float each : host_losses_)
      sum += static_cast<double>(each);
    return static_cast<float>(sum / static_cast<double>(host_losses_.size()));
  }

 private:
  static std::uint64_t count(index n) { return static_cast<std::uint64_t>(n); }

  // One thread for each of `work` elements.
  template <class Kernel, class... Args>
  void launch(const char* name, index work, const Kernel& kernel, Args... arguments) {
    constexpr index threads = 256;
    stream_->launch(name, static_cast<unsigned>((work + threads - 1) / threads), static_cast<unsigned>(threads), 0,
                    kernel, arguments...);
  }

  Stream* stream_;
  std::vector<float> host_losses_;
};

}  // namespace train_gpt
