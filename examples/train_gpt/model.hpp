#pragma once

#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace train_gpt {

using deepum::bytes;
using deepum::overwrites;
using deepum::reads;
using index = std::int64_t;

/// The sizes of the model and of what it sees in one step.
struct model_shape {
  index layers = 8;
  index width = 384;
  index heads = 6;
  index context = 64;
  index batch = 8;
  static constexpr index vocabulary = 256;  ///< the text is a sequence of bytes

  [[nodiscard]] index rows() const { return batch * context; }
};

/// The parameters of one layer, in the order in which they lie in memory.
enum class of_layer : std::uint8_t {
  norm1_scale,
  norm1_shift,
  qkv_weight,
  qkv_bias,
  project_weight,
  project_bias,
  norm2_scale,
  norm2_shift,
  up_weight,
  up_bias,
  down_weight,
  down_bias,
};
inline constexpr index parameters_of_layer = 12;

/// The parameters outside of the layers: the embedding tables lie before the layers, the others behind.
enum class of_model : std::uint8_t { token_table, position_table, norm_scale, norm_shift, head_weight, head_bias };
inline constexpr index parameters_before_layers = 2;
inline constexpr index parameters_behind_layers = 4;

/// What one layer keeps from the forward for the backward pass.
enum class kept : std::uint8_t {
  norm1,
  moments1,
  qkv,
  probabilities,
  attended,
  middle,
  norm2,
  moments2,
  up,
  gelu,
  out
};
inline constexpr index kept_of_layer = 11;

/// What belongs to no layer: the input of the first one, the end of the network, and gradients on their way back.
enum class shared : std::uint8_t {
  embedded,
  norm,
  moments,
  logits,
  d_logits,
  branch,
  d_residual,
  d_branch,
  d_qkv,
  d_up
};

/// A matrix of floats; a vector is a matrix of one row.
struct tensor_size {
  index rows;
  index columns;

  [[nodiscard]] index count() const { return rows * columns; }
  [[nodiscard]] bool is_vector() const { return rows == 1; }
};

/// Tensors that are carved from one allocation, one after the other.
using tensor_sizes = std::vector<tensor_size>;

/// The bytes that a tensor takes: the next one begins at a multiple of 256 bytes, as libraries expect it.
[[nodiscard]] inline bytes padded(index floats) {
  return bytes{(static_cast<std::uint64_t>(floats) * sizeof(float) + 255) / 256 * 256};
}

[[nodiscard]] inline bytes size_of(const tensor_sizes& tensors) {
  bytes total{};
  for (const tensor_size& t : tensors)
    total += padded(t.count());
  return total;
}

[[nodiscard]] inline tensor_sizes parameter_sizes(const model_shape& m) {
  const index c = m.width;
  tensor_sizes sizes{{m.vocabulary, c}, {m.context, c}};
  for (index l = 0; l < m.layers; ++l) {
    sizes.insert(sizes.end(), {{1, c}, {1, c}, {c, 3 * c}, {1, 3 * c}, {c, c}, {1, c}});
    sizes.insert(sizes.end(), {{1, c}, {1, c}, {c, 4 * c}, {1, 4 * c}, {4 * c, c}, {1, c}});
  }
  sizes.insert(sizes.end(), {{1, c}, {1, c}, {c, m.vocabulary}, {1, m.vocabulary}});
  return sizes;
}

[[nodiscard]] inline tensor_sizes activation_sizes(const model_shape& m) {
  const index rows = m.rows();
  const index c = m.width;
  tensor_sizes sizes;
  for (index l = 0; l < m.layers; ++l) {
    sizes.insert(sizes.end(), {{rows, c}, {rows, 2}, {rows, 3 * c}, {rows, m.heads * m.context}, {rows, c}, {rows, c}});
    sizes.insert(sizes.end(), {{rows, c}, {rows, 2}, {rows, 4 * c}, {rows, 4 * c}, {rows, c}});
  }
  sizes.insert(sizes.end(), {{rows, c}, {rows, c}, {rows, 2}, {rows, m.vocabulary}, {rows, m.vocabulary}});
  sizes.insert(sizes.end(), {{rows, c}, {rows, c}, {rows, c}, {rows, 3 * c}, {rows, 4 * c}});
  return sizes;
}

/// All that a training run allocates: weights, gradients, two moments of AdamW, activations, one batch.
[[nodiscard]] inline bytes footprint(const model_shape& m) {
  const bytes one_of_each_row{static_cast<std::uint64_t>(m.rows()) * sizeof(float)};
  return size_of(parameter_sizes(m)) * 4 + size_of(activation_sizes(m)) + one_of_each_row * 3;
}

/// A decoder-only transformer that predicts the next byte of a text, trained with AdamW.
///
/// Byte embedding and learned positions; layers of pre-norm causal attention and a GELU network of four times the
/// width; final norm and an output layer of its own. Everything it stores lies in the arena, everything it computes is
/// launched.
/// @tparam Backend  Names `arena`, `stream` and `kernels` of one kind of device.
template <class Backend>
class gpt {
 public:
  using arena_type = typename Backend::arena;
  using stream_type = typename Backend::stream;
  using kernels = typename Backend::kernels;

  /// Allocates everything and draws the weights.
  gpt(arena_type& arena, stream_type& stream, const model_shape& shape, std::uint64_t seed)
      : shape_(shape),
        stream_(&stream),
        sizes_(parameter_sizes(shape)),
        weights_(carve(arena, sizes_)),
        gradients_(carve(arena, sizes_)),
        first_moments_(carve(arena, sizes_)),
        second_moments_(carve(arena, sizes_)),
        activations_(carve(arena, activation_sizes(shape))),
        tokens_(arena.template allocate<std::int32_t>(static_cast<std::size_t>(shape.rows()))),
        targets_(arena.template allocate<std::int32_t>(static_cast<std::size_t>(shape.rows()))),
        losses_(arena.template allocate<float>(static_cast<std::size_t>(shape.rows()))),
        host_losses_(static_cast<std::size_t>(shape.rows())) {
    draw_weights(seed);
    stream_->memset(first_moments_.front(), 0, size_of(sizes_));
    stream_->memset(second_moments_.front(), 0, size_of(sizes_));
  }

  [[nodiscard]] const model_shape& shape() const { return shape_; }
  [[nodiscard]] std::span<float* const> weights() const { return weights_; }
  [[nodiscard]] std::span<float* const> gradients() const { return gradients_; }
  [[nodiscard]] const tensor_sizes& sizes() const { return sizes_; }

  /// Launches the forward and the backward pass: `gradients()` and `loss()` are then on their way.
  /// @param tokens   `batch` sequences of `context` bytes.
  /// @param targets  For each of them the byte that follows it.
  void differentiate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    upload(tokens_, tokens);
    upload(targets_, targets);
    forward(shape_.batch);
    launch("cross_entropy", shape_.rows(), kernels::cross_entropy, overwrites(losses_, shape_.rows()),
           overwrites(at(shared::d_logits), shape_.rows() * shape_.vocabulary), reads(at(shared::logits)),
           reads(targets_), shape_.rows(), shape_.vocabulary);
    backward();
  }

  /// Launches AdamW: one launch for each tensor, as most trainers do it. The step number, which is passed by value,
  /// makes each of them a launch that has never been seen before.
  void update(float learning_rate) {
    ++step_;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const float weight_decay = sizes_[i].is_vector() ? 0.0F : 0.1F;
      launch("adamw", sizes_[i].count(), kernels::adamw, weights_[i], reads(gradients_[i]), first_moments_[i],
             second_moments_[i], sizes_[i].count(), learning_rate, weight_decay, step_);
    }
  }

  /// The mean cross entropy that `differentiate` found, in nats for each byte. Waits for all that was launched.
  [[nodiscard]] float loss() {
    stream_->memcpy(host_losses_.data(), losses_, bytes{host_losses_.size() * sizeof(float)});
    stream_->synchronize();
    double sum = 0;
    for (const float each : host_losses_)
      sum += static_cast<double>(each);
    return static_cast<float>(sum / static_cast<double>(host_losses_.size()));
  }

  /// Logits of the byte that follows `tokens`. Waits for them.
  /// @param tokens  1 to `context` bytes.
  [[nodiscard]] std::vector<float> predict(std::span<const std::int32_t> tokens) {
    // Positions behind the last byte hold anything: attention never looks forward.
    upload(tokens_, tokens);
    forward(1);
    std::vector<float> logits(static_cast<std::size_t>(shape_.vocabulary));
    const float* last = at(shared::logits) + (static_cast<index>(tokens.size()) - 1) * shape_.vocabulary;
    stream_->memcpy(logits.data(), last, bytes{logits.size() * sizeof(float)});
    stream_->synchronize();
    return logits;
  }

 private:
  // Allocates once and names the parts, so that a pointer into the allocation means one tensor and not all of them.
  static std::vector<float*> carve(arena_type& arena, const tensor_sizes& tensors) {
    float* p = arena.template allocate<float>(static_cast<std::size_t>(size_of(tensors).count / sizeof(float)));
    std::vector<bytes> parts;
    std::vector<float*> pointers;
    for (const tensor_size& t : tensors) {
      parts.push_back(padded(t.count()));
      pointers.push_back(p);
      p += parts.back().count / sizeof(float);
    }
    arena.split(pointers.front(), parts);
    return pointers;
  }

  static std::size_t number(index layer, of_layer p) {
    return static_cast<std::size_t>(parameters_before_layers + layer * parameters_of_layer + static_cast<index>(p));
  }
  [[nodiscard]] std::size_t number(of_model p) const {
    const auto i = static_cast<index>(p);
    return static_cast<std::size_t>(i < parameters_before_layers ? i : i + shape_.layers * parameters_of_layer);
  }
  [[nodiscard]] const float* weight(index layer, of_layer p) const { return weights_[number(layer, p)]; }
  [[nodiscard]] const float* weight(of_model p) const { return weights_[number(p)]; }
  [[nodiscard]] float* gradient(index layer, of_layer p) const { return gradients_[number(layer, p)]; }
  [[nodiscard]] float* gradient(of_model p) const { return gradients_[number(p)]; }
  [[nodiscard]] float* at(index layer, kept t) const {
    return activations_[static_cast<std::size_t>(layer * kept_of_layer + static_cast<index>(t))];
  }
  [[nodiscard]] float* at(shared t) const {
    return activations_[static_cast<std::size_t>(shape_.layers * kept_of_layer + static_cast<index>(t))];
  }
  // What a layer reads: the output of the one before it.
  [[nodiscard]] float* input_of(index layer) const {
    return layer == 0 ? at(shared::embedded) : at(layer - 1, kept::out);
  }

  void upload(std::int32_t* to, std::span<const std::int32_t> from) {
    stream_->memcpy(to, from.data(), bytes{from.size_bytes()});
  }

  // Matrices from a normal distribution, narrower where the residual path adds up the outputs of all layers.
  void draw_weights(std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(size_of(sizes_).count / sizeof(float)));
    std::mt19937_64 random{seed};
    const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
    const auto fill = [&](std::size_t tensor, double deviation) {
      const auto begin = static_cast<std::size_t>(weights_[tensor] - weights_.front());
      for (std::size_t i = begin; i < begin + static_cast<std::size_t>(sizes_[tensor].count()); ++i) {
        // Box-Muller; the distributions of the standard library differ between implementations.
        const double radius = std::sqrt(-2.0 * std::log(uniform()));
        values[i] = static_cast<float>(deviation * radius * std::cos(6.283185307179586 * uniform()));
      }
    };
    const auto ones = [&](std::size_t tensor) {
      const auto begin = static_cast<std::size_t>(weights_[tensor] - weights_.front());
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
    stream_->memcpy(weights_.front(), values.data(), size_of(sizes_));
    stream_->synchronize();  // `values` ends here
  }

  // One thread for each of `work` elements.
  template <class Kernel, class... Args>
  void launch(const char* name, index work, const Kernel& kernel, Args... arguments) {
    constexpr index threads = 256;
    stream_->launch(name, static_cast<unsigned>((work + threads - 1) / threads), static_cast<unsigned>(threads), 0,
                    kernel, arguments...);
  }

  void layernorm(float* y, float* moments, const float* x, const float* scale, const float* shift, index rows) {
    const index c = shape_.width;
    launch("layernorm_forward", rows, kernels::layernorm_forward, overwrites(y, rows * c),
           overwrites(moments, rows * 2), x, scale, shift, rows, c);
  }

  void linear(float* y, const float* x, const float* weight, const float* bias, index rows, index inputs,
              index outputs) {
    launch("linear_forward", rows * outputs, kernels::linear_forward, overwrites(y, rows * outputs), x, weight, bias,
           rows, inputs, outputs);
  }

  void add(float* y, const float* a, const float* b, index n) {
    launch("residual_forward", n, kernels::residual_forward, overwrites(y, n), a, b, n);
  }

  // The gradient of a linear layer's parameters, and into `dx` that of its input.
  void linear_backward(float* dx, float* d_weight, float* d_bias, const float* dy, const float* x, const float* weight,
                       index inputs, index outputs) {
    const index rows = shape_.rows();
    launch("linear_backward_weight", inputs * outputs, kernels::linear_backward_weight, d_weight, d_bias, x, dy, rows,
           inputs, outputs);
    launch("linear_backward_input", rows * inputs, kernels::linear_backward_input, overwrites(dx, rows * inputs), dy,
           weight, rows, inputs, outputs);
  }

  void forward(index sequences) {
    using enum of_layer;
    const index c = shape_.width;
    const index rows = sequences * shape_.context;
    launch("embed_forward", rows * c, kernels::embed_forward, overwrites(at(shared::embedded), rows * c),
           reads(tokens_), weight(of_model::token_table), weight(of_model::position_table), rows, shape_.context, c);
    for (index l = 0; l < shape_.layers; ++l) {
      const auto w = [&](of_layer p) { return weight(l, p); };
      float* x = input_of(l);
      layernorm(at(l, kept::norm1), at(l, kept::moments1), x, w(norm1_scale), w(norm1_shift), rows);
      linear(at(l, kept::qkv), at(l, kept::norm1), w(qkv_weight), w(qkv_bias), rows, c, 3 * c);
      launch("attention_forward", rows * c, kernels::attention_forward, overwrites(at(l, kept::attended), rows * c),
             overwrites(at(l, kept::probabilities), rows * shape_.heads * shape_.context), reads(at(l, kept::qkv)),
             sequences, shape_.context, shape_.heads, c);
      linear(at(shared::branch), at(l, kept::attended), w(project_weight), w(project_bias), rows, c, c);
      add(at(l, kept::middle), x, at(shared::branch), rows * c);

      layernorm(at(l, kept::norm2), at(l, kept::moments2), at(l, kept::middle), w(norm2_scale), w(norm2_shift), rows);
      linear(at(l, kept::up), at(l, kept::norm2), w(up_weight), w(up_bias), rows, c, 4 * c);
      launch("gelu_forward", rows * 4 * c, kernels::gelu_forward, overwrites(at(l, kept::gelu), rows * 4 * c),
             reads(at(l, kept::up)), rows * 4 * c);
      linear(at(shared::branch), at(l, kept::gelu), w(down_weight), w(down_bias), rows, 4 * c, c);
      add(at(l, kept::out), at(l, kept::middle), at(shared::branch), rows * c);
    }
    layernorm(at(shared::norm), at(shared::moments), input_of(shape_.layers), weight(of_model::norm_scale),
              weight(of_model::norm_shift), rows);
    linear(at(shared::logits), at(shared::norm), weight(of_model::head_weight), weight(of_model::head_bias), rows, c,
           shape_.vocabulary);
  }

  void backward() {
    using enum of_layer;
    const index c = shape_.width;
    const index rows = shape_.rows();
    float* d_residual = at(shared::d_residual);
    float* d_branch = at(shared::d_branch);

    // Gradients are added up. A layer's are cleared when their turn comes; the old ones never have to be brought in.
    clear_gradients(number(of_model::norm_scale), parameters_behind_layers);
    linear_backward(d_branch, gradient(of_model::head_weight), gradient(of_model::head_bias), at(shared::d_logits),
                    at(shared::norm), weight(of_model::head_weight), c, shape_.vocabulary);
    stream_->memset(d_residual, 0, padded(rows * c));
    layernorm_backward(gradient(of_model::norm_scale), gradient(of_model::norm_shift), input_of(shape_.layers),
                       at(shared::moments), weight(of_model::norm_scale));

    for (index l = shape_.layers; l-- > 0;) {
      const auto w = [&](of_layer p) { return weight(l, p); };
      const auto d = [&](of_layer p) { return gradient(l, p); };
      clear_gradients(number(l, norm1_scale), parameters_of_layer);
      linear_backward(at(shared::d_up), d(down_weight), d(down_bias), d_residual, at(l, kept::gelu), w(down_weight),
                      4 * c, c);
      launch("gelu_backward", rows * 4 * c, kernels::gelu_backward, at(shared::d_up), reads(at(l, kept::up)),
             rows * 4 * c);
      linear_backward(d_branch, d(up_weight), d(up_bias), at(shared::d_up), at(l, kept::norm2), w(up_weight), c, 4 * c);
      layernorm_backward(d(norm2_scale), d(norm2_shift), at(l, kept::middle), at(l, kept::moments2), w(norm2_scale));

      linear_backward(d_branch, d(project_weight), d(project_bias), d_residual, at(l, kept::attended),
                      w(project_weight), c, c);
      launch("attention_backward", rows * c, kernels::attention_backward, overwrites(at(shared::d_qkv), rows * 3 * c),
             reads(d_branch), reads(at(l, kept::probabilities)), reads(at(l, kept::qkv)), shape_.batch, shape_.context,
             shape_.heads, c);
      linear_backward(d_branch, d(qkv_weight), d(qkv_bias), at(shared::d_qkv), at(l, kept::norm1), w(qkv_weight), c,
                      3 * c);
      layernorm_backward(d(norm1_scale), d(norm1_shift), input_of(l), at(l, kept::moments1), w(norm1_scale));
    }
    clear_gradients(number(of_model::token_table), parameters_before_layers);
    launch("embed_backward", rows * c, kernels::embed_backward, gradient(of_model::token_table),
           gradient(of_model::position_table), reads(d_residual), reads(tokens_), rows, shape_.context, c);
  }

  void layernorm_backward(float* d_scale, float* d_shift, const float* x, const float* moments, const float* scale) {
    launch("layernorm_backward", shape_.rows(), kernels::layernorm_backward, at(shared::d_residual), d_scale, d_shift,
           reads(at(shared::d_branch)), x, moments, scale, shape_.rows(), shape_.width);
  }

  void clear_gradients(std::size_t first, index count) {
    bytes total{};
    for (std::size_t i = first; i < first + static_cast<std::size_t>(count); ++i)
      total += padded(sizes_[i].count());
    stream_->memset(gradients_[first], 0, total);
  }

  model_shape shape_;
  stream_type* stream_;
  tensor_sizes sizes_;
  std::vector<float*> weights_;
  std::vector<float*> gradients_;
  std::vector<float*> first_moments_;
  std::vector<float*> second_moments_;
  std::vector<float*> activations_;
  std::int32_t* tokens_;
  std::int32_t* targets_;
  float* losses_;
  std::vector<float> host_losses_;
  std::int32_t step_ = 0;
};

}  // namespace train_gpt
