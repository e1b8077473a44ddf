// The trace of whole arenas.

#include "report/trace_bench.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace arena_trace_test {

using namespace trace_bench_of_tests;

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

}  // namespace arena_trace_test
