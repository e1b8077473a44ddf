#pragma once

#include "bf16.hpp"

#include <cmath>

/// What the CUDA kernels compute for one element, in single precision: functions that the host can test.
/// The host's kernels (host_kernels.hpp) compute the same with sums and exponentials of their own.
namespace train_gpt::element_math {

/// GELU in its tanh form: x/2 * (1 + tanh(inner)).
DEEPUM_HOST_DEVICE inline float gelu(float x) {
  const float inner = 0.7978845608F * (x + 0.044715F * x * x * x);
  return x - x / (expf(2.0F * inner) + 1.0F);
}

DEEPUM_HOST_DEVICE inline float gelu_slope(float x) {
  const float inner = 0.7978845608F * (x + 0.044715F * x * x * x);
  const float slope = 0.7978845608F * (1.0F + 3.0F * 0.044715F * x * x);
  const float off = 1.0F / (expf(2.0F * inner) + 1.0F);  // (1 - tanh(inner)) / 2
  return (1.0F - off) + 2.0F * x * off * (1.0F - off) * slope;
}

/// 1 / deviation of a row with this variance.
DEEPUM_HOST_DEVICE inline float inverse_deviation(float variance) { return 1.0F / sqrtf(variance + 1e-5F); }

/// What a layer norm adds to the gradient of one element of its input.
/// @param dy       Gradient of the output, times the scale.
/// @param normal   The element, normalised.
/// @param direct   Mean of `dy` over the row.
/// @param along    Mean of `dy * normal` over the row.
/// @param inverse  1 / deviation of the row.
DEEPUM_HOST_DEVICE inline float layernorm_slope(float dy, float normal, float direct, float along, float inverse) {
  return (dy - direct - normal * along) * inverse;
}

/// Gradient of a softmax's input: `along` is the sum of `probability * d` over the row.
DEEPUM_HOST_DEVICE inline float softmax_slope(float probability, float d, float along, float scale) {
  return probability * (d - along) * scale;
}

/// The numbers of one AdamW step that are the same for all elements.
struct adamw_step {
  float learning_rate;
  float weight_decay;
  float correction1;  ///< 1 - beta1^step
  float correction2;  ///< 1 - beta2^step
};

inline constexpr float beta1 = 0.9F;
inline constexpr float beta2 = 0.95F;

/// AdamW (Loshchilov and Hutter, 2019) for one weight and its two moments.
DEEPUM_HOST_DEVICE inline void adamw(float& weight, float gradient, float& first, float& second, const adamw_step& s) {
  first = beta1 * first + (1.0F - beta1) * gradient;
  second = beta2 * second + (1.0F - beta2) * gradient * gradient;
  const float direction = (first / s.correction1) / (sqrtf(second / s.correction2) + 1e-8F);
  weight -= s.learning_rate * (direction + s.weight_decay * weight);
}

}  // namespace train_gpt::element_math
