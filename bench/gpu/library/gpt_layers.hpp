#pragma once

#include "gpu/library/layered_step.hpp"
#include <deepum/units.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// A training step of a model of equal layers.
namespace deepum::gpu_bench {

/// A transformer whose attention over tokens is left out: a gate of queries, keys and values of the same token stands
/// in its place. All else is there: four products in a layer, two norms, GELU, residual additions, and AdamW.
struct gpt_shape {
  std::int64_t layers = 1;
  std::int64_t width = 2048;
  std::int64_t context = 1024;  ///< tokens in a sequence
  std::int64_t batch = 8;       ///< sequences in a step
  std::uint64_t element = 2;    ///< bytes of an activation
  bool update_at_end = false;   ///< AdamW behind the backward pass of all layers, not of each one

  [[nodiscard]] std::int64_t rows() const { return context * batch; }
};

namespace detail {

struct trained_weight {
  std::uint32_t copy = 0;
  std::uint32_t master = 0;
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  std::uint32_t gradient = 0;
};
/// What a layer has, and keeps from the forward for the backward pass.
struct trained_layer {
  std::array<trained_weight, layer_products> weights{};
  std::uint32_t x = 0;
  std::uint32_t norm1 = 0;
  std::uint32_t qkv = 0;
  std::uint32_t attended = 0;
  std::uint32_t middle = 0;
  std::uint32_t norm2 = 0;
  std::uint32_t up = 0;
  std::uint32_t gelu = 0;
};
struct trained_model {
  std::vector<tensor> tensors{};
  std::vector<trained_layer> layers{};
  std::uint32_t out = 0;       // of the last layer
  std::uint32_t branch = 0;    // before it is added
  std::uint32_t d = 0;         // the gradient on its way back
  std::uint32_t d_branch = 0;  // and of one branch
  std::uint32_t d_qkv = 0;
  std::uint32_t d_up = 0;
};

[[nodiscard]] inline trained_model model_of(const gpt_shape& s) {
  trained_model m;
  const std::int64_t n = s.rows() * s.width;
  const std::int64_t square = s.width * s.width;
  const auto activation = [&](std::int64_t widths) { return append(m.tensors, widths * n, s.element); };
  std::array<std::uint32_t, layer_products> gradients{};
  for (std::int64_t l = 0; l < s.layers; ++l) {
    trained_layer& layer = m.layers.emplace_back();
    for (std::size_t w = 0; w < layer_products; ++w) {
      layer.weights[w].copy = append(m.tensors, product_inputs[w] * product_outputs[w] * square, s.element);
    }
    for (std::size_t w = 0; w < layer_products; ++w) {
      trained_weight& weight = layer.weights[w];
      for (std::uint32_t* t : {&weight.master, &weight.first, &weight.second}) {
        *t = append(m.tensors, product_inputs[w] * product_outputs[w] * square, sizeof(float));
      }
      // A layer that is updated at once leaves its gradients' memory to the next one.
      if (s.update_at_end || l == 0) {
        gradients[w] = append(m.tensors, product_inputs[w] * product_outputs[w] * square, sizeof(float));
      }
      weight.gradient = gradients[w];
    }
    layer.x = activation(1);
    layer.norm1 = activation(1);
    layer.qkv = activation(3);
    layer.attended = activation(1);
    layer.middle = activation(1);
    layer.norm2 = activation(1);
    layer.up = activation(4);
    layer.gelu = activation(4);
  }
  m.out = activation(1);
  m.branch = activation(1);
  m.d = activation(1);
  m.d_branch = activation(1);
  m.d_qkv = activation(3);
  m.d_up = activation(4);
  return m;
}

}  // namespace detail

[[nodiscard]] inline bytes footprint_of(const gpt_shape& s) { return footprint_of(detail::model_of(s).tensors); }

/// As many layers as fit into a footprint; one at least.
[[nodiscard]] inline std::int64_t layers_for(gpt_shape s, bytes footprint) {
  s.layers = 1;
  const std::uint64_t one = footprint_of(s).count;
  s.layers = 2;
  const std::uint64_t more = footprint_of(s).count - one;
  return 1 + static_cast<std::int64_t>(footprint.count > one ? (footprint.count - one) / more : 0);
}

/// Where the sums of a training step go: the first one is that of its result.
enum class summed : std::uint8_t { result_alone, everything };

/// Draws weights, and clears moments.
[[nodiscard]] inline layered_step set_up_of(const gpt_shape& s) {
  detail::trained_model m = detail::model_of(s);
  layered_step out;
  std::uint32_t seed = 0;
  for (const detail::trained_layer& layer : m.layers) {
    for (const detail::trained_weight& w : layer.weights) {
      const auto n = static_cast<std::int64_t>(m.tensors[w.copy].elements);
      ++seed;
      out.launches.push_back({.what = work::draw_weight, .tensors = {w.copy}, .rows = n, .number = seed});
      out.launches.push_back({.what = work::draw_master, .tensors = {w.master}, .rows = n, .number = seed});
      out.launches.push_back({.what = work::clear, .tensors = {w.first}, .rows = n});
      out.launches.push_back({.what = work::clear, .tensors = {w.second}, .rows = n});
    }
  }
  out.tensors = std::move(m.tensors);
  return out;
}

/// A training step: forward through the layers, backward in reverse, and AdamW for each weight.
/// @param sums  Of the result alone, as a program reads its loss; or beside it of all activations where the forward
///              pass ends, and of all that stays from step to step where the step ends.
[[nodiscard]] inline layered_step step_of(const gpt_shape& s, summed sums = summed::result_alone) {
  detail::trained_model m = detail::model_of(s);
  layered_step out;
  const auto launch = [&](work what, std::array<std::uint32_t, 5> tensors, std::int64_t inputs = 0,
                          std::int64_t outputs = 1) {
    out.launches.push_back({.what = what,
                            .tensors = tensors,
                            .rows = s.rows(),
                            .inputs = inputs == 0 ? s.width : inputs * s.width,
                            .outputs = outputs * s.width});
  };
  const auto n_of = [&](std::uint32_t t) { return static_cast<std::int64_t>(m.tensors[t].elements); };
  std::uint32_t slot = 0;
  const auto sum = [&](std::uint32_t t) {
    out.launches.push_back({.what = work::sum, .tensors = {t}, .rows = n_of(t), .number = slot++});
  };
  const auto update = [&](const detail::trained_layer& layer) {
    for (const detail::trained_weight& w : layer.weights) {
      out.launches.push_back(
          {.what = work::adamw, .tensors = {w.master, w.copy, w.first, w.second, w.gradient}, .rows = n_of(w.master)});
    }
  };

  out.launches.push_back(
      {.what = work::draw_input, .tensors = {m.layers.front().x}, .rows = s.rows(), .inputs = s.width});
  for (std::size_t l = 0; l < m.layers.size(); ++l) {
    const detail::trained_layer& layer = m.layers[l];
    const auto& w = layer.weights;
    launch(work::normalise, {layer.norm1, layer.x});
    launch(work::product, {layer.qkv, layer.norm1, w[0].copy}, 1, 3);
    launch(work::gate, {layer.attended, layer.qkv});
    launch(work::product, {m.branch, layer.attended, w[1].copy}, 1, 1);
    launch(work::add, {layer.middle, layer.x, m.branch});
    launch(work::normalise, {layer.norm2, layer.middle});
    launch(work::product, {layer.up, layer.norm2, w[2].copy}, 1, 4);
    launch(work::gelu, {layer.gelu, layer.up}, 4);
    launch(work::product, {m.branch, layer.gelu, w[3].copy}, 4, 1);
    launch(work::add, {l + 1 < m.layers.size() ? m.layers[l + 1].x : m.out, layer.middle, m.branch});
  }
  sum(m.out);
  if (sums == summed::everything) {
    for (const detail::trained_layer& layer : m.layers) {
      for (const std::uint32_t t :
           {layer.x, layer.norm1, layer.qkv, layer.attended, layer.middle, layer.norm2, layer.up, layer.gelu}) {
        sum(t);
      }
    }
  }
  launch(work::loss, {m.d, m.out});
  for (std::size_t l = m.layers.size(); l-- > 0;) {
    const detail::trained_layer& layer = m.layers[l];
    const auto& w = layer.weights;
    launch(work::weight_gradient, {w[3].gradient, layer.gelu, m.d}, 4, 1);
    launch(work::input_gradient, {m.d_up, m.d, w[3].copy}, 4, 1);
    launch(work::gelu_backward, {m.d_up, layer.up}, 4);
    launch(work::weight_gradient, {w[2].gradient, layer.norm2, m.d_up}, 1, 4);
    launch(work::input_gradient, {m.d_branch, m.d_up, w[2].copy}, 1, 4);
    launch(work::normalise_backward, {m.d, m.d_branch, layer.middle});
    launch(work::weight_gradient, {w[1].gradient, layer.attended, m.d}, 1, 1);
    launch(work::input_gradient, {m.d_branch, m.d, w[1].copy}, 1, 1);
    launch(work::gate_backward, {m.d_qkv, m.d_branch, layer.qkv});
    launch(work::weight_gradient, {w[0].gradient, layer.norm1, m.d_qkv}, 1, 3);
    launch(work::input_gradient, {m.d_branch, m.d_qkv, w[0].copy}, 1, 3);
    launch(work::normalise_backward, {m.d, m.d_branch, layer.x});
    if (!s.update_at_end) {
      update(layer);
    }
  }
  if (s.update_at_end) {
    for (const detail::trained_layer& layer : m.layers) {
      update(layer);
    }
  }
  if (sums == summed::everything) {
    for (const detail::trained_layer& layer : m.layers) {
      for (const detail::trained_weight& w : layer.weights) {
        for (const std::uint32_t t : {w.copy, w.master, w.first, w.second}) {
          sum(t);
        }
      }
    }
  }
  out.tensors = std::move(m.tensors);
  return out;
}

}  // namespace deepum::gpu_bench
