#include "policy/driver.hpp"
#include "support/test_scale.hpp"
#include <deepum/prediction/upcoming_launches.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace upcoming_launches_test {

using namespace deepum_test;

working_set needs(std::vector<block_range> ranges) {
  return std::make_shared<const std::vector<block_range>>(std::move(ranges));
}
upcoming_launch launch(std::uint64_t number, std::uint32_t id, working_set n) {
  return {execution_id{id}, launch_id{number}, std::move(n)};
}

/// Nothing is on the device at first.
block_ledger some_blocks(std::uint32_t count = 24) { return {count, location::device(), count, um_grid}; }

/// The launches that may be the next to use a block which is not on the device.
std::set<std::size_t> marked_missing(const upcoming_launches& u) {
  std::set<std::size_t> all;
  for (std::size_t at = u.first_missing(0, u.size()); at != u.size(); at = u.first_missing(at + 1, u.size())) {
    all.insert(at);
  }
  return all;
}
/// One which is.
std::set<std::size_t> marked_kept(const upcoming_launches& u) {
  std::set<std::size_t> all;
  for (std::size_t end = u.up_to_last_kept(u.size()); end != 0; end = u.up_to_last_kept(end - 1)) {
    all.insert(end - 1);
  }
  return all;
}

TEST_CASE("the next use of a block is the nearest launch that needs it") {
  const block_ledger map = some_blocks();
  upcoming_launches u;
  CHECK_FALSE(u.issue(launch(1, 1, needs({blocks(0, 2)})), map));
  u.predict(execution_id{2}, needs({blocks(2)}), map);
  u.predict(execution_id{3}, needs({blocks(1, 2)}), map);
  CHECK(u.next_use(block_id{0}) == 0U);
  CHECK(u.next_use(block_id{1}) == 0U);
  CHECK(u.next_use(block_id{2}) == 1U);
  CHECK(u.next_use(block_id{3}) == std::nullopt);
  u.pop_front(map);
  CHECK(u.next_use(block_id{0}) == std::nullopt);
  CHECK(u.next_use(block_id{1}) == 1U);
  CHECK(u.next_use(block_id{2}) == 0U);
}

TEST_CASE("a launch that comes as predicted keeps the predictions behind it, another one removes them") {
  const block_ledger map = some_blocks();
  upcoming_launches u;
  u.issue(launch(1, 1, needs({blocks(0)})), map);
  u.predict(execution_id{2}, needs({blocks(1)}), map);
  u.predict(execution_id{3}, needs({blocks(2)}), map);
  CHECK(u.issue(launch(2, 2, needs({blocks(1, 1), blocks(7)})), map));
  CHECK(u.issued() == 2);
  CHECK(u.size() == 3);
  CHECK(u.next_use(block_id{7}) == 1U);
  CHECK(u.next_use(block_id{2}) == 2U);
  CHECK_FALSE(u.issue(launch(3, 9, needs({blocks(1)})), map));
  CHECK(u.size() == 3);
  CHECK(u.next_use(block_id{2}) == std::nullopt);
  CHECK(u.next_use(block_id{1}) == 1U);
}

TEST_CASE("the launch that uses a block next is marked when the block comes or leaves, or an earlier use is over") {
  block_ledger map = some_blocks();
  upcoming_launches u;
  u.predict(execution_id{1}, needs({blocks(0)}), map);
  u.predict(execution_id{2}, needs({blocks(5)}), map);
  u.predict(execution_id{3}, needs({blocks(0)}), map);
  CHECK(marked_missing(u) == std::set<std::size_t>{0, 1});
  CHECK(marked_kept(u).empty());
  map.arrive(block_id{0}, true);
  map.arrive(block_id{5}, true);
  CHECK(u.moved(block_id{0}, map));
  CHECK(u.moved(block_id{5}, map));
  CHECK_FALSE(u.moved(block_id{6}, map));
  CHECK(marked_kept(u) == std::set<std::size_t>{0, 1});
  u.nothing_missing(0);
  u.nothing_missing(1);
  CHECK(marked_missing(u).empty());
  u.pop_front(map);
  CHECK(marked_missing(u).empty());  // the third launch is the next to use block 0, which is there
  CHECK(marked_kept(u) == std::set<std::size_t>{0, 1});
  map.drop(block_id{0});
  CHECK(u.moved(block_id{0}, map));
  CHECK(marked_missing(u) == std::set<std::size_t>{1});
  u.nothing_kept(1);
  CHECK(marked_kept(u) == std::set<std::size_t>{0});
}

TEST_CASE("a block on the device that loses its last use is told once") {
  block_ledger map = some_blocks();
  upcoming_launches u;
  u.predict(execution_id{1}, needs({blocks(0, 2)}), map);
  u.predict(execution_id{2}, needs({blocks(1)}), map);
  map.arrive(block_id{1}, true);
  u.pop_front(map);
  CHECK_FALSE(u.take_unused());  // block 0 is not there, and block 1 has another use
  u.drop_predictions(map);
  CHECK(u.take_unused());
  CHECK_FALSE(u.take_unused());
}

TEST_CASE("next uses are those of a naive twin under random operations, and no launch that should be marked is not") {
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
  block_ledger map = some_blocks(block_count);
  upcoming_launches u;
  std::deque<std::pair<bool, working_set>> twin;  // issued, needs
  std::deque<std::uint32_t> ids;
  std::size_t issued = 0;
  std::uint64_t number = 0;
  bool tracked = true;
  const std::size_t rounds = deepum_test::scaled(10000);
  for (std::size_t round = 0; round < rounds; ++round) {
    switch (below(8)) {
      case 0:
      case 1: {
        if (twin.size() < 140) {
          const working_set n = some_needs();
          ids.push_back(below(3) + 1);
          u.predict(execution_id{ids.back()}, n, map);
          twin.emplace_back(false, n);
        }
        break;
      }
      case 2: {
        const bool as_predicted = issued < twin.size() && below(4) != 0;
        const std::uint32_t id = as_predicted ? ids[issued] : 99;
        const working_set n = as_predicted && below(2) != 0 ? twin[issued].second : some_needs();
        CHECK(u.issue(launch(++number, id, n), map) == as_predicted);
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
          u.pop_front(map);
          twin.pop_front();
          ids.pop_front();
          --issued;
        }
        break;
      case 4:
        if (!twin.empty()) {
          const std::uint32_t at = below(static_cast<std::uint32_t>(twin.size()));
          twin[at].second = some_needs();
          u.replace_needs(at, twin[at].second, map);
        }
        break;
      case 5: {
        const block_id b{below(block_count)};
        map.resident(b) ? map.drop(b) : map.arrive(b, true);
        u.moved(b, map);
        break;
      }
      default:
        if (below(20) == 0) {
          u.drop_predictions(map);
          twin.resize(issued);
          ids.resize(issued);
        }
    }
    REQUIRE(u.size() == twin.size());
    REQUIRE(u.issued() == issued);
    if (below(5) == 0) {
      tracked = below(2) != 0;
      u.track_uses(tracked, map);
    }
    if (!tracked) {
      REQUIRE(u.use_count() == 0);
      REQUIRE(marked_missing(u).empty());
      REQUIRE(marked_kept(u).empty());
      REQUIRE(u.next_use(block_id{below(block_count)}) == std::nullopt);
      continue;
    }
    std::size_t uses = 0;
    std::set<std::size_t> kept;
    std::set<std::size_t> missed;
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
        (map.resident(block_id{b}) ? kept : missed).insert(*first);
      }
    }
    REQUIRE(u.use_count() == uses);
    const std::set<std::size_t> may_miss = marked_missing(u);
    const std::set<std::size_t> may_keep = marked_kept(u);
    REQUIRE(std::includes(may_miss.begin(), may_miss.end(), missed.begin(), missed.end()));
    REQUIRE(std::includes(may_keep.begin(), may_keep.end(), kept.begin(), kept.end()));
    if (below(4) == 0) {  // who has looked takes away what is marked in vain
      for (const std::size_t at : may_miss) {
        if (!missed.contains(at)) {
          u.nothing_missing(at);
        }
      }
      for (const std::size_t at : may_keep) {
        if (!kept.contains(at)) {
          u.nothing_kept(at);
        }
      }
      REQUIRE(marked_missing(u) == missed);
      REQUIRE(marked_kept(u) == kept);
    }
  }
}

TEST_CASE("while it is of no interest which launch uses a block next, that takes no memory") {
  const block_ledger map = some_blocks(1000);
  upcoming_launches u;
  u.predict(execution_id{1}, needs({blocks(0, 900)}), map);
  const bytes tracked = u.memory();
  u.track_uses(false, map);
  CHECK(u.memory() < 1_KiB);
  u.track_uses(true, map);
  CHECK(u.memory() == tracked);
  CHECK(u.next_use(block_id{899}) == 0U);
}

}  // namespace upcoming_launches_test
