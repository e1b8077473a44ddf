#include <deepum/engine/launch_tracker.hpp>

#include <doctest/doctest.h>

#include <cstdint>

namespace launch_tracker_test {

using namespace deepum;

launch_record launch(std::uint64_t id, std::uint16_t stream = 0, bool complete = true) {
  launch_record r;
  r.id = launch_id{id};
  r.stream = stream_id{stream};
  r.complete = complete;
  return r;
}

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

TEST_CASE("a late fault finds its launch among the last 1024; longer ago it belongs to nobody") {
  launch_tracker t;
  constexpr std::uint64_t launches = 3000;
  constexpr std::uint64_t remembered = 1024;
  for (std::uint64_t i = 1; i <= launches; ++i) {
    t.issue(launch(i));
    (void)t.finish(launch_id{i}, {}, nanoseconds{static_cast<std::int64_t>(i) * 10});
    // Every launch of the past, while the history fills, when it is full and after it has turned over.
    if (i == 1 || i == 700 || i == remembered || i == remembered + 1 || i == launches) {
      CAPTURE(i);
      bool right = true;
      // Of the oldest that is remembered nobody knows when it began, unless it was the first of all.
      const std::uint64_t oldest = i < remembered ? 1 : i - remembered + 2;
      for (std::uint64_t j = 1; j <= i; ++j) {
        for (const std::int64_t before : {10, 5, 1}) {
          const launch_id expected = j >= oldest ? launch_id{j} : launch_id{};
          right = right && t.executing_at(nanoseconds{static_cast<std::int64_t>(j) * 10 - before}) == expected;
        }
      }
      CHECK(right);
      CHECK_FALSE(t.executing_at(nanoseconds{static_cast<std::int64_t>(i) * 10}).valid());  // nothing executes
    }
  }
}

TEST_CASE("of launches that finish at the same time the first has the faults before") {
  launch_tracker t;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    t.issue(launch(i));
  }
  (void)t.finish(launch_id{1}, {}, nanoseconds{10});
  (void)t.finish(launch_id{2}, {}, nanoseconds{20});
  (void)t.finish(launch_id{3}, {}, nanoseconds{20});
  CHECK(t.executing_at(nanoseconds{10}) == launch_id{2});
  CHECK(t.executing_at(nanoseconds{19}) == launch_id{2});
  CHECK(t.executing_at(nanoseconds{20}) == launch_id{4});
}

TEST_CASE("a launch whose end was only noticed gets no fault, and takes none from the others") {
  launch_tracker t;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    t.issue(launch(i));
  }
  (void)t.finish(launch_id{1}, {}, nanoseconds{10});
  CHECK(t.finish(launch_id{2}, {}, nanoseconds{30}, false).has_value());
  (void)t.finish(launch_id{3}, {}, nanoseconds{40});
  (void)t.finish(launch_id{4}, {}, nanoseconds{50}, false);
  CHECK(t.executing_at(nanoseconds{9}) == launch_id{1});
  CHECK_FALSE(t.executing_at(nanoseconds{10}).valid());  // of the second, or of the third before the end was noticed
  CHECK_FALSE(t.executing_at(nanoseconds{29}).valid());
  CHECK(t.executing_at(nanoseconds{30}) == launch_id{3});
  CHECK_FALSE(t.executing_at(nanoseconds{45}).valid());
  CHECK(t.executing_at(nanoseconds{50}) == launch_id{5});
  CHECK(t.finished_up_to() == launch_id{4});
}

TEST_CASE(
    "while a launch may have been executing whose end was only noticed, a fault on any stream belongs to nobody") {
  launch_tracker t;
  t.issue(launch(1, 0));
  t.issue(launch(2, 1));
  (void)t.finish(launch_id{2}, {}, nanoseconds{20}, false);
  CHECK_FALSE(t.executing_at(nanoseconds{10}).valid());
  CHECK(t.executing_at(nanoseconds{20}) == launch_id{1});
  CHECK(t.in_flight() == 1);
}

TEST_CASE("a late fault of a closed stream's launch stays its own, also when the stream's number is used again") {
  launch_tracker t;
  t.issue(launch(1, 0));
  t.issue(launch(2, 1));
  t.close(stream_id{1});
  CHECK_FALSE(t.over(stream_id{1}));
  CHECK_FALSE(t.executing_at(nanoseconds{5}).valid());  // two are executing
  CHECK(t.finish(launch_id{2}, nanoseconds{1}, nanoseconds{7}).has_value());
  CHECK(t.over(stream_id{1}));
  CHECK_FALSE(t.over(stream_id{0}));
  CHECK_FALSE(t.executing_at(nanoseconds{5}).valid());  // two were
  CHECK(t.executing_at(nanoseconds{7}) == launch_id{1});
  CHECK(t.finished_up_to() == launch_id{0});
  (void)t.finish(launch_id{1}, nanoseconds{1}, nanoseconds{4});
  CHECK(t.finished_up_to() == launch_id{2});
  CHECK(t.executing_at(nanoseconds{5}) == launch_id{2});

  t.open(stream_id{1});
  CHECK_FALSE(t.over(stream_id{1}));
  t.issue(launch(3, 1));
  CHECK(t.executing_at(nanoseconds{5}) == launch_id{2});
  CHECK(t.executing_at(nanoseconds{8}) == launch_id{3});
}

TEST_CASE("of a closed stream the last 16 launches are remembered, and older faults belong to nobody") {
  launch_tracker t;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    t.issue(launch(i, 1));
    (void)t.finish(launch_id{i}, nanoseconds{static_cast<std::int64_t>(i) * 10 - 9},
                   nanoseconds{static_cast<std::int64_t>(i) * 10});
  }
  t.close(stream_id{1});
  t.issue(launch(101, 0));
  CHECK_FALSE(t.executing_at(nanoseconds{500}).valid());
  t.open(stream_id{1});
  t.issue(launch(102, 1));
  (void)t.finish(launch_id{101}, nanoseconds{1000}, nanoseconds{1001});
  CHECK(t.executing_at(nanoseconds{985}) == launch_id{99});
  CHECK_FALSE(t.executing_at(nanoseconds{845}).valid());
  CHECK(t.executing_at(nanoseconds{1001}) == launch_id{102});
}

TEST_CASE("no question and no event looks at streams that have nothing in flight and had not at the time") {
  constexpr std::uint16_t streams = 1000;
  launch_tracker t;
  std::uint64_t id = 0;
  const auto run = [&](std::uint16_t stream) {
    t.issue(launch(++id, stream));
    CHECK(t.executing_at(nanoseconds{static_cast<std::int64_t>(id) * 10 - 5}) == launch_id{id});
    CHECK_FALSE(t.executing_on(block_id{1}));
    CHECK(t.finished_up_to() == launch_id{id - 1});
    (void)t.finish(launch_id{id}, nanoseconds{static_cast<std::int64_t>(id) * 10 - 9},
                   nanoseconds{static_cast<std::int64_t>(id) * 10});
    CHECK(t.executing_at(nanoseconds{static_cast<std::int64_t>(id) * 10 - 5}) == launch_id{id});
    CHECK(t.finished_up_to() == launch_id{id});
  };
  run(0);
  const std::uint64_t for_one = t.streams_visited();
  for (std::uint16_t s = 0; s < streams; ++s) {
    t.open(stream_id{s});
    run(s);
  }
  CHECK(t.streams_visited() == (streams + 1) * for_one);
  CHECK(for_one <= 3);
}

TEST_CASE("a hold executes nothing: faults belong to the launch beside it") {
  launch_tracker t;
  launch_record hold = launch(1, 0);
  hold.hold = true;
  t.issue(hold);
  t.issue(launch(2, 1));
  CHECK(t.executing_at(nanoseconds{5}) == launch_id{2});
  (void)t.finish(launch_id{2}, nanoseconds{1}, nanoseconds{10});
  CHECK(t.finished_up_to() == launch_id{2});
  CHECK(t.finish(launch_id{1}, nanoseconds{0}, nanoseconds{20}).has_value());
  CHECK(t.executing_at(nanoseconds{5}) == launch_id{2});
  CHECK_FALSE(t.executing_at(nanoseconds{15}).valid());
  CHECK(t.empty());
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

}  // namespace launch_tracker_test
