#include "policy/driver.hpp"
#include "support/test_scale.hpp"
#include <deepum/prediction/upcoming_launches.hpp>

#include <doctest/doctest.h>

#include <random>

namespace upcoming_launches_test {

using namespace deepum_test;

working_set needs(std::vector<block_range> ranges) {
  return std::make_shared<const std::vector<block_range>>(std::move(ranges));
}
upcoming_launch launch(std::uint64_t number, std::uint32_t id, working_set n) {
  return {execution_id{id}, launch_id{number}, std::move(n)};
}

TEST_CASE("the next use of a block is the nearest launch that needs it") {
  upcoming_launches u;
  CHECK_FALSE(u.issue(launch(1, 1, needs({blocks(0, 2)}))));
  u.predict(execution_id{2}, needs({blocks(2)}));
  u.predict(execution_id{3}, needs({blocks(1, 2)}));
  CHECK(u.next_use(block_id{0}) == 0U);
  CHECK(u.next_use(block_id{1}) == 0U);
  CHECK(u.next_use(block_id{2}) == 1U);
  CHECK(u.next_use(block_id{3}) == std::nullopt);
  u.pop_front();
  CHECK(u.next_use(block_id{0}) == std::nullopt);
  CHECK(u.next_use(block_id{1}) == 1U);
  CHECK(u.next_use(block_id{2}) == 0U);
}

TEST_CASE("a launch that comes as predicted keeps the predictions behind it, another one removes them") {
  upcoming_launches u;
  u.issue(launch(1, 1, needs({blocks(0)})));
  u.predict(execution_id{2}, needs({blocks(1)}));
  u.predict(execution_id{3}, needs({blocks(2)}));
  CHECK(u.issue(launch(2, 2, needs({blocks(1, 1), blocks(7)}))));
  CHECK(u.issued() == 2);
  CHECK(u.size() == 3);
  CHECK(u.next_use(block_id{7}) == 1U);
  CHECK(u.next_use(block_id{2}) == 2U);
  CHECK_FALSE(u.issue(launch(3, 9, needs({blocks(1)}))));
  CHECK(u.size() == 3);
  CHECK(u.next_use(block_id{2}) == std::nullopt);
  CHECK(u.next_use(block_id{1}) == 1U);
}

TEST_CASE("next uses are those of a naive twin under random operations") {
  const auto seed = std::uint32_t{20231};
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  constexpr std::uint32_t block_count = 24;
  const auto some_needs = [&] {
    std::vector<block_range> r;
    for (std::uint32_t b = below(6); b < block_count; b += 2 + below(9)) {
      r.push_back(blocks(b));
    }
    return needs(std::move(r));
  };
  upcoming_launches u;
  std::deque<std::pair<bool, working_set>> twin;  // issued, needs
  std::deque<std::uint32_t> ids;
  std::size_t issued = 0;
  std::uint64_t number = 0;
  bool tracked = true;
  std::vector<bool> resident(block_count);
  const std::size_t rounds = deepum_test::scaled(10000);
  for (std::size_t round = 0; round < rounds; ++round) {
    switch (below(7)) {
      case 0:
      case 1: {
        if (twin.size() < 40) {
          const working_set n = some_needs();
          ids.push_back(below(3) + 1);
          u.predict(execution_id{ids.back()}, n);
          twin.emplace_back(false, n);
        }
        break;
      }
      case 2: {
        const bool as_predicted = issued < twin.size() && below(4) != 0;
        const std::uint32_t id = as_predicted ? ids[issued] : 99;
        const working_set n = as_predicted && below(2) != 0 ? twin[issued].second : some_needs();
        CHECK(u.issue(launch(++number, id, n)) == as_predicted);
        if (as_predicted) {
          twin[issued] = {true, n};
        } else {
          twin.resize(issued);
          ids.resize(issued);
          twin.emplace_back(true, n);
          ids.push_back(id);
        }
        ++issued;
        break;
      }
      case 3:
        if (issued != 0) {
          u.pop_front();
          twin.pop_front();
          ids.pop_front();
          --issued;
        }
        break;
      case 4:
        if (!twin.empty()) {
          const std::uint32_t at = below(static_cast<std::uint32_t>(twin.size()));
          twin[at].second = some_needs();
          u.replace_needs(at, twin[at].second);
        }
        break;
      case 5: {
        const std::uint32_t b = below(block_count);
        resident[b] = below(2) != 0;
        u.set_resident(block_id{b}, resident[b]);
        break;
      }
      default:
        if (below(20) == 0) {
          u.drop_predictions();
          twin.resize(issued);
          ids.resize(issued);
        }
    }
    REQUIRE(u.size() == twin.size());
    REQUIRE(u.issued() == issued);
    if (below(5) == 0) {
      tracked = below(2) != 0;
      u.track_uses(tracked);
    }
    if (!tracked) {
      REQUIRE(u.use_count() == 0);
      REQUIRE(u.kept() == 0);
      REQUIRE(u.next_use(block_id{below(block_count)}) == std::nullopt);
      continue;
    }
    std::size_t uses = 0;
    std::vector<std::uint32_t> kept(twin.size());
    std::vector<std::uint32_t> missed(twin.size());
    for (std::uint32_t b = 0; b < block_count; ++b) {
      std::optional<std::uint32_t> first;
      for (std::size_t i = 0; i < twin.size(); ++i) {
        for (const block_range r : *twin[i].second) {
          if (r.contains(block_id{b})) {
            ++uses;
            first = first.value_or(static_cast<std::uint32_t>(i));
          }
        }
      }
      REQUIRE(u.next_use(block_id{b}) == first);
      if (first) {
        ++(resident[b] ? kept : missed)[*first];
      }
    }
    std::size_t all_kept = 0;
    for (std::size_t i = 0; i < twin.size(); ++i) {
      REQUIRE(u.kept_for(i) == kept[i]);
      REQUIRE(u.missed_by(i) == missed[i]);
      all_kept += kept[i];
    }
    REQUIRE(u.kept() == all_kept);
    REQUIRE(u.use_count() == uses);
  }
}

TEST_CASE("while it is of no interest which launch uses a block next, that takes no memory") {
  const std::vector<bool> resident(1000);
  upcoming_launches u(resident);
  u.predict(execution_id{1}, needs({blocks(0, 900)}));
  const bytes tracked = u.memory();
  u.track_uses(false);
  CHECK(u.memory() < 1_KiB);
  u.track_uses(true);
  CHECK(u.memory() == tracked);
  CHECK(u.next_use(block_id{899}) == 0U);
}

}  // namespace upcoming_launches_test
