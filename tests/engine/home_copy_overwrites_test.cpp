// Blocks that a launch overwrites as a whole: nothing is brought for it.

#include "engine/home_copy_bench.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <utility>

namespace home_copy_overwrites_test {

using namespace home_copy_bench_of_tests;
using deepum::access;  // not the one of POSIX

TEST_CASE("home copy: a block that a launch in flight overwrites as a whole is populated") {
  bench b;
  b.host_writes(blocks(0, 4));
  b.submit({overwrites(1, 2), reads(3)});
  CHECK(b.state(1).copies.empty());
  CHECK(b.on_host(0));
  CHECK(b.on_host(3));
  b.plan({prefetch(blocks(0, 4))});
  CHECK(b.issued() == "prefetch(0+1) populate(1+2)");
  b.settle();
  CHECK(b.issued() == "prefetch(3+1)");
  CHECK(b.seen().in().all_bytes() == 2 * block_size.count);
}

TEST_CASE("home copy: what was planned before the overwrite was declared is populated too") {
  bench b(1);
  b.host_writes(blocks(0));
  b.bring(blocks(5));
  b.plan({prefetch(blocks(0))});  // waits for room
  b.submit({overwrites(0)});
  b.memory.driver_takes(blocks(5));
  b.made->pump();
  CHECK(b.issued() == "populate(0+1)");
}

TEST_CASE("home copy: contents are forgotten only where nothing but the overwriting launch may touch them") {
  bench b;
  b.host_writes(blocks(0));
  SUBCASE("a launch in flight reads them") {
    b.submit_on(b.other, {reads(0)});
    b.submit({overwrites(0)});
  }
  SUBCASE("a launch in flight does not say what it touches") {
    b.submit_on(b.other, {}, false);
    b.submit({overwrites(0)});
  }
  SUBCASE("the launch itself reads them") { b.submit({overwrites(0), reads(0)}); }
  SUBCASE("the launch reads them, as it says first") { b.submit({reads(0), overwrites(0)}); }
  SUBCASE("the launch touches more than it says") { b.submit({overwrites(0)}, false); }
  SUBCASE("the launch writes a part") { b.submit({updates(0)}); }
  SUBCASE("they are arriving") {
    b.plan({prefetch(blocks(0))});
    b.submit({overwrites(0)});
  }
  SUBCASE("the device has them") {
    b.bring(blocks(0));
    b.submit({overwrites(0)});
    CHECK(b.resident(0));
  }
  SUBCASE("they are leaving") {
    b.bring_dirty(blocks(0));
    b.plan({evict(blocks(0))});
    b.submit({overwrites(0)});
    CHECK_FALSE(b.state(0).copies.empty());
    b.settle();
  }
  CHECK(b.on_host(0));
}

TEST_CASE("home copy: what the host writes after it has waited for the overwriting launch counts again") {
  bench b;
  b.host_writes(blocks(0));
  const launch_id l = b.submit({overwrites(0)});
  b.memory.driver_brings(blocks(0));  // it faulted
  b.finish(l);
  CHECK(b.on_device(0));
  b.host_writes(blocks(0));
  b.memory.driver_takes(blocks(0), reason::host);
  b.made->pump();
  CHECK(b.on_host(0));
}

TEST_CASE("on managed memory a whole overwrite is brought like everything else, and leaves as it does") {
  fake_memory memory(8);
  scripted_policy::script script;
  engine_options o;
  o.budget = block_size * 8;
  engine e(memory, std::make_unique<scripted_policy>(script), o);
  const stream_id stream = e.open_stream(std::nullopt);
  CHECK(e.live(blocks(0, 8)));
  e.host_access(blocks(0, 2), access::update);
  launch_record r;
  r.stream = stream;
  r.accesses = {overwrites(0)};
  const launch_id l = e.submit(std::move(r));
  script.plans.push_back({.supersedes = false, .transfers = {prefetch(blocks(0, 3))}});
  e.pump();
  REQUIRE(memory.calls.size() == 1);
  CHECK(memory.calls[0].what == "prefetch");
  CHECK(memory.calls[0].range == blocks(0, 3));
  memory.carry_out(memory.calls[0]);
  memory.finish(l);
  memory.driver_brings(blocks(5), true);
  e.pump();
  CHECK((*script.map)[block_id{2}].dirty);
  script.plans.push_back({.supersedes = false, .transfers = {evict(blocks(0, 6))}});
  e.set_budget(e.budget());
  e.pump();
  REQUIRE(memory.calls.size() == 3);
  CHECK(memory.calls[1].what == "evict");
  CHECK(memory.calls[1].range == blocks(0, 3));
}

}  // namespace home_copy_overwrites_test
