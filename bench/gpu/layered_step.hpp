#pragma once

#include "step_program.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

// What models of many equal layers do, as values: their tensors, and the launches that use them, in the order of a real
// training step or of a call for inference. A stream executes them (layer_executor.hpp); planners and bounds read them.
namespace deepum::gpu_bench {

/// What a launch computes. Its tensors in order; those that are written come first.
enum class work : std::uint8_t {
  draw_input,          ///< y
  draw_weight,         ///< weight, as products read it
  draw_master,         ///< master: the same numbers
  clear,               ///< x
  normalise,           ///< y, x
  product,             ///< y, x, weight
  gate,                ///< y, qkv
  gelu,                ///< y, x; may be the same
  add,                 ///< y, a, b
  loss,                ///< d, x
  normalise_backward,  ///< d (adds), dy, x
  weight_gradient,     ///< gradient, x, dy
  input_gradient,      ///< dx, dy, weight
  gate_backward,       ///< d_qkv, dy, qkv
  gelu_backward,       ///< d (in place), x
  adamw,               ///< master, copy, first moment, second moment, gradient
  sum,                 ///< x; the sum goes to memory that stays on the device
};

/// Elements in memory of their own.
struct tensor {
  std::uint64_t elements = 0;
  std::uint64_t element = 2;  ///< bytes of one

  [[nodiscard]] deepum::bytes size() const { return deepum::bytes{elements * element}; }
};

/// One launch.
struct layer_launch {
  work what = work::draw_input;
  std::array<std::uint32_t, 5> tensors{};
  std::int64_t rows = 0;     ///< tokens; of draws, clears, sums and adamw, elements
  std::int64_t inputs = 1;   ///< columns of x
  std::int64_t outputs = 1;  ///< of products: columns of y
  std::uint32_t number = 0;  ///< of a draw: its seed; of a sum: where it goes

  friend bool operator==(const layer_launch&, const layer_launch&) = default;
};

struct layered_step {
  std::vector<tensor> tensors{};
  std::vector<layer_launch> launches{};
};

/// How a launch uses one of its tensors: this many elements from the first one on.
struct tensor_use {
  std::uint32_t tensor = 0;
  access mode = access::read;
  std::uint64_t elements = 0;

  friend bool operator==(const tensor_use&, const tensor_use&) = default;
};

/// All that a launch touches.
[[nodiscard]] inline std::vector<tensor_use> uses_of(const layer_launch& l) {
  const auto n = [](std::int64_t elements) { return static_cast<std::uint64_t>(elements); };
  const std::uint64_t x = n(l.rows * l.inputs);
  const std::uint64_t y = n(l.rows * l.outputs);
  const std::uint64_t weight = n(l.inputs * l.outputs);
  const auto& t = l.tensors;
  switch (l.what) {
    case work::draw_input:
    case work::draw_weight:
    case work::draw_master:
    case work::clear:
      return {{t[0], access::overwrite, x}};
    case work::gelu:
      if (t[0] == t[1]) {
        return {{t[0], access::update, x}};
      }
      [[fallthrough]];
    case work::normalise:
    case work::loss:
      return {{t[0], access::overwrite, x}, {t[1], access::read, x}};
    case work::product:
      return {{t[0], access::overwrite, y}, {t[1], access::read, x}, {t[2], access::read, weight}};
    case work::gate:
      return {{t[0], access::overwrite, x}, {t[1], access::read, 3 * x}};
    case work::add:
      return {{t[0], access::overwrite, x}, {t[1], access::read, x}, {t[2], access::read, x}};
    case work::normalise_backward:
      return {{t[0], access::update, x}, {t[1], access::read, x}, {t[2], access::read, x}};
    case work::weight_gradient:
      return {{t[0], access::overwrite, weight}, {t[1], access::read, x}, {t[2], access::read, y}};
    case work::input_gradient:
      return {{t[0], access::overwrite, x}, {t[1], access::read, y}, {t[2], access::read, weight}};
    case work::gate_backward:
      return {{t[0], access::overwrite, 3 * x}, {t[1], access::read, x}, {t[2], access::read, 3 * x}};
    case work::gelu_backward:
      return {{t[0], access::update, x}, {t[1], access::read, x}};
    case work::adamw:
      return {{t[0], access::update, x},
              {t[1], access::overwrite, x},
              {t[2], access::update, x},
              {t[3], access::update, x},
              {t[4], access::read, x}};
    case work::sum:
      return {{t[0], access::read, x}};
  }
  return {};
}

/// @name Where tensors lie
/// @{

/// Their offsets, allocated one after the other as the library aligns: to a block from 1 MiB on, else to 256 bytes.
/// @param block  Of a memory with larger ones.
/// @returns      One more than there are tensors: the last one is the end.
[[nodiscard]] inline std::vector<bytes> offsets_of(const std::vector<tensor>& tensors, bytes block = block_size) {
  std::vector<bytes> out;
  std::uint64_t end = 0;
  for (const tensor& t : tensors) {
    const std::uint64_t alignment = t.size().count >= (std::uint64_t{1} << 20) ? block.count : 256;
    end = (end + alignment - 1) / alignment * alignment;
    out.push_back(bytes{end});
    end += t.size().count;
  }
  out.push_back(block * ((end + block.count - 1) / block.count));
  return out;
}
[[nodiscard]] inline bytes footprint_of(const std::vector<tensor>& tensors, bytes block = block_size) {
  return offsets_of(tensors, block).back();
}

/// What each launch touches, by address.
[[nodiscard]] inline step_program in_memory(const layered_step& s) {
  const std::vector<bytes> offsets = offsets_of(s.tensors);
  step_program p{.capacity = offsets.back()};
  for (std::size_t t = 0; t < s.tensors.size(); ++t) {
    p.parts.push_back({offsets[t], s.tensors[t].size()});
  }
  for (const layer_launch& l : s.launches) {
    step_program::launch& out = p.launches.emplace_back();
    for (const tensor_use& u : uses_of(l)) {
      out.touches.push_back({offsets[u.tensor], bytes{u.elements * s.tensors[u.tensor].element}, u.mode});
    }
  }
  return p;
}
/// The step in tensors, which move as a whole.
[[nodiscard]] inline unit_program in_tensors(const layered_step& s) { return in_parts(in_memory(s)); }

/// @}

/// Tensors whose contents are of no value between two launches, because the next one that uses them overwrites them.
struct unvalued {
  std::vector<std::vector<std::uint32_t>> after{};   ///< by launch: from behind it on
  std::vector<std::vector<std::uint32_t>> before{};  ///< by launch: until before it
};
/// Of a step that is repeated for ever.
/// @param least  Launches in between; what is sooner used again is not worth a word.
[[nodiscard]] inline unvalued unvalued_in(const layered_step& s, std::size_t least) {
  const unit_program p = in_tensors(s);
  const std::size_t count = p.launches.size();
  unvalued out{std::vector<std::vector<std::uint32_t>>(count), std::vector<std::vector<std::uint32_t>>(count)};
  struct use {
    std::size_t launch = 0;
    access mode = access::read;
  };
  std::vector<std::vector<use>> uses(p.size.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (const unit_use& u : p.launches[i]) {
      uses[u.unit].push_back({i, u.mode});
    }
  }
  for (std::uint32_t unit = 0; unit < uses.size(); ++unit) {
    for (std::size_t k = 0; k < uses[unit].size(); ++k) {
      const bool last = k + 1 == uses[unit].size();
      const use& next = uses[unit][last ? 0 : k + 1];
      const std::size_t distance = next.launch + (last ? count : 0) - uses[unit][k].launch;
      if (next.mode == access::overwrite && distance > least) {
        out.after[uses[unit][k].launch].push_back(unit);
        out.before[next.launch].push_back(unit);
      }
    }
  }
  return out;
}

/// @name Training
/// @{

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

/// The products of a layer.
inline constexpr std::size_t layer_products = 4;
inline constexpr std::array<std::int64_t, layer_products> product_inputs{1, 1, 1, 4};   // of the width
inline constexpr std::array<std::int64_t, layer_products> product_outputs{3, 1, 4, 1};  // qkv, project, up, down

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

inline std::uint32_t append(std::vector<tensor>& to, std::int64_t elements, std::uint64_t element) {
  to.push_back({static_cast<std::uint64_t>(elements), element});
  return static_cast<std::uint32_t>(to.size() - 1);
}

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

/// How many sums a step takes.
[[nodiscard]] inline std::size_t sums_in(const layered_step& s) {
  return static_cast<std::size_t>(
      std::count_if(s.launches.begin(), s.launches.end(), [](const layer_launch& l) { return l.what == work::sum; }));
}

/// @}

/// @name Inference
/// @{

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

/// @}

}  // namespace deepum::gpu_bench
