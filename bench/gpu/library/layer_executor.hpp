#pragma once

#include "examples/train_gpt/bf16.hpp"
#include "examples/train_gpt/cublas_products.hpp"
#include "examples/train_gpt/gemm.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/kernels.hpp"
#include "gpu/library/layer_kernels.hpp"
#include "gpu/library/layered_step.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/dim.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace deepum::gpu_bench {

/// Numbers that only one execution of a step has.
struct step_numbers {
  std::int64_t number = 0;  ///< of the step, from 0 on: what its input and AdamW depend on
  std::uint64_t seed = 0;   ///< of all that is drawn
};

/// Executes the launches of a layered step on a stream, wherever their tensors are. Each declares all that it touches,
/// as `uses_of` tells.
///
/// Its handle and workspace of cuBLAS and the sums lie on the device, beside all memory that is measured.
/// @tparam T  float or bf16: of activations, and of the weights that products read.
template <class T>
class layer_executor {
 public:
  /// @errors  `status::device_failure`, `status::out_of_device_memory`.
  explicit layer_executor(std::size_t sums = 1)
      : sums_(memory_pool::kind::device, bytes{std::max<std::size_t>(1, sums) * sizeof(unsigned long long)}) {}

  /// @param at       By tensor: where it is when this launch executes.
  /// @param tensors  Of the step.
  /// @errors         `status::device_failure`, and those of the stream.
  template <class Stream>
  void launch(Stream& stream, const std::vector<tensor>& tensors, const layer_launch& l, std::span<std::byte* const> at,
              const step_numbers& step) {
    using train_gpt::matrix;
    using train_gpt::result;
    const auto t = [&](std::size_t i) { return reinterpret_cast<T*>(at[l.tensors[i]]); };
    const auto f = [&](std::size_t i) { return reinterpret_cast<float*>(at[l.tensors[i]]); };
    const std::int64_t x = l.rows * l.inputs;
    const auto n = [](std::int64_t elements) { return static_cast<std::uint64_t>(elements); };
    const auto& k = deepum_gpu_bench_kernels::layer_kernels_for<T>();
    const auto draw = [&](const char* name, auto kernel, auto* to, std::uint64_t seed, float scale) {
      stream.launch(name, grid(x), threads, 0, kernel, overwrites(to, n(x)), x, seed, scale);
    };
    switch (l.what) {
      case work::draw_input:
        draw("draw_input", k.draw, t(0), step.seed * 1'000'003 + n(step.number) + (std::uint64_t{1} << 40U), 1.0F);
        break;
      case work::draw_weight:
        draw("draw_weight", k.draw, t(0), step.seed * 1'000'003 + l.number, weight_scale);
        break;
      case work::draw_master:
        draw("draw_master", k.draw_floats, f(0), step.seed * 1'000'003 + l.number, weight_scale);
        break;
      case work::clear:
        stream.memset(at[l.tensors[0]], 0, bytes{n(x) * tensors[l.tensors[0]].element});
        break;
      case work::normalise:
        stream.launch("normalise", rows_grid(l.rows), threads, 0, k.normalise, overwrites(t(0), n(x)),
                      reads(t(1), n(x)), l.rows, l.inputs);
        break;
      case work::product:
        multiply<T>(stream, "product", t(0), {l.rows, l.outputs}, {t(1), l.rows, l.inputs}, {t(2), l.inputs, l.outputs},
                    {overwrites(t(0), n(l.rows * l.outputs)), reads(t(1), n(x)), reads(t(2), n(l.inputs * l.outputs))});
        break;
      case work::gate:
        stream.launch("gate", grid(x), threads, 0, k.gate, overwrites(t(0), n(x)), reads(t(1), n(3 * x)), l.rows,
                      l.inputs);
        break;
      case work::gelu:
        if (t(0) == t(1)) {
          stream.launch("gelu in place", grid(x), threads, 0, k.gelu, updates(t(0), n(x)), updates(t(0), n(x)), x);
        } else {
          stream.launch("gelu", grid(x), threads, 0, k.gelu, overwrites(t(0), n(x)), reads(t(1), n(x)), x);
        }
        break;
      case work::add:
        stream.launch("add", grid(x), threads, 0, k.add, overwrites(t(0), n(x)), reads(t(1), n(x)), reads(t(2), n(x)),
                      x);
        break;
      case work::loss:
        stream.launch("loss", grid(x), threads, 0, k.loss, overwrites(t(0), n(x)), reads(t(1), n(x)), x,
                      1.0F / static_cast<float>(l.inputs));
        break;
      case work::normalise_backward:
        stream.launch("normalise_backward", rows_grid(l.rows), threads, 0, k.normalise_backward, updates(t(0), n(x)),
                      reads(t(1), n(x)), reads(t(2), n(x)), l.rows, l.inputs);
        break;
      case work::weight_gradient:
        multiply<float>(
            stream, "weight_gradient", f(0), {l.inputs, l.outputs},
            matrix<const T>{t(1), l.rows, l.inputs}.transposed(), {t(2), l.rows, l.outputs},
            {overwrites(f(0), n(l.inputs * l.outputs)), reads(t(1), n(x)), reads(t(2), n(l.rows * l.outputs))});
        break;
      case work::input_gradient:
        multiply<T>(stream, "input_gradient", t(0), {l.rows, l.inputs}, {t(1), l.rows, l.outputs},
                    matrix<const T>{t(2), l.inputs, l.outputs}.transposed(),
                    {overwrites(t(0), n(x)), reads(t(1), n(l.rows * l.outputs)), reads(t(2), n(l.inputs * l.outputs))});
        break;
      case work::gate_backward:
        stream.launch("gate_backward", grid(x), threads, 0, k.gate_backward, overwrites(t(0), n(3 * x)),
                      reads(t(1), n(x)), reads(t(2), n(3 * x)), l.rows, l.inputs);
        break;
      case work::gelu_backward:
        stream.launch("gelu_backward", grid(x), threads, 0, k.gelu_backward, updates(t(0), n(x)), reads(t(1), n(x)), x);
        break;
      case work::adamw: {
        const auto correction = [&](float beta) { return 1.0F - std::pow(beta, static_cast<float>(step.number + 1)); };
        stream.launch("adamw", grid(x), threads, 0, k.adamw, updates(f(0), n(x)), overwrites(t(1), n(x)),
                      reads(f(4), n(x)), updates(f(2), n(x)), updates(f(3), n(x)), x, learning_rate, correction(beta1),
                      correction(beta2));
        break;
      }
      case work::sum: {
        const std::uint64_t size = n(x) * tensors[l.tensors[0]].element;
        using word = deepum_gpu_bench_kernels::word;
        stream.launch("sum", grid(x), threads, 0, deepum_gpu_bench_kernels::all().checksum,
                      reads(reinterpret_cast<const word*>(at[l.tensors[0]]), size / sizeof(word)), size / sizeof(word),
                      sums() + l.number);
        break;
      }
    }
  }

  /// Places for sums that some launches of a step need; one at least.
  /// @errors  Stops where there are more than it was made for.
  [[nodiscard]] std::size_t sums_of(const layered_step& s, std::size_t first, std::size_t count) const {
    std::size_t needed = 1;
    for (std::size_t i = first; i < first + count; ++i) {
      needed = std::max<std::size_t>(needed, s.launches[i].what == work::sum ? s.launches[i].number + 1 : 0);
    }
    expects(needed * sizeof(unsigned long long) <= sums_.size().count,
            "a step with more sums than there is memory for");
    return needed;
  }
  /// Before a step: all of its sums begin with 0.
  template <class Stream>
  void clear_sums(Stream& stream, std::size_t count) {
    stream.memset(sums(), 0, bytes{count * sizeof(unsigned long long)});
  }
  /// Waits for all that was launched.
  template <class Stream>
  [[nodiscard]] std::vector<std::uint64_t> read_sums(Stream& stream, std::size_t count) {
    std::vector<unsigned long long> read(count);
    stream.memcpy(read.data(), sums(), bytes{count * sizeof(unsigned long long)});
    stream.synchronize();
    return {read.begin(), read.end()};
  }

 private:
  static constexpr unsigned threads = 256;
  static constexpr unsigned most_blocks = 132 * 16;  // beyond that, threads take more than one element
  static constexpr float weight_scale = 0.03F;
  static constexpr float learning_rate = 1e-4F;
  static constexpr float beta1 = 0.9F;  // as element_math has them
  static constexpr float beta2 = 0.95F;

  [[nodiscard]] unsigned long long* sums() const { return reinterpret_cast<unsigned long long*>(sums_.base()); }
  static deepum::dim grid(std::int64_t n) {
    return static_cast<unsigned>(std::clamp<std::int64_t>((n + threads - 1) / threads, 1, most_blocks));
  }
  static deepum::dim rows_grid(std::int64_t rows) {
    return static_cast<unsigned>(std::clamp<std::int64_t>(rows, 1, most_blocks));
  }

  struct shape_of_result {
    std::int64_t rows;
    std::int64_t columns;
  };
  template <class C, class Stream>
  void multiply(Stream& stream, std::string_view name, C* c, shape_of_result shape, train_gpt::matrix<const T> a,
                train_gpt::matrix<const T> b, std::initializer_list<operand> operands) {
    stream.call(name, operands, [&](cudaStream_t q) {
      products_.template multiply<C, T>(q, train_gpt::result::overwrite, {c, shape.rows, shape.columns}, a, b);
    });
  }

  memory_pool sums_;
  train_gpt::cublas_products products_{};
};

}  // namespace deepum::gpu_bench
