#include <deepum/planning/recurring_step.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace recurring_step_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX

constexpr std::uint32_t launches = 100;

// A step of launches that read two blocks each.
struct program {
  explicit program(std::uint32_t longest = 1000) : step(longest) {}

  void run(std::uint32_t count) {
    for (; count != 0; --count) {
      last = launch_id{last.value + 1};
      step.issue(execution_id{1 + next}, last);
      if (next < changing) {
        step.change();
      }
      prepare();
      step.finish();
      prepare();
      next = (next + 1) % launches;
    }
  }
  void prepare() {
    map.set_budget(budget);
    step.prepare(map, [&](execution_id id, std::vector<block_access>& uses) {
      uses.push_back({{block_id{(id.value - 1) * 2}, 2}, access::read});
    });
  }

  recurring_step step;
  block_ledger map{2 * launches, location::device(), 0, um_grid};
  launch_id last{};
  std::uint32_t next = 0;
  std::uint32_t budget = 150;
  std::uint32_t changing = 0;  // so many launches need other blocks in every period
};

TEST_CASE("a step is followed from shortly after it has begun again") {
  program p;
  p.run(launches);
  CHECK(p.step.follower() == nullptr);
  p.run(4 + period_detector::confirmed_after);
  REQUIRE(p.step.follower() != nullptr);
  CHECK(p.step.plans() == 1);
  const std::uint32_t position = p.step.follower()->position();
  p.run(7);
  CHECK(p.step.follower()->position() == (position + 7) % launches);
  p.run(5 * launches);
  CHECK(p.step.plans() == 1);  // nothing has changed
}

TEST_CASE("nothing is followed where all fits, where steps are too long, or where other launches come") {
  program p;
  SUBCASE("all fits") {
    p.budget = 200;
    p.run(4 * launches);
    CHECK(p.step.plans() == 1);
  }
  SUBCASE("too long") {
    program too_long(launches - 1);
    too_long.run(4 * launches);
    CHECK(too_long.step.plans() == 0);
    CHECK(too_long.step.follower() == nullptr);
  }
  SUBCASE("another launch") {
    p.run(4 * launches);
    CHECK(p.step.follower() != nullptr);
    p.next = 50;
    p.run(1);
  }
  CHECK(p.step.follower() == nullptr);
}

TEST_CASE("a step is planned anew for another budget, once a period") {
  program p;
  p.run(3 * launches);
  REQUIRE(p.step.plans() == 1);
  p.budget = 120;
  p.run(launches);
  CHECK(p.step.plans() == 2);
  for (std::uint32_t i = 0; i != launches; ++i) {
    p.budget = 100 + i % 10;
    p.run(1);
  }
  CHECK(p.step.plans() <= 4);
  p.budget = 200;
  p.run(launches);
  CHECK(p.step.follower() == nullptr);  // now all fits
}

TEST_CASE("what dies in a step takes no room, once it has been seen to die in a period") {
  program p;
  p.run(3 * launches);
  REQUIRE(p.step.follower() != nullptr);
  for (std::uint32_t i = 0; i != 2 * launches; ++i) {
    p.run(1);
    if (p.next >= 20) {
      p.step.last_used({block_id{(p.next - 1) * 2}, 2}, p.last);  // only the first twenty launches leave something
    }
  }
  CHECK(p.step.plans() >= 2);
  REQUIRE(p.step.follower() != nullptr);       // 200 blocks fit into 150 only because they die
  CHECK(p.step.follower()->nothing_leaves());  // 40 blocks are alive
  p.budget = 200;
  p.run(launches);
  CHECK(p.step.follower() == nullptr);
}

TEST_CASE("a change of needs is planned for after a period, and where many change no step is followed") {
  program p;
  p.run(3 * launches);
  REQUIRE(p.step.plans() == 1);
  p.step.change();
  p.run(launches);
  CHECK(p.step.plans() == 2);
  p.run(3 * launches);
  CHECK(p.step.plans() == 2);
  p.changing = 3;
  p.run(10 * launches);
  CHECK(p.step.plans() == 12);
  CHECK(p.step.follower() != nullptr);
  p.changing = 4;
  p.run(10 * launches);
  CHECK(p.step.plans() == 12);
  CHECK(p.step.follower() == nullptr);
  p.changing = 0;
  p.run(2 * launches);
  CHECK(p.step.plans() == 13);
  CHECK(p.step.follower() != nullptr);
  p.run(3 * launches);
  CHECK(p.step.plans() == 13);
}

TEST_CASE("what died is placed after the last launch that may use it, also when that is told late") {
  const auto plans = [](std::uint32_t late) {
    program p;
    std::vector<launch_id> ids;
    for (std::uint32_t i = 0; i != 6 * launches; ++i) {
      p.run(1);
      ids.push_back(p.last);
      const std::uint32_t place = i % launches;
      if (i >= late && (place + launches - late) % launches >= 20) {
        const std::uint32_t died = (place + launches - late) % launches;
        p.step.last_used({block_id{died * 2}, 2}, ids[i - late]);
      }
    }
    return p.step.follower() != nullptr && p.step.follower()->nothing_leaves();
  };
  CHECK(plans(0));
  CHECK(plans(1));
  CHECK(plans(15));
}

// What `program` does without plans.
struct program_planned_elsewhere : program {
  std::optional<step_planning> begin() {
    map.set_budget(budget);
    return step.begin_planning(map, [](execution_id id, std::vector<block_access>& uses) {
      uses.push_back({{block_id{(id.value - 1) * 2}, 2}, access::read});
    });
  }
  void issue_and_finish(std::uint32_t count) {
    for (; count != 0; --count) {
      last = launch_id{last.value + 1};
      step.issue(execution_id{1 + next}, last);
      step.finish();
      next = (next + 1) % launches;
    }
  }
};

TEST_CASE("a plan that was made elsewhere is followed from where the step has come to meanwhile") {
  program_planned_elsewhere p;
  p.issue_and_finish(3 * launches);
  std::optional<step_planning> work = p.begin();
  REQUIRE(work.has_value());
  CHECK_FALSE(p.begin().has_value());  // one at a time
  work->run();
  p.issue_and_finish(7);
  const std::uint32_t began_at = work->position;
  CHECK(p.step.follower() == nullptr);
  p.step.end_planning(std::move(*work), p.map);
  REQUIRE(p.step.follower() != nullptr);
  CHECK(p.step.follower()->position() == (began_at + 7) % launches);
  CHECK(p.step.plans() == 1);
  CHECK_FALSE(p.begin().has_value());
}

TEST_CASE("a plan is not followed where the step has stopped recurring while it was made, also when it recurs again") {
  program_planned_elsewhere p;
  p.issue_and_finish(3 * launches);
  std::optional<step_planning> work = p.begin();
  REQUIRE(work.has_value());
  work->run();
  p.next = 70;
  p.issue_and_finish(1);
  SUBCASE("not yet") {}
  SUBCASE("again") { p.issue_and_finish(3 * launches); }
  p.step.end_planning(std::move(*work), p.map);
  CHECK(p.step.follower() == nullptr);
  CHECK(p.step.plans() == 0);
  p.issue_and_finish(3 * launches);
  work = p.begin();  // it may be planned anew
  REQUIRE(work.has_value());
  SUBCASE("what was not planned is not followed") {
    p.step.end_planning(std::move(*work), p.map);
    CHECK(p.step.follower() == nullptr);
  }
}

}  // namespace recurring_step_test
