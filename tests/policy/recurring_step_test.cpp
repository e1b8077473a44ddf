#include <deepum/policy/recurring_step.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace deepum;
using deepum::access;  // not the one of POSIX

namespace {

constexpr std::uint32_t launches = 100;

// A step of launches that read two blocks each.
struct program {
  explicit program(std::uint32_t longest = 1000) : step(longest) {}

  void run(std::uint32_t count, std::uint16_t stream = 0) {
    for (; count != 0; --count) {
      step.issue(execution_id{1 + next}, stream_id{stream});
      if (changing && next == 30) {
        step.change();
      }
      prepare();
      step.finish();
      prepare();
      next = (next + 1) % launches;
    }
  }
  void prepare() {
    step.prepare(budget, [&](execution_id id, std::vector<block_access>& uses) {
      uses.push_back({{block_id{(id.value - 1) * 2}, 2}, access::read});
    });
  }

  recurring_step step;
  std::uint32_t next = 0;
  std::uint32_t budget = 150;
  bool changing = false;  // one launch needs other blocks in every period
};

}  // namespace

TEST_CASE("a step is followed from shortly after it has begun again") {
  program p;
  p.run(launches);
  CHECK(p.step.schedule() == nullptr);
  p.run(4 + recurrence::believed_after);
  REQUIRE(p.step.schedule() != nullptr);
  CHECK(p.step.plans() == 1);
  const std::uint32_t position = p.step.schedule()->position();
  p.run(7);
  CHECK(p.step.schedule()->position() == (position + 7) % launches);
  CHECK(p.step.schedule()->reach().launches > 0);
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
    CHECK(too_long.step.schedule() == nullptr);
  }
  SUBCASE("another launch") {
    p.run(4 * launches);
    CHECK(p.step.schedule() != nullptr);
    p.next = 50;
    p.run(1);
  }
  SUBCASE("another stream") {
    p.run(4 * launches);
    CHECK(p.step.schedule() != nullptr);
    p.run(1, 7);
  }
  CHECK(p.step.schedule() == nullptr);
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
  CHECK(p.step.schedule() == nullptr);  // now all fits
}

TEST_CASE("what dies in a step takes no room, once it has been seen to die in a period") {
  program p;
  p.run(3 * launches);
  REQUIRE(p.step.schedule() != nullptr);
  for (std::uint32_t i = 0; i != 2 * launches; ++i) {
    p.run(1);
    if (p.next >= 20) {
      p.step.death({block_id{(p.next - 1) * 2}, 2});  // only the first twenty launches leave something
    }
  }
  CHECK(p.step.plans() >= 2);
  CHECK(p.step.schedule() == nullptr);  // 40 blocks are alive
}

TEST_CASE("a change of needs is planned for after a period, and needs that change all the time are not") {
  program p;
  p.run(3 * launches);
  REQUIRE(p.step.plans() == 1);
  p.step.change();
  p.run(launches);
  CHECK(p.step.plans() == 2);
  p.run(3 * launches);
  CHECK(p.step.plans() == 2);
  p.changing = true;
  p.run(10 * launches);
  CHECK(p.step.plans() == 3);
  CHECK(p.step.schedule() == nullptr);
  p.changing = false;
  p.run(2 * launches);
  CHECK(p.step.plans() == 4);
  CHECK(p.step.schedule() != nullptr);
  p.run(3 * launches);
  CHECK(p.step.plans() == 4);
}

TEST_CASE("what has changed while the step was learned is waited for") {
  program p;
  p.run(launches + 10);
  p.step.change();
  p.run(launches - 1);
  CHECK(p.step.plans() == 0);
  p.run(1);
  CHECK(p.step.plans() == 1);
}
