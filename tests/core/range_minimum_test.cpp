#include "support/test_scale.hpp"
#include <deepum/core/range_minimum.hpp>
#include <deepum/core/sequence.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace range_minimum_test {

using namespace deepum;

std::uint32_t draw(std::mt19937& random, std::uint32_t least, std::uint32_t most) {
  return least + static_cast<std::uint32_t>(random() % (most - least + 1));
}

TEST_CASE("the least of an interval is kept while intervals are added to") {
  const std::uint32_t seed = 1234;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (std::size_t round = 0; round != deepum_test::scaled(100); ++round) {
    deepum::sequence<std::int64_t> naive(draw(random, 0, 40));
    for (std::int64_t& v : naive) {
      v = draw(random, 0, 1000) - 500;
    }
    detail::range_minimum tree(naive);
    for (int i = 0; i != 50 && !naive.empty(); ++i) {
      const std::uint32_t begin = draw(random, 0, static_cast<std::uint32_t>(naive.size()) - 1);
      const std::uint32_t end = draw(random, begin + 1, static_cast<std::uint32_t>(naive.size()));
      CHECK(tree.least(begin, end) == *std::min_element(naive.begin() + begin, naive.begin() + end));
      const std::int64_t by = std::int64_t{draw(random, 0, 100)} - 50;
      tree.add(begin, end, by);
      for (std::uint32_t j = begin; j != end; ++j) {
        naive[j] += by;
      }
    }
  }
}

}  // namespace range_minimum_test
