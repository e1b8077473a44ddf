#include "nlohmann/json.hpp"
#include <deepum/deepum.hpp>
#include <deepum/trace.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace trace_test {

using namespace deepum;
using namespace deepum::literals;
using kind = device_event::kind;
using json = nlohmann::json;

nanoseconds us(std::int64_t n) { return nanoseconds{1000 * n}; }
block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

struct recorder {
  trace made;

  explicit recorder(trace_options options = {}) : made(std::move(options)) {}

  void issue(std::uint64_t id, const std::string& name, std::uint16_t stream, nanoseconds at = {}) {
    const launch_record record{.id = launch_id{id}, .stream = stream_id{stream}, .name = name};
    made.see({.what = kind::launch_issued, .at = at, .record = &record}, launch_id{id});
  }
  void finish(std::uint64_t id, nanoseconds began, nanoseconds at, nanoseconds stalled = {}) {
    made.see({.what = kind::launch_finished,
              .timed = began != nanoseconds{},
              .launch = launch_id{id},
              .at = at,
              .began = began,
              .stalled = stalled},
             launch_id{id});
  }
  void move(kind what, block_range range, nanoseconds began, nanoseconds at, reason why = reason::predicted,
            transfer did = transfer::prefetch(location::device(), reason::predicted), std::uint64_t ticket = 1) {
    made.see({.what = what, .why = why, .range = range, .at = at, .began = began, .ticket = ticket, .did = did}, {});
  }

  [[nodiscard]] std::string text() const {
    const trace* const one = &made;
    std::ostringstream out;
    trace::write(out, {&one, 1});
    return out.str();
  }
  [[nodiscard]] std::vector<json> events() const { return json::parse(text())["traceEvents"]; }
  [[nodiscard]] std::vector<json> events(const std::string& category) const {
    std::vector<json> chosen;
    for (const json& e : events()) {
      if (e.value("cat", "") == category) chosen.push_back(e);
    }
    return chosen;
  }
  [[nodiscard]] std::vector<std::uint64_t> residency() const {
    std::vector<std::uint64_t> bytes;
    for (const json& e : events()) {
      if (e["ph"] == "C") bytes.push_back(e["args"]["bytes"]);
    }
    return bytes;
  }
};

/// What viewers need of an event, and that slices of a row do not overlap.
void check_viewable(const std::vector<json>& events) {
  std::map<std::pair<int, int>, double> ends;
  for (const json& e : events) {
    CAPTURE(e.dump());
    const std::string phase = e["ph"];
    CHECK((phase == "X" || phase == "C" || phase == "i" || phase == "M"));
    CHECK(e["pid"].is_number_integer());
    CHECK(e["tid"].is_number_integer());
    CHECK(e["name"].is_string());
    if (phase == "M") continue;
    CHECK(e["ts"].get<double>() >= 0);
    if (phase == "i") CHECK(e["s"] == "t");
    if (phase == "X") {
      CHECK(e["dur"].get<double>() >= 0);
      double& end = ends[{e["pid"].get<int>(), e["tid"].get<int>()}];
      CHECK(e["ts"].get<double>() >= end - 0.0005);
      end = e["ts"].get<double>() + e["dur"].get<double>();
    }
  }
}

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

const sim::kernel add{[](float* y, const float* x, std::size_t) { y[0] += x[0]; },
                      [](sim::work& w, float* y, const float* x, std::size_t n) {
                        w.updates(y, n * sizeof(float)).reads(x, n * sizeof(float));
                      }};

TEST_CASE("the trace of an arena agrees with its statistics, under every policy") {
  for (const std::string policy : {"um", "lru", "deepum", "auto"}) {
    CAPTURE(policy);
    constexpr std::size_t n = std::size_t{2} << 20;  // 8 MiB each
    sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = 64_MiB}};
    recorder r;
    statistics s;
    {
      arena arena{gpu, {.capacity = 256_MiB, .device_budget = 48_MiB, .policy = policy, .observer = r.made.observer()}};
      stream stream{arena};
      std::vector<float*> x;
      for (int i = 0; i < 12; ++i) {
        x.push_back(arena.allocate<float>(n));
        stream.memset(x.back(), 0, bytes{n * sizeof(float)});
      }
      for (int step = 0; step < 5; ++step) {
        for (std::size_t i = 1; i < x.size(); ++i)
          stream.launch("add", 1, 1, 0, add, x[i], x[i - 1], n);
      }
      stream.synchronize();
      s = arena.statistics();
    }
    check_viewable(r.events());
    std::uint64_t in = 0;
    std::uint64_t out = 0;
    std::map<std::string, std::uint64_t> in_by;
    for (const json& e : r.events("copy_in")) {
      in += e["args"]["bytes"].get<std::uint64_t>();
      in_by[e["name"]] += e["args"]["bytes"].get<std::uint64_t>();
    }
    for (const json& e : r.events("copy_out"))
      out += e["args"]["bytes"].get<std::uint64_t>();
    CHECK(in == s.in().all_bytes());
    CHECK(out == s.out().all_bytes());
    CHECK(in_by["fault"] == s.in().bytes_for(reason::fault));
    CHECK(in_by["predicted"] == s.in().bytes_for(reason::predicted));
    CHECK(in_by["issued"] == s.in().bytes_for(reason::issued));
    CHECK(r.events("fault").size() == s.faults);
    CHECK(r.events("launch").size() == s.finished);
    std::set<std::string> names;
    for (const json& e : r.events("launch"))
      names.insert(e["name"].get<std::string>());
    CHECK(names == std::set<std::string>{"add", "memset"});
    double stalled = 0;
    for (const json& e : r.events("stall"))
      stalled += e["dur"].get<double>();
    CHECK(stalled == doctest::Approx(static_cast<double>(s.stalled.count()) / 1000).epsilon(0.001));
    CHECK(stalled > 0);
    const std::vector<std::uint64_t> held = r.residency();
    CHECK(held.size() > 20);
    CHECK(*std::max_element(held.begin(), held.end()) <= (64_MiB).count);  // a fault may take more than the budget
    CHECK(*std::max_element(held.begin(), held.end()) >= (44_MiB).count);
  }
}

TEST_CASE("what is copied by mapping is drawn too") {
  constexpr std::size_t n = std::size_t{2} << 20;  // 8 MiB each
  sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = 64_MiB}};
  recorder r;
  statistics s;
  {
    arena<sim::paged_memory> arena{
        gpu, {.capacity = 256_MiB, .device_budget = 48_MiB, .policy = "auto", .observer = r.made.observer()}};
    stream<sim::paged_memory> stream{arena};
    std::vector<float*> x;
    for (int i = 0; i < 12; ++i) {
      x.push_back(arena.allocate<float>(n));
      stream.memset(x.back(), 0, bytes{n * sizeof(float)});
    }
    for (int step = 0; step < 8; ++step) {
      for (std::size_t i = 1; i < x.size(); ++i)
        stream.launch("add", 1, 1, 0, add, x[i], x[i - 1], n);
    }
    stream.synchronize();
    s = arena.statistics();
  }
  std::uint64_t copied[2] = {};
  for (const bool out : {false, true}) {
    for (const json& e : r.events(out ? "copy_out" : "copy_in"))
      copied[out] += e["args"]["bytes"].get<std::uint64_t>();
  }
  CHECK(copied[0] == s.in().all_bytes());
  CHECK(copied[1] == s.out().all_bytes());
  CHECK(copied[0] > 0);
  check_viewable(r.events());
}

TEST_CASE("a launch names the blocks that it declares, and like launches share a list") {
  recorder r;
  launch_record record{.id = launch_id{1}, .name = "k"};
  record.accesses = {{blocks(3, 2), access::read}, {blocks(7), access::update}, {blocks(9, 4), access::overwrite}};
  for (std::uint64_t id = 1; id <= 3; ++id) {
    record.id = launch_id{id};
    if (id == 3) record.accesses.clear();
    r.made.see({.what = kind::launch_issued, .at = us(10), .record = &record, .period = id == 2 ? 5U : 0U},
               launch_id{id});
    r.finish(id, us(10), us(11));
  }
  const std::vector<json> launches = r.events("launch");
  REQUIRE(launches.size() == 3);
  CHECK(launches[0]["args"]["uses"] == launches[1]["args"]["uses"]);
  CHECK(!launches[2]["args"].contains("uses"));
  CHECK(!launches[0]["args"].contains("period"));
  CHECK(launches[1]["args"]["period"] == 5);
  std::vector<json> lists;
  for (const json& e : r.events()) {
    if (e["name"] == "uses") lists.push_back(e);
  }
  REQUIRE(lists.size() == 1);
  CHECK(lists[0]["ph"] == "M");
  CHECK(lists[0]["args"]["number"] == launches[0]["args"]["uses"]);
  CHECK(lists[0]["args"]["blocks"] == json::parse(R"([[3,2,"read"],[7,1,"update"],[9,4,"overwrite"]])"));
}

TEST_CASE("the step that the policy recognises is in the trace, and so are the contents that die") {
  constexpr std::size_t n = std::size_t{1} << 20;  // 4 MiB each
  for (const std::string policy : {"auto", "um"}) {
    CAPTURE(policy);
    sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = 64_MiB}};
    recorder r;
    {
      arena arena{gpu, {.capacity = 64_MiB, .device_budget = 48_MiB, .policy = policy, .observer = r.made.observer()}};
      stream stream{arena};
      std::vector<float*> x;
      for (int i = 0; i < 8; ++i)
        x.push_back(arena.allocate<float>(n));
      for (int step = 0; step < 4; ++step) {
        stream.memset(x.front(), 0, bytes{n * sizeof(float)});
        for (std::size_t i = 1; i < x.size(); ++i)
          stream.launch("add", 1, 1, 0, add, x[i], x[i - 1], n);
        arena.mark_inactive(x.front(), bytes{n * sizeof(float)});
      }
      stream.synchronize();
      CHECK(arena.statistics().finished == 32);  // the trace has seen all of it
    }
    const std::vector<json> launches = r.events("launch");
    REQUIRE(launches.size() == 32);
    CHECK(!launches[8]["args"].contains("period"));
    CHECK(launches.back()["args"].value("period", 0) == (policy == "auto" ? 8 : 0));
    CHECK(launches.back()["args"].contains("uses"));
    const std::vector<json> died = r.events("died");
    REQUIRE(died.size() >= 4);
    CHECK(died[1]["args"]["first"] == 0);
    CHECK(died[1]["args"]["blocks"] == 2);
    CHECK(died[1]["args"]["launch"] == launches[15]["args"]["launch"]);  // the last before it was said
    check_viewable(r.events());
  }
}

TEST_CASE("of adjacent blocks that come by one command, those that the host never wrote are not counted as copied") {
  sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = 64_MiB}};
  recorder r;
  arena arena{gpu, {.capacity = 64_MiB, .device_budget = 48_MiB, .policy = "um", .observer = r.made.observer()}};
  stream stream{arena};
  auto* const p = arena.allocate<std::byte>((16_MiB).count);
  (void)arena.host_overwrite(p, (6_MiB).count);
  arena.prefetch(p, 16_MiB, location::device());
  for (int i = 0; i < 1000 && arena.statistics().in().all_blocks() < 8; ++i)
    gpu.host_work(us(100));
  CHECK(arena.statistics().in().all_bytes() == (6_MiB).count);
  std::uint64_t copied = 0;
  for (const json& e : r.events("copy_in")) {
    CHECK(e["name"] == "requested");
    copied += e["args"]["bytes"].get<std::uint64_t>();
  }
  CHECK(copied == (6_MiB).count);
  CHECK(r.residency().back() == (16_MiB).count);
}

}  // namespace trace_test
