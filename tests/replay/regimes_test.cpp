#include "replay/regimes.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace regimes_test {

using namespace deepum;
using namespace deepum::replay;

std::vector<regime_report> report(std::string_view regimes, const std::vector<std::int64_t>& times) {
  program p;
  for (const char c : regimes) {
    p.turns.push_back({.regime = static_cast<std::uint32_t>(c - '0')});
  }
  std::vector<nanoseconds> durations;
  for (const std::int64_t t : times) {
    durations.emplace_back(t);
  }
  return report_regimes(p, durations);
}

TEST_CASE("a regime is steady as in the last half of its turns, and recovered at nine tenths of that speed") {
  const auto all = report("00000011111", {900, 500, 101, 100, 99, 110, 400, 223, 222, 200, 200});
  REQUIRE(all.size() == 2);
  CHECK(all[0] == regime_report{.regime = 0,
                                .first_turn = 0,
                                .turns = 6,
                                .steady = nanoseconds{100},
                                .recovered_in = 3,
                                .worst = nanoseconds{900},
                                .total = nanoseconds{1810}});
  // 223 is slower than 200 / 0.9, 222 is not.
  CHECK(all[1] == regime_report{.regime = 1,
                                .first_turn = 6,
                                .turns = 5,
                                .steady = nanoseconds{200},
                                .recovered_in = 3,
                                .worst = nanoseconds{400},
                                .total = nanoseconds{1245}});
}

TEST_CASE("where regimes take turns, what is steady and when it is reached is found in the turns of each") {
  const auto all = report("0010010110", {900, 100, 50, 300, 100, 10, 200, 10, 11, 100});
  REQUIRE(all.size() == 7);
  std::vector<std::int64_t> steady;
  std::vector<std::size_t> recovered;
  for (const regime_report& r : all) {
    steady.push_back(r.steady.count());
    recovered.push_back(r.recovered_in.value_or(0));
  }
  CHECK(steady == std::vector<std::int64_t>{100, 10, 100, 10, 100, 10, 100});
  CHECK(recovered == std::vector<std::size_t>{2, 2, 2, 1, 2, 1, 1});
}

TEST_CASE("a regime that recurs is compared with its best, so one that never gets as fast again has not recovered") {
  const auto all = report("0000100001", {30, 20, 10, 10, 5, 20, 19, 18, 18, 5});
  REQUIRE(all.size() == 4);
  CHECK(all[0].steady == nanoseconds{10});
  CHECK(all[0].recovered_in == 3);
  CHECK(all[2].steady == nanoseconds{10});
  CHECK_FALSE(all[2].recovered_in.has_value());
  // Three turns say nothing alone.
  CHECK(report("0001000", {30, 10, 10, 5, 20, 18, 18})[0].steady == nanoseconds{18});
}

TEST_CASE("a regime that only gets slower has not recovered in its last turns") {
  const auto all = report("000010000", {10, 10, 10, 10, 5, 10, 10, 10, 90});
  REQUIRE(all.size() == 3);
  CHECK(all[2].recovered_in == 1);
  // Ten is nine tenths of the speed of nine.
  CHECK(report("0000", {10, 9, 9, 9})[0].recovered_in == 1);
  const auto short_visit = report("0000010", {10, 10, 10, 10, 10, 5, 90});
  CHECK_FALSE(short_visit[2].recovered_in.has_value());
  CHECK(short_visit[2].worst == nanoseconds{90});
}

TEST_CASE("a program without turns has no regimes, and one turn is its own steady time") {
  CHECK(report("", {}).empty());
  const auto one = report("7", {3});
  REQUIRE(one.size() == 1);
  CHECK(one[0].steady == nanoseconds{3});
  CHECK(one[0].recovered_in == 1);
}

}  // namespace regimes_test
