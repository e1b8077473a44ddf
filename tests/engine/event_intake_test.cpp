#include "engine/engine_bench.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

namespace event_intake_test {

using namespace engine_bench_of_tests;
using bench = engine_bench;

TEST_CASE("the plan for a fault goes before the prefetches that were planned earlier") {
  bench b(64);
  b.plan({prefetch(blocks(0)), prefetch(blocks(1)), prefetch(blocks(2))});
  b.issued();
  b.memory.carry_out(b.memory.calls[0]);
  b.memory.fault(block_id{30});
  b.script.plans.push_back({.supersedes = true, .transfers = {prefetch(blocks(31))}});
  b.made->pump();
  CHECK(b.issued() == "prefetch(31+1)");
}

TEST_CASE("a launch that does not say what it touches may have written every block") {
  bench b(64);
  b.made->host_access(blocks(0), access::update);
  b.memory.driver_brings(blocks(0), true);
  const launch_id l = b.launch({}, false);
  b.memory.finish(l);
  b.made->pump();
  b.plan({transfer::drop(reason::make_room, blocks(0))});
  CHECK(b.issued().empty());
  CHECK(b.made->snapshot().refused == 1);
}

TEST_CASE("a command that fails half-way keeps what it moved") {
  bench b(4);
  b.plan({prefetch(blocks(0, 4))});
  const auto ticket = b.memory.calls[0].ticket;
  b.memory.reports.push_back({.what = device_event::kind::arrived, .range = blocks(0, 2), .ticket = ticket});
  b.memory.fail(b.memory.calls[0]);
  b.made->pump();
  CHECK(b.script.map->occupied() == 2);
  CHECK(b.script.map->resident(block_id{1}));
  CHECK_FALSE(b.script.map->present(block_id{2}));
  b.plan({evict(blocks(0, 2))});
  b.memory.fail(b.memory.calls[1]);
  b.made->pump();
  CHECK(b.script.map->resident(block_id{0}));
  CHECK(b.state(0).moving == motion::none);
}

TEST_CASE("a fault belongs to the launch that was executing, also when it is reported late") {
  bench b(64);
  const launch_id one = b.launch({});
  const launch_id two = b.launch({});
  b.memory.fault(block_id{1}, 50);
  b.memory.finish(one, 100);
  b.memory.fault(block_id{2}, 100);
  b.memory.fault(block_id{3}, 70);
  b.memory.finish(two, 200);
  b.memory.fault(block_id{4}, 150);
  b.memory.fault(block_id{5}, 250);
  b.made->pump();
  REQUIRE(b.script.faults.size() == 5);
  CHECK(b.script.faults[0].launch == one);
  CHECK(b.script.faults[1].launch == two);
  CHECK(b.script.faults[2].launch == one);
  CHECK(b.script.faults[3].launch == two);
  CHECK_FALSE(b.script.faults[4].launch.valid());
}

TEST_CASE("a fault while two streams have work belongs to nobody") {
  bench b(64);
  const stream_id second = b.made->open_stream(std::nullopt);
  b.launch({});
  const launch_id other = b.launch_on(second, {});
  b.memory.fault(block_id{1}, 10);
  b.memory.finish(other, 20);
  b.memory.fault(block_id{1}, 30);
  b.made->pump();
  REQUIRE(b.script.faults.size() == 2);
  CHECK_FALSE(b.script.faults[0].launch.valid());
  CHECK(b.script.faults[1].launch.value == 1);
}

}  // namespace event_intake_test
