// Copies to the host that leave the block on the device, so that it can be dropped later.

#include "engine/home_copy_bench.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstdint>

namespace home_copy_cleaning_test {

using namespace home_copy_bench_of_tests;
using deepum::access;  // not the one of POSIX

TEST_CASE("home copy: a cleaned block is on both sides, costs its bytes once, and is dropped without any") {
  bench b;
  b.bring_dirty(blocks(0, 2));
  b.plan({clean(blocks(0, 2))});
  CHECK(b.issued() == "clean(0+2)");
  CHECK(b.state(0).moving == motion::cleaning);
  CHECK(b.state(0).dirty);
  CHECK(b.seen().out().bytes_for(reason::write_back) == 0);
  b.settle();
  CHECK(b.state(0).moving == motion::none);
  CHECK_FALSE(b.state(0).dirty);
  CHECK(b.on_host(0));
  CHECK(b.on_device(0));
  b.plan({evict(blocks(0)), drop(blocks(1))});
  CHECK(b.issued() == "drop(0+1) drop(1+1)");
  b.settle();
  const statistics s = b.seen();
  CHECK(s.dropped == 0);
  CHECK(s.out().all_bytes() == 2 * block_size.count);
  CHECK(s.out().bytes_for(reason::write_back) == 2 * block_size.count);
  CHECK(s.out().blocks_for(reason::write_back) == 0);
  CHECK(s.out().blocks_for(reason::make_room) == 2);
  CHECK(b.on_host(1));
}

TEST_CASE("home copy: what cannot be cleaned now, or need not be, is left out and not counted") {
  bench b;
  b.bring_dirty(blocks(0, 10));
  b.memory.driver_takes(blocks(0));
  b.made->pump();
  b.made->dead(blocks(2), liveness::inactive, {});
  b.submit({reads(3)});
  b.submit_on(b.other, {updates(4), overwrites(5)});
  b.plan({evict(blocks(6))});
  CHECK(b.issued() == "evict(6+1)");
  b.plan({clean(blocks(0, 10))});
  CHECK(b.issued() == "clean(1+1)");
  b.step();
  b.step();
  CHECK(b.issued() == "clean(3+1) clean(7+3)");
  b.settle();
  const statistics s = b.seen();
  CHECK(s.refused == 0);
  CHECK(s.dropped == 0);
  CHECK(b.state(4).dirty);
  CHECK_FALSE(b.state(3).dirty);
}

TEST_CASE("home copy: a block is cleaned again only when it was written again") {
  bench b;
  b.bring_dirty(blocks(0));
  b.plan({clean(blocks(0)), clean(blocks(0))});
  CHECK(b.issued() == "clean(0+1)");
  b.settle();
  b.plan({clean(blocks(0))});
  CHECK(b.issued().empty());
  b.finish(b.submit({updates(0)}));
  CHECK_FALSE(b.on_host(0));
  b.plan({clean(blocks(0))});
  CHECK(b.issued() == "clean(0+1)");
}

TEST_CASE("home copy: nothing is cleaned while a launch is in flight that may write it") {
  bench b;
  b.bring_dirty(blocks(0));
  launch_id l;
  SUBCASE("which says so") { l = b.submit({updates(0)}); }
  SUBCASE("which overwrites it") { l = b.submit({overwrites(0)}); }
  SUBCASE("which reads and writes it") { l = b.submit({updates(0), reads(0)}); }
  SUBCASE("which waits behind another one") {
    const launch_id first = b.submit({});
    l = b.submit({updates(0)});
    b.finish(first);
  }
  SUBCASE("which does not say") { l = b.submit({}, false); }
  b.plan({clean(blocks(0))});
  CHECK(b.issued().empty());
  b.finish(l);
  b.plan({clean(blocks(0))});
  CHECK(b.issued() == "clean(0+1)");
}

TEST_CASE("home copy: a copy during which a launch was submitted that may write the block is not relied on") {
  bench b;
  b.bring_dirty(blocks(0, 2));
  b.plan({clean(blocks(0, 2))});
  bool over = false;
  SUBCASE("it says so") { b.submit({updates(0)}); }
  SUBCASE("it overwrites the block") { b.submit({overwrites(0)}); }
  SUBCASE("it is over when the copy is") {
    b.finish(b.submit({updates(0)}));
    over = true;
  }
  b.settle();
  CHECK(b.state(0).dirty);
  CHECK_FALSE(b.on_host(0));
  CHECK(b.state(0).moving == motion::none);
  CHECK_FALSE(b.state(1).dirty);
  CHECK(b.seen().out().bytes_for(reason::write_back) == 2 * block_size.count);
  if (over) {  // the next copy is a new one
    b.issued();
    b.plan({clean(blocks(0, 2))});
    CHECK(b.issued() == "clean(0+1)");
    b.settle();
    CHECK_FALSE(b.state(0).dirty);
  }
}

TEST_CASE("home copy: a copy during which a launch was submitted that does not say what it touches is not relied on") {
  bench b;
  b.bring_dirty(blocks(0, 3));
  b.plan({clean(blocks(0, 2)), clean(blocks(2))});
  b.finish(b.submit({}, false));
  b.settle();
  for (std::uint32_t i = 0; i < 3; ++i)
    CHECK(b.state(i).dirty);
}

TEST_CASE("home copy: a launch that reads does not spoil a copy") {
  bench b;
  b.bring_dirty(blocks(0));
  b.plan({clean(blocks(0))});
  b.submit({reads(0), updates(1)});
  b.settle();
  CHECK_FALSE(b.state(0).dirty);
}

TEST_CASE("home copy: a copy to the host that fails leaves the block dirty") {
  bench b;
  b.bring_dirty(blocks(0));
  SUBCASE("at once") { b.memory.fail_all = true; }
  SUBCASE("later") {}
  b.plan({clean(blocks(0))});
  if (!b.memory.fail_all) b.fail_next();
  CHECK(b.state(0).dirty);
  CHECK_FALSE(b.on_host(0));
  CHECK(b.state(0).moving == motion::none);
  CHECK(b.seen().failed_calls == 1);
  CHECK(b.seen().out().all_bytes() == 0);
  b.memory.fail_all = false;
  b.issued();
  b.plan({drop(blocks(0)), clean(blocks(0))});
  CHECK(b.issued() == "clean(0+1)");
}

TEST_CASE("home copy: a block that is being cleaned can neither leave nor be dropped until that is done") {
  bench b;
  b.bring_dirty(blocks(0));
  b.plan({clean(blocks(0))});
  SUBCASE("evicted") { b.plan({evict(blocks(0))}); }
  SUBCASE("dropped") { b.plan({drop(blocks(0))}); }
  CHECK(b.issued() == "clean(0+1)");
  CHECK(b.script.map->ready(block_id{0}));
  b.step();
  CHECK(b.issued() == "drop(0+1)");
  CHECK(b.seen().refused == 0);
}

TEST_CASE("home copy: a drop that waited for a copy that a launch wrote during write-back is refused") {
  bench b;
  b.bring_dirty(blocks(0));
  b.plan({clean(blocks(0))});
  b.plan({drop(blocks(0))});
  b.finish(b.submit({updates(0)}));
  b.settle();
  CHECK(b.issued() == "clean(0+1)");
  CHECK(b.seen().refused == 1);
  CHECK(b.resident(0));
}

TEST_CASE("home copy: a block that dies while it is cleaned is discarded when that is done") {
  bench b;
  b.bring_dirty(blocks(0));
  b.plan({clean(blocks(0))});
  b.made->dead(blocks(0), liveness::inactive, b.made->last_launch());
  b.plan({discard(blocks(0))});
  CHECK(b.issued() == "clean(0+1)");
  b.step();
  CHECK(b.issued() == "discard(0+1)");
  b.settle();
  CHECK(b.state(0).copies.empty());
  CHECK(b.script.map->occupied() == 0);
  CHECK(b.seen().discarded == 1);
}

TEST_CASE("home copy: a block that the host takes back while it is cleaned is the host's when that is done") {
  bench b;
  b.bring_dirty(blocks(0));
  b.plan({clean(blocks(0))});
  b.made->host_access(blocks(0), access::update);
  b.memory.driver_takes(blocks(0), reason::host);
  b.made->pump();
  b.settle();
  CHECK_FALSE(b.resident(0));
  CHECK(b.state(0).copies.only_at(location::host()));
  CHECK_FALSE(b.state(0).dirty);
  CHECK(b.state(0).moving == motion::none);
  CHECK(b.seen().out().bytes_for(reason::write_back) == 0);
}

TEST_CASE("home copy: copies to the host take their place in the outward direction") {
  bench b;
  b.bring_dirty(blocks(0, 4));
  const launch_id l = b.submit({reads(0)});
  b.plan({evict(blocks(0)), clean(blocks(1)), evict(blocks(2))});
  CHECK(b.issued().empty());  // the launch executes on block 0
  b.finish(l);
  CHECK(b.issued() == "evict(0+1) clean(1+1)");
  b.step();
  CHECK(b.issued() == "evict(2+1)");
}

TEST_CASE("home copy: no more is cleaned at a time than the device may have under way") {
  engine_options o;
  o.bytes_in_flight = block_size * 3;
  bench b(arena_blocks, o);
  b.bring_dirty(blocks(0, 5));
  b.plan({clean(blocks(0, 5))});
  CHECK(b.issued() == "clean(0+3)");
  b.step();
  CHECK(b.issued() == "clean(3+2)");
}

}  // namespace home_copy_cleaning_test
