#pragma once

#include "gpu/library/layered_step.hpp"
#include "gpu/library/step_program.hpp"
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

// Calls of models of equal layers, whose weights are only read.
namespace deepum::gpu_bench {

/// Models of one shape that share the memory of their activations.
struct infer_shape {
  std::int64_t models = 1;
  std::int64_t layers = 1;  ///< of each
  std::int64_t width = 4096;
  std::int64_t most_tokens = 4096;  ///< in a call
  std::uint64_t element = 2;
};

namespace detail {

struct inferring_model {
  std::vector<tensor> tensors{};
  std::vector<std::array<std::uint32_t, layer_products>> weights{};  // by model and layer
  std::uint32_t x = 0;
  std::uint32_t norm = 0;
  std::uint32_t qkv = 0;
  std::uint32_t attended = 0;
  std::uint32_t branch = 0;
  std::uint32_t up = 0;
};

[[nodiscard]] inline inferring_model model_of(const infer_shape& s) {
  inferring_model m;
  for (std::int64_t l = 0; l < s.models * s.layers; ++l) {
    std::array<std::uint32_t, layer_products>& layer = m.weights.emplace_back();
    for (std::size_t w = 0; w < layer_products; ++w) {
      layer[w] = append(m.tensors, product_inputs[w] * product_outputs[w] * s.width * s.width, s.element);
    }
  }
  const std::int64_t n = s.most_tokens * s.width;
  for (const auto& [t, widths] : {std::pair{&m.x, 1}, std::pair{&m.norm, 1}, std::pair{&m.qkv, 3},
                                  std::pair{&m.attended, 1}, std::pair{&m.branch, 1}, std::pair{&m.up, 4}}) {
    *t = append(m.tensors, widths * n, s.element);
  }
  return m;
}

}  // namespace detail

[[nodiscard]] inline bytes footprint_of(const infer_shape& s) { return footprint_of(detail::model_of(s).tensors); }

/// As many layers as give each model weights of this size; one at least.
[[nodiscard]] inline std::int64_t layers_for(const infer_shape& s, bytes weights) {
  const auto layer = 12 * static_cast<std::uint64_t>(s.width) * static_cast<std::uint64_t>(s.width) * s.element;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>((weights.count + layer - 1) / layer));
}

/// Draws the weights of all models: the only time that they are written.
[[nodiscard]] inline layered_step set_up_of(const infer_shape& s) {
  detail::inferring_model m = detail::model_of(s);
  layered_step out;
  std::uint32_t seed = 0;
  for (const auto& layer : m.weights) {
    for (const std::uint32_t t : layer) {
      out.launches.push_back({.what = work::draw_weight,
                              .tensors = {t},
                              .rows = static_cast<std::int64_t>(m.tensors[t].elements),
                              .number = ++seed});
    }
  }
  out.tensors = std::move(m.tensors);
  return out;
}

/// One call of one model.
[[nodiscard]] inline layered_step call_of(const infer_shape& s, std::int64_t model, std::int64_t tokens) {
  expects(model < s.models && tokens <= s.most_tokens, "a call of a model that is not there, or with too many tokens");
  detail::inferring_model m = detail::model_of(s);
  layered_step out;
  const auto launch = [&](work what, std::array<std::uint32_t, 5> tensors, std::int64_t inputs = 1,
                          std::int64_t outputs = 1) {
    out.launches.push_back(
        {.what = what, .tensors = tensors, .rows = tokens, .inputs = inputs * s.width, .outputs = outputs * s.width});
  };
  launch(work::draw_input, {m.x});
  for (std::int64_t l = model * s.layers; l < (model + 1) * s.layers; ++l) {
    const auto& w = m.weights[static_cast<std::size_t>(l)];
    launch(work::normalise, {m.norm, m.x});
    launch(work::product, {m.qkv, m.norm, w[0]}, 1, 3);
    launch(work::gate, {m.attended, m.qkv});
    launch(work::product, {m.branch, m.attended, w[1]});
    launch(work::add, {m.attended, m.x, m.branch});  // its room is free: it is the middle of the layer now
    launch(work::normalise, {m.norm, m.attended});
    launch(work::product, {m.up, m.norm, w[2]}, 1, 4);
    launch(work::gelu, {m.up, m.up}, 4);
    launch(work::product, {m.branch, m.up, w[3]}, 4, 1);
    launch(work::add, {m.x, m.attended, m.branch});
  }
  launch(work::sum, {m.x});
  out.tensors = std::move(m.tensors);
  return out;
}

/// Which model each of some calls is for, by lot.
[[nodiscard]] inline std::vector<std::int64_t> calls_by_lot(std::int64_t models, std::size_t calls,
                                                            std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> out(calls);
  for (std::int64_t& model : out) {
    model = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(models));
  }
  return out;
}

/// Calls one after the other.
/// @param each   One of each model.
[[nodiscard]] inline layered_step joined(const std::vector<layered_step>& each,
                                         const std::vector<std::int64_t>& models) {
  layered_step out{.tensors = each.front().tensors};
  for (const std::int64_t model : models) {
    const std::vector<layer_launch>& call = each[static_cast<std::size_t>(model)].launches;
    out.launches.insert(out.launches.end(), call.begin(), call.end());
  }
  return out;
}

/// The products alone, as far as calls cannot do without them: they read weights, and need room for all else that they
/// touch. Whatever is the least for these is no more than the least for all, and is found sooner.
[[nodiscard]] inline step_program products_in(const layered_step& calls) {
  layered_step only{.tensors = calls.tensors};
  std::copy_if(calls.launches.begin(), calls.launches.end(), std::back_inserter(only.launches),
               [](const layer_launch& l) { return l.what == work::product; });
  step_program p = in_memory(only);
  for (step_program::launch& l : p.launches) {
    l.touches[1].mode = access::overwrite;  // x: what has written it is left out
  }
  return p;
}

}  // namespace deepum::gpu_bench
