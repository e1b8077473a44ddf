#include <deepum/prediction/launch_marks.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <set>

namespace launch_marks_test {

using deepum::detail::launch_marks;

TEST_CASE("the first and the last mark of a row are found, and none where there is none") {
  launch_marks m;
  m.cover(10, 300);
  CHECK(m.first(10, 310) == 310);
  CHECK(m.behind_last(10, 310) == 10);
  m.set(70);
  m.set(70);
  m.set(200);
  CHECK(m.first(10, 310) == 70);
  CHECK(m.first(71, 310) == 200);
  CHECK(m.first(71, 200) == 200);
  CHECK(m.first(201, 310) == 310);
  CHECK(m.behind_last(10, 310) == 201);
  CHECK(m.behind_last(10, 200) == 71);
  CHECK(m.behind_last(10, 70) == 10);
  m.clear(70);
  m.clear(70);
  CHECK(m.first(10, 310) == 200);
  CHECK(m.first(10, 10) == 10);
}

TEST_CASE("marks are those of a naive twin while the row grows at its end and loses its beginning, around zero") {
  const std::uint32_t seed = 7;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  launch_marks m;
  std::uint32_t begin = 0xffffff00U;
  std::uint32_t length = 0;
  std::set<std::uint32_t> twin;  // by distance
  for (int round = 0; round != 20000; ++round) {
    switch (below(4)) {
      case 0:
        if (length < 20U + static_cast<std::uint32_t>(round) / 50) {
          m.cover(begin, ++length);
        }
        break;
      case 1:
        if (length != 0 && below(2) == 0) {
          m.clear(begin++);
          --length;
          std::set<std::uint32_t> nearer;
          for (const std::uint32_t d : twin) {
            if (d != 0) {
              nearer.insert(d - 1);
            }
          }
          twin = nearer;
        }
        break;
      case 2:
        if (length != 0) {
          const std::uint32_t at = below(length);
          below(3) == 0 ? m.clear(begin + at) : m.set(begin + at);
          m.test(begin + at) ? (void)twin.insert(at) : (void)twin.erase(at);
        }
        break;
      default:
        break;
    }
    const std::uint32_t from = below(length + 1);
    const std::uint32_t to = from + below(length - from + 1);
    const auto first = twin.lower_bound(from);
    REQUIRE(m.first(begin + from, begin + to) == begin + (first == twin.end() ? to : std::min(to, *first)));
    const auto behind = twin.lower_bound(to);
    const bool any = behind != twin.begin() && *std::prev(behind) >= from;
    REQUIRE(m.behind_last(begin + from, begin + to) == begin + (any ? *std::prev(behind) + 1 : from));
  }
}

}  // namespace launch_marks_test
