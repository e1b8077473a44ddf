#include <deepum/arena/byte_interval.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace byte_interval_test {

using namespace deepum::detail;

std::string text(const std::vector<byte_interval>& all) {
  std::string s;
  for (const byte_interval i : all) {
    s += "[" + std::to_string(i.begin) + "," + std::to_string(i.end) + ")";
  }
  return s;
}

TEST_CASE("what is left of a range is what none of the others covers") {
  CHECK(text(without({10, 20}, {})) == "[10,20)");
  CHECK(text(without({10, 20}, {{14, 16}})) == "[10,14)[16,20)");
  CHECK(text(without({10, 20}, {{18, 30}, {0, 12}})) == "[12,18)");
  CHECK(text(without({10, 20}, {{0, 10}, {20, 30}})) == "[10,20)");
  CHECK(text(without({10, 20}, {{12, 14}, {0, 40}})) == "");
  CHECK(text(without({10, 20}, {{11, 18}, {12, 13}})) == "[10,11)[18,20)");
}

TEST_CASE("random ranges leave what a list of bytes has left") {
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed,cert-msc51-cpp): the same each time
  const auto below = [&](std::uint32_t n) { return std::uint64_t{random() % n}; };
  for (int run = 0; run < 2000; ++run) {
    std::vector<bool> covered(40);
    std::vector<byte_interval> others;
    for (std::uint64_t i = below(5); i > 0; --i) {
      const std::uint64_t begin = below(40);
      const std::uint64_t end = begin + below(static_cast<std::uint32_t>(41 - begin));
      others.push_back({begin, end});
      for (std::uint64_t at = begin; at < end; ++at) {
        covered[at] = true;
      }
    }
    const byte_interval all{5, 35};
    std::vector<bool> left(40);
    for (const byte_interval i : without(all, others)) {
      REQUIRE(i.begin < i.end);
      for (std::uint64_t at = i.begin; at < i.end; ++at) {
        REQUIRE_FALSE(left[at]);
        left[at] = true;
      }
    }
    for (std::uint64_t at = 0; at < 40; ++at) {
      REQUIRE(left[at] == (at >= all.begin && at < all.end && !covered[at]));
    }
  }
}

}  // namespace byte_interval_test
