#pragma once

#include "../../examples/train_gpt/bf16.hpp"
#include "../../examples/train_gpt/host_kernels.hpp"
#include "../../examples/train_gpt/model.hpp"
#include "../../examples/train_gpt/shape.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

/// Compares what a GPU computes with what the host computes: operation by operation, and the model as a whole.
namespace train_gpt_test {

using namespace train_gpt;  // NOLINT(google-build-using-namespace): the namespace under test
using train_gpt::index;     // not that of <strings.h>

/// Operations in T with memory that they work on.
/// @tparam Backend  As for `gpt`.
template <class Backend>
class operation_checks {
 public:
  using operations = typename Backend::operations;
  using element = typename operations::element;
  static constexpr bool narrow = !std::is_same_v<element, float>;

  operation_checks(typename Backend::arena& arena, typename Backend::stream& stream, const model_shape& shape,
                   std::uint64_t seed)
      : arena_(arena),
        stream_(stream),
        shape_(shape),
        random_(seed),
        o_(arena, stream, shape, purpose::training) {}

  /// Every operation once, on random inputs of the shape.
  void all() {
    embedding();
    layernorm();
    linear(shape_.width, 3 * shape_.width);
    linear(shape_.width, model_shape::vocabulary);
    elementwise();
    attention();
    cross_entropy();
    adamw();
    mean_loss();
  }

 private:
  using floats = std::vector<float>;
  static constexpr std::size_t guard = 64;  // elements behind a tensor that nothing may write

  // Memory on the device, and how many elements of it are in use.
  template <class T>
  struct tensor {
    T* p;
    std::size_t n;
  };

  template <class T>
  tensor<T> poisoned(index n) {
    const auto count = static_cast<std::size_t>(n);
    T* p = arena_.template allocate<T>(count + guard);
    stream_.memset(p, 0xFF, deepum::bytes{(count + guard) * sizeof(T)});
    return {p, count};
  }
  template <class T>
  tensor<T> put(const floats& values) {
    tensor<T> t = poisoned<T>(static_cast<index>(values.size()));
    std::vector<T> narrowed(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      store(narrowed[i], values[i]);
    stream_.memcpy(t.p, narrowed.data(), deepum::bytes{narrowed.size() * sizeof(T)});
    stream_.synchronize();
    return t;
  }
  std::int32_t* put(const std::vector<std::int32_t>& values) {
    auto* p = arena_.template allocate<std::int32_t>(values.size());
    stream_.memcpy(p, values.data(), deepum::bytes{values.size() * sizeof(std::int32_t)});
    stream_.synchronize();
    return p;
  }
  template <class T>
  floats get(const tensor<T>& t) {
    std::vector<T> all(t.n + guard);
    stream_.memcpy(all.data(), t.p, deepum::bytes{all.size() * sizeof(T)});
    stream_.synchronize();
    const auto* tail = reinterpret_cast<const unsigned char*>(all.data() + t.n);
    CHECK(std::all_of(tail, tail + guard * sizeof(T), [](unsigned char c) { return c == 0xFF; }));
    floats values(t.n);
    std::transform(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(t.n), values.begin(),
                   [](T x) { return widened(x); });
    return values;
  }

  // Numbers of about `size` that `element` can hold.
  floats draw(index n, float size = 1.0F, float middle = 0.0F) {
    floats values(static_cast<std::size_t>(n));
    for (float& v : values) {
      element rounded;
      store(rounded, middle + size * (static_cast<float>(random_() >> 40) * 0x1p-23F - 1.0F));
      v = widened(rounded);
    }
    return values;
  }
  std::vector<std::int32_t> draw_bytes(index n) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(n));
    for (std::int32_t& v : values)
      v = static_cast<std::int32_t>(random_() % 256);
    return values;
  }

  // Each element differs by no more than this share of the largest one.
  static void close(const char* what, const floats& found, const floats& expected, bool found_is_narrow) {
    CAPTURE(what);
    REQUIRE(found.size() == expected.size());
    float largest = 1e-6F;
    for (const float e : expected)
      largest = std::max(largest, std::abs(e));
    float worst = 0;
    std::size_t where = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const float off = std::abs(found[i] - expected[i]) / largest;
      if (!(off <= worst)) {
        worst = off;
        where = i;
      }
      if (!std::isfinite(off)) break;
    }
    CAPTURE(where);
    CHECK(worst <= (found_is_narrow ? 0.012F : 1e-4F));
  }
  template <class T>
  void close(const char* what, const tensor<T>& found, const floats& expected) {
    close(what, get(found), expected, narrow);
  }

  void embedding() {
    const index rows = shape_.rows();
    const index c = shape_.width;
    const std::vector<std::int32_t> tokens = draw_bytes(rows);
    const floats token_table = draw(256 * c);
    const floats position_table = draw(shape_.context * c);
    floats expected(static_cast<std::size_t>(rows * c));
    host::embed_forward(expected.data(), tokens.data(), token_table.data(), position_table.data(), rows, shape_.context,
                        c);
    const std::int32_t* on_device = put(tokens);
    const auto x = poisoned<element>(rows * c);
    o_.embed_forward(x.p, on_device, put<element>(token_table).p, put<element>(position_table).p, rows, shape_.context,
                     c);
    close("embed_forward", x, expected);

    const floats dx = draw(rows * c);
    floats d_token = draw(256 * c);
    floats d_position = draw(shape_.context * c);
    const auto d_token_found = put<float>(d_token);
    const auto d_position_found = put<float>(d_position);
    o_.embed_backward(d_token_found.p, d_position_found.p, put<element>(dx).p, on_device, rows, shape_.context, c);
    host::embed_backward(d_token.data(), d_position.data(), dx.data(), tokens.data(), rows, shape_.context, c);
    CHECK(get(d_token_found) == d_token);  // rows are added in the same order
    CHECK(get(d_position_found) == d_position);
  }

  void layernorm() {
    const index rows = shape_.rows();
    const index c = shape_.width;
    const floats x = draw(rows * c, 2.0F, 0.5F);
    const floats scale = draw(c, 0.5F, 1.0F);
    const floats shift = draw(c);
    floats y(x.size());
    floats moments(static_cast<std::size_t>(2 * rows));
    host::layernorm_forward(y.data(), moments.data(), x.data(), scale.data(), shift.data(), rows, c);
    const auto y_found = poisoned<element>(rows * c);
    const auto moments_found = poisoned<float>(2 * rows);
    const auto x_given = put<element>(x);
    const auto scale_given = put<element>(scale);
    o_.layernorm_forward(y_found.p, moments_found.p, x_given.p, scale_given.p, put<element>(shift).p, rows, c);
    close("layernorm_forward", y_found, y);
    close("layernorm_forward, moments", get(moments_found), moments, false);

    const floats dy = draw(rows * c);
    floats dx = draw(rows * c);
    floats d_scale = draw(c);
    floats d_shift = draw(c);
    const auto dx_found = put<element>(dx);
    const auto d_scale_found = put<float>(d_scale);
    const auto d_shift_found = put<float>(d_shift);
    o_.layernorm_backward(dx_found.p, d_scale_found.p, d_shift_found.p, put<element>(dy).p, x_given.p,
                          put<float>(moments).p, scale_given.p, rows, c);
    host::layernorm_backward(dx.data(), d_scale.data(), d_shift.data(), dy.data(), x.data(), moments.data(),
                             scale.data(), rows, c);
    close("layernorm_backward, dx", dx_found, dx);
    close("layernorm_backward, d_scale", get(d_scale_found), d_scale, false);
    close("layernorm_backward, d_shift", get(d_shift_found), d_shift, false);
  }

  void linear(index inputs, index outputs) {
    const index rows = shape_.rows();
    const floats x = draw(rows * inputs);
    const floats weight = draw(inputs * outputs);
    const floats bias = draw(outputs);
    floats y(static_cast<std::size_t>(rows * outputs));
    host::linear_forward(y.data(), x.data(), weight.data(), bias.data(), rows, inputs, outputs);
    const auto y_found = poisoned<element>(rows * outputs);
    const auto x_given = put<element>(x);
    const auto weight_given = put<element>(weight);
    o_.linear_forward(y_found.p, x_given.p, weight_given.p, put<element>(bias).p, rows, inputs, outputs);
    close("linear_forward", y_found, y);

    const floats dy = draw(rows * outputs);
    const auto dy_given = put<element>(dy);
    floats dx(x.size());
    host::linear_backward_input(dx.data(), dy.data(), weight.data(), rows, inputs, outputs);
    const auto dx_found = poisoned<element>(rows * inputs);
    o_.linear_backward_input(dx_found.p, dy_given.p, weight_given.p, rows, inputs, outputs);
    close("linear_backward_input", dx_found, dx);

    floats d_weight = draw(inputs * outputs);
    floats d_bias = draw(outputs);
    const auto d_weight_found = put<float>(d_weight);
    const auto d_bias_found = put<float>(d_bias);
    o_.linear_backward_weight(d_weight_found.p, d_bias_found.p, x_given.p, dy_given.p, rows, inputs, outputs);
    host::linear_backward_weight(d_weight.data(), d_bias.data(), x.data(), dy.data(), rows, inputs, outputs);
    close("linear_backward_weight", get(d_weight_found), d_weight, false);
    close("linear_backward_weight, bias", get(d_bias_found), d_bias, false);
  }

  void elementwise() {
    const index n = shape_.rows() * shape_.width;
    const floats a = draw(n, 4.0F);
    const floats b = draw(n);
    floats y(a.size());
    host::residual_forward(y.data(), a.data(), b.data(), n);
    const auto y_found = poisoned<element>(n);
    const auto a_given = put<element>(a);
    o_.residual_forward(y_found.p, a_given.p, put<element>(b).p, n);
    close("residual_forward", y_found, y);

    host::gelu_forward(y.data(), a.data(), n);
    const auto gelu_found = poisoned<element>(n);
    o_.gelu_forward(gelu_found.p, a_given.p, n);
    close("gelu_forward", gelu_found, y);

    floats d = b;
    const auto d_found = put<element>(d);
    o_.gelu_backward(d_found.p, a_given.p, n);
    host::gelu_backward(d.data(), a.data(), n);
    close("gelu_backward", d_found, d);
  }

  void attention() {
    const index rows = shape_.rows();
    const index c = shape_.width;
    const index square = rows * shape_.heads * shape_.context;
    const floats qkv = draw(3 * rows * c);
    floats y(static_cast<std::size_t>(rows * c));
    floats p(static_cast<std::size_t>(square));
    host::attention_forward(y.data(), p.data(), qkv.data(), shape_.batch, shape_.context, shape_.heads, c);
    const auto y_found = poisoned<element>(rows * c);
    const auto p_found = poisoned<element>(square);
    const auto qkv_given = put<element>(qkv);
    o_.attention_forward(y_found.p, p_found.p, qkv_given.p, shape_.batch, shape_.context, shape_.heads, c);
    close("attention_forward", y_found, y);
    close("attention_forward, probabilities", p_found, p);

    // Both begin with the same probabilities.
    const floats p_both = get(p_found);
    const floats dy = draw(rows * c);
    floats d_qkv(qkv.size());
    host::attention_backward(d_qkv.data(), dy.data(), p_both.data(), qkv.data(), shape_.batch, shape_.context,
                             shape_.heads, c);
    const auto d_found = poisoned<element>(3 * rows * c);
    o_.attention_backward(d_found.p, put<element>(dy).p, p_found.p, qkv_given.p, shape_.batch, shape_.context,
                          shape_.heads, c);
    close("attention_backward", d_found, d_qkv);
  }

  void cross_entropy() {
    const index rows = shape_.rows();
    constexpr index vocabulary = model_shape::vocabulary;
    floats logits = draw(rows * vocabulary, 3.0F);
    logits[7] = 96.0F;
    const std::vector<std::int32_t> targets = draw_bytes(rows);
    floats losses(static_cast<std::size_t>(rows));
    floats d(logits.size());
    host::cross_entropy(losses.data(), d.data(), logits.data(), targets.data(), rows, vocabulary);
    const auto losses_found = poisoned<float>(rows);
    const auto d_found = poisoned<element>(rows * vocabulary);
    o_.cross_entropy(losses_found.p, d_found.p, put<element>(logits).p, put(targets), rows, vocabulary);
    close("cross_entropy", get(losses_found), losses, false);
    close("cross_entropy, d_logits", d_found, d);
  }

  void adamw() {
    const index n = 3 * shape_.width + 1;
    floats weight = draw(n);
    floats first = draw(n, 0.1F);
    floats second = draw(n, 0.1F, 0.2F);
    const auto weight_found = put<float>(weight);
    const auto copy_found = poisoned<element>(n);
    const auto first_found = put<float>(first);
    const auto second_found = put<float>(second);
    for (std::int32_t step = 1; step <= 3; ++step) {
      const floats gradient = draw(n);
      o_.adamw(weight_found.p, copy_found.p, put<float>(gradient).p, first_found.p, second_found.p, n, 0.01F, 0.1F,
               step);
      host::adamw(weight.data(), gradient.data(), first.data(), second.data(), n, 0.01F, 0.1F, step);
    }
    close("adamw, weight", get(weight_found), weight, false);
    close("adamw, first moment", get(first_found), first, false);
    close("adamw, second moment", get(second_found), second, false);
    if constexpr (narrow) {
      // The copy is the weight, rounded.
      floats rounded = get(weight_found);
      for (float& w : rounded) {
        element each;
        store(each, w);
        w = widened(each);
      }
      CHECK(get(copy_found) == rounded);
    }
  }

  void mean_loss() {
    const floats losses = draw(shape_.rows(), 1.0F, 3.0F);
    double sum = 0;
    for (const float l : losses)
      sum += static_cast<double>(l);
    const float expected = static_cast<float>(sum / static_cast<double>(losses.size()));
    CHECK(o_.mean_loss(put<float>(losses).p, shape_.rows()) == doctest::Approx(expected).epsilon(1e-6));
  }

  typename Backend::arena& arena_;
  typename Backend::stream& stream_;
  model_shape shape_;
  std::mt19937_64 random_;
  operations o_;
};

/// Shapes whose sizes are no multiples of a block of threads, and some that are as small as can be.
inline std::vector<model_shape> shapes_to_check() {
  return {{.layers = 1, .width = 60, .heads = 5, .context = 37, .batch = 3},
          {.layers = 1, .width = 300, .heads = 4, .context = 9, .batch = 1},
          {.layers = 1, .width = 33, .heads = 3, .context = 70, .batch = 2},
          {.layers = 1, .width = 1, .heads = 1, .context = 1, .batch = 1},
          {.layers = 1, .width = 6, .heads = 2, .context = 1, .batch = 40}};
}

/// What a training run came to.
struct outcome {
  std::vector<float> losses{};
  std::vector<std::vector<float>> gradients{};  ///< of the first step, tensor by tensor
  std::vector<float> weights{};                 ///< after the last step
};

/// Trains on random bytes, the same in every call.
template <class Backend>
outcome train_shortly(typename Backend::arena& arena, typename Backend::stream& stream, const model_shape& shape,
                      int steps) {
  gpt<Backend> model{arena, stream, shape, 11};
  std::mt19937_64 random{12};
  const auto bytes_of_text = [&] {
    std::vector<std::int32_t> values(static_cast<std::size_t>(shape.rows()));
    for (std::int32_t& v : values)
      v = static_cast<std::int32_t>(random() % 256);
    return values;
  };
  const auto read = [&](const float* p, index n) {
    std::vector<float> values(static_cast<std::size_t>(n));
    stream.memcpy(values.data(), p, deepum::bytes{values.size() * sizeof(float)});
    stream.synchronize();
    return values;
  };
  outcome result;
  for (int step = 0; step < steps; ++step) {
    const std::vector<std::int32_t> tokens = bytes_of_text();
    const std::vector<std::int32_t> targets = bytes_of_text();
    model.differentiate(tokens, targets);
    result.losses.push_back(model.loss());
    if (step == 0) {
      for (std::size_t t = 0; t < model.sizes().size(); ++t)
        result.gradients.push_back(read(model.gradients()[t], model.sizes()[t].count()));
    }
    model.evaluate(tokens, targets);
    CHECK(model.loss() == result.losses.back());
    model.update(1e-3F);
  }
  result.weights = read(model.weights().front(), static_cast<index>(size_of(model.sizes()).count / sizeof(float)));
  return result;
}

/// How far a GPU may be from the simulated one, as operations_cuda.hpp says.
struct tolerance {
  double loss;      ///< relative
  double gradient;  ///< length of the difference, relative to that of the tensor
};
inline constexpr tolerance in_fp32{1e-4, 1e-3};
inline constexpr tolerance in_bf16{2e-2, 1e-1};

inline void check_agreement(const outcome& found, const outcome& expected, tolerance t) {
  REQUIRE(found.losses.size() == expected.losses.size());
  for (std::size_t i = 0; i < found.losses.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(static_cast<double>(found.losses[i]) / static_cast<double>(expected.losses[i]) - 1) <= t.loss);
  }
  REQUIRE(found.gradients.size() == expected.gradients.size());
  for (std::size_t g = 0; g < found.gradients.size(); ++g) {
    CAPTURE(g);
    double off = 0;
    double length = 0;
    for (std::size_t i = 0; i < found.gradients[g].size(); ++i) {
      const auto e = static_cast<double>(expected.gradients[g][i]);
      const double d = static_cast<double>(found.gradients[g][i]) - e;
      off += d * d;
      length += e * e;
    }
    CHECK(std::sqrt(off) <= t.gradient * std::sqrt(length));
  }
}

}  // namespace train_gpt_test
