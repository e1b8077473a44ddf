#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/step_planner.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/planning/step_timer.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <cstdint>

namespace step_times_test {

using namespace deepum;

using counts = deepum::sequence<std::uint32_t>;

// When launches of 100 ns begin, the n-th of which uses the blocks from 10 n on, `used` of them, of which `leave` leave
// behind it. A copy of a block takes 10 ns in and 20 ns out.
deepum::sequence<double> begins(const counts& used, const counts& leave, std::uint32_t budget,
                                deepum::access mode = deepum::access::update) {
  step_description d;
  for (std::uint32_t k = 0; k != used.size(); ++k) {
    d.add_launch(nanoseconds{100});
    d.add_use({block_id{k * 10}, used[k]}, mode);
  }
  const step_segments step(d);
  const step_limits limits{budget, nanoseconds{10}, nanoseconds{20}};
  return detail::step_timer(step, limits, leave, detail::occupied_at(step, leave)).begins();
}

TEST_CASE("where nothing leaves launches follow each other") {
  CHECK(begins({4, 4, 4}, {0, 0, 0}, 12) == deepum::sequence<double>{0, 100, 200, 300});
}

TEST_CASE("what returns while there is room for it costs no time, else the launch waits") {
  // Each is away while the others run: with all the room there is, all of it comes and goes beside the launches.
  CHECK(begins({4, 4, 4}, {4, 4, 4}, 12) == deepum::sequence<double>{0, 100, 200, 300});
  // With none beside the launch that runs, four blocks leave and four come, at the same time.
  CHECK(begins({4, 4, 4}, {4, 4, 4}, 4) == deepum::sequence<double>{0, 180, 360, 540});
  // What was not written leaves at once.
  CHECK(begins({4, 4, 4}, {4, 4, 4}, 4, deepum::access::read) == deepum::sequence<double>{0, 140, 280, 420});
}

TEST_CASE("what comes early takes room at all launches until its own") {
  // The eight blocks of the second launch come beside the first one. Beside the second one there is no room for any of
  // the third, so that this waits for six.
  CHECK(begins({1, 8, 6}, {0, 8, 6}, 9, deepum::access::read) == deepum::sequence<double>{0, 100, 200, 360});
  // What was written has to leave first: six of the eight that the second launch wrote, before the third one; and the
  // last of the third's before the second.
  CHECK(begins({1, 8, 6}, {0, 8, 6}, 9).back() == 300 + 6 * 20 + 20);
}

}  // namespace step_times_test
