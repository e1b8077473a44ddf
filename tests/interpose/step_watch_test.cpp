#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/interpose/step_watch.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace step_watches {

using namespace deepum;
using deepum::access;  // not the one of POSIX
using interpose::step_watch;

/// Launches as an engine reports them: each takes `time`, and is issued when the one before has ended.
struct program {
  explicit program(step_watch& w) : watch(w) {}
  void launch(std::uint32_t block, access mode, std::uint32_t period, std::int64_t time) {
    launch_record r;
    r.id = launch_id{++count};
    r.name = name_of ? name_of(block) : "k" + std::to_string(block);
    r.accesses = {{{block_id{block}, 2}, mode}};
    watch.see({.what = device_event::kind::launch_issued, .record = &r, .period = period}, nanoseconds{now});
    now += time;
    watch.see({.what = device_event::kind::launch_finished, .launch = r.id, .at = nanoseconds{now}}, nanoseconds{now});
  }
  void step(std::uint32_t period, std::int64_t time = 10) {
    launch(0, access::overwrite, period, time);
    launch(4, access::read, period, time);
    launch(0, access::update, period, time);
  }

  step_watch& watch;
  std::function<std::string(std::uint32_t)> name_of{};  // by block; nothing: k and its number
  std::uint64_t count = 0;
  std::int64_t now = 0;
};

TEST_CASE("a step is timed where one recurs") {
  step_watch w(false);
  program p(w);
  for (int i = 0; i < 5; ++i)
    p.step(0);
  CHECK(w.period() == 0);
  CHECK_FALSE(w.step_time());
  p.step(3);
  p.step(3);
  p.step(3);
  CHECK(w.period() == 3);
  CHECK(w.step_time() == nanoseconds{30});
  CHECK_FALSE(w.workload("w"));  // nothing was recorded
}

TEST_CASE("a period in which every second step has the same addresses is two steps") {
  step_watch w(true);
  program p(w);
  // Weights stay; what a step makes comes back at the same place in every second one.
  const auto step = [&](std::uint32_t made, std::uint32_t period) {
    p.launch(100, access::read, period, 10);
    p.launch(made, access::overwrite, period, 10);
    p.launch(110, access::read, period, 10);
    p.launch(made, access::read, period, 10);
  };
  p.name_of = [](std::uint32_t) { return std::string("k"); };
  for (int i = 0; i < 3; ++i) {
    step(0, 8);
    step(20, 8);
  }
  CHECK(w.period() == 4);
  CHECK(w.step_time() == nanoseconds{40});
  CHECK(w.workload("w")->find("\"kernels\":8") != std::string::npos);  // all that recurs
}

TEST_CASE("layers that read parameters of their own are no steps, and neither are launches of other names") {
  for (const bool same_names : {true, false}) {
    step_watch w(false);
    program p(w);
    if (same_names) {
      p.name_of = [](std::uint32_t) { return std::string("k"); };
    }
    for (int i = 0; i < 3; ++i) {
      for (const std::uint32_t layer : {100U, 110U}) {
        p.launch(same_names ? layer : 100U, access::read, 4, 10);
        p.launch(layer - 100, access::overwrite, 4, 10);
      }
    }
    CHECK(w.period() == 4);
    CHECK(w.step_time() == nanoseconds{40});
  }
}

TEST_CASE("the time of a step is the middle one") {
  step_watch w(false);
  program p(w);
  for (const std::int64_t time : {10, 10, 1000, 20, 20})
    p.step(3, time);
  CHECK(w.step_time() == nanoseconds{60});
}

TEST_CASE("of several steps the one counts that took the program the most time, also when it is over") {
  step_watch w(true);
  program p(w);
  for (int i = 0; i < 10; ++i)
    p.step(3);
  for (int i = 0; i < 6; ++i)
    p.launch(1, access::read, 2, 5);
  CHECK(w.period() == 3);
  CHECK(w.step_time() == nanoseconds{30});
  REQUIRE(w.workload("w"));
  CHECK(w.workload("w")->find("\"kernels\":3") != std::string::npos);
  for (int i = 0; i < 200; ++i)
    p.launch(1, access::read, 2, 5);
  CHECK(w.period() == 2);
  CHECK(w.workload("w")->find("\"kernels\":2") != std::string::npos);
}

TEST_CASE("what comes behind the last step is no part of it, and a launch has the least time that it took") {
  step_watch w(true);
  program p(w);
  for (const std::int64_t time : {50, 40, 30, 70})
    p.step(3, time);
  p.launch(0, access::overwrite, 3, 60);
  p.launch(9, access::read, 0, 1);
  REQUIRE(w.workload("w"));
  CHECK(w.workload("w")->find("k9") == std::string::npos);
  CHECK(w.workload("w")->find("{\"kernel\":\"k4\",\"ns\":30,") != std::string::npos);
}

TEST_CASE("the last step is a workload in blocks") {
  step_watch w(true);
  program p(w);
  for (int i = 0; i < 4; ++i)
    p.step(3);
  const std::optional<std::string> text = w.workload("my \"program\"");
  REQUIRE(text);
  CHECK(*text ==
        "{\"deepum_workload\":1,\"name\":\"my \\\"program\\\"\",\"kernels\":3,\"tensors\":2,\"source\":\"deepum-run "
        "--record\"}\n"
        "{\"tensor\":0,\"bytes\":4194304,\"addr\":0,\"persistent\":true}\n"
        "{\"tensor\":1,\"bytes\":4194304,\"addr\":8388608,\"persistent\":true}\n"
        "{\"kernel\":\"k0\",\"ns\":10,\"in\":[],\"out\":[0]}\n"
        "{\"kernel\":\"k4\",\"ns\":10,\"in\":[1],\"out\":[]}\n"
        "{\"kernel\":\"k0\",\"ns\":10,\"in\":[0],\"out\":[0]}\n");
}

}  // namespace step_watches
