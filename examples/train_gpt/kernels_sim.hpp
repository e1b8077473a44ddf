#pragma once

#include "host_kernels.hpp"
#include <deepum/sim/kernel.hpp>

#include <cstddef>
#include <cstdint>

namespace train_gpt {

/// The kernels of the simulated GPU: what each computes, and what it touches and how much it computes.
///
/// A description states what a GPU's version of the kernel would do to memory; the model declares its operands on its
/// own.
struct sim_kernels {
  using index = host::index;

  // Every element, the tokens too, has four bytes.
  static std::size_t floats(index n) { return static_cast<std::size_t>(n) * sizeof(float); }
  static double count(index n) { return static_cast<double>(n); }

  static inline const deepum::sim::kernel embed_forward{
      host::embed_forward, [](deepum::sim::work& w, float* x, const std::int32_t* tokens, const float* token_table,
                              const float* position_table, index rows, index context, index width) {
        w.reads(tokens, floats(rows));
        w.reads(token_table, floats(256 * width));
        w.reads(position_table, floats(context * width));
        w.overwrites(x, floats(rows * width));
        w.flops(count(rows * width));
      }};

  static inline const deepum::sim::kernel embed_backward{
      host::embed_backward, [](deepum::sim::work& w, float* d_token_table, float* d_position_table, const float* dx,
                               const std::int32_t* tokens, index rows, index context, index width) {
        w.reads(dx, floats(rows * width));
        w.reads(tokens, floats(rows));
        w.updates(d_token_table, floats(256 * width));
        w.updates(d_position_table, floats(context * width));
        w.flops(count(2 * rows * width));
      }};

  static inline const deepum::sim::kernel layernorm_forward{
      host::layernorm_forward, [](deepum::sim::work& w, float* y, float* moments, const float* x, const float* scale,
                                  const float* shift, index rows, index width) {
        w.reads(x, floats(rows * width));
        w.reads(scale, floats(width));
        w.reads(shift, floats(width));
        w.overwrites(y, floats(rows * width));
        w.overwrites(moments, floats(2 * rows));
        w.flops(count(8 * rows * width));
      }};

  static inline const deepum::sim::kernel layernorm_backward{
      host::layernorm_backward, [](deepum::sim::work& w, float* dx, float* d_scale, float* d_shift, const float* dy,
                                   const float* x, const float* moments, const float* scale, index rows, index width) {
        w.reads(dy, floats(rows * width));
        w.reads(x, floats(rows * width));
        w.reads(moments, floats(2 * rows));
        w.reads(scale, floats(width));
        w.updates(dx, floats(rows * width));
        w.updates(d_scale, floats(width));
        w.updates(d_shift, floats(width));
        w.flops(count(18 * rows * width));
      }};

  static inline const deepum::sim::kernel linear_forward{
      host::linear_forward, [](deepum::sim::work& w, float* y, const float* x, const float* weight, const float* bias,
                               index rows, index inputs, index outputs) {
        w.reads(x, floats(rows * inputs));
        w.reads(weight, floats(inputs * outputs));
        w.reads(bias, floats(outputs));
        w.overwrites(y, floats(rows * outputs));
        w.flops(count(2 * rows * inputs * outputs));
      }};

  static inline const deepum::sim::kernel linear_backward_input{
      host::linear_backward_input, [](deepum::sim::work& w, float* dx, const float* dy, const float* weight, index rows,
                                      index inputs, index outputs) {
        w.reads(dy, floats(rows * outputs));
        w.reads(weight, floats(inputs * outputs));
        w.overwrites(dx, floats(rows * inputs));
        w.flops(count(2 * rows * inputs * outputs));
      }};

  static inline const deepum::sim::kernel linear_backward_weight{
      host::linear_backward_weight, [](deepum::sim::work& w, float* d_weight, float* d_bias, const float* x,
                                       const float* dy, index rows, index inputs, index outputs) {
        w.reads(x, floats(rows * inputs));
        w.reads(dy, floats(rows * outputs));
        w.updates(d_weight, floats(inputs * outputs));
        w.updates(d_bias, floats(outputs));
        w.flops(count(2 * rows * inputs * outputs));
      }};

  static inline const deepum::sim::kernel residual_forward{
      host::residual_forward, [](deepum::sim::work& w, float* y, const float* a, const float* b, index n) {
        w.reads(a, floats(n));
        w.reads(b, floats(n));
        w.overwrites(y, floats(n));
        w.flops(count(n));
      }};

  static inline const deepum::sim::kernel gelu_forward{host::gelu_forward,
                                                       [](deepum::sim::work& w, float* y, const float* x, index n) {
                                                         w.reads(x, floats(n));
                                                         w.overwrites(y, floats(n));
                                                         w.flops(count(20 * n));
                                                       }};

  static inline const deepum::sim::kernel gelu_backward{host::gelu_backward,
                                                        [](deepum::sim::work& w, float* d, const float* x, index n) {
                                                          w.reads(x, floats(n));
                                                          w.updates(d, floats(n));
                                                          w.flops(count(30 * n));
                                                        }};

  static inline const deepum::sim::kernel attention_forward{
      host::attention_forward, [](deepum::sim::work& w, float* y, float* probabilities, const float* qkv,
                                  index sequences, index context, index heads, index width) {
        w.reads(qkv, floats(3 * sequences * context * width));
        w.overwrites(probabilities, floats(sequences * heads * context * context));
        w.overwrites(y, floats(sequences * context * width));
        w.flops(count(4 * sequences * context * context * width));
      }};

  static inline const deepum::sim::kernel attention_backward{
      host::attention_backward, [](deepum::sim::work& w, float* d_qkv, const float* dy, const float* probabilities,
                                   const float* qkv, index sequences, index context, index heads, index width) {
        w.reads(dy, floats(sequences * context * width));
        w.reads(probabilities, floats(sequences * heads * context * context));
        w.reads(qkv, floats(3 * sequences * context * width));
        w.overwrites(d_qkv, floats(3 * sequences * context * width));
        w.flops(count(8 * sequences * context * context * width));
      }};

  static inline const deepum::sim::kernel cross_entropy{
      host::cross_entropy, [](deepum::sim::work& w, float* losses, float* d_logits, const float* logits,
                              const std::int32_t* targets, index rows, index vocabulary) {
        w.reads(logits, floats(rows * vocabulary));
        w.reads(targets, floats(rows));
        w.overwrites(losses, floats(rows));
        w.overwrites(d_logits, floats(rows * vocabulary));
        w.flops(count(20 * rows * vocabulary));
      }};

  static inline const deepum::sim::kernel adamw{
      host::adamw, [](deepum::sim::work& w, float* weight, const float* gradient, float* first, float* second, index n,
                      float /*learning_rate*/, float /*weight_decay*/, std::int32_t /*step*/) {
        w.reads(gradient, floats(n));
        w.updates(weight, floats(n));
        w.updates(first, floats(n));
        w.updates(second, floats(n));
        w.flops(count(16 * n));
      }};
};

}  // namespace train_gpt
