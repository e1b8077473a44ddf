#pragma once

#include "bf16.hpp"
#include "shape.hpp"
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace train_gpt {

/// A decoder-only transformer that predicts the next byte of a text, trained with AdamW.
///
/// Byte embedding and learned positions; layers of pre-norm causal attention and a GELU network of four times the
/// width; final norm and an output layer of its own. Everything it stores lies in the arena, everything it computes is
/// launched.
/// @tparam Backend  Names `arena` and `stream` of one kind of device, and `operations`: what is launched there, with
///                  `element`, the type of activations and of the weights that the forward and the backward pass read.
template <class Backend>
class gpt {
 public:
  using arena_type = typename Backend::arena;
  using stream_type = typename Backend::stream;
  using operations = typename Backend::operations;
  using element = typename operations::element;
  static constexpr precision computes_in = std::is_same_v<element, float> ? precision::fp32 : precision::bf16;

  /// Allocates everything and draws the weights.
  gpt(arena_type& arena, stream_type& stream, const model_shape& shape, std::uint64_t seed,
      purpose use = purpose::training)
      : shape_(shape),
        use_(use),
        arena_(&arena),
        stream_(&stream),
        sizes_(parameter_sizes(shape)),
        copy_sizes_(parameter_sizes(shape, sizeof(element))),
        weights_(carve<float>(arena, keeps_floats() ? sizes_ : tensor_sizes{})),
        copies_(copies(arena)),
        gradients_(carve<float>(arena, trains() ? sizes_ : tensor_sizes{})),
        first_moments_(carve<float>(arena, trains() ? sizes_ : tensor_sizes{})),
        second_moments_(carve<float>(arena, trains() ? sizes_ : tensor_sizes{})),
        activations_(carve<void>(arena, activation_sizes(shape, computes_in, use))),
        tokens_(arena.template allocate<std::int32_t>(static_cast<std::size_t>(shape.rows()))),
        targets_(arena.template allocate<std::int32_t>(static_cast<std::size_t>(shape.rows()))),
        losses_(arena.template allocate<float>(static_cast<std::size_t>(shape.rows()))),
        operations_(arena, stream, shape, use) {
    draw_weights(seed);
    if (trains()) {
      stream_->memset(first_moments_.front(), 0, size_of(sizes_));
      stream_->memset(second_moments_.front(), 0, size_of(sizes_));
    }
  }

  /// All that the model allocates.
  [[nodiscard]] static bytes footprint(const model_shape& shape, purpose use = purpose::training) {
    return train_gpt::footprint(shape, computes_in, use, operations::scratch_size(shape, use));
  }

  [[nodiscard]] const model_shape& shape() const { return shape_; }
  /// Those that AdamW updates. None where a model for evaluation computes in bf16.
  [[nodiscard]] std::span<float* const> weights() const { return weights_; }
  /// None in a model for evaluation.
  [[nodiscard]] std::span<float* const> gradients() const { return gradients_; }
  [[nodiscard]] const tensor_sizes& sizes() const { return sizes_; }

  /// Launches the forward and the backward pass: `gradients()` and `loss()` are then on their way.
  /// @param tokens   `batch` sequences of `context` bytes.
  /// @param targets  For each of them the byte that follows it.
  void differentiate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    deepum::expects(trains(), "a model for evaluation has no gradients");
    evaluate(tokens, targets);
    backward();
  }

  /// Launches the forward pass: `loss()` is then on its way. Reads the weights and writes none of them.
  void evaluate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    upload(tokens_, tokens);
    upload(targets_, targets);
    forward(shape_.batch);
    operations_.cross_entropy(losses_, at(shared::d_logits), at(shared::logits), targets_, shape_.rows(),
                              shape_.vocabulary);
  }

  /// Launches AdamW: one launch for each tensor, as most trainers do it. The gradients are of no value after it.
  void update(float learning_rate) {
    deepum::expects(trains(), "a model for evaluation has no gradients");
    ++step_;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const float weight_decay = sizes_[i].is_vector() ? 0.0F : 0.1F;
      operations_.adamw(weights_[i], copies_[i], gradients_[i], first_moments_[i], second_moments_[i],
                        sizes_[i].count(), learning_rate, weight_decay, step_);
      forget(gradients_[i], padded(sizes_[i]));
    }
  }

  /// The mean cross entropy that `differentiate` or `evaluate` found, in nats for each byte. Waits for all that was
  /// launched.
  [[nodiscard]] float loss() { return operations_.mean_loss(losses_, shape_.rows()); }

  /// Logits of the byte that follows `tokens`. Waits for them.
  /// @param tokens  1 to `context` bytes.
  [[nodiscard]] std::vector<float> predict(std::span<const std::int32_t> tokens) {
    // Positions behind the last byte hold anything: attention never looks forward.
    upload(tokens_, tokens);
    forward(1);
    std::vector<element> logits(static_cast<std::size_t>(shape_.vocabulary));
    const element* last = at(shared::logits) + (static_cast<index>(tokens.size()) - 1) * shape_.vocabulary;
    stream_->memcpy(logits.data(), last, bytes{logits.size() * sizeof(element)});
    stream_->synchronize();
    std::vector<float> wide(logits.size());
    std::transform(logits.begin(), logits.end(), wide.begin(), [](element x) { return widened(x); });
    return wide;
  }

 private:
  [[nodiscard]] bool trains() const { return use_ == purpose::training; }
  // Whether there are weights in single precision.
  [[nodiscard]] bool keeps_floats() const { return trains() || computes_in == precision::fp32; }

  // Allocates once and names the parts, so that a pointer into the allocation means one tensor and not all of them.
  template <class T>
  static std::vector<T*> carve(arena_type& arena, const tensor_sizes& tensors) {
    std::vector<bytes> parts;
    std::vector<T*> pointers;
    if (tensors.empty()) return pointers;
    auto* p = static_cast<std::byte*>(arena.allocate_bytes(size_of(tensors)));
    for (const tensor_size& t : tensors) {
      parts.push_back(padded(t));
      pointers.push_back(static_cast<T*>(static_cast<void*>(p)));
      p += parts.back().count;
    }
    arena.split(pointers.front(), parts);
    return pointers;
  }

  // The weights as the forward and the backward pass read them: in single precision the weights themselves.
  std::vector<element*> copies(arena_type& arena) const {
    if constexpr (computes_in == precision::fp32) {
      return weights_;
    } else {
      return carve<element>(arena, copy_sizes_);
    }
  }

  static std::size_t number(index layer, of_layer p) {
    return static_cast<std::size_t>(parameters_before_layers + layer * parameters_of_layer + static_cast<index>(p));
  }
  [[nodiscard]] std::size_t number(of_model p) const {
    const auto i = static_cast<index>(p);
    return static_cast<std::size_t>(i < parameters_before_layers ? i : i + shape_.layers * parameters_of_layer);
  }
  [[nodiscard]] const element* weight(index layer, of_layer p) const { return copies_[number(layer, p)]; }
  [[nodiscard]] const element* weight(of_model p) const { return copies_[number(p)]; }
  [[nodiscard]] float* gradient(index layer, of_layer p) const { return gradients_[number(layer, p)]; }
  [[nodiscard]] float* gradient(of_model p) const { return gradients_[number(p)]; }
  [[nodiscard]] element* at(index layer, kept t) const { return static_cast<element*>(tensor(layer, t)); }
  [[nodiscard]] element* at(shared t) const { return static_cast<element*>(tensor(t)); }
  // Mean and deviation of each row have single precision.
  [[nodiscard]] float* moments_at(index layer, kept t) const { return static_cast<float*>(tensor(layer, t)); }
  [[nodiscard]] float* moments_at(shared t) const { return static_cast<float*>(tensor(t)); }
  [[nodiscard]] void* tensor(index layer, kept t) const {
    const index place = layer % layers_kept(shape_, use_);
    return activations_[static_cast<std::size_t>(place * kept_of_layer + static_cast<index>(t))];
  }
  [[nodiscard]] void* tensor(shared t) const {
    return activations_[static_cast<std::size_t>(layers_kept(shape_, use_) * kept_of_layer + static_cast<index>(t))];
  }
  // What a layer reads: the output of the one before it.
  [[nodiscard]] element* input_of(index layer) const {
    return layer == 0 ? at(shared::embedded) : at(layer - 1, kept::out);
  }

  void upload(std::int32_t* to, std::span<const std::int32_t> from) {
    stream_->memcpy(to, from.data(), bytes{from.size_bytes()});
  }

  // Matrices from a normal distribution, narrower where the residual path adds up the outputs of all layers.
  void draw_weights(std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(size_of(sizes_).count / sizeof(float)));
    std::vector<std::size_t> begins;
    for (std::size_t next = 0; const tensor_size& t : sizes_) {
      begins.push_back(next);
      next += static_cast<std::size_t>(padded(t).count / sizeof(float));
    }
    std::mt19937_64 random{seed};
    const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
    const auto fill = [&](std::size_t tensor, double deviation) {
      const std::size_t begin = begins[tensor];
      for (std::size_t i = begin; i < begin + static_cast<std::size_t>(sizes_[tensor].count()); ++i) {
        // Box-Muller; the distributions of the standard library differ between implementations.
        const double radius = std::sqrt(-2.0 * std::log(uniform()));
        values[i] = static_cast<float>(deviation * radius * std::cos(6.283185307179586 * uniform()));
      }
    };
    const auto ones = [&](std::size_t tensor) {
      const std::size_t begin = begins[tensor];
      std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(begin), sizes_[tensor].count(), 1.0F);
    };
    const double inner = 1.0 / std::sqrt(static_cast<double>(shape_.width));
    const double outer = inner / std::sqrt(2.0 * static_cast<double>(shape_.layers));
    fill(number(of_model::token_table), 1.0);
    fill(number(of_model::position_table), 0.5);
    for (index l = 0; l < shape_.layers; ++l) {
      ones(number(l, of_layer::norm1_scale));
      fill(number(l, of_layer::qkv_weight), inner);
      fill(number(l, of_layer::project_weight), outer);
      ones(number(l, of_layer::norm2_scale));
      fill(number(l, of_layer::up_weight), inner);
      fill(number(l, of_layer::down_weight), outer / 2);
    }
    ones(number(of_model::norm_scale));
    fill(number(of_model::head_weight), 0.02);
    if (keeps_floats()) stream_->memcpy(weights_.front(), values.data(), size_of(sizes_));
    std::vector<std::byte> rounded;
    if constexpr (computes_in != precision::fp32) {
      rounded.resize(static_cast<std::size_t>(size_of(copy_sizes_).count));
      for (std::size_t i = 0, at = 0; i < sizes_.size(); ++i) {
        for (std::size_t j = 0; j < static_cast<std::size_t>(sizes_[i].count()); ++j) {
          element each;
          store(each, values[begins[i] + j]);
          std::memcpy(rounded.data() + at + j * sizeof(element), &each, sizeof(element));
        }
        at += static_cast<std::size_t>(padded(copy_sizes_[i]).count);
      }
      stream_->memcpy(copies_.front(), rounded.data(), bytes{rounded.size()});
    }
    stream_->synchronize();  // `values` and `rounded` end here
  }

  // The gradient of a linear layer's parameters, and into `dx` that of its input.
  void linear_backward(element* dx, float* d_weight, float* d_bias, const element* dy, const element* x,
                       const element* weight, index inputs, index outputs) {
    operations_.linear_backward_weight(d_weight, d_bias, x, dy, shape_.rows(), inputs, outputs);
    operations_.linear_backward_input(dx, dy, weight, shape_.rows(), inputs, outputs);
  }

  void layernorm_backward(float* d_scale, float* d_shift, const element* x, const float* moments,
                          const element* scale) {
    operations_.layernorm_backward(at(shared::d_residual), d_scale, d_shift, at(shared::d_branch), x, moments, scale,
                                   shape_.rows(), shape_.width);
  }

  void forward(index sequences) {
    using enum of_layer;
    operations& o = operations_;
    const index c = shape_.width;
    const index rows = sequences * shape_.context;
    o.embed_forward(at(shared::embedded), tokens_, weight(of_model::token_table), weight(of_model::position_table),
                    rows, shape_.context, c);
    for (index l = 0; l < shape_.layers; ++l) {
      const auto w = [&](of_layer p) { return weight(l, p); };
      element* x = input_of(l);
      if (trains()) reuse(kept_by(l), size_kept_by(l));  // else all layers share what they keep
      o.layernorm_forward(at(l, kept::norm1), moments_at(l, kept::moments1), x, w(norm1_scale), w(norm1_shift), rows,
                          c);
      o.linear_forward(at(l, kept::qkv), at(l, kept::norm1), w(qkv_weight), w(qkv_bias), rows, c, 3 * c);
      o.attention_forward(at(l, kept::attended), at(l, kept::probabilities), at(l, kept::qkv), sequences,
                          shape_.context, shape_.heads, c);
      o.linear_forward(at(shared::branch), at(l, kept::attended), w(project_weight), w(project_bias), rows, c, c);
      o.residual_forward(at(l, kept::middle), x, at(shared::branch), rows * c);

      o.layernorm_forward(at(l, kept::norm2), moments_at(l, kept::moments2), at(l, kept::middle), w(norm2_scale),
                          w(norm2_shift), rows, c);
      o.linear_forward(at(l, kept::up), at(l, kept::norm2), w(up_weight), w(up_bias), rows, c, 4 * c);
      o.gelu_forward(at(l, kept::gelu), at(l, kept::up), rows * 4 * c);
      o.linear_forward(at(shared::branch), at(l, kept::gelu), w(down_weight), w(down_bias), rows, 4 * c, c);
      o.residual_forward(at(l, kept::out), at(l, kept::middle), at(shared::branch), rows * c);
    }
    o.layernorm_forward(at(shared::norm), moments_at(shared::moments), input_of(shape_.layers),
                        weight(of_model::norm_scale), weight(of_model::norm_shift), rows, c);
    o.linear_forward(at(shared::logits), at(shared::norm), weight(of_model::head_weight), weight(of_model::head_bias),
                     rows, c, shape_.vocabulary);
  }

  void backward() {
    using enum of_layer;
    const index c = shape_.width;
    const index rows = shape_.rows();
    element* d_residual = at(shared::d_residual);
    element* d_branch = at(shared::d_branch);

    // Gradients are added up. A layer's are cleared when their turn comes; the old ones never have to be brought in.
    clear_gradients(number(of_model::norm_scale), parameters_behind_layers);
    linear_backward(d_branch, gradient(of_model::head_weight), gradient(of_model::head_bias), at(shared::d_logits),
                    at(shared::norm), weight(of_model::head_weight), c, shape_.vocabulary);
    stream_->memset(d_residual, 0, padded({rows, c, sizeof(element)}));
    layernorm_backward(gradient(of_model::norm_scale), gradient(of_model::norm_shift), input_of(shape_.layers),
                       moments_at(shared::moments), weight(of_model::norm_scale));

    for (index l = shape_.layers; l-- > 0;) {
      const auto w = [&](of_layer p) { return weight(l, p); };
      const auto d = [&](of_layer p) { return gradient(l, p); };
      clear_gradients(number(l, norm1_scale), parameters_of_layer);
      linear_backward(at(shared::d_up), d(down_weight), d(down_bias), d_residual, at(l, kept::gelu), w(down_weight),
                      4 * c, c);
      operations_.gelu_backward(at(shared::d_up), at(l, kept::up), rows * 4 * c);
      linear_backward(d_branch, d(up_weight), d(up_bias), at(shared::d_up), at(l, kept::norm2), w(up_weight), c, 4 * c);
      layernorm_backward(d(norm2_scale), d(norm2_shift), at(l, kept::middle), moments_at(l, kept::moments2),
                         w(norm2_scale));

      linear_backward(d_branch, d(project_weight), d(project_bias), d_residual, at(l, kept::attended),
                      w(project_weight), c, c);
      operations_.attention_backward(at(shared::d_qkv), d_branch, at(l, kept::probabilities), at(l, kept::qkv),
                                     shape_.batch, shape_.context, shape_.heads, c);
      linear_backward(d_branch, d(qkv_weight), d(qkv_bias), at(shared::d_qkv), at(l, kept::norm1), w(qkv_weight), c,
                      3 * c);
      layernorm_backward(d(norm1_scale), d(norm1_shift), input_of(l), moments_at(l, kept::moments1), w(norm1_scale));
      forget(kept_by(l), size_kept_by(l));
    }
    clear_gradients(number(of_model::token_table), parameters_before_layers);
    operations_.embed_backward(gradient(of_model::token_table), gradient(of_model::position_table), d_residual, tokens_,
                               rows, shape_.context, c);
  }

  void clear_gradients(std::size_t first, index count) {
    bytes total{};
    for (std::size_t i = first; i < first + static_cast<std::size_t>(count); ++i)
      total += padded(sizes_[i]);
    reuse(gradients_[first], total);
    stream_->memset(gradients_[first], 0, total);
  }

  // All that a layer keeps for the backward pass lies together.
  [[nodiscard]] void* kept_by(index layer) const {
    return activations_[static_cast<std::size_t>(layer * kept_of_layer)];
  }
  [[nodiscard]] bytes size_kept_by(index layer) const {
    return bytes{static_cast<std::uint64_t>(static_cast<const std::byte*>(kept_by(layer + 1)) -
                                            static_cast<const std::byte*>(kept_by(layer)))};
  }

  // What memory holds is of no value behind what was launched, until it is reused: then nobody has to move it.
  void forget(void* p, bytes size) {
    if constexpr (requires { arena_->mark_inactive(p, size); }) arena_->mark_inactive(p, size);
  }
  void reuse(void* p, bytes size) {
    if constexpr (requires { arena_->mark_active(p, size); }) arena_->mark_active(p, size);
  }

  model_shape shape_;
  purpose use_;
  arena_type* arena_;
  stream_type* stream_;
  tensor_sizes sizes_;       // of weights, gradients and moments
  tensor_sizes copy_sizes_;  // of what the forward and the backward pass read
  std::vector<float*> weights_;
  std::vector<element*> copies_;
  std::vector<float*> gradients_;
  std::vector<float*> first_moments_;
  std::vector<float*> second_moments_;
  std::vector<void*> activations_;
  std::int32_t* tokens_;
  std::int32_t* targets_;
  float* losses_;
  operations operations_;
  std::int32_t step_ = 0;
};

}  // namespace train_gpt
