#include "planning/random_step.hpp"
#include "support/test_scale.hpp"
#include <deepum/core/sequence.hpp>
#include <deepum/planning/step_planner.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>

namespace step_planner_test {

using namespace deepum_test;

using counts = deepum::sequence<std::uint32_t>;

constexpr nanoseconds block_time{1};
step_limits limits(std::uint32_t budget, nanoseconds per_block = block_time) { return {budget, per_block, per_block}; }

// The launch that reads `range` and takes long compared with the copy of a block.
void add_reader(step_description& d, block_range range, nanoseconds duration = nanoseconds{100}) {
  d.add_launch(duration);
  d.add_use(range, access::read);
}
block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

// When launches begin in a step that is longer than they are by a factor.
deepum::sequence<double> stretched(const step_segments& step, double factor) {
  deepum::sequence<double> begins;
  for (std::uint32_t k = 0; k <= step.launches(); ++k) {
    begins.push_back(factor * static_cast<double>(step.begin_of(k).count()));
  }
  return begins;
}

// Blocks that leave after a launch, of the segment that begins with `first`.
std::uint32_t leaves(const step_segments& step, const step_plan& plan, std::uint32_t first, std::uint32_t launch) {
  for (const std::uint32_t i : step.gaps_after(launch)) {
    if (step.blocks_of(step.gaps()[i]).begin_value() == first) {
      return plan.leaves[i];
    }
  }
  FAIL("launch " << launch << " uses no segment that begins with block " << first);
  return 0;
}

// Blocks on the device at each launch, counted block by block and launch by launch.
counts naive_occupied(const step_description& d, const step_segments& step, const counts& leaves) {
  counts occupied(d.size(), 0);
  for (const step_segment& s : step.segments()) {
    for (std::uint32_t i = 0; i != s.blocks.count; ++i) {
      const std::uint32_t b = s.blocks.begin_value() + i;
      std::uint32_t gap = s.first_gap;
      for (std::uint32_t k = 0; k != d.size(); ++k) {
        if (!naive_use(d, k, b)) {
          continue;
        }
        ++occupied[k];
        bool stays = i >= leaves[gap++] && !naive_death(d, k, b);
        for (std::uint32_t next = (k + 1) % d.size(); stays && !naive_use(d, next, b); next = (next + 1) % d.size()) {
          ++occupied[next];
          stays = !naive_death(d, next, b);
        }
      }
    }
  }
  return occupied;
}

// The least number of blocks that can return in a step that keeps the budget: all choices are tried.
std::uint64_t least_returning(const step_description& d, const step_segments& step, std::uint32_t budget) {
  std::uint64_t least = ~std::uint64_t{0};
  counts leaves(step.gaps().size(), 0);
  for (;;) {
    const counts occupied = naive_occupied(d, step, leaves);
    bool fits = true;
    for (std::uint32_t k = 0; k != d.size(); ++k) {
      fits = fits && occupied[k] <= std::max(budget, step.need(k));
    }
    std::uint64_t returning = 0;
    for (std::size_t i = 0; i != leaves.size(); ++i) {
      returning += step.gaps()[i].returns ? leaves[i] : 0;
    }
    if (fits) {
      least = std::min(least, returning);
    }
    std::size_t i = 0;
    while (i != leaves.size() && leaves[i] == step.blocks_of(step.gaps()[i]).count) {
      leaves[i++] = 0;
    }
    if (i == leaves.size()) {
      return least;
    }
    ++leaves[i];
  }
}

TEST_CASE("nothing leaves where everything fits") {
  step_description d;
  add_reader(d, blocks(0, 4));
  add_reader(d, blocks(4, 4));
  const step_plan plan = plan_step(step_segments(d), limits(8));
  CHECK(plan.idle());
  CHECK(plan.leaves == counts{0, 0});
  CHECK(plan.occupied == counts{8, 8});
  CHECK(plan.returning == 0);
}

TEST_CASE("contents that are dead take no room") {
  step_description d;
  add_reader(d, blocks(0, 4));
  d.add_last_use(blocks(0, 4));
  add_reader(d, blocks(4, 4));
  d.add_last_use(blocks(4, 4));
  const step_plan plan = plan_step(step_segments(d), limits(4));
  CHECK(plan.idle());
  CHECK(plan.occupied == counts{4, 4});
}

TEST_CASE("in a loop that is one block too large two blocks come and go, those that come back last") {
  step_description d;
  for (std::uint32_t k = 0; k != 4; ++k) {
    add_reader(d, blocks(k));
  }
  // At launch 0 block 3 is needed last; at launch 3, when it is back, block 2 is.
  const step_plan plan = plan_step(step_segments(d), limits(3));
  CHECK(plan.leaves == counts{0, 0, 1, 1});
  CHECK(plan.occupied == counts{2, 2, 3, 3});
  CHECK(plan.returning == 2);
}

TEST_CASE("the part of a segment that leaves is no larger than needed") {
  step_description d;
  add_reader(d, blocks(0, 4));
  add_reader(d, blocks(4, 2));
  const step_segments step(d);
  const step_plan plan = plan_step(step, limits(5));
  CHECK(plan.leaves == counts{1, 1});
  CHECK(plan.occupied == counts{5, 5});
}

TEST_CASE("what never comes back leaves first") {
  // At the middle launch there is room for one block beside those that it needs.
  const auto planned = [](bool dies, bool overwritten) {
    step_description d;
    d.add_launch(nanoseconds{100});
    d.add_use(blocks(0), overwritten ? access::overwrite : access::update);
    d.add_use(blocks(9), access::read);
    d.add_launch(nanoseconds{100});
    d.add_use(blocks(20, 2), access::read);
    d.add_launch(nanoseconds{100});
    if (dies) {
      d.add_last_use(blocks(0));
    }
    d.add_launch(nanoseconds{100});
    d.add_use(blocks(9), access::read);
    d.add_launch(nanoseconds{100});
    d.add_last_use(blocks(20, 2));
    const step_segments step(d);
    const step_plan plan = plan_step(step, limits(3));
    return counts{leaves(step, plan, 0, 0), leaves(step, plan, 9, 0)};
  };
  CHECK(planned(true, false) == counts{1, 0});  // although block 9 is needed later than block 0 dies
  CHECK(planned(false, true) == counts{1, 0});
}

TEST_CASE("blocks do not leave in gaps that are too short for the copies, unless the budget asks for it") {
  // The large launch needs two other blocks out of the way. Block 1 is away for a moment only, but comes back last.
  const auto planned = [](nanoseconds pause, std::uint32_t budget) {
    step_description d;
    add_reader(d, blocks(1));
    add_reader(d, blocks(10, 4), pause);
    add_reader(d, blocks(1));
    d.add_last_use(blocks(1));
    add_reader(d, blocks(0), nanoseconds{1000});
    const step_segments step(d);
    const step_plan plan = plan_step(step, {budget, nanoseconds{10}, nanoseconds{10}});
    return counts{leaves(step, plan, 1, 0), leaves(step, plan, 0, 3)};
  };
  CHECK(planned(nanoseconds{5}, 5) == counts{0, 1});
  CHECK(planned(nanoseconds{5}, 4) == counts{1, 1});
}

TEST_CASE("clean blocks need less time to leave than dirty ones") {
  // Of blocks 0 and 20 one must make room for the large launch. Block 0 comes back last, but soon.
  const auto leaves_of_0_and_20 = [](bool written) {
    step_description d;
    d.add_launch(nanoseconds{100});
    d.add_use(blocks(0), written ? access::update : access::read);
    add_reader(d, blocks(10, 3), nanoseconds{30});
    d.add_last_use(blocks(10, 3));
    add_reader(d, blocks(20), nanoseconds{1});
    add_reader(d, blocks(0), nanoseconds{100});
    const step_segments step(d);
    const step_plan plan = plan_step(step, {4, nanoseconds{10}, nanoseconds{10}});
    return counts{leaves(step, plan, 0, 0), leaves(step, plan, 20, 2)};
  };
  CHECK(leaves_of_0_and_20(false) == counts{1, 0});
  CHECK(leaves_of_0_and_20(true) == counts{0, 1});
}

TEST_CASE("blocks that have been taken out since they were written are clean") {
  // The same choice, after a launch that takes all the room where `out_before`.
  const auto leaves_of_0_and_20 = [](bool out_before) {
    step_description d;
    d.add_launch(nanoseconds{100});
    d.add_use(blocks(0), access::update);
    add_reader(d, blocks(30, out_before ? 4 : 1), nanoseconds{1000});
    d.add_last_use(blocks(30, 4));
    d.add_launch(nanoseconds{100});
    d.add_use(blocks(0), access::read);
    d.add_use(blocks(20), access::read);
    add_reader(d, blocks(10, 3), nanoseconds{50});
    d.add_last_use(blocks(10, 3));
    add_reader(d, blocks(20), nanoseconds{1});
    add_reader(d, blocks(0), nanoseconds{100});
    const step_segments step(d);
    const step_plan plan = plan_step(step, {4, nanoseconds{10}, nanoseconds{10}});
    return counts{leaves(step, plan, 0, 2), leaves(step, plan, 20, 2)};
  };
  CHECK(leaves_of_0_and_20(true) == counts{1, 0});
  CHECK(leaves_of_0_and_20(false) == counts{0, 1});
}

TEST_CASE("returns are spread over the step as far as the link has the time") {
  // A large launch pushes half of the other blocks out. Belady's rule alone chooses those of the last eight launches.
  const auto late = [](nanoseconds large, nanoseconds early_one, nanoseconds late_one, detail::plan_style style,
                       double slowdown = 1) {
    step_description d;
    add_reader(d, blocks(1000, 192), large);
    for (std::uint32_t k = 0; k != 16; ++k) {
      add_reader(d, blocks(k * 10, 8), k < 8 ? early_one : late_one);
    }
    const step_segments step(d);
    style.begins = stretched(step, slowdown);
    const step_plan plan = detail::step_planner(step, limits(256, nanoseconds{100}), style).make();
    std::uint32_t sum = 0;
    for (std::uint32_t k = 8; k != 16; ++k) {
      sum += leaves(step, plan, k * 10, k + 1);
    }
    return sum;
  };
  const nanoseconds window{1000};
  CHECK(late(nanoseconds{4000}, nanoseconds{9000}, nanoseconds{9000}, {}) == 64);
  CHECK(late(nanoseconds{4000}, nanoseconds{9000}, nanoseconds{9000}, {.window = window}) == 64);
  CHECK(late(nanoseconds{4000}, nanoseconds{9000}, nanoseconds{1}, {.window = window}) < 16);
  // A step that takes as long as its copies, with launches of which nothing is known.
  CHECK(late(nanoseconds{0}, nanoseconds{0}, nanoseconds{0}, {.window = window}, 6400.0 / 17) < 40);
}

// A training step: layers write activations in a forward pass and read them in a backward pass, in reverse, each with
// an update of the layer's state, which is used only there. Blocks of a layer: 8 of activations, 8 of state.
constexpr std::uint32_t layers = 12;
constexpr block_range activations(std::uint32_t layer) { return {block_id{layer * 20}, 8}; }
constexpr block_range state(std::uint32_t layer) { return {block_id{layer * 20 + 10}, 8}; }
step_description training(nanoseconds forward, nanoseconds backward) {
  step_description d;
  for (std::uint32_t l = 0; l != layers; ++l) {
    d.add_launch(forward);
    d.add_use(activations(l), access::overwrite);
  }
  for (std::uint32_t l = layers; l-- != 0;) {
    d.add_launch(backward);
    d.add_use(activations(l), access::read);
    d.add_launch(nanoseconds{10});
    d.add_use(state(l), access::update);
    d.add_last_use(activations(l));
  }
  return d;
}
constexpr std::uint32_t half = layers * 8;  // of all blocks

TEST_CASE("what could leave while the outward link was idle makes room rather than what has just been written") {
  const step_description d = training(nanoseconds{10}, nanoseconds{100});
  const step_segments step(d);
  const step_limits l = limits(half, nanoseconds{20});
  const step_plan plan = plan_step(step, l);
  std::uint32_t fresh = 0;
  std::uint32_t old = 0;
  for (std::uint32_t i = 0; i != layers; ++i) {
    fresh += leaves(step, plan, activations(i).begin_value(), i);
    old += leaves(step, plan, state(i).begin_value(), layers + 2 * (layers - 1 - i) + 1);
  }
  CHECK(fresh <= half / 8);
  CHECK(old >= half * 7 / 8);
  // The forward pass takes hardly longer than its launches, and the whole step hardly longer than its returns.
  const deepum::sequence<double> begins = detail::step_timer(step, l, plan.leaves, plan.occupied).begins();
  CHECK(begins[layers] <= 3.0 * layers * 10);
  CHECK(begins.back() <= 1.25 * half * 20);
}

TEST_CASE("a plan is never expected to be slower than one that spreads returns alone, or nothing") {
  const std::uint32_t seed = 4711;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::uint32_t faster_than_inward = 0;
  std::uint32_t faster_than_unspread = 0;
  for (std::size_t round = 0; round != scaled(500); ++round) {
    INFO("round " << round);
    const step_description d = random_step(random, draw(random, 1, 12), draw(random, 1, 30));
    const step_segments step(d);
    const step_limits l{draw(random, 1, random_step_blocks), nanoseconds{draw(random, 1, 50)},
                        nanoseconds{draw(random, 1, 100)}};
    const std::uint64_t returning = detail::step_planner(step, l, {}).make().returning;
    const detail::plan_style style = detail::spread_returns(step, l, returning);
    const step_plan inward = detail::step_planner(step, l, style).make();
    const step_plan unspread = detail::step_planner(step, l, {.margin = style.margin}).make();
    const step_plan plan = plan_step(step, l);
    const auto time = [&](const step_plan& p) {
      return detail::step_timer(step, l, p.leaves, p.occupied).begins().back();
    };
    if (!plan.idle()) {
      CHECK(time(plan) <= time(inward));
      CHECK(time(plan) <= time(unspread));
      faster_than_inward += time(plan) < time(inward) ? 1 : 0;
      faster_than_unspread += time(plan) < time(unspread) ? 1 : 0;
    }
  }
  CHECK(faster_than_inward > 0);
  CHECK(faster_than_unspread > 0);
}

TEST_CASE("some of the budget is left for what arrives early") {
  // A step takes as long as its launches or its copies do: where nothing is known of the launches, not all gaps are
  // short.
  for (const nanoseconds duration : {nanoseconds{10000}, nanoseconds{0}}) {
    step_description d;
    for (std::uint32_t k = 0; k != 6; ++k) {
      add_reader(d, blocks(k * 500, 320), duration);
    }
    // A part of the largest launch, or what is on its way at a time, and a small part of the budget at most.
    step_limits l = limits(960, nanoseconds{100});
    const auto most = [&] {
      const step_plan plan = plan_step(step_segments(d), l);
      return *std::max_element(plan.occupied.begin(), plan.occupied.end());
    };
    CHECK(most() == 920);
    l.in_flight = 30;
    CHECK(most() == 920);
    l.budget = 1200;
    CHECK(most() == 1160);
    l.in_flight = 48;
    CHECK(most() == 1152);
    l.in_flight = 480;
    CHECK(most() == 1150);
  }
}

TEST_CASE("a launch that is larger than the budget keeps only itself") {
  step_description d;
  add_reader(d, blocks(0, 6));
  add_reader(d, blocks(6, 2));
  const step_plan plan = plan_step(step_segments(d), limits(4));
  CHECK(plan.occupied == counts{6, 4});
}

TEST_CASE("a step without launches, or a device without room, can be planned") {
  CHECK(plan_step(step_segments(step_description{}), limits(4)).idle());
  step_description d;
  add_reader(d, blocks(0, 2));
  add_reader(d, blocks(1, 2));
  CHECK(plan_step(step_segments(d), limits(0)).occupied == counts{2, 2});
  CHECK(plan_step(step_segments(d), {2, nanoseconds{0}, nanoseconds{0}}).occupied == counts{2, 2});
}

TEST_CASE("a plan keeps the budget, counts right, and lets nothing leave that could stay") {
  const std::uint32_t seed = 815;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (std::size_t round = 0; round != scaled(1500); ++round) {
    INFO("round " << round);
    const step_description d = random_step(random, draw(random, 1, 10), draw(random, 1, 20));
    const step_segments step(d);
    const std::uint32_t budget = draw(random, 0, random_step_blocks);
    const counts all = naive_occupied(d, step, counts(step.gaps().size(), 0));
    detail::plan_style style;  // the parts of `plan_step`, in any combination
    style.margin = draw(random, 0, 1) * draw(random, 0, 6);
    style.begins = stretched(step, 1 + draw(random, 0, 3));
    style.both_ways = draw(random, 0, 1) == 1;
    style.window = nanoseconds{draw(random, 0, 1) * draw(random, 1, 50)};
    const nanoseconds copy{draw(random, 0, 50)};
    const bool whole = draw(random, 0, 1) == 1;
    const step_plan plan =
        whole ? plan_step(step, limits(budget, copy)) : detail::step_planner(step, limits(budget, copy), style).make();

    bool fits = true;
    const counts occupied = naive_occupied(d, step, plan.leaves);
    CHECK(plan.occupied == occupied);
    for (std::uint32_t k = 0; k != d.size(); ++k) {
      CHECK(occupied[k] <= std::max(budget, step.need(k)));
      fits = fits && all[k] <= std::max(budget, step.need(k));
    }
    if (fits && (whole || style.margin == 0)) {
      CHECK(plan.idle());
    }
    if (!fits) {
      CHECK_FALSE(plan.idle());
    }
    std::uint64_t returning = 0;
    for (std::size_t i = 0; i != plan.leaves.size(); ++i) {
      const step_gap& gap = step.gaps()[i];
      CHECK(plan.leaves[i] <= step.blocks_of(gap).count);
      returning += gap.returns ? plan.leaves[i] : 0;
      if (whole || plan.leaves[i] == 0) {
        continue;
      }
      bool could_stay = true;
      for (std::uint32_t j = 1; j <= gap.held; ++j) {
        const std::uint32_t k = (gap.launch + j) % d.size();
        const std::uint32_t wanted = std::max(step.need(k), budget - std::min(budget, style.margin));
        could_stay = could_stay && occupied[k] < wanted;
      }
      CHECK_FALSE(could_stay);
    }
    CHECK(plan.returning == returning);
    const step_plan again =
        whole ? plan_step(step, limits(budget, copy)) : detail::step_planner(step, limits(budget, copy), style).make();
    CHECK(again.leaves == plan.leaves);
  }
}

TEST_CASE("the traffic of a plan is not far from the least that any choice has") {
  const std::uint32_t seed = 1966;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::uint64_t least = 0;
  std::uint64_t planned = 0;
  for (std::size_t round = 0; round != scaled(300);) {
    INFO("round " << round);
    const step_description d = random_step(random, draw(random, 2, 6), draw(random, 1, 6));
    const step_segments step(d);
    std::uint64_t choices = 1;
    for (const step_gap& g : step.gaps()) {
      choices = std::min<std::uint64_t>(choices * (step.blocks_of(g).count + 1), 1U << 20);
    }
    if (choices > 4096) {
      continue;
    }
    ++round;
    const std::uint32_t budget = draw(random, 1, 5);  // so small that no margin is left
    const std::uint64_t best = least_returning(d, step, budget);
    const step_plan plan = plan_step(step, limits(budget));
    CHECK(plan.returning >= best);
    least += best;
    planned += plan.returning;
  }
  CHECK(least > 0);
  CHECK(planned <= least + least / 20);
}

}  // namespace step_planner_test
