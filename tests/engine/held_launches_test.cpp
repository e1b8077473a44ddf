#include <deepum/engine/held_launches.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace held_launches_test {

using namespace deepum;
using detail::held_launches;

launch_record launch(std::uint64_t id, bool hold = false) {
  launch_record r;
  r.id = launch_id{id};
  r.stream = stream_id{static_cast<std::uint16_t>(id)};
  r.hold = hold;
  return r;
}

TEST_CASE("launches are held in the order in which they asked, whichever is started first") {
  held_launches held;
  CHECK(held.empty());
  for (const std::uint64_t id : {5U, 2U, 9U}) {
    held.submitted(launch(id));
    held.hold_back(launch(id), nanoseconds{static_cast<std::int64_t>(id)}, 0);
  }
  held.start(held.find(launch_id{2}));
  std::vector<std::uint64_t> left;
  for (const detail::held_launch& h : held) {
    left.push_back(h.id.value);
    CHECK(h.since == nanoseconds{static_cast<std::int64_t>(h.id.value)});
    CHECK(h.stream.value == h.id.value);
  }
  CHECK(left == std::vector<std::uint64_t>{5, 9});
  CHECK(held.front().id == launch_id{5});
  CHECK(held.find(launch_id{2}) == held.end());
}

TEST_CASE("a launch that is held back executes nothing, and neither do those whose bodies make it") {
  held_launches held;
  held.submitted(launch(1));
  CHECK(held.not_executing() == 0);  // it begins at once
  held.submitted(launch(2));
  held.hold_back(launch(2), {}, 2);
  CHECK(held.not_executing() == 3);
  held.submitted(launch(3));
  held.hold_back(launch(3), {}, 1);
  CHECK(held.not_executing() == 5);
  held.start(held.find(launch_id{2}));
  CHECK(held.not_executing() == 2);
  held.take_back(held.find(launch_id{3}));
  CHECK(held.not_executing() == 0);
}

TEST_CASE("a hold counts once, from its submission until it has finished, held back or not") {
  held_launches held;
  held.submitted(launch(1, true));
  CHECK(held.holds() == 1);
  CHECK(held.not_executing() == 1);
  held.hold_back(launch(1, true), {}, 0);
  CHECK(held.holds() == 0);  // it has not begun
  CHECK(held.not_executing() == 1);
  held.start(held.begin());
  CHECK(held.holds() == 1);
  CHECK(held.not_executing() == 1);
  held.finished(launch(1, true));
  CHECK(held.holds() == 0);
  CHECK(held.not_executing() == 0);
}

TEST_CASE("a hold that is taken back before it began leaves nothing") {
  held_launches held;
  held.submitted(launch(1, true));
  held.hold_back(launch(1, true), {}, 0);
  held.take_back(held.begin());
  CHECK(held.empty());
  CHECK(held.holds() == 0);
  CHECK(held.not_executing() == 0);
}

}  // namespace held_launches_test
