#include "report/trace_bench.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace trace_test {

using namespace trace_bench_of_tests;
TEST_CASE("launches have their names, each stream has a row, and the times are microseconds from the first event on") {
  recorder r;
  r.issue(1, "gemm", 0, us(5000));
  r.issue(2, "relu \"x\"\n", 1, us(5000));
  r.finish(1, us(5010), us(5030));
  r.finish(2, nanoseconds{5'011'500}, us(5013));
  const std::vector<json> launches = r.events("launch");
  REQUIRE(launches.size() == 2);
  CHECK(launches[0]["name"] == "gemm");
  CHECK(launches[0]["ts"] == 0.0);
  CHECK(launches[0]["dur"] == 20.0);
  CHECK(launches[0]["args"]["launch"] == 1);
  CHECK(launches[1]["name"] == "relu \"x\"\n");
  CHECK(launches[1]["ts"] == 1.5);
  CHECK(launches[1]["dur"] == 1.5);
  CHECK(launches[0]["tid"] != launches[1]["tid"]);
  std::map<int, std::string> rows;
  for (const json& e : r.events()) {
    if (e["name"] == "thread_name") rows[e["tid"]] = e["args"]["name"];
  }
  CHECK(rows[launches[0]["tid"]] == "stream 0");
  CHECK(rows[launches[1]["tid"]] == "stream 1");
  check_viewable(r.events());
}

TEST_CASE("of untimed launches the order is drawn: each begins when it was issued, or the one before it was over") {
  recorder r;
  r.issue(1, "a", 0, us(10));
  r.issue(2, "b", 0, us(11));
  r.issue(3, "c", 0, us(90));
  r.finish(1, {}, us(40));
  r.finish(2, {}, us(60));
  r.finish(3, {}, us(95));
  const std::vector<json> launches = r.events("launch");
  REQUIRE(launches.size() == 3);
  const double expected[][2] = {{0, 30}, {30, 20}, {80, 5}};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(launches[i]["ts"] == expected[i][0]);
    CHECK(launches[i]["dur"] == expected[i][1]);
    CHECK(launches[i]["args"]["timed"] == false);
  }
}

TEST_CASE("a wait lies where the stream was idle, and else in its launch") {
  recorder r;
  r.issue(1, "first", 0, us(100));
  r.finish(1, us(100), us(200));
  r.issue(2, "waits before", 0, us(150));
  r.finish(2, us(260), us(300), us(60));
  r.issue(3, "waits within", 0, us(200));
  r.finish(3, us(300), us(400), us(70));
  r.issue(4, "held", 0, us(390));
  r.made.see({.what = kind::launch_released, .at = us(450), .began = us(400)}, launch_id{4});
  r.finish(4, us(450), us(460));
  const std::vector<json> waits = r.events("stall");
  REQUIRE(waits.size() == 3);
  const double expected[][2] = {{100, 60}, {200, 70}, {300, 50}};
  const std::uint64_t launch[] = {2, 3, 4};
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(waits[i]["ts"] == expected[i][0]);
    CHECK(waits[i]["dur"] == expected[i][1]);
    CHECK(waits[i]["args"]["launch"] == launch[i]);
  }
  CHECK(waits[0]["name"] == "waits for blocks");
  CHECK(waits[2]["name"] == "held back");
  CHECK(waits[2]["args"]["name"] == "held");
  check_viewable(r.events());
}

TEST_CASE("a launch that is refused is a mark on its stream, and in flight no more") {
  recorder r;
  r.issue(1, "first", 0, us(10));
  r.issue(2, "too large", 0, us(20));
  r.finish(1, us(10), us(30));
  r.made.see({.what = kind::launch_refused, .launch = launch_id{2}, .at = us(40)}, launch_id{2});
  r.finish(2, us(30), us(50));  // nobody says so
  CHECK(r.events("launch").size() == 1);
  const std::vector<json> refused = r.events("refused");
  REQUIRE(refused.size() == 1);
  CHECK(refused[0]["ts"] == 30.0);
  CHECK(refused[0]["args"]["launch"] == 2);
  CHECK(refused[0]["args"]["name"] == "too large");
  check_viewable(r.events());
}

TEST_CASE("names that are not UTF-8 and spans that end before they begin make a trace that can be read") {
  const std::string replaced = "\xef\xbf\xbd";
  const std::vector<std::pair<std::string, std::string>> names{
      {"caf\xe9", "caf" + replaced},
      {"\xff\xfe", replaced + replaced},
      {"\xe2\x82", replaced + replaced},  // cut off
      {"\xe2\x82(\"\\", replaced + replaced + "(\"\\"},
      {"\xc0\xaf", replaced + replaced},                 // longer than need be
      {"\xed\xa0\x80", replaced + replaced + replaced},  // half of a pair
      {"\xf4\x90\x80\x80", replaced + replaced + replaced + replaced},
      {"\xe2\x82\xac \xf0\x9f\x98\x80 \xc3\xa9\n\x01", "\xe2\x82\xac \xf0\x9f\x98\x80 \xc3\xa9\n\x01"}};
  recorder r(trace_options{.name = "run \xff"});
  for (std::size_t i = 0; i < names.size(); ++i) {
    r.made.span(names[i].first, us(static_cast<int>(i) * 10 + 10), us(static_cast<int>(i) * 10 + 20));
  }
  r.made.span("backwards", us(200) + nanoseconds{1}, us(100));
  const std::vector<json> steps = r.events("step");
  REQUIRE(steps.size() == names.size() + 1);
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(steps[i]["name"] == names[i].second);
  }
  CHECK(steps.back()["ts"] == 190.001);
  CHECK(steps.back()["dur"] == 0.0);
  check_viewable(r.events());
}

TEST_CASE("a stall that a clock makes negative counts as none") {
  recorder r;
  r.issue(1, "k", 0, us(10));
  r.finish(1, us(20), us(30), us(-5));
  REQUIRE(r.events("launch").size() == 1);
  CHECK(r.events("launch")[0]["args"]["stalled_ns"] == 0);
  check_viewable(r.events());
}

TEST_CASE("copies of one direction follow one another; what was not copied has no length") {
  recorder r;
  r.move(kind::arrived, blocks(0, 4), us(10), us(30));
  r.move(kind::arrived, blocks(4, 2), us(15), us(40));
  r.move(kind::arrived, blocks(6), {}, us(50));
  r.move(kind::departed, blocks(0, 4), us(20), us(60), reason::make_room,
         transfer::evict(location::host(), reason::make_room));
  r.move(kind::departed, blocks(4), {}, us(61), reason::dead, transfer::discard(reason::dead));
  r.move(kind::completed, blocks(5), us(62), us(70), reason::write_back, transfer::clean(reason::write_back));
  r.move(kind::completed, blocks(6), {}, us(70));
  const std::vector<json> in = r.events("copy_in");
  REQUIRE(in.size() == 2);
  CHECK(in[0]["ts"] == 0.0);
  CHECK(in[0]["dur"] == 20.0);
  CHECK(in[0]["args"]["bytes"] == 8 << 20);
  CHECK(in[1]["ts"] == 20.0);
  CHECK(in[1]["dur"] == 10.0);
  CHECK(r.events("arrived").size() == 1);
  const std::vector<json> out = r.events("copy_out");
  REQUIRE(out.size() == 2);
  CHECK(out[0]["name"] == "make_room");
  CHECK(out[1]["name"] == "write_back");
  CHECK(out[1]["args"]["first"] == 5);
  const std::vector<json> evicted = r.events("evicted");
  REQUIRE(evicted.size() == 2);
  CHECK(evicted[0]["args"]["how"] == "evict");
  CHECK(evicted[1]["args"]["how"] == "discard");
  CHECK(evicted[1]["name"] == "dead");
  check_viewable(r.events());
}

TEST_CASE("where blocks arrive before their copies have ended, the copies are told by themselves") {
  recorder r;
  r.move(kind::arrived, blocks(0, 2), {}, us(12));
  r.move(kind::copied, blocks(0), us(10), us(20));
  r.move(kind::copied, blocks(1), us(11), us(30));
  r.move(kind::completed, blocks(0, 2), {}, us(31));
  const std::vector<json> in = r.events("copy_in");
  REQUIRE(in.size() == 2);
  CHECK(in[0]["dur"] == 10.0);
  CHECK(in[1]["ts"] == 10.0);
  CHECK(in[1]["dur"] == 10.0);
  CHECK(in[1]["args"]["bytes"] == 2 << 20);
  CHECK(r.residency() == std::vector<std::uint64_t>{0, 4 << 20});
  check_viewable(r.events());
}

TEST_CASE("residency counts each block once, without what was discarded, and a clean changes nothing") {
  recorder r;
  r.move(kind::arrived, blocks(0, 4), us(10), us(20));
  r.move(kind::arrived, blocks(2, 4), us(20), us(30));
  r.move(kind::arrived, blocks(2, 4), {}, us(31));
  r.move(kind::completed, blocks(0), us(31), us(32), reason::write_back, transfer::clean(reason::write_back));
  r.move(kind::departed, blocks(0, 3), us(32), us(40));
  r.move(kind::departed, blocks(0), {}, us(41));
  r.move(kind::completed, blocks(2, 2), {}, us(42), reason::dead, transfer::discard(reason::dead));
  r.move(kind::departed, blocks(4), {}, us(43), reason::dead, transfer::discard(reason::dead));
  r.move(kind::completed, blocks(4), {}, us(44), reason::dead, transfer::discard(reason::dead));
  CHECK(r.residency() == std::vector<std::uint64_t>{0, 8 << 20, 12 << 20, 6 << 20, 4 << 20, 2 << 20});
  const std::vector<json> in = r.events("copy_in");
  REQUIRE(in.size() == 2);
  CHECK(in[1]["args"]["blocks"] == 4);
  CHECK(in[1]["args"]["bytes"] == 4 << 20);  // two of them were there
}

TEST_CASE("what a neighbour gets and gives is drawn with both places, and is not on the device") {
  recorder r;
  const location neighbour = location::device(1);
  transfer away = transfer::evict(neighbour, reason::make_room);
  away.from = location::device();
  transfer staged = transfer::prefetch(neighbour, reason::predicted);
  staged.from = location::host();
  transfer back = transfer::prefetch(location::device(), reason::issued);
  back.from = neighbour;
  r.move(kind::arrived, blocks(0, 2), us(10), us(20));
  r.move(kind::arrived, blocks(0), us(20), us(25), reason::make_room, away);
  r.move(kind::departed, blocks(0), {}, us(25), reason::make_room, away);
  r.move(kind::arrived, blocks(5), us(20), us(30), reason::predicted, staged);
  r.move(kind::arrived, blocks(0), us(30), us(35), reason::issued, back);
  CHECK(r.residency() == std::vector<std::uint64_t>{0, 4 << 20, 2 << 20, 4 << 20});
  REQUIRE(r.events("copy_out").size() == 1);
  CHECK(r.events("copy_out")[0]["args"]["to"] == "device 1");
  REQUIRE(r.events("evicted").size() == 1);
  CHECK(r.events("evicted")[0]["args"]["how"] == "move");
  REQUIRE(r.events("copy_elsewhere").size() == 1);
  CHECK(r.events("copy_elsewhere")[0]["args"]["from"] == "host");
  const std::vector<json> in = r.events("copy_in");
  REQUIRE(in.size() == 2);
  CHECK_FALSE(in[0]["args"].contains("from"));
  CHECK(in[1]["args"]["from"] == "device 1");
  check_viewable(r.events());
}

TEST_CASE("what was forgotten is counted, and the blocks that it brought are still there") {
  recorder r{{.events = 3}};
  r.move(kind::arrived, blocks(0, 4), us(10), us(20));
  r.move(kind::departed, blocks(1), us(20), us(30));
  r.move(kind::arrived, blocks(7), us(30), us(40));
  r.move(kind::departed, blocks(0), us(40), us(50));
  r.move(kind::arrived, blocks(1), us(50), us(60));
  CHECK(r.made.forgotten() == 2);
  CHECK(r.residency() == std::vector<std::uint64_t>{6 << 20, 8 << 20, 6 << 20, 8 << 20});
  std::vector<std::pair<std::uint32_t, std::uint32_t>> before;
  for (const json& e : r.events("arrived")) {
    CHECK(e["name"] == "before");
    CHECK(e["ts"] == 0.0);
    before.emplace_back(e["args"]["first"], e["args"]["blocks"]);
  }
  CHECK(before == std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 1}, {2, 2}});
  CHECK(r.events("copy_in").front()["args"]["first"] == 7);  // in order of time, although the ring has wrapped
}

TEST_CASE("names are bounded in number") {
  recorder r{{.events = 2}};
  for (std::uint64_t i = 1; i <= 70'000; ++i) {
    r.issue(i, "kernel " + std::to_string(i), 0);
    r.finish(i, us(1), us(2));
  }
  CHECK(r.events("launch").back()["name"] == "(one name too many)");
}

TEST_CASE("a trace that nothing was recorded in, and a file of several runs, can be read") {
  const recorder nothing;
  check_viewable(nothing.events());
  recorder a{{.name = "um"}};
  recorder b{{.name = "auto"}};
  a.issue(1, "k", 0, us(900));
  a.finish(1, us(900), us(950));
  b.made.span("step 1", us(70), us(80));
  const trace* const both[] = {&a.made, &b.made};
  std::ostringstream out;
  trace::write(out, both);
  const std::vector<json> events = json::parse(out.str())["traceEvents"];
  check_viewable(events);
  std::map<int, std::string> names;
  std::map<int, int> slices;
  for (const json& e : events) {
    if (e["name"] == "process_name") names[e["pid"]] = e["args"]["name"];
    if (e["ph"] == "X") {
      CHECK(e["ts"] == 0.0);
      ++slices[e["pid"]];
    }
  }
  CHECK(names == std::map<int, std::string>{{1, "um"}, {2, "auto"}});
  CHECK(slices == std::map<int, int>{{1, 1}, {2, 1}});
}

TEST_CASE("a trace that cannot be written says so, and one without room is refused") {
  const trace t;
  try {
    t.save("/no/such/folder/trace.json");
    FAIL("it was written");
  } catch (const error& e) {
    CHECK(e.code() == status::io_failure);
    CHECK(std::string{e.what()}.find("/no/such/folder/trace.json") != std::string::npos);
  }
  CHECK_THROWS_AS(trace({.events = 0}), error);
}

}  // namespace trace_test
