#include <deepum/planning/link_windows.hpp>

#include <doctest/doctest.h>

#include <cstdint>

namespace link_windows_test {

using namespace deepum;

// Four launches of 100 ns, each in a window of its own. A copy takes 50 ns in and 25 ns out.
detail::link_windows four_launches() {
  return {{0.0, 100.0, 200.0, 300.0, 400.0}, nanoseconds{100}, {8, nanoseconds{50}, nanoseconds{25}}, false};
}

TEST_CASE("blocks come back as late as the link has time before their launch") {
  detail::link_windows links = four_launches();
  // Over launch 0, for launch 3: in the time of launch 3 itself there is room for two, then of launch 2, then of
  // launch 1.
  for (const std::uint32_t after : {3U, 2U, 1U}) {
    const detail::link_windows::early_return time = links.latest_return(0, 3);
    CHECK(time.launches == after);
    CHECK(time.room == 2);
    links.take(time, 2);
  }
  CHECK(links.latest_return(0, 3).launches == 0);  // they would be back before the launch that wants their room
  CHECK(links.latest_return(3, 1).launches == 1);
}

TEST_CASE("a part of a window's time is left for others") {
  detail::link_windows links = four_launches();
  links.take(links.latest_return(0, 2), 1);
  CHECK(links.latest_return(0, 2).room == 1);
  CHECK(links.room_to_return(2, 5) == 1);
}

TEST_CASE("returns around the end of the step, once at most") {
  detail::link_windows links = four_launches();
  links.take(links.latest_return(2, 3), 2);  // in the time of launch 1
  CHECK(links.latest_return(2, 3).launches == 2);
  links.take(links.latest_return(2, 3), 2);  // of launch 0
  CHECK(links.latest_return(2, 3).launches == 1);
  CHECK(links.latest_return(1, 4).launches == 2);
}

TEST_CASE("departures begin behind a launch") {
  detail::link_windows links = four_launches();
  CHECK(links.take_departure(0, 2, 99) == 8);  // in the times of launches 1 and 2
  CHECK(links.take_departure(0, 3, 99) == 4);
  CHECK(links.take_departure(2, 1, 99) == 4);  // around the end
}

}  // namespace link_windows_test
