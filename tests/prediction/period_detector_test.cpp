#include "support/test_scale.hpp"
#include <deepum/prediction/period_detector.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace period_detector_test {

using namespace deepum;

// Issues launches and lets them finish at once.
void run(period_detector& r, const std::vector<std::uint32_t>& ids) {
  for (const std::uint32_t id : ids) {
    r.issue(execution_id{id});
    r.finish();
  }
}
std::vector<std::uint32_t> sequence(std::uint32_t first, std::uint32_t count) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i != count; ++i) {
    ids.push_back(first + i);
  }
  return ids;
}
std::vector<std::uint32_t> step_of(const period_detector& r) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t k = 0; k != r.period(); ++k) {
    ids.push_back(r.id_at(k).value);
  }
  return ids;
}
// Launches issued until the step is believed to recur, at most `most`.
std::size_t launches_until_found(period_detector& r, const std::vector<std::uint32_t>& step, std::size_t most) {
  for (std::size_t i = 0; i != most; ++i) {
    run(r, {step[i % step.size()]});
    if (r.recurs()) {
      return i + 1;
    }
  }
  return 0;
}

TEST_CASE("a step is found shortly after it has begun again") {
  period_detector r(1000);
  CHECK(launches_until_found(r, sequence(1, 300), 1000) == 300 + 4 + period_detector::confirmed_after);
  CHECK(r.period() == 300);
}

TEST_CASE("a short step is believed in when it has been repeated as a whole") {
  period_detector r(1000);
  CHECK(launches_until_found(r, sequence(1, 10), 100) == 10 + 4 + 10);
  CHECK(r.period() == 10);
  period_detector one(1000);
  CHECK(launches_until_found(one, {7}, 100) != 0);
  CHECK(one.period() == 1);
}

TEST_CASE("the step can be read from any place, and the place of the executing launch is known") {
  period_detector r(100);
  const std::vector<std::uint32_t> step = sequence(1, 20);
  for (int i = 0; i != 47; ++i) {
    run(r, {step[static_cast<std::size_t>(i) % 20]});
  }
  REQUIRE(r.recurs());
  std::vector<std::uint32_t> found = step_of(r);
  CHECK(found[r.position()] == 8);
  r.issue(execution_id{8});
  r.issue(execution_id{9});
  CHECK(step_of(r) == found);
  CHECK(found[r.position()] == 8);  // it has not finished
  r.finish();
  CHECK(found[r.position()] == 9);
  r.finish();
  CHECK(found[r.position()] == 10);
}

TEST_CASE("launches that were in flight when the step was found have their places") {
  period_detector r(100);
  const std::vector<std::uint32_t> step = sequence(1, 20);
  for (int i = 0; i != 60; ++i) {
    r.issue(execution_id{step[static_cast<std::size_t>(i) % 20]});
  }
  REQUIRE(r.recurs());
  for (int i = 0; i != 60; ++i) {
    CHECK(r.id_at(r.position()).value == step[static_cast<std::size_t>(i) % 20]);
    r.finish();
  }
}

TEST_CASE("a step is over with the first launch that does not belong to it") {
  period_detector r(1000);
  const std::vector<std::uint32_t> step = sequence(1, 100);
  run(r, step);
  run(r, step);
  REQUIRE(r.recurs());
  run(r, sequence(1, 50));
  CHECK(r.recurs());
  run(r, {999});
  CHECK_FALSE(r.recurs());
  CHECK(launches_until_found(r, step, 500) != 0);
  CHECK(r.period() <= 151);
  run(r, step);
  run(r, step);
  run(r, step);
  CHECK(r.recurs());
  CHECK(r.period() == 100);
}

TEST_CASE("a step that has launches in common with itself is found as a whole") {
  // 1 1 1 ... 2 2 2 ... 3: repetitions inside are steps for a while.
  period_detector r(1000);
  std::vector<std::uint32_t> step(30, 1);
  step.insert(step.end(), 40, 2);
  step.push_back(3);
  for (int i = 0; i != 4; ++i) {
    run(r, step);
  }
  CHECK(r.recurs());
  CHECK(r.period() == 71);
}

TEST_CASE("what looked like a step and was none is believed in only when it has been repeated as a whole") {
  period_detector r(1000);
  const auto repeat_partly = [&] {  // long enough to be believed in
    run(r, sequence(1, 200));
    run(r, sequence(1, 100));
    const bool believed = r.recurs();
    run(r, sequence(500, 10));
    return believed;
  };
  CHECK(repeat_partly());
  period_detector fresh(1000);
  std::swap(r, fresh);
  CHECK(repeat_partly());
  run(r, sequence(600, 300));
  CHECK_FALSE(repeat_partly());
  for (int i = 0; i != 3; ++i) {
    run(r, sequence(1, 200));
  }
  CHECK(r.recurs());
}

TEST_CASE("steps longer than the longest are not found") {
  period_detector r(50);
  CHECK(launches_until_found(r, sequence(1, 51), 500) == 0);
  period_detector enough(51);
  CHECK(launches_until_found(enough, sequence(1, 51), 500) != 0);
  period_detector none(0);
  CHECK(launches_until_found(none, sequence(1, 5), 500) == 0);
}

TEST_CASE("last uses of the last period have places in the step") {
  period_detector r(100);
  const auto step = [&] {
    for (std::uint32_t i = 0; i != 20; ++i) {
      run(r, {i + 1});
      if (i == 4) {
        r.last_used({block_id{7}, 2}, 0);
        r.last_used({block_id{9}, 1}, 0);
        r.last_used({block_id{20}, 1}, 0);
      }
    }
  };
  r.last_used({block_id{1}, 1}, 0);
  step();
  step();
  step();
  REQUIRE(r.recurs());
  std::vector<std::pair<std::uint32_t, block_range>> last_uses;
  const auto find = [&] {
    last_uses.clear();
    r.for_each_last_use(
        [&](std::uint32_t place, block_range blocks) { last_uses.emplace_back(r.id_at(place).value, blocks); });
  };
  find();
  CHECK(last_uses == std::vector<std::pair<std::uint32_t, block_range>>{{5, {block_id{7}, 3}}, {5, {block_id{20}, 1}}});
  run(r, sequence(1, 5));
  find();
  CHECK(last_uses.empty());
}

TEST_CASE("memory does not grow with launches and last uses") {
  period_detector r(64);
  std::mt19937 random(5);
  bytes before{};
  for (std::uint32_t i = 0; i != 20000; ++i) {
    run(r, {1 + static_cast<std::uint32_t>(random() % 5000)});
    r.last_used({block_id{static_cast<std::uint32_t>(random() % 1000)}, 1}, 0);
    r.last_used({block_id{2000 + static_cast<std::uint32_t>(random() % 1000)}, 1}, 0);
    if (i == 10000) {
      before = r.memory();
    }
  }
  CHECK(r.memory() <= before + bytes{4096});
}

TEST_CASE("a step that is believed in has come as it says") {
  const std::uint32_t seed = 99;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (std::size_t round = 0; round != deepum_test::scaled(200); ++round) {
    period_detector r(40);
    std::vector<std::uint32_t> all;
    std::uint32_t found = 0;
    while (all.size() < 2000) {
      const std::size_t length = 1 + random() % 30;
      std::vector<std::uint32_t> part(length);
      for (std::uint32_t& id : part) {
        id = 1 + static_cast<std::uint32_t>(random() % 6);
      }
      for (std::size_t times = 1 + random() % 6; times != 0; --times) {
        for (const std::uint32_t id : part) {
          all.push_back(id);
          run(r, {id});
          if (r.recurs()) {
            ++found;
            const std::size_t p = r.period();
            REQUIRE(p <= 40);
            const auto last =
                all.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(p, period_detector::confirmed_after));
            CHECK(std::equal(last, all.end(), last - static_cast<std::ptrdiff_t>(p)));
            CHECK(r.id_at((r.position() + static_cast<std::uint32_t>(p) - 1) % static_cast<std::uint32_t>(p)).value ==
                  id);
          }
        }
      }
    }
    CHECK(found != 0);
  }
}

TEST_CASE("a step that contains shorter ones is believed as a whole once it has been repeated") {
  period_detector r(1000);
  const auto step = [&] {  // three parts that are alike, and an end
    for (int part = 0; part != 3; ++part) {
      run(r, sequence(1, 100));
    }
    run(r, sequence(500, 20));
  };
  step();
  step();
  step();
  for (int i = 0; i != 3; ++i) {
    run(r, sequence(1, 100));
    CHECK(r.recurs());
    CHECK(r.period() == 320);
    run(r, sequence(1, 100));
    run(r, sequence(1, 100));
    run(r, sequence(500, 20));
  }
}

TEST_CASE("a step that is taken up again is believed at its second repetition, whatever came between") {
  period_detector r(4000);
  const auto repeat = [&](std::uint32_t first, int times) {
    for (int i = 0; i != times; ++i) {
      run(r, sequence(first, 400));
    }
  };
  repeat(1, 4);
  repeat(500, 4);
  run(r, sequence(1, 400));
  run(r, sequence(1, 4 + period_detector::confirmed_after));
  CHECK(r.recurs());
  CHECK(r.period() == 400);
}

TEST_CASE("IDs that mean other launches each time they come are no step, however often they come round") {
  period_detector r(1000);
  for (int round = 0; round < 5; ++round) {
    for (std::uint32_t id = 1; id <= 100; ++id) {
      r.forget(execution_id{id});
      run(r, {id});
      CHECK_FALSE(r.recurs());
    }
  }
  // From the last round on they mean the same, and are found as any others.
  CHECK(launches_until_found(r, sequence(1, 100), 1000) == 4 + period_detector::confirmed_after);
}

TEST_CASE("a step is over with the first ID that means another launch, and found again with the new one in its place") {
  period_detector r(1000);
  const std::vector<std::uint32_t> step = sequence(1, 100);
  run(r, step);
  run(r, step);
  REQUIRE(r.recurs());
  r.forget(execution_id{1});
  run(r, {1});
  CHECK_FALSE(r.recurs());
  run(r, sequence(2, 99));
  run(r, step);
  CHECK(r.recurs());
  CHECK(r.period() == 100);
  CHECK(r.id_at(r.position()) == execution_id{1});
}

TEST_CASE("a step that is longer than what is remembered at first is found, and a short one takes little memory") {
  period_detector r{65536};
  CHECK(launches_until_found(r, sequence(1, 40000), 200000) == 40000 + 4 + period_detector::confirmed_after);
  CHECK(r.period() == 40000);
  period_detector few{65536};
  const bytes at_first = few.memory();
  for (int step = 0; step != 60; ++step) {
    run(few, sequence(1, 1000));
  }
  CHECK(few.period() == 1000);
  CHECK(few.memory() == at_first);
  CHECK(at_first < 256_KiB);
}

TEST_CASE("what was remembered before it became more still counts") {
  period_detector r{65536};
  run(r, sequence(1, 16000));
  run(r, sequence(20001, 3000));  // one more than are remembered at first, and nothing recurs
  run(r, sequence(1, 16000));
  run(r, sequence(20001, 100));
  REQUIRE(r.recurs());
  CHECK(r.period() == 19000);
}

}  // namespace period_detector_test
