#include <deepum/engine/launch_tracker.hpp>

#include <doctest/doctest.h>

#include <cstdint>

using namespace deepum;

namespace {

launch_record launch(std::uint64_t id, std::uint16_t stream = 0, bool complete = true) {
  launch_record r;
  r.id = launch_id{id};
  r.stream = stream_id{stream};
  r.complete = complete;
  return r;
}

}  // namespace

TEST_CASE("a launch that is not in flight has no record") {
  launch_tracker t;
  t.issue(launch(1));
  CHECK(t.finish(launch_id{1}, {}, nanoseconds{1}).has_value());
  CHECK_FALSE(t.finish(launch_id{1}, {}, nanoseconds{2}).has_value());
  CHECK_FALSE(t.finish(launch_id{9}, {}, nanoseconds{2}).has_value());
  CHECK(t.empty());
}

TEST_CASE("a time between two launches belongs to nobody, where it is known when they began") {
  launch_tracker t;
  t.issue(launch(1));
  t.issue(launch(2));
  (void)t.finish(launch_id{1}, nanoseconds{10}, nanoseconds{20});
  (void)t.finish(launch_id{2}, nanoseconds{30}, nanoseconds{40});
  CHECK(t.executing_at(nanoseconds{15}) == launch_id{1});
  CHECK_FALSE(t.executing_at(nanoseconds{25}).valid());
  CHECK(t.executing_at(nanoseconds{30}) == launch_id{2});
  CHECK_FALSE(t.executing_at(nanoseconds{5}).valid());
}

TEST_CASE("what happened longer ago than is remembered belongs to nobody") {
  launch_tracker t;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    t.issue(launch(i));
    (void)t.finish(launch_id{i}, {}, nanoseconds{static_cast<std::int64_t>(i) * 10});
  }
  CHECK(t.executing_at(nanoseconds{985}) == launch_id{99});
  CHECK(t.executing_at(nanoseconds{405}) == launch_id{41});
  CHECK_FALSE(t.executing_at(nanoseconds{345}).valid());
}

TEST_CASE("a closed stream is forgotten when its last launch has finished") {
  launch_tracker t;
  t.issue(launch(1, 0));
  t.issue(launch(2, 1));
  t.close(stream_id{1});
  CHECK_FALSE(t.executing_at(nanoseconds{5}).valid());  // two are executing
  CHECK(t.finish(launch_id{2}, {}, nanoseconds{7}).has_value());
  CHECK(t.executing_at(nanoseconds{5}) == launch_id{1});
  CHECK(t.finished_up_to() == launch_id{0});
  (void)t.finish(launch_id{1}, {}, nanoseconds{9});
  CHECK(t.finished_up_to() == launch_id{2});
}

TEST_CASE("launches with unknown accesses are found by their number") {
  launch_tracker t;
  t.issue(launch(1));
  t.issue(launch(2, 0, false));
  t.issue(launch(3, 1, false));
  CHECK_FALSE(t.incomplete_up_to(launch_id{1}));
  CHECK(t.incomplete_up_to(launch_id{2}));
  (void)t.finish(launch_id{2}, {}, {});
  CHECK_FALSE(t.incomplete_up_to(launch_id{2}));
  CHECK(t.incomplete_up_to(launch_id{3}));
}
