#pragma once

#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <vector>

namespace train_gpt {

using deepum::bytes;
using deepum::overwrites;
using deepum::reads;
using deepum::updates;
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
/// Evaluation has those up to `branch`.
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

/// The numbers that the model computes with.
///
/// bf16 is mixed precision: activations, their gradients and a copy of the weights that the forward and the backward
/// pass read are bf16; the weights that AdamW updates, its moments and the gradients of the weights stay single
/// precision, as do sums, means and deviations. AdamW rounds each weight anew into the copy. There is no scaling of the
/// loss: bf16 has the exponents of a float.
enum class precision : std::uint8_t { fp32, bf16 };

[[nodiscard]] inline std::uint64_t element_size(precision p) { return p == precision::fp32 ? 4 : 2; }

/// What the model is there for. Evaluation runs the forward pass alone: of the weights it has only what that reads, and
/// activations of one layer, which all layers use one after the other.
enum class purpose : std::uint8_t { training, evaluation };

/// A matrix; a vector is a matrix of one row.
struct tensor_size {
  index rows;
  index columns;
  std::uint64_t element = sizeof(float);  ///< bytes of an element

  [[nodiscard]] index count() const { return rows * columns; }
  [[nodiscard]] bool is_vector() const { return rows == 1; }
};

/// Tensors that are carved from one allocation, one after the other.
using tensor_sizes = std::vector<tensor_size>;

/// The bytes that a tensor takes: the next one begins at a multiple of 256 bytes, as libraries expect it.
[[nodiscard]] inline bytes padded(const tensor_size& t) {
  return bytes{(static_cast<std::uint64_t>(t.count()) * t.element + 255) / 256 * 256};
}

[[nodiscard]] inline bytes size_of(const tensor_sizes& tensors) {
  bytes total{};
  for (const tensor_size& t : tensors)
    total += padded(t);
  return total;
}

/// @param element  Bytes of an element.
[[nodiscard]] inline tensor_sizes parameter_sizes(const model_shape& m, std::uint64_t element = sizeof(float)) {
  const index c = m.width;
  tensor_sizes sizes{{m.vocabulary, c}, {m.context, c}};
  for (index l = 0; l < m.layers; ++l) {
    sizes.insert(sizes.end(), {{1, c}, {1, c}, {c, 3 * c}, {1, 3 * c}, {c, c}, {1, c}});
    sizes.insert(sizes.end(), {{1, c}, {1, c}, {c, 4 * c}, {1, 4 * c}, {4 * c, c}, {1, c}});
  }
  sizes.insert(sizes.end(), {{1, c}, {1, c}, {c, m.vocabulary}, {1, m.vocabulary}});
  for (tensor_size& t : sizes)
    t.element = element;
  return sizes;
}

/// How many layers have activations of their own.
[[nodiscard]] inline index layers_kept(const model_shape& m, purpose use) {
  return use == purpose::training ? m.layers : 1;
}

[[nodiscard]] inline tensor_sizes activation_sizes(const model_shape& m, precision p = precision::fp32,
                                                   purpose use = purpose::training) {
  const index rows = m.rows();
  const index c = m.width;
  const std::uint64_t e = element_size(p);
  const tensor_size moments{rows, 2};
  tensor_sizes sizes;
  for (index l = 0; l < layers_kept(m, use); ++l) {
    sizes.insert(sizes.end(), {{rows, c, e}, moments, {rows, 3 * c, e}, {rows, m.heads * m.context, e}});
    sizes.insert(sizes.end(), {{rows, c, e}, {rows, c, e}, {rows, c, e}, moments});
    sizes.insert(sizes.end(), {{rows, 4 * c, e}, {rows, 4 * c, e}, {rows, c, e}});
  }
  sizes.insert(sizes.end(), {{rows, c, e}, {rows, c, e}, moments, {rows, m.vocabulary, e}, {rows, m.vocabulary, e}});
  sizes.insert(sizes.end(), {{rows, c, e}});
  if (use == purpose::training)
    sizes.insert(sizes.end(), {{rows, c, e}, {rows, c, e}, {rows, 3 * c, e}, {rows, 4 * c, e}});
  return sizes;
}

/// All that a run allocates: weights, activations, one batch; for training also gradients, two moments of AdamW, and
/// weights to round the others from.
/// @param scratch  What the device's operations allocate for themselves.
[[nodiscard]] inline bytes footprint(const model_shape& m, precision p = precision::fp32,
                                     purpose use = purpose::training, bytes scratch = {}) {
  const bytes one_of_each_row{static_cast<std::uint64_t>(m.rows()) * sizeof(float)};
  bytes total = size_of(parameter_sizes(m, element_size(p))) + size_of(activation_sizes(m, p, use)) +
                one_of_each_row * 3 + scratch;
  if (use == purpose::training) total += size_of(parameter_sizes(m)) * (p == precision::fp32 ? 3 : 4);
  return total;
}

}  // namespace train_gpt
