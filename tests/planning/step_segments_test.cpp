#include "planning/random_step.hpp"
#include "support/test_scale.hpp"
#include <deepum/planning/step_segments.hpp>

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

namespace step_segments_test {

using namespace deepum_test;

struct expected_gap {
  std::uint32_t launch = 0;
  std::uint32_t next = 0;
  std::uint32_t held = 0;
  bool writes = false;
  bool returns = true;

  friend bool operator==(const expected_gap&, const expected_gap&) = default;
};
std::vector<expected_gap> gaps_of(const step_segments& step, const step_segment& s) {
  std::vector<expected_gap> all;
  for (std::uint32_t i = 0; i != s.gap_count; ++i) {
    const step_gap& g = step.gaps()[s.first_gap + i];
    all.push_back({g.launch, g.next, g.held, g.writes, g.returns});
  }
  return all;
}
std::vector<expected_gap> gaps_of(const step_segments& step, std::size_t segment) {
  return gaps_of(step, step.segments()[segment]);
}

// Walks from each use of a block through the launches that follow, one by one.
std::vector<expected_gap> naive_gaps(const step_description& step, std::uint32_t block) {
  std::vector<expected_gap> all;
  const std::uint32_t n = step.size();
  for (std::uint32_t k = 0; k != n; ++k) {
    if (!naive_use(step, k, block)) {
      continue;
    }
    expected_gap g{.launch = k, .next = k, .writes = *naive_use(step, k, block) != access::read};
    bool alive = !naive_death(step, k, block);
    for (std::uint32_t i = 1; i <= n; ++i) {
      g.next = (k + i) % n;
      if (naive_use(step, g.next, block)) {
        break;
      }
      g.held += alive ? 1 : 0;
      alive = alive && !naive_death(step, g.next, block);
    }
    g.returns = alive && *naive_use(step, g.next, block) != access::overwrite;
    all.push_back(g);
  }
  return all;
}

TEST_CASE("blocks that the same launches use in the same way are one segment") {
  step_description d;
  d.add_launch();
  d.add_use({block_id{10}, 4}, access::read);
  d.add_use({block_id{14}, 4}, access::read);
  d.add_launch();
  d.add_use({block_id{12}, 6}, access::read);
  d.add_use({block_id{30}, 1}, access::update);
  const step_segments step(d);

  REQUIRE(step.segments().size() == 3);
  CHECK(step.segments()[0].blocks == block_range{block_id{10}, 2});
  CHECK(step.segments()[1].blocks == block_range{block_id{12}, 6});
  CHECK(step.segments()[2].blocks == block_range{block_id{30}, 1});
  CHECK(gaps_of(step, 0) == std::vector<expected_gap>{{.launch = 0, .next = 0, .held = 1}});
  CHECK(gaps_of(step, 1) == std::vector<expected_gap>{{.launch = 0, .next = 1}, {.launch = 1, .next = 0}});
  CHECK(gaps_of(step, 2) == std::vector<expected_gap>{{.launch = 1, .next = 1, .held = 1, .writes = true}});
  CHECK(step.need(0) == 8);
  CHECK(step.need(1) == 7);
  CHECK(step.gaps_after(0).size() == 2);
  CHECK(step.gaps_after(1).size() == 2);
}

TEST_CASE("blocks that are written at different launches, or die at different ones, are different segments") {
  step_description d;
  d.add_launch();
  d.add_use({block_id{0}, 3}, access::read);
  d.add_use({block_id{3}, 3}, access::update);
  d.add_launch();
  d.add_last_use({block_id{1}, 1});
  const step_segments step(d);
  CHECK(step.segments().size() == 4);
}

TEST_CASE("a gap ends with the last use of what it holds") {
  step_description d;
  for (int k = 0; k != 6; ++k) {
    d.add_launch();
    if (k == 2) {
      d.add_use({block_id{0}, 1}, access::update);
    }
    if (k == 4) {
      d.add_use({block_id{1}, 1}, access::update);
    }
  }
  SUBCASE("while other launches run") {
    d.add_last_use({block_id{0}, 1});
    CHECK(gaps_of(step_segments(d), 0) ==
          std::vector<expected_gap>{{.launch = 2, .next = 2, .held = 3, .writes = true, .returns = false}});
  }
  SUBCASE("around the end of the step") {
    step_description later;
    later.add_launch();
    later.add_last_use({block_id{1}, 1});
    later.add_launch();
    later.add_launch();
    later.add_use({block_id{1}, 1}, access::read);
    CHECK(gaps_of(step_segments(later), 0) ==
          std::vector<expected_gap>{{.launch = 2, .next = 2, .held = 1, .returns = false}});
  }
  SUBCASE("at the first of several") {
    d.add_last_use({block_id{0}, 4});
    d.add_launch();
    d.add_last_use({block_id{0}, 4});
    CHECK(gaps_of(step_segments(d), 0)[0].held == 3);
  }
}

TEST_CASE("what dies with the launch that used it holds no room") {
  step_description d;
  d.add_launch();
  d.add_use({block_id{0}, 1}, access::update);
  d.add_last_use({block_id{0}, 1});
  d.add_launch();
  CHECK(gaps_of(step_segments(d), 0) ==
        std::vector<expected_gap>{{.launch = 0, .next = 0, .writes = true, .returns = false}});
}

TEST_CASE("contents that are overwritten next do not come back") {
  step_description d;
  d.add_launch();
  d.add_use({block_id{0}, 2}, access::overwrite);
  d.add_use({block_id{1}, 1}, access::read);  // what it has written itself
  d.add_launch();
  d.add_use({block_id{0}, 2}, access::read);
  d.add_launch();
  const step_segments step(d);
  REQUIRE(step.segments().size() == 1);
  CHECK(gaps_of(step, 0) == std::vector<expected_gap>{{.launch = 0, .next = 1, .writes = true},
                                                      {.launch = 1, .next = 0, .held = 1, .returns = false}});
  CHECK(step.need(0) == 2);
}

TEST_CASE("contents that are read before they are overwritten come back") {
  step_description d;
  d.add_launch();
  d.add_use({block_id{0}, 1}, access::read);
  d.add_use({block_id{0}, 1}, access::overwrite);
  CHECK(gaps_of(step_segments(d), 0) == std::vector<expected_gap>{{.launch = 0, .next = 0, .writes = true}});
}

TEST_CASE("launches begin when those before them have run, and take equally long where nothing is known") {
  step_description timed;
  timed.add_launch(nanoseconds{5});
  timed.add_launch(nanoseconds{0});
  timed.add_launch(nanoseconds{7});
  const step_segments t(timed);
  CHECK(t.begin_of(0) == nanoseconds{0});
  CHECK(t.begin_of(1) == nanoseconds{5});
  CHECK(t.begin_of(2) == nanoseconds{5});
  CHECK(t.begin_of(3) == nanoseconds{12});
  step_description untimed;
  untimed.add_launch();
  untimed.add_launch();
  CHECK(step_segments(untimed).begin_of(2) == nanoseconds{2});
}

TEST_CASE("a step without uses has no segments") {
  step_description d;
  CHECK(step_segments(d).segments().empty());
  d.add_launch();
  d.add_last_use({block_id{3}, 1});
  const step_segments step(d);
  CHECK(step.gaps().empty());
  CHECK(step.need(0) == 0);
  CHECK(step.gaps_after(0).empty());
  d.clear();
  CHECK(d.size() == 0);
}

TEST_CASE("segments say of each block what a walk through the launches says") {
  const std::uint32_t seed = 4711;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (std::size_t round = 0; round != scaled(400); ++round) {
    INFO("round " << round);
    const step_description d = random_step(random, draw(random, 1, 12), draw(random, 1, 20));
    const step_segments step(d);
    std::map<std::uint32_t, std::vector<expected_gap>> found;
    const step_segment* before = nullptr;
    for (const step_segment& s : step.segments()) {
      for (std::uint32_t b = s.blocks.begin_value(); b != s.blocks.end_value(); ++b) {
        CHECK(found.count(b) == 0);
        found[b] = gaps_of(step, s);
      }
      if (before != nullptr && before->blocks.end_value() == s.blocks.begin_value()) {
        CHECK(gaps_of(step, *before) != gaps_of(step, s));
      }
      before = &s;
    }
    std::vector<std::uint32_t> need(d.size(), 0);
    for (std::uint32_t b = 0; b != random_step_blocks; ++b) {
      CHECK(found[b] == naive_gaps(d, b));
      for (std::uint32_t k = 0; k != d.size(); ++k) {
        need[k] += naive_use(d, k, b) ? 1 : 0;
      }
    }
    std::size_t gaps = 0;
    for (std::uint32_t k = 0; k != d.size(); ++k) {
      CHECK(step.need(k) == need[k]);
      for (const std::uint32_t i : step.gaps_after(k)) {
        CHECK(step.gaps()[i].launch == k);
        ++gaps;
      }
    }
    CHECK(gaps == step.gaps().size());
  }
}

}  // namespace step_segments_test
