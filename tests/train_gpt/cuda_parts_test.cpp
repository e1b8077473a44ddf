// Those parts of the CUDA operations that are plain C++: the number type, the arithmetic of an element, and how a BLAS
// is told of row-major matrices.

#include "../../examples/train_gpt/bf16.hpp"
#include "../../examples/train_gpt/blas_layout.hpp"
#include "../../examples/train_gpt/element_math.hpp"
#include "../../examples/train_gpt/host_kernels.hpp"
#include "support/test_scale.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace cuda_parts_test {

using namespace train_gpt;

float rounded(float x) {
  bf16 narrow{};
  store(narrow, x);
  return widened(narrow);
}

TEST_CASE("every bf16 survives being widened and rounded") {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const bf16 before{static_cast<std::uint16_t>(bits)};
    bf16 after{};
    store(after, widened(before));
    if (std::isnan(widened(before))) {
      CHECK(std::isnan(widened(after)));
    } else {
      CHECK(after.bits == before.bits);
    }
  }
}

TEST_CASE("a float is rounded to the nearest bf16, ties to even, and beyond the largest to infinity") {
  CHECK(rounded(1.0F + 0x1p-8F) == 1.0F);                    // half way, down to even
  CHECK(rounded(1.0F + 3 * 0x1p-8F) == 1.0F + 4 * 0x1p-8F);  // half way, up to even
  CHECK(rounded(1.0F + 0x1.01p-8F) == 1.0F + 2 * 0x1p-8F);   // just above half way
  CHECK(rounded(-1.0F - 0x1.01p-8F) == -1.0F - 2 * 0x1p-8F);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(rounded(std::numeric_limits<float>::max()) == infinity);
  CHECK(rounded(-infinity) == -infinity);
  bf16 none{};
  store(none, detail::float_of(0x7F800001U));  // a NaN whose only bit would be cut off
  CHECK(std::isnan(widened(none)));

  std::mt19937 random{std::random_device{}()};
  for (std::size_t i = 0; i < deepum_test::scaled(100'000); ++i) {
    const float x = detail::float_of(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(x) || std::abs(x) > 1e38F || std::abs(x) < 1e-37F) continue;
    const float r = rounded(x);
    const auto below = static_cast<std::uint16_t>(detail::bits_of(r) >> 16);
    const double off = std::abs(static_cast<double>(r) - static_cast<double>(x));
    for (const int side : {-1, 1}) {
      const float neighbour = widened(bf16{static_cast<std::uint16_t>(below + side)});
      REQUIRE(off <= std::abs(static_cast<double>(neighbour) - static_cast<double>(x)));
    }
  }
}

TEST_CASE("the arithmetic of an element is that of the host's kernels") {
  for (float x = -12.0F; x < 12.0F; x += 0.00917F) {
    float y = 0;
    float d = 1;
    host::gelu_forward(&y, &x, 1);
    host::gelu_backward(&d, &x, 1);
    REQUIRE(std::abs(element_math::gelu(x) - y) <= 2e-6F);
    REQUIRE(std::abs(element_math::gelu_slope(x) - d) <= 2e-6F);
  }
  CHECK(element_math::gelu(-100.0F) == 0.0F);
  CHECK(element_math::gelu(100.0F) == 100.0F);
  CHECK(element_math::gelu_slope(-100.0F) == 0.0F);
  CHECK(element_math::gelu_slope(100.0F) == 1.0F);

  float weight[2] = {0.7F, 0.7F};
  float first[2] = {-0.2F, -0.2F};
  float second[2] = {0.3F, 0.3F};
  for (std::int32_t step = 1; step < 5; ++step) {
    const float gradient = 0.25F * static_cast<float>(step) - 0.6F;
    host::adamw(&weight[0], &gradient, &first[0], &second[0], 1, 0.02F, 0.1F, step);
    const auto n = static_cast<float>(step);
    element_math::adamw(
        weight[1], gradient, first[1], second[1],
        {0.02F, 0.1F, 1.0F - std::pow(element_math::beta1, n), 1.0F - std::pow(element_math::beta2, n)});
    CHECK(weight[1] == doctest::Approx(weight[0]).epsilon(1e-6));
    CHECK(first[1] == doctest::Approx(first[0]).epsilon(1e-6));
    CHECK(second[1] == doctest::Approx(second[0]).epsilon(1e-6));
  }
}

TEST_CASE("a BLAS sees a row-major matrix transposed, for every shape, stride and transposition") {
  std::vector<float> memory(1000);
  for (std::size_t i = 0; i < memory.size(); ++i)
    memory[i] = static_cast<float>(i);
  for (std::int64_t rows = 1; rows < 6; ++rows) {
    for (std::int64_t columns = 1; columns < 6; ++columns) {
      for (std::int64_t gap = 0; gap < 3; ++gap) {
        const matrix<float> plain{memory.data(), rows, columns, columns + gap};
        for (const matrix<float>& m : {plain, plain.transposed()}) {
          CAPTURE(rows);
          CAPTURE(columns);
          CAPTURE(gap);
          const blas_layout layout = layout_of_transposed(m);
          // What the BLAS sees has columns of this length, and a stride below it is refused.
          CHECK(layout.stride >= (layout.transposed ? m.rows : m.columns));
          for (std::int64_t i = 0; i < m.columns; ++i) {
            for (std::int64_t j = 0; j < m.rows; ++j) {
              const std::int64_t at = layout.transposed ? i * layout.stride + j : j * layout.stride + i;
              CHECK(m.data[at] == m(j, i));
            }
          }
        }
      }
    }
  }
}

}  // namespace cuda_parts_test
