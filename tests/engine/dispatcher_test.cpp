#include "engine/engine_bench.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace dispatcher_test {

using namespace engine_bench_of_tests;
using bench = engine_bench;

TEST_CASE("a prefetch is issued in plan order, and no more commands than allowed are under way") {
  bench b(64);
  b.plan({prefetch(blocks(10)), prefetch(blocks(2)), prefetch(blocks(20))});
  CHECK(b.issued() == "prefetch(10+1) prefetch(2+1)");
  b.memory.carry_out(b.memory.calls[1]);
  b.made->pump();
  CHECK(b.issued() == "prefetch(20+1)");
}

TEST_CASE("no more bytes than allowed are under way, and a long range is split for it") {
  engine_options o = bench::with_budget(64);
  o.bytes_in_flight = block_size * 6;
  bench b(o, 64);
  b.plan({prefetch(blocks(0, 4)), prefetch(blocks(10, 8))});
  CHECK(b.issued() == "prefetch(0+4) prefetch(10+2)");
  b.settle();
  CHECK(b.issued() == "prefetch(12+4) prefetch(16+2)");
}

TEST_CASE("a prefetch takes only the room there is, and the rest waits for more") {
  bench b(4);
  b.plan({prefetch(blocks(0, 6))});
  CHECK(b.issued() == "prefetch(0+4)");
  b.settle();
  CHECK(b.issued().empty());
  b.memory.driver_takes(blocks(0, 1));
  b.made->pump();
  CHECK(b.issued() == "prefetch(4+1)");
}

TEST_CASE("where the driver makes room a prefetch does not wait for it, until a plan says otherwise") {
  bench b(4);
  deepum::plan p{.driver_makes_room = true, .transfers = {prefetch(blocks(0, 6))}};
  b.plan(p);
  CHECK(b.issued() == "prefetch(0+6)");
  b.settle();
  CHECK(b.issued().empty());
  b.plan({prefetch(blocks(10, 2))});
  CHECK(b.issued().empty());
}

TEST_CASE("a prefetch leaves out what is resident, arriving or unallocated") {
  bench b(64);
  b.bring(blocks(2));
  b.made->dead(blocks(5), liveness::unallocated, {});
  b.plan({prefetch(blocks(0)), prefetch(blocks(0, 8))});
  b.settle();
  CHECK(b.issued() == "prefetch(0+1) prefetch(1+1) prefetch(3+2) prefetch(6+2)");
}

TEST_CASE("keeping a resident block makes it the most recently migrated one") {
  bench b(64);
  b.bring(blocks(0));
  b.bring(blocks(1));
  b.plan({prefetch(blocks(0, 3), reason::keep)});
  CHECK(b.issued() == "prefetch(0+2)");
  b.memory.reports.push_back({.what = device_event::kind::completed, .ticket = b.memory.calls[0].ticket});
  b.made->pump();
  std::vector<std::uint32_t> order;
  b.script.map->for_each_least_recently_migrated([&](block_id x) {
    order.push_back(x.value);
    return true;
  });
  CHECK(order == std::vector<std::uint32_t>{0, 1});
  b.bring(blocks(5));
  CHECK(b.script.map->occupied() == 3);
}

TEST_CASE("the two directions do not wait for each other") {
  bench b(4);
  b.bring(blocks(0, 4));
  b.launch({{blocks(0), access::read}});
  b.plan({evict(blocks(0)), prefetch(blocks(8))});  // 0 is in use by the launch that executes; 8 has no room
  CHECK(b.issued().empty());
  b.memory.driver_takes(blocks(3));
  b.made->pump();
  CHECK(b.issued() == "prefetch(8+1)");
}

TEST_CASE("an eviction waits for the launch that executes on the block, not for later ones") {
  bench b(8);
  b.bring(blocks(0, 4));
  const launch_id first = b.launch({{blocks(0), access::read}});
  b.launch({{blocks(1, 2), access::read}});
  b.plan({evict(blocks(2)), evict(blocks(0, 2))});
  CHECK(b.issued() == "evict(2+1)");
  b.memory.finish(first);
  b.made->pump();
  CHECK(b.issued() == "evict(0+1)");
}

TEST_CASE("an eviction takes only what is on the device") {
  bench b(8);
  b.bring(blocks(1, 2));
  b.plan({evict(blocks(0, 5))});
  CHECK(b.issued() == "evict(1+2)");
  b.settle();
  CHECK(b.script.map->occupied() == 0);
  CHECK(b.state(1).copies.only_at(location::host()));
}

TEST_CASE("a block that is on its way out comes back only when it has left") {
  bench b(8);
  b.bring(blocks(0));
  b.plan({evict(blocks(0)), prefetch(blocks(0))});
  CHECK(b.issued() == "evict(0+1)");
  b.settle();
  CHECK(b.issued() == "prefetch(0+1)");
}

TEST_CASE("a plan that supersedes forgets what was not issued, but not what the program asked for") {
  bench b(64);
  b.plan({prefetch(blocks(0)), prefetch(blocks(1)), prefetch(blocks(2, 3))});
  b.made->prefetch(blocks(9), location::device());
  b.plan({prefetch(blocks(7))}, true);
  CHECK(b.issued() == "prefetch(0+1) prefetch(1+1)");
  b.settle();
  CHECK(b.issued() == "prefetch(9+1) prefetch(7+1)");
  CHECK(b.made->snapshot().prefetches_cancelled == 3);
}

TEST_CASE("a discard of live contents is refused and counted, whatever the policy says") {
  bench b(64);
  b.bring(blocks(0, 3));
  b.made->dead(blocks(1), liveness::inactive, {});
  b.plan({discard(blocks(0, 3))});
  CHECK(b.issued() == "discard(1+1)");
  CHECK(b.made->snapshot().refused == 2);
}

TEST_CASE("a whole overwrite by a launch in flight is no reason to discard: nothing orders the discard before it") {
  bench b(64);
  b.bring(blocks(0));
  b.launch({{blocks(0), access::overwrite}});
  b.plan({discard(blocks(0))});
  CHECK(b.issued().empty());
  CHECK(b.made->snapshot().refused == 1);
}

TEST_CASE("a discard waits for the launches that declare the block") {
  bench b(64);
  b.bring(blocks(0, 2));
  const launch_id l = b.launch({{blocks(0), access::update}});
  b.made->dead(blocks(0, 2), liveness::inactive, l);
  b.plan({discard(blocks(0, 2)), discard(blocks(1))});
  CHECK(b.issued() == "discard(1+1)");  // a waiting discard does not hold up the next one
  b.memory.finish(l);
  b.made->pump();
  CHECK(b.issued() == "discard(0+1)");
}

TEST_CASE(
    "a discard waits for launches with unknown accesses that were issued before the block died, not for later ones") {
  bench b(64);
  b.bring(blocks(0));
  const launch_id before = b.launch({}, false);
  b.made->dead(blocks(0), liveness::inactive, before);
  b.launch({}, false);
  b.plan({discard(blocks(0))});
  CHECK(b.issued().empty());
  b.memory.finish(before);
  b.made->pump();
  CHECK(b.issued() == "discard(0+1)");
}

TEST_CASE("the program's own discard leaves alone what a launch in flight may touch") {
  bench b(64);
  b.bring(blocks(0, 3));
  const launch_id l = b.launch({{blocks(1), access::read}});
  b.made->discard(blocks(0, 3));
  CHECK_FALSE(b.made->settled(blocks(0)));
  b.made->pump();
  CHECK(b.issued() == "discard(0+1) discard(2+1)");
  CHECK(b.made->snapshot().dropped == 1);
  b.settle();
  CHECK(b.made->settled(blocks(0, 3)));
  b.memory.finish(l);
  b.launch({}, false);
  b.made->discard(blocks(1));
  b.made->pump();
  CHECK(b.issued().empty());
  CHECK(b.made->snapshot().dropped == 2);
}

TEST_CASE("what the program asks to prefetch and nothing makes room for is dropped, so that it does not block") {
  bench b(1);
  b.bring(blocks(0));
  const launch_id l = b.launch({});
  b.made->prefetch(blocks(5, 2), location::device());
  b.made->pump();
  CHECK(b.made->snapshot().dropped == 0);
  b.memory.finish(l);
  b.made->pump();
  CHECK(b.made->snapshot().dropped == 2);
  b.made->prefetch(blocks(0), location::host());
  b.made->pump();
  CHECK(b.issued() == "evict(0+1)");
}

TEST_CASE("a drop needs a current host copy, and a launch that writes takes it away") {
  bench b(64);
  b.made->host_access(blocks(0, 3), access::update);
  b.memory.driver_brings(blocks(0, 2), true);
  b.bring(blocks(2));
  const launch_id l = b.launch({{blocks(0), access::read}, {blocks(1), access::update}});
  b.memory.finish(l);
  b.made->pump();
  b.plan({transfer::drop(reason::make_room, blocks(0, 3))});
  CHECK(b.issued() == "evict(0+1)");
  const statistics s = b.made->snapshot();
  CHECK(s.refused == 2);
  b.settle();
  CHECK(b.made->snapshot().out().bytes_for(reason::make_room) == 0);
  CHECK(b.made->snapshot().out().blocks_for(reason::make_room) == 1);
}

TEST_CASE("managed memory has no cleaning: it is dropped and counted") {
  bench b(64);
  b.bring(blocks(0));
  b.plan({transfer::clean(reason::write_back, blocks(0))});
  CHECK(b.issued().empty());
  CHECK(b.made->snapshot().dropped == 1);
}

}  // namespace dispatcher_test
