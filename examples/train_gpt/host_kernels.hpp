#pragma once

#include "gemm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

/// What the kernels compute, as plain functions on the host. Matrices are row-major; a row is one token.
///
/// Sums are taken in an order that neither alignment nor the compiler's choice of vectors changes.
namespace train_gpt::host {

using index = std::int64_t;

/// e^x to about one unit in the last place; unlike std::exp, compilers turn loops over it into vector code.
inline float exponential(float x) {
  constexpr float round = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = std::min(std::max(x, -87.0F), 88.0F);
  const float n = (clamped * 1.44269504F + round) - round;
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;  // ln 2 in two parts
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

/// Sum of f(0) ... f(n - 1) in sixteen interleaved partial sums.
template <class F>
float sum(index n, F f) {
  float part[16] = {};
  index i = 0;
  for (; i + 16 <= n; i += 16) {
    for (index j = 0; j < 16; ++j)
      part[j] += f(i + j);
  }
  for (index j = 0; i < n; ++i, ++j)
    part[j] += f(i);
  for (index width = 8; width > 0; width /= 2) {
    for (index j = 0; j < width; ++j)
      part[j] += part[j + width];
  }
  return part[0];
}

/// Largest of x[0] ... x[n - 1]; n > 0.
inline float maximum(const float* x, index n) {
  float m = x[0];
  for (index i = 1; i < n; ++i)
    m = std::max(m, x[i]);
  return m;
}

/// x[row] = token_table[tokens[row]] + position_table[row % context]
inline void embed_forward(float* x, const std::int32_t* tokens, const float* token_table, const float* position_table,
                          index rows, index context, index width) {
  for (index r = 0; r < rows; ++r) {
    const float* token = token_table + tokens[r] * width;
    const float* position = position_table + r % context * width;
    for (index c = 0; c < width; ++c)
      x[r * width + c] = token[c] + position[c];
  }
}

inline void embed_backward(float* d_token_table, float* d_position_table, const float* dx, const std::int32_t* tokens,
                           index rows, index context, index width) {
  for (index r = 0; r < rows; ++r) {
    float* token = d_token_table + tokens[r] * width;
    float* position = d_position_table + r % context * width;
    for (index c = 0; c < width; ++c) {
      token[c] += dx[r * width + c];
      position[c] += dx[r * width + c];
    }
  }
}

/// y = (x - mean) / deviation * scale + shift, row by row. `moments` keeps each row's mean and 1 / deviation.
inline void layernorm_forward(float* y, float* moments, const float* x, const float* scale, const float* shift,
                              index rows, index width) {
  const auto n = static_cast<float>(width);
  for (index r = 0; r < rows; ++r) {
    const float* from = x + r * width;
    float* to = y + r * width;
    const float mean = sum(width, [&](index c) { return from[c]; }) / n;
    const float variance = sum(width, [&](index c) { return (from[c] - mean) * (from[c] - mean); }) / n;
    const float inverse = 1.0F / std::sqrt(variance + 1e-5F);
    for (index c = 0; c < width; ++c)
      to[c] = (from[c] - mean) * inverse * scale[c] + shift[c];
    moments[2 * r] = mean;
    moments[2 * r + 1] = inverse;
  }
}

/// Adds to dx, because the residual path's gradient is there already.
inline void layernorm_backward(float* dx, float* d_scale, float* d_shift, const float* dy, const float* x,
                               const float* moments, const float* scale, index rows, index width) {
  const auto n = static_cast<float>(width);
  for (index r = 0; r < rows; ++r) {
    const float* in = x + r * width;
    const float* from = dy + r * width;
    float* to = dx + r * width;
    const float mean = moments[2 * r];
    const float inverse = moments[2 * r + 1];
    const float direct = sum(width, [&](index c) { return from[c] * scale[c]; }) / n;
    const float along = sum(width, [&](index c) { return from[c] * scale[c] * ((in[c] - mean) * inverse); }) / n;
    for (index c = 0; c < width; ++c) {
      const float normal = (in[c] - mean) * inverse;
      d_scale[c] += from[c] * normal;
      d_shift[c] += from[c];
      to[c] += (from[c] * scale[c] - direct - normal * along) * inverse;
    }
  }
}

/// y = x * weight + bias
inline void linear_forward(float* y, const float* x, const float* weight, const float* bias, index rows, index inputs,
                           index outputs) {
  for (index r = 0; r < rows; ++r)
    std::copy(bias, bias + outputs, y + r * outputs);
  gemm(result::add, {y, rows, outputs}, {x, rows, inputs}, {weight, inputs, outputs});
}

/// dx = dy * weight^T
inline void linear_backward_input(float* dx, const float* dy, const float* weight, index rows, index inputs,
                                  index outputs) {
  gemm(result::overwrite, {dx, rows, inputs}, {dy, rows, outputs},
       matrix<const float>{weight, inputs, outputs}.transposed());
}

/// d_weight += x^T * dy, d_bias += the sum of dy's rows
inline void linear_backward_weight(float* d_weight, float* d_bias, const float* x, const float* dy, index rows,
                                   index inputs, index outputs) {
  gemm(result::add, {d_weight, inputs, outputs}, matrix<const float>{x, rows, inputs}.transposed(),
       {dy, rows, outputs});
  for (index r = 0; r < rows; ++r) {
    for (index c = 0; c < outputs; ++c)
      d_bias[c] += dy[r * outputs + c];
  }
}

/// y = a + b
inline void residual_forward(float* y, const float* a, const float* b, index n) {
  for (index i = 0; i < n; ++i)
    y[i] = a[i] + b[i];
}

/// GELU in its tanh form.
inline void gelu_forward(float* y, const float* x, index n) {
  for (index i = 0; i < n; ++i) {
    const float inner = 0.7978845608F * (x[i] + 0.044715F * x[i] * x[i] * x[i]);
    y[i] = x[i] - x[i] / (exponential(2.0F * inner) + 1.0F);  // x/2 * (1 + tanh(inner))
  }
}

/// d *= gelu'(x)
inline void gelu_backward(float* d, const float* x, index n) {
  for (index i = 0; i < n; ++i) {
    const float inner = 0.7978845608F * (x[i] + 0.044715F * x[i] * x[i] * x[i]);
    const float slope = 0.7978845608F * (1.0F + 3.0F * 0.044715F * x[i] * x[i]);
    const float off = 1.0F / (exponential(2.0F * inner) + 1.0F);  // (1 - tanh(inner)) / 2
    d[i] *= (1.0F - off) + 2.0F * x[i] * off * (1.0F - off) * slope;
  }
}

/// The parts of one head in a [rows x 3 width] matrix that holds queries, keys and values side by side.
template <class T>
struct head_view {
  matrix<T> query;
  matrix<T> key;
  matrix<T> value;

  head_view(T* qkv, index sequence, index head, index context, index width, index head_width)
      : query(at(qkv, sequence, head, 0, context, width, head_width)),
        key(at(qkv, sequence, head, 1, context, width, head_width)),
        value(at(qkv, sequence, head, 2, context, width, head_width)) {}

 private:
  static matrix<T> at(T* qkv, index sequence, index head, index which, index context, index width, index head_width) {
    return {qkv + sequence * context * 3 * width + which * width + head * head_width, context, head_width, 3 * width};
  }
};

/// Causal attention; `probabilities` is [sequences x heads x context x context] and zero above the diagonal.
inline void attention_forward(float* y, float* probabilities, const float* qkv, index sequences, index context,
                              index heads, index width) {
  const index head_width = width / heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_width));
  for (index s = 0; s < sequences; ++s) {
    for (index h = 0; h < heads; ++h) {
      const head_view<const float> in{qkv, s, h, context, width, head_width};
      const matrix<float> p{probabilities + (s * heads + h) * context * context, context, context};
      gemm(result::overwrite, p, in.query, in.key.transposed());
      for (index i = 0; i < context; ++i) {
        float* row = &p(i, 0);
        const index seen = i + 1;
        const float most = maximum(row, seen);
        for (index j = 0; j < seen; ++j)
          row[j] = exponential((row[j] - most) * scale);
        const float total = sum(seen, [&](index j) { return row[j]; });
        for (index j = 0; j < seen; ++j)
          row[j] /= total;
        std::fill(row + seen, row + context, 0.0F);
      }
      const matrix<float> out{y + s * context * width + h * head_width, context, head_width, width};
      gemm(result::overwrite, out, {p.data, context, context}, in.value);
    }
  }
}

inline void attention_backward(float* d_qkv, const float* dy, const float* probabilities, const float* qkv,
                               index sequences, index context, index heads, index width) {
  const index head_width = width / heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_width));
  thread_local std::vector<float> scratch;
  scratch.resize(static_cast<std::size_t>(context * context));
  const matrix<float> d_scores{scratch.data(), context, context};
  const matrix<const float> d_scores_in{scratch.data(), context, context};
  for (index s = 0; s < sequences; ++s) {
    for (index h = 0; h < heads; ++h) {
      const head_view<const float> in{qkv, s, h, context, width, head_width};
      const head_view<float> d{d_qkv, s, h, context, width, head_width};
      const matrix<const float> p{probabilities + (s * heads + h) * context * context, context, context};
      const matrix<const float> d_out{dy + s * context * width + h * head_width, context, head_width, width};
      gemm(result::overwrite, d.value, p.transposed(), d_out);
      gemm(result::overwrite, d_scores, d_out, in.value.transposed());
      for (index i = 0; i < context; ++i) {
        const float* row = &p(i, 0);
        float* d_row = &d_scores(i, 0);
        const float along = sum(context, [&](index j) { return row[j] * d_row[j]; });
        for (index j = 0; j < context; ++j)
          d_row[j] = row[j] * (d_row[j] - along) * scale;
      }
      gemm(result::overwrite, d.query, d_scores_in, in.key);
      gemm(result::overwrite, d.key, d_scores_in.transposed(), in.query);
    }
  }
}

/// Cross entropy of each row of logits, in nats, and the gradient of the mean of all rows.
inline void cross_entropy(float* losses, float* d_logits, const float* logits, const std::int32_t* targets, index rows,
                          index vocabulary) {
  const float share = 1.0F / static_cast<float>(rows);
  for (index r = 0; r < rows; ++r) {
    const float* in = logits + r * vocabulary;
    float* out = d_logits + r * vocabulary;
    const float most = maximum(in, vocabulary);
    for (index v = 0; v < vocabulary; ++v)
      out[v] = exponential(in[v] - most);
    const float total = sum(vocabulary, [&](index v) { return out[v]; });
    losses[r] = std::log(total) + most - in[targets[r]];
    for (index v = 0; v < vocabulary; ++v)
      out[v] *= share / total;
    out[targets[r]] -= share;
  }
}

/// AdamW (Loshchilov and Hutter, 2019), step number counted from 1.
inline void adamw(float* weight, const float* gradient, float* first, float* second, index n, float learning_rate,
                  float weight_decay, std::int32_t step) {
  constexpr float beta1 = 0.9F;
  constexpr float beta2 = 0.95F;
  const float correction1 = 1.0F - std::pow(beta1, static_cast<float>(step));
  const float correction2 = 1.0F - std::pow(beta2, static_cast<float>(step));
  for (index i = 0; i < n; ++i) {
    const float g = gradient[i];
    const float m = beta1 * first[i] + (1.0F - beta1) * g;
    const float v = beta2 * second[i] + (1.0F - beta2) * g * g;
    first[i] = m;
    second[i] = v;
    const float direction = (m / correction1) / (std::sqrt(v / correction2) + 1e-8F);
    weight[i] -= learning_rate * (direction + weight_decay * weight[i]);
  }
}

}  // namespace train_gpt::host
