#include "engine/engine_bench.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace accounting_test {

using namespace engine_bench_of_tests;
using bench = engine_bench;

TEST_CASE("a call that fails is counted and logged once, and its room is given back") {
  bench b(2);
  b.memory.fail_all = true;
  b.plan({prefetch(blocks(0, 2))});
  b.plan({prefetch(blocks(0, 2))});
  CHECK(b.script.map->occupied() == 0);
  b.memory.fail_all = false;
  b.plan({prefetch(blocks(0, 2))});
  CHECK(b.issued() == "prefetch(0+2)");
  b.memory.fail(b.memory.calls[0]);
  b.made->pump();
  CHECK(b.script.map->occupied() == 0);
  CHECK(b.made->snapshot().failed_calls == 3);
  CHECK(b.log.size() == 1);
}

TEST_CASE("after many failures in a row prefetching pauses, and is tried again later") {
  engine_options o = bench::with_budget(64);
  o.failures_until_pause = 3;
  o.launches_of_pause = 2;
  bench b(o, 64);
  b.memory.fail_all = true;
  for (std::uint32_t i = 0; i < 3; ++i)
    b.plan({prefetch(blocks(i))});
  b.memory.fail_all = false;
  REQUIRE(b.log.size() == 2);  // the failure, and what follows from it
  CHECK(b.log[1] == "3 commands failed in a row; nothing is prefetched for the next 2 launches");
  b.plan({prefetch(blocks(5))});
  CHECK(b.issued().empty());
  for (int i = 0; i < 2; ++i)
    b.memory.finish(b.launch({}));
  b.made->pump();
  b.plan({prefetch(blocks(5))});
  CHECK(b.issued() == "prefetch(5+1)");
  CHECK(b.made->snapshot().prefetches_cancelled == 1);
}

TEST_CASE("an observer sees each event with its launch") {
  engine_options o = bench::with_budget(8);
  std::vector<std::uint64_t> seen;
  o.observer = [&](const device_event& e, launch_id l) {
    CHECK(e.block == block_size);
    if (e.what == device_event::kind::fault) seen.push_back(l.value);
  };
  bench b(o, 8);
  b.launch({});
  b.memory.fault(block_id{1}, 10);
  b.made->pump();
  CHECK(seen == std::vector<std::uint64_t>{1});
}

TEST_CASE("prefetched blocks are used, late, wasted or neither") {
  bench b(64);
  b.made->host_access(blocks(0, 8), access::update);
  b.plan({prefetch(blocks(0, 4))});
  b.memory.fault(block_id{3});
  b.memory.driver_brings(blocks(3));
  b.settle();
  b.memory.finish(b.launch({{blocks(0), access::read}}));
  b.memory.driver_takes(blocks(1));
  b.memory.driver_takes(blocks(0));
  b.made->pump();
  statistics s = b.made->snapshot();
  CHECK(s.prefetches_used == 1);
  CHECK(s.prefetches_late == 1);
  CHECK(s.prefetches_wasted == 1);
  b.memory.finish(b.launch({}, false));  // may have used block 2
  b.made->pump();
  b.memory.driver_takes(blocks(2));
  s = b.made->snapshot();
  CHECK(s.prefetches_used == 1);
  CHECK(s.prefetches_wasted == 1);
}

TEST_CASE("traffic is counted by reason, and contents that nobody wrote cost no bytes") {
  bench b(64);
  b.made->host_access(blocks(0, 2), access::update);
  b.plan({prefetch(blocks(0, 3), reason::issued)});
  b.settle();
  b.memory.fault(block_id{9});
  b.memory.driver_brings(blocks(9));
  b.made->pump();
  const statistics before = b.made->snapshot();
  CHECK(before.in().blocks_for(reason::issued) == 3);
  CHECK(before.in().bytes_for(reason::issued) == 2 * block_size.count);
  CHECK(before.in().blocks_for(reason::fault) == 1);
  CHECK(before.faults == 1);
  CHECK(before.policy.table_bytes == 4711);
  b.plan({evict(blocks(0, 2))});
  b.settle();
  const statistics step = b.made->snapshot() - before;
  CHECK(step.in().all_blocks() == 0);
  CHECK(step.out().bytes_for(reason::make_room) == 2 * block_size.count);
  CHECK(step.faults == 0);
  CHECK(step.policy.table_bytes == 4711);
}

TEST_CASE("stalls add up, and launches larger than the budget are counted and logged once") {
  bench b(4);
  b.memory.finish(b.launch({{blocks(0, 3), access::read}, {blocks(0, 3), access::update}}), 10, 7);
  b.memory.finish(b.launch({{blocks(0, 5), access::read}}), 20, 5);
  b.memory.finish(b.launch({{blocks(0, 2), access::read}, {blocks(8, 3), access::read}}), 30);
  b.made->pump();
  const statistics s = b.made->snapshot();
  CHECK(s.stalled == nanoseconds{12});
  CHECK(s.oversized_launches == 2);
  CHECK(s.launches == 3);
  CHECK(s.finished == 3);
  CHECK(b.log.size() == 1);
}

}  // namespace accounting_test
