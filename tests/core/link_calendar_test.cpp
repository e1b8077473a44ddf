#include "support/test_scale.hpp"
#include <deepum/core/link_calendar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace link_calendar_test {

using namespace deepum;

std::uint32_t draw(std::mt19937& random, std::uint32_t least, std::uint32_t most) {
  return least + static_cast<std::uint32_t>(random() % (most - least + 1));
}

TEST_CASE("a calendar gives no window more than it has time for, and the earliest ones first") {
  const std::uint32_t seed = 31;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (std::size_t round = 0; round != deepum_test::scaled(200); ++round) {
    INFO("round " << round);
    const std::uint32_t windows = draw(random, 1, 12);
    const std::uint32_t each = draw(random, 0, 5);
    detail::link_calendar calendar(windows, each);
    std::vector<std::uint32_t> naive(windows, each);
    for (int i = 0; i != 30; ++i) {
      const std::uint32_t first = draw(random, 0, windows - 1);
      const std::uint32_t last = draw(random, 0, windows - 1);
      const std::uint32_t count = draw(random, 0, 9);
      const bool take = draw(random, 0, 1) == 1;
      std::uint32_t got = 0;
      for (std::uint32_t w = first;; w = (w + 1) % windows) {
        const std::uint32_t blocks = std::min(count - got, naive[w]);
        got += blocks;
        naive[w] -= take ? blocks : 0;
        if (w == last) {
          break;
        }
      }
      CHECK((take ? calendar.take(first, last, count) : calendar.room(first, last, count)) == got);
    }
  }
}

TEST_CASE("the last window with time left is found as windows are filled from either end") {
  detail::link_calendar calendar(4, 2);
  CHECK(calendar.windows() == 4);
  CHECK(calendar.last_open(3) == 3);
  calendar.take_in(3, 1);
  CHECK(calendar.last_open(3) == 3);
  CHECK(calendar.room_in(3) == 1);
  calendar.take_in(3, 1);
  CHECK(calendar.last_open(3) == 2);
  CHECK(calendar.take(0, 1, 3) == 3);  // of the first two windows
  calendar.take_in(2, 2);
  CHECK(calendar.last_open(3) == 1);
  CHECK(calendar.last_open(0) == std::nullopt);
  CHECK(calendar.room(0, 3, 9) == 1);
  calendar.take_in(1, 1);
  CHECK(calendar.last_open(3) == std::nullopt);
  CHECK(detail::link_calendar(3, 0).last_open(2) == std::nullopt);
}

}  // namespace link_calendar_test
