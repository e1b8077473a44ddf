#include <deepum/arena/unfilled_bytes.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace unfilled_bytes_test {

using namespace deepum;
using range = unfilled_bytes::range;

TEST_CASE("what is taken from the middle leaves both ends") {
  unfilled_bytes u;
  u.add({0, 100, filling::poison});
  CHECK(u.take(40, 60) == std::vector<range>{{40, 60, filling::poison}});
  CHECK(u.take(0, 1000) == std::vector<range>{{0, 40, filling::poison}, {60, 100, filling::poison}});
  CHECK(u.empty());
}

TEST_CASE("what was added last counts") {
  unfilled_bytes u;
  u.add({0, 100, filling::poison});
  u.add({50, 150, filling::zero});
  CHECK(u.take(0, 200) == std::vector<range>{{0, 50, filling::poison}, {50, 150, filling::zero}});
}

TEST_CASE("random calls give the same as a byte map") {
  constexpr std::uint64_t size = 64;
  std::mt19937_64 random(7);
  unfilled_bytes u;
  std::array<std::optional<filling>, size> model{};
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t begin = random() % size;
    const std::uint64_t end = begin + random() % (size - begin + 1);
    if (random() % 2 == 0) {
      const filling with = random() % 2 == 0 ? filling::zero : filling::poison;
      u.add({begin, end, with});
      for (std::uint64_t b = begin; b < end; ++b) {
        model[b] = with;
      }
    } else {
      std::array<std::optional<filling>, size> taken{};
      for (const range& r : u.take(begin, end)) {
        for (std::uint64_t b = r.begin; b < r.end; ++b) {
          REQUIRE_FALSE(taken[b].has_value());
          taken[b] = r.with;
        }
      }
      for (std::uint64_t b = 0; b < size; ++b) {
        const bool inside = b >= begin && b < end;
        REQUIRE(taken[b] == (inside ? model[b] : std::nullopt));
        model[b] = inside ? std::nullopt : model[b];
      }
    }
  }
}

}  // namespace unfilled_bytes_test
