#include "../../examples/train_gpt/host_kernels.hpp"

#include "support/test_scale.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace host_kernels_test {

using namespace train_gpt;

std::vector<float> random_floats(std::mt19937_64& random, std::size_t n) {
  std::vector<float> values(n);
  for (float& v : values)
    v = static_cast<float>(random() >> 40) * 0x1p-23F - 1.0F;
  return values;
}

TEST_CASE(
    "a matrix product is that of three loops, for every size, stride and transposition, and writes nothing else") {
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  const auto upto = [&](std::uint64_t n) { return static_cast<std::int64_t>(1 + random() % n); };
  for (std::size_t round = 0; round < deepum_test::scaled(200); ++round) {
    const std::int64_t m = upto(70);
    const std::int64_t n = upto(70);
    const std::int64_t k = upto(round % 4 == 0 ? 600 : 70);
    const std::int64_t gap = static_cast<std::int64_t>(random() % 3);
    const std::vector<float> a = random_floats(random, static_cast<std::size_t>(m * k));
    const std::vector<float> b = random_floats(random, static_cast<std::size_t>(k * n));
    std::vector<float> c = random_floats(random, static_cast<std::size_t>(m * (n + gap)));
    const std::vector<float> before = c;
    const result how = random() % 2 == 0 ? result::overwrite : result::add;
    const matrix<const float> left =
        random() % 2 == 0 ? matrix<const float>{a.data(), m, k} : matrix<const float>{a.data(), k, m}.transposed();
    const matrix<const float> right =
        random() % 2 == 0 ? matrix<const float>{b.data(), k, n} : matrix<const float>{b.data(), n, k}.transposed();

    gemm(how, {c.data(), m, n, n + gap}, left, right);

    bool same = true;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n + gap; ++j) {
        const auto at = static_cast<std::size_t>(i * (n + gap) + j);
        double expected = static_cast<double>(before[at]);
        if (j < n) {
          if (how == result::overwrite) expected = 0;
          for (std::int64_t l = 0; l < k; ++l) {
            expected += static_cast<double>(left(i, l)) * static_cast<double>(right(l, j));
          }
        }
        same = same && std::abs(static_cast<double>(c[at]) - expected) < 1e-4;
      }
    }
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    REQUIRE(same);
  }
}

TEST_CASE("the exponential is that of the standard library to a few units in the last place") {
  double worst = 0;
  for (float x = -80.0F; x < 80.0F; x += 0.0137F) {
    const double expected = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(host::exponential(x)) - expected) / expected);
  }
  CHECK(worst < 3e-7);
  CHECK(host::exponential(0.0F) == 1.0F);
  CHECK(host::exponential(-1000.0F) < 1e-37F);
  CHECK(std::isfinite(host::exponential(1000.0F)));
}

TEST_CASE("attention gives each position a mean over itself and what is before it") {
  std::mt19937_64 random{1};
  constexpr std::int64_t context = 5;
  constexpr std::int64_t heads = 2;
  constexpr std::int64_t width = 6;
  const std::vector<float> qkv = random_floats(random, 2 * context * 3 * width);
  std::vector<float> y(2 * context * width);
  std::vector<float> p(2 * heads * context * context);
  host::attention_forward(y.data(), p.data(), qkv.data(), 2, context, heads, width);
  for (std::size_t row = 0; row < 2 * heads * context; ++row) {
    float total = 0;
    for (std::size_t j = 0; j < context; ++j) {
      const float share = p[row * context + j];
      total += share;
      CHECK((j > row % context ? share == 0.0F : share > 0.0F));
    }
    CHECK(total == doctest::Approx(1.0));
  }
  // The first position sees itself alone.
  for (std::size_t c = 0; c < width; ++c)
    CHECK(y[c] == qkv[2 * width + c]);
}

TEST_CASE("cross entropy is the logarithm of the target's share, and its gradient adds up to nothing") {
  std::mt19937_64 random{2};
  constexpr std::int64_t vocabulary = 37;
  std::vector<float> logits = random_floats(random, 3 * vocabulary);
  logits[5] += 40.0F;
  const std::vector<std::int32_t> targets{5, 0, 36};
  std::vector<float> losses(3);
  std::vector<float> d(logits.size());
  host::cross_entropy(losses.data(), d.data(), logits.data(), targets.data(), 3, vocabulary);
  for (std::size_t r = 0; r < 3; ++r) {
    double total = 0;
    double sum = 0;
    for (std::size_t v = 0; v < vocabulary; ++v)
      total += std::exp(static_cast<double>(logits[r * vocabulary + v]));
    for (std::size_t v = 0; v < vocabulary; ++v)
      sum += static_cast<double>(d[r * vocabulary + v]);
    const auto target = static_cast<std::size_t>(targets[r]);
    const double share = std::exp(static_cast<double>(logits[r * vocabulary + target])) / total;
    CHECK(static_cast<double>(losses[r]) == doctest::Approx(-std::log(share)).epsilon(1e-5));
    CHECK(static_cast<double>(d[r * vocabulary + target]) == doctest::Approx((share - 1) / 3).epsilon(1e-5));
    CHECK(sum == doctest::Approx(0.0).epsilon(1e-6));
  }
}

TEST_CASE("AdamW follows its definition over several steps") {
  std::mt19937_64 random{3};
  std::vector<float> weight = random_floats(random, 21);
  std::vector<double> expected(weight.begin(), weight.end());
  std::vector<float> first(21);
  std::vector<float> second(21);
  std::vector<double> m(21);
  std::vector<double> v(21);
  for (int step = 1; step <= 4; ++step) {
    const std::vector<float> gradient = random_floats(random, 21);
    host::adamw(weight.data(), gradient.data(), first.data(), second.data(), 21, 0.01F, 0.1F, step);
    for (std::size_t i = 0; i < 21; ++i) {
      const auto g = static_cast<double>(gradient[i]);
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double direction = m[i] / (1 - std::pow(0.9, step)) / (std::sqrt(v[i] / (1 - std::pow(0.95, step))) + 1e-8);
      expected[i] -= 0.01 * (direction + 0.1 * expected[i]);
      CHECK(static_cast<double>(weight[i]) == doctest::Approx(expected[i]).epsilon(1e-4));
    }
  }
}

}  // namespace host_kernels_test
