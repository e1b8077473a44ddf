#include "planning/random_step.hpp"
#include "support/test_scale.hpp"
#include <deepum/core/sequence.hpp>
#include <deepum/planning/step_schedule.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace step_schedule_test {

using namespace deepum_test;

constexpr nanoseconds copy{1000};

using leaving = std::vector<std::pair<std::uint32_t, std::uint64_t>>;  // block, launches until it is needed

leaving all_leaving(step_schedule& s) {
  leaving all;
  s.for_each_leaving([&](block_range blocks, std::uint64_t launches) {
    for (std::uint32_t b = blocks.begin_value(); b != blocks.end_value(); ++b) {
      all.emplace_back(b, launches);
    }
    return step_schedule::verdict::next;
  });
  return all;
}

// The reach at one launch, by claiming the returns of one launch after the other.
fetch_reach naive_reach(const step_segments& step, const step_plan& plan, std::uint32_t budget, std::uint32_t k) {
  const std::uint32_t n = step.launches();
  std::vector<std::int64_t> free(n);
  for (std::uint32_t i = 0; i != n; ++i) {
    free[i] = static_cast<std::int64_t>(budget) - plan.occupied[(k + i) % n];
  }
  fetch_reach reach;
  while (reach.launches != n - 1) {
    const std::uint32_t launch = (k + reach.launches + 1) % n;
    std::int64_t returning = 0;
    for (std::size_t g = 0; g != plan.leaves.size(); ++g) {
      returning += step.gaps()[g].next == launch && step.gaps()[g].returns ? plan.leaves[g] : 0;
    }
    const std::int64_t room =
        std::max<std::int64_t>(0, *std::min_element(free.begin(), free.begin() + reach.launches + 1));
    if (returning > room) {
      reach.blocks = static_cast<std::uint32_t>(room);
      return reach;
    }
    ++reach.launches;
    for (std::size_t g = 0; g != plan.leaves.size(); ++g) {
      const step_gap& gap = step.gaps()[g];
      if (gap.next == launch && gap.returns) {
        for (std::uint32_t i = 1; i <= std::min(gap.held, reach.launches); ++i) {
          free[reach.launches - i] -= plan.leaves[g];
        }
      }
    }
  }
  return reach;
}

// Five launches that need three blocks each, of which seven fit.
step_description loop() {
  step_description d;
  for (std::uint32_t k = 0; k != 5; ++k) {
    d.add_launch(nanoseconds{100});
    d.add_use({block_id{k * 10}, 3}, access::read);
  }
  return d;
}

TEST_CASE("with neighbours, what goes to the host is what is away when their room counts as the device's") {
  std::mt19937 dice(17);
  const std::uint64_t steps = scaled(200);
  std::uint64_t near = 0;
  std::uint64_t far = 0;
  for (std::uint64_t n = 0; n != steps; ++n) {
    CAPTURE(n);
    const step_description made = random_step(dice, 3 + static_cast<std::uint32_t>(dice() % 12), 3);
    const step_segments step(made);
    if (step.gaps().empty()) {
      continue;
    }
    std::uint32_t most = 0;
    for (std::uint32_t k = 0; k != step.launches(); ++k) {
      most = std::max(most, step.need(k));
    }
    const std::uint32_t budget = most + static_cast<std::uint32_t>(dice() % 8);
    const std::uint32_t beside = 1 + static_cast<std::uint32_t>(dice() % 12);
    const step_plan together = plan_step(step, {budget + beside, copy, copy});
    step_schedule s(made, {.budget = budget, .in_per_block = copy, .out_per_block = copy, .beside = beside}, 0);
    CHECK(s.places_blocks());
    for (std::uint32_t k = 0; k != step.launches(); ++k, s.advance()) {
      for (const std::uint32_t gap : step.gaps_after(k == 0 ? step.launches() - 1 : k - 1)) {
        const step_gap& g = step.gaps()[gap];
        for (const block_id b : block_range{step.blocks_of(g).first, s.leaves(gap)}) {
          const bool goes = s.goes_far(g.segment, b);
          CHECK(goes == (b.value - step.blocks_of(g).begin_value() < together.leaves[gap]));
          ++(goes ? far : near);
        }
      }
    }
  }
  CHECK(near != 0);
  CHECK(far != 0);
}

TEST_CASE("without neighbours a schedule places nothing") {
  CHECK_FALSE(step_schedule(loop(), {7, copy, copy}, 0).places_blocks());
}

TEST_CASE("a schedule of what fits has nothing to say") {
  step_schedule s(loop(), {15, copy, copy}, 2);
  CHECK(s.idle());
  CHECK(all_leaving(s).empty());
  CHECK(s.reach() == fetch_reach{4, 0});
}

TEST_CASE("blocks leave after their use, those that come back last first, and stay when they are needed again") {
  const step_segments step(loop());
  const step_limits limits{7, copy, copy};
  const step_plan plan = plan_step(step, limits);
  REQUIRE_FALSE(plan.idle());
  step_schedule s(loop(), limits, 0);
  for (std::uint32_t k = 0; k != 15; ++k) {
    CHECK(s.position() == k % 5);
    leaving expected;
    for (std::size_t g = 0; g != plan.leaves.size(); ++g) {
      const step_gap& gap = step.gaps()[g];
      const std::uint32_t launches = (gap.next + 5 - k % 5) % 5;  // each block has one use, so its gap is always open
      for (std::uint32_t i = 0; i != plan.leaves[g]; ++i) {
        expected.emplace_back(step.blocks_of(gap).begin_value() + i, launches);
      }
    }
    std::stable_sort(expected.begin(), expected.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    CHECK(all_leaving(s) == expected);
    s.advance();
  }
}

TEST_CASE("blocks that are gone are not visited again until they have been used") {
  step_schedule s(loop(), {7, copy, copy}, 0);
  const leaving before = all_leaving(s);
  std::uint32_t visits = 0;
  s.for_each_leaving([&](block_range, std::uint64_t) {
    ++visits;
    return visits == 1 ? step_schedule::verdict::erase : step_schedule::verdict::stop;
  });
  CHECK(visits == 2);
  const leaving after = all_leaving(s);
  CHECK(after.size() < before.size());
  CHECK(after.front().second < before.front().second);
  for (int i = 0; i != 5; ++i) {
    s.advance();
  }
  CHECK(all_leaving(s) == before);
}

TEST_CASE("what never comes back leaves first") {
  step_description d;
  d.add_launch(nanoseconds{100});
  d.add_use({block_id{0}, 2}, access::update);
  d.add_use({block_id{10}, 2}, access::update);
  d.add_launch(nanoseconds{100});
  d.add_use({block_id{20}, 4}, access::read);
  d.add_last_use({block_id{20}, 4});
  d.add_launch(nanoseconds{100});
  d.add_last_use({block_id{0}, 2});
  d.add_use({block_id{10}, 2}, access::update);
  step_schedule s(d, {4, copy, copy}, 0);
  s.advance();
  const leaving all = all_leaving(s);
  REQUIRE(all.size() == 4);
  CHECK(all[0] == std::pair<std::uint32_t, std::uint64_t>{0, step_schedule::never});
  CHECK(all[1] == std::pair<std::uint32_t, std::uint64_t>{1, step_schedule::never});
  CHECK(all[2].second == 1);
}

TEST_CASE("the reach is what can come back early in the room that the plan leaves") {
  // One block at a time is away, and there is room for one more than what stays.
  step_description d;
  for (std::uint32_t k = 0; k != 4; ++k) {
    d.add_launch(nanoseconds{100});
    d.add_use({block_id{k * 2}, 1}, access::read);
  }
  const step_segments step(d);
  const step_plan plan = plan_step(step, {3, copy, copy});
  REQUIRE(plan.leaves == deepum::sequence<std::uint32_t>{0, 0, 1, 1});
  REQUIRE(plan.occupied == deepum::sequence<std::uint32_t>{2, 2, 3, 3});
  const deepum::sequence<fetch_reach> reaches = detail::reach_finder(step, plan, 3).find();
  // Blocks 4 and 6 are away. There is room for one of them at launches 0 and 1, and for none later.
  CHECK(reaches[0] == fetch_reach{2, 0});
  CHECK(reaches[1] == fetch_reach{1, 0});
  CHECK(reaches[2] == fetch_reach{0, 0});
  CHECK(reaches[3] == fetch_reach{2, 0});  // to the next step, until block 2 is needed
}

TEST_CASE("reaches say what claiming one launch after the other says") {
  const std::uint32_t seed = 31415;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::uint64_t sum = 0;
  for (std::size_t round = 0; round != scaled(500); ++round) {
    INFO("round " << round);
    const step_description d = random_step(random, draw(random, 1, 12), draw(random, 1, 20));
    const step_segments step(d);
    const std::uint32_t budget = draw(random, 1, random_step_blocks);
    const step_plan plan = plan_step(step, {budget, copy, copy});
    const deepum::sequence<fetch_reach> reaches = detail::reach_finder(step, plan, budget).find();
    for (std::uint32_t k = 0; k != step.launches(); ++k) {
      CHECK(reaches[k] == naive_reach(step, plan, budget, k));
      sum += plan.idle() ? 0 : reaches[k].launches;
    }
  }
  CHECK(sum > 0);
}

TEST_CASE("what should be away is what the plan lets leave in the gaps that are open") {
  const std::uint32_t seed = 2718;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (std::size_t round = 0; round != scaled(300); ++round) {
    INFO("round " << round);
    const step_description d = random_step(random, draw(random, 1, 10), draw(random, 1, 15));
    const step_segments step(d);
    const step_limits limits{draw(random, 1, random_step_blocks), copy, copy};
    const step_plan plan = plan_step(step, limits);
    const std::uint32_t n = step.launches();
    step_schedule s(d, limits, draw(random, 0, n - 1));
    for (std::uint32_t i = 0; i != 2 * n; ++i) {
      const std::uint32_t k = s.position();
      std::map<std::uint32_t, std::uint64_t> expected;
      for (std::size_t g = 0; g != plan.leaves.size(); ++g) {
        const step_gap& gap = step.gaps()[g];
        const std::uint32_t since = (k + n - gap.launch - 1) % n;  // launches that have finished after the use
        const std::uint32_t length = (gap.next + n - gap.launch - 1) % n;
        for (std::uint32_t j = 0; since <= length && j != plan.leaves[g]; ++j) {
          expected[step.blocks_of(gap).begin_value() + j] = gap.returns ? length - since : step_schedule::never;
        }
      }
      const leaving found = all_leaving(s);
      CHECK(std::map<std::uint32_t, std::uint64_t>(found.begin(), found.end()) == expected);
      CHECK(found.size() == expected.size());
      CHECK(
          std::is_sorted(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.second > b.second; }));
      s.advance();
    }
  }
}

TEST_CASE("what leaves later and is not written before may be written back ahead") {
  // Block 0 is written by launch 0, read by launches 1 and 2, and away while the others need all the room.
  step_description d;
  d.add_launch(nanoseconds{100});
  d.add_use({block_id{0}, 1}, access::update);
  for (int k = 0; k != 2; ++k) {
    d.add_launch(nanoseconds{100});
    d.add_use({block_id{0}, 1}, access::read);
  }
  for (std::uint32_t k = 0; k != 2; ++k) {
    d.add_launch(nanoseconds{100});
    d.add_use({block_id{10 * (k + 1)}, 2}, access::read);
  }
  step_schedule s(d, {2, copy, copy}, 0);
  REQUIRE_FALSE(s.idle());
  const auto write_backs = [&] {
    std::vector<std::uint32_t> all;
    s.for_each_write_back([&](block_range blocks) {
      for (std::uint32_t b = blocks.begin_value(); b != blocks.end_value(); ++b) {
        all.push_back(b);
      }
      return step_schedule::verdict::next;
    });
    return all;
  };
  const auto has_zero = [&] {
    const std::vector<std::uint32_t> all = write_backs();
    return std::find(all.begin(), all.end(), 0) != all.end();
  };
  CHECK_FALSE(has_zero());  // launch 0 is about to write it
  s.advance();
  CHECK(has_zero());
  s.advance();
  CHECK(has_zero());
  s.advance();
  CHECK_FALSE(has_zero());  // it leaves
}

}  // namespace step_schedule_test
