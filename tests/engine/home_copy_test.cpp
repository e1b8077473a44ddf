// What the engine brings to memory with a home copy, and what leaves it.

#include "engine/home_copy_bench.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

namespace home_copy_test {

using namespace home_copy_bench_of_tests;
using deepum::access;  // not the one of POSIX

TEST_CASE("home copy: a policy sees whether the host's copies stay") {
  bench b;
  CHECK(b.script.map->keeps_home_copy());
  fake_memory managed(4);
  scripted_policy::script script;
  engine e(managed, std::make_unique<scripted_policy>(script), {});
  e.host_access(blocks(0), access::read);
  e.pump();
  CHECK_FALSE(script.map->keeps_home_copy());
}

// --- room ----------------------------------------------------------------------------------------------------------

TEST_CASE("home copy: a prefetch is cut where contents begin or end, and what has none is populated") {
  bench b;
  b.host_writes(blocks(2, 3));
  b.plan({prefetch(blocks(0, 6), reason::issued)});
  b.settle();
  CHECK(b.issued() == "populate(0+2) prefetch(2+3) populate(5+1)");
  CHECK(b.script.map->occupied() == 6);
  const statistics s = b.seen();
  CHECK(s.in().blocks_for(reason::issued) == 6);
  CHECK(s.in().bytes_for(reason::issued) == 3 * block_size.count);
  CHECK(b.on_host(3));
  CHECK(b.on_device(3));
  CHECK_FALSE(b.state(3).dirty);
}

TEST_CASE("home copy: populated blocks take room while they arrive, and have no contents until a launch writes them") {
  bench b(2);
  b.plan({prefetch(blocks(0, 3))});
  CHECK(b.issued() == "populate(0+2)");
  CHECK(b.state(0).moving == motion::arriving);
  b.settle();
  CHECK(b.script.map->ready(block_id{0}));
  CHECK(b.state(0).copies.empty());
  CHECK_FALSE(b.state(0).dirty);
  b.finish(b.submit({overwrites(0)}));
  CHECK(b.on_device(0));
  CHECK(b.state(0).dirty);
  b.plan({evict(blocks(0, 2))});
  CHECK(b.issued() == "evict(0+1) drop(1+1)");
  b.settle();
  CHECK(b.on_host(0));
  CHECK(b.state(1).copies.empty());
  CHECK(b.seen().out().bytes_for(reason::make_room) == block_size.count);
}

TEST_CASE("home copy: what the host writes where the device has room alone is not lost when the room is given up") {
  bench b;
  b.plan({prefetch(blocks(0))});
  b.settle();
  b.host_writes(blocks(0));
  b.memory.driver_takes(blocks(0), reason::host);
  b.made->pump();
  CHECK(b.on_host(0));
  b.issued();
  b.plan({prefetch(blocks(0))});
  CHECK(b.issued() == "prefetch(0+1)");
}

TEST_CASE("home copy: a populate or prefetch that fails gives its room back") {
  bench b(2);
  SUBCASE("at once") { b.memory.fail_all = true; }
  b.plan({prefetch(blocks(0, 2))});
  if (!b.memory.fail_all) {
    CHECK(b.issued() == "populate(0+2)");
    b.fail_next();
  }
  CHECK(b.script.map->occupied() == 0);
  CHECK(b.state(0).moving == motion::none);
  CHECK(b.seen().failed_calls == 1);
  b.memory.fail_all = false;
  b.plan({prefetch(blocks(0, 2))});
  CHECK(b.issued() == "populate(0+2)");
}

TEST_CASE("home copy: to keep a block needs no command, nobody but the map knows of an order") {
  bench b;
  b.bring(blocks(0, 2));
  b.plan({prefetch(blocks(0, 1), reason::keep)});
  CHECK(b.issued().empty());
  CHECK(b.state(0).migrated_at > b.state(1).migrated_at);
  CHECK(b.script.map->occupied() == 2);
}

TEST_CASE("home copy: an arrival does not make clean what launches have written") {
  bench b;
  b.bring_dirty(blocks(0));
  b.memory.driver_brings(blocks(0));
  b.made->pump();
  CHECK(b.state(0).dirty);
  CHECK_FALSE(b.on_host(0));
}

TEST_CASE("home copy: a fault brings a block as a whole") {
  bench b;
  b.bring(blocks(0));
  b.memory.driver_brings(blocks(1));
  b.made->pump();
  CHECK(b.script.map->ready(block_id{0}));
  CHECK(b.script.map->ready(block_id{1}));
  CHECK(b.state(1).copies.empty());
}

// --- eviction and drop ---------------------------------------------------------------------------------------------

TEST_CASE("home copy: an eviction is cut where contents are the host's, and those are dropped") {
  bench b;
  b.bring(blocks(0, 6));
  b.finish(b.submit({updates(2, 2)}));
  b.plan({evict(blocks(0, 6))});
  CHECK(b.state(0).moving == motion::leaving);
  b.settle();
  CHECK(b.issued() == "drop(0+2) evict(2+2) drop(4+2)");
  CHECK(b.script.map->occupied() == 0);
  for (std::uint32_t i = 0; i < 6; ++i)
    CHECK(b.state(i).copies.only_at(location::host()));
  CHECK(b.seen().out().blocks_for(reason::make_room) == 6);
  CHECK(b.seen().out().bytes_for(reason::make_room) == 2 * block_size.count);
}

TEST_CASE("home copy: a drop gives up what the host has, and the rest is refused and counted") {
  bench b;
  b.bring(blocks(0, 4));
  b.finish(b.submit({updates(1)}));
  b.plan({drop(blocks(0, 4))});
  CHECK(b.issued() == "drop(0+1) drop(2+2)");
  CHECK(b.seen().refused == 1);
  b.settle();
  CHECK(b.resident(1));
  CHECK_FALSE(b.resident(2));
  CHECK(b.on_host(2));
}

TEST_CASE("home copy: a drop or eviction that fails leaves the block as it was") {
  bench b;
  b.bring(blocks(0));
  SUBCASE("at once") { b.memory.fail_all = true; }
  SUBCASE("later") {}
  SUBCASE("an eviction") { b.finish(b.submit({updates(0)})); }
  const bool dirty = b.state(0).dirty;
  b.plan({evict(blocks(0))});
  if (!b.memory.fail_all) {
    CHECK(b.issued() == (dirty ? "evict(0+1)" : "drop(0+1)"));
    b.fail_next();
  }
  CHECK(b.resident(0));
  CHECK(b.state(0).moving == motion::none);
  CHECK(b.state(0).dirty == dirty);
  CHECK(b.on_host(0) == !dirty);
  CHECK(b.seen().out().all_blocks() == 0);
  CHECK(b.seen().failed_calls == 1);
  b.memory.fail_all = false;
  b.plan({evict(blocks(0))});
  CHECK(b.issued() == (dirty ? "evict(0+1)" : "drop(0+1)"));
}

TEST_CASE("home copy: a drop that comes too late for its block ends without it") {
  bench b;
  b.bring(blocks(0));
  b.plan({drop(blocks(0))});
  b.memory.reports.push_back({.what = device_event::kind::completed, .ticket = b.memory.calls[0].ticket});
  b.made->pump();
  CHECK(b.resident(0));
  CHECK(b.on_host(0));
  CHECK(b.state(0).moving == motion::none);
}

TEST_CASE("home copy: while a launch runs that does not say what it touches, nothing is dropped") {
  bench b;
  b.bring(blocks(0, 2));
  const launch_id l = b.submit({}, false);
  b.plan({drop(blocks(0)), evict(blocks(1))});
  CHECK(b.issued() == "evict(1+1)");
  CHECK(b.seen().refused == 1);
  b.settle();
  CHECK(b.seen().out().bytes_for(reason::make_room) == block_size.count);
  b.finish(l);
  CHECK(b.state(0).dirty);
}

TEST_CASE("home copy: a launch that does not say what it touches may have written into room that was empty") {
  bench b;
  b.plan({prefetch(blocks(0))});
  b.settle();
  b.finish(b.submit({}, false));
  CHECK(b.state(0).dirty);
  b.issued();
  b.plan({drop(blocks(0)), evict(blocks(0))});
  CHECK(b.issued() == "evict(0+1)");
}

}  // namespace home_copy_test
