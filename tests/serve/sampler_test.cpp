#include "../../examples/serve/sampler.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sampler_test {

using serve::sampler;

TEST_CASE("without temperature the likeliest is drawn, and the first of equals") {
  sampler draws{7, 0};
  CHECK(draws.draw(std::vector<float>{-3, 2, 5, 5, 1}) == 2);
  CHECK(draws.draw(std::vector<float>{0}) == 0);
}

TEST_CASE("what is drawn follows the seed alone") {
  const std::vector<float> logits(256, 0.5F);
  sampler a{1, 1};
  sampler b{1, 1};
  sampler other{2, 1};
  int same = 0;
  for (int i = 0; i < 100; ++i) {
    const std::size_t drawn = a.draw(logits);
    CHECK(b.draw(logits) == drawn);
    same += other.draw(logits) == drawn ? 1 : 0;
  }
  CHECK(same < 10);
}

TEST_CASE("each is drawn as often as its logit and the temperature say") {
  const std::vector<float> logits{0, 1, -20, 2};
  for (const double temperature : {0.5, 1.0, 4.0}) {
    sampler draws{3, temperature};
    std::array<int, 4> counts{};
    constexpr int all = 20'000;
    for (int i = 0; i < all; ++i)
      ++counts[draws.draw(logits)];
    double total = 0;
    for (const float l : logits)
      total += std::exp(static_cast<double>(l) / temperature);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      CAPTURE(temperature);
      CAPTURE(i);
      const double expected = std::exp(static_cast<double>(logits[i]) / temperature) / total;
      CHECK(std::abs(counts[i] / static_cast<double>(all) - expected) < 0.015);
    }
  }
}

TEST_CASE("extreme logits and temperatures draw something that is there") {
  for (const double temperature : {5e-324, 1e-300, 1e-3, 100.0}) {
    sampler draws{5, temperature};
    CHECK(draws.draw(std::vector<float>{-3e38F, 3e38F}) == 1);
    CHECK(draws.draw(std::vector<float>{NAN, NAN, NAN}) < 3);
    CHECK(draws.draw(std::vector<float>{-INFINITY, 0, -INFINITY}) == 1);
    CHECK(draws.draw(std::vector<float>{-INFINITY, -INFINITY}) < 2);
  }
}

}  // namespace sampler_test
