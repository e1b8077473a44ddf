#pragma once

#include "gpu/library/step_program.hpp"
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

/// How many sums a step takes.
[[nodiscard]] inline std::size_t sums_in(const layered_step& s) {
  return static_cast<std::size_t>(
      std::count_if(s.launches.begin(), s.launches.end(), [](const layer_launch& l) { return l.what == work::sum; }));
}

namespace detail {

/// The products of a layer.
inline constexpr std::size_t layer_products = 4;
inline constexpr std::array<std::int64_t, layer_products> product_inputs{1, 1, 1, 4};   // of the width
inline constexpr std::array<std::int64_t, layer_products> product_outputs{3, 1, 4, 1};  // qkv, project, up, down

inline std::uint32_t append(std::vector<tensor>& to, std::int64_t elements, std::uint64_t element) {
  to.push_back({static_cast<std::uint64_t>(elements), element});
  return static_cast<std::uint32_t>(to.size() - 1);
}

}  // namespace detail

}  // namespace deepum::gpu_bench
