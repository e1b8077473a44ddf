#include "planning/heavy_step.hpp"
#include <deepum/planning/step_planner.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/planning/step_timer.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>

// What the planner and its model of the links make of copies that are made while blocks still stay.
namespace copies_ahead_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX
using deepum_test::heavy_step;

constexpr heavy_step heavy{.weights = 12};
constexpr std::uint32_t budget = 179;  // 40 % of its blocks

step_limits limits(bool copies_ahead) {
  return {
      .budget = budget, .in_per_block = nanoseconds{9}, .out_per_block = nanoseconds{9}, .copies_ahead = copies_ahead};
}
// How much longer than its launches the step takes.
double stretch(const step_segments& step, const step_plan& plan, bool copies_ahead) {
  const double end = detail::step_timer(step, limits(copies_ahead), plan.leaves, plan.occupied).begins().back();
  return end / static_cast<double>(heavy.length().count());
}

TEST_CASE("what is not written any more is copied out before it leaves, as far as the link has the time") {
  // Six blocks are written, read by the next launch, and leave; six others need their room then.
  step_description d;
  d.add_launch(nanoseconds{100});
  d.add_use({block_id{0}, 6}, access::update);
  d.add_launch(nanoseconds{100});
  d.add_use({block_id{0}, 6}, access::read);
  d.add_launch(nanoseconds{100});
  d.add_use({block_id{6}, 6}, access::read);
  const step_segments step(d);
  const sequence<std::uint32_t> leaves{0, 6, 6};
  REQUIRE(step.gaps()[1].launch == 1);
  const auto length = [&](bool copies_ahead) {
    const step_limits l{
        .budget = 6, .in_per_block = nanoseconds{1}, .out_per_block = nanoseconds{20}, .copies_ahead = copies_ahead};
    return detail::step_timer(step, l, leaves, detail::occupied_at(step, leaves)).begins().back();
  };
  CHECK(length(false) == 300 + 6 * 20 + 6);
  CHECK(length(true) == 300 + 20 + 6);  // beside the second launch five are copied
}

TEST_CASE("of what is copied ahead that is first which leaves first") {
  // The first launch writes two tensors. One is read by the second launch and leaves, so that there is room for what
  // the third one reads; the other does behind the fourth one, for the fifth.
  step_description d;
  const auto add = [&](std::initializer_list<block_range> used, access mode) {
    d.add_launch(nanoseconds{100});
    for (const block_range r : used) {
      d.add_use(r, mode);
    }
  };
  constexpr block_range late{block_id{0}, 4};
  constexpr block_range soon{block_id{4}, 4};
  add({late, soon}, access::update);
  add({soon}, access::read);
  add({{block_id{8}, 4}}, access::read);
  add({late}, access::read);
  add({{block_id{12}, 8}}, access::read);
  const step_segments step(d);
  REQUIRE(step.gaps().size() == 6);
  const sequence<std::uint32_t> leaves{0, 4, 0, 4, 4, 8};
  const step_limits l{
      .budget = 8, .in_per_block = nanoseconds{1}, .out_per_block = nanoseconds{25}, .copies_ahead = true};
  // Beside one launch one of them can go out. What waits is what comes back: 8 for the first launch, 4 for the third
  // one, and 4 for the fifth one, for the others come beside the fourth.
  CHECK(detail::step_timer(step, l, leaves, detail::occupied_at(step, leaves)).begins().back() == 500 + 8 + 4 + 4);
}

TEST_CASE("a plan that knows of copies made ahead lets weights leave that were written in the step before") {
  const step_segments step(heavy.describe());
  const step_plan knows = plan_step(step, limits(true));
  const step_plan does_not = plan_step(step, limits(false));
  CHECK(stretch(step, knows, true) < 1.0005);
  CHECK(stretch(step, does_not, true) > 1.01);
  CHECK(stretch(step, knows, false) > 1.1);  // without those copies it could not be carried out
}

TEST_CASE("where all of the calendar is taken, blocks come back early instead of at the wrong time") {
  const step_segments step(heavy.describe());
  const step_limits l = limits(true);
  const std::uint64_t returning = detail::step_planner(step, l, {}).make().returning;
  detail::plan_style style = detail::spread_returns(step, l, returning);
  style.both_ways = true;
  const step_plan late = detail::step_planner(step, l, style).make();
  style.early_returns = true;
  const step_plan early = detail::step_planner(step, l, style).make();
  CHECK(stretch(step, early, true) < stretch(step, late, true));
  CHECK(early.returning <= late.returning + late.returning / 10);
}

}  // namespace copies_ahead_test
