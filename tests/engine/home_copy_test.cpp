// What the engine does with memory whose host copies stay.

#include "engine/fake_memory.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace home_copy_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX
using deepum_test::fake_memory;
using deepum_test::home_copy_fake_memory;
using deepum_test::scripted_policy;

constexpr std::uint32_t arena_blocks = 32;

block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

command prefetch(block_range r, reason why = reason::predicted) {
  return {.what = action::prefetch, .why = why, .range = r};
}
command evict(block_range r) {
  return {.what = action::evict, .why = reason::make_room, .to = location::host(), .range = r};
}
command drop(block_range r) { return {.what = action::drop, .why = reason::make_room, .range = r}; }
command clean(block_range r) { return {.what = action::clean, .why = reason::write_back, .range = r}; }
command discard(block_range r) { return {.what = action::discard, .why = reason::dead, .range = r}; }

block_access reads(std::uint32_t first, std::uint32_t count = 1) { return {blocks(first, count), access::read}; }
block_access updates(std::uint32_t first, std::uint32_t count = 1) { return {blocks(first, count), access::update}; }
block_access overwrites(std::uint32_t first, std::uint32_t count = 1) {
  return {blocks(first, count), access::overwrite};
}

/// An engine on memory with a home copy, with all blocks live.
struct bench {
  explicit bench(std::uint32_t budget = arena_blocks, engine_options o = {}) : memory(arena_blocks) {
    o.budget = block_size * budget;
    o.log = {};
    made = std::make_unique<engine>(memory, std::make_unique<scripted_policy>(script), std::move(o));
    stream = made->open_stream(std::nullopt);
    other = made->open_stream(std::nullopt);
    CHECK(made->live(blocks(0, arena_blocks)));
    made->pump();
  }

  launch_id submit(std::vector<block_access> accesses, bool complete = true) {
    return submit_on(stream, std::move(accesses), complete);
  }
  launch_id submit_on(stream_id s, std::vector<block_access> accesses, bool complete = true) {
    launch_record r;
    r.stream = s;
    r.accesses = std::move(accesses);
    r.complete = complete;
    r.name = "k";
    const launch_id id = made->submit(std::move(r));
    made->pump();
    return id;
  }
  void finish(launch_id id) {
    memory.finish(id);
    made->pump();
  }
  void plan(std::vector<command> commands) {
    script.plans.push_back({false, std::move(commands)});
    made->set_budget(made->budget());  // something happens, so that the policy is asked
    made->pump();
  }
  void host_writes(block_range r) {
    made->host_access(r, access::update);
    made->pump();
  }
  /// The device has the blocks, and so has the host.
  void bring(block_range r) {
    host_writes(r);
    memory.driver_brings(r);
    made->pump();
    issued();
  }
  /// The device has the blocks, the host has older contents or none.
  void bring_dirty(block_range r) {
    bring(r);
    finish(submit({{r, access::update}}));
  }
  /// Carries out the oldest command.
  void step() {
    memory.carry_out(memory.calls.at(carried_out++));
    made->pump();
  }
  void fail_next() {
    memory.fail(memory.calls.at(carried_out++));
    made->pump();
  }
  void settle() {
    while (carried_out < memory.calls.size())
      step();
  }
  /// What was issued since the last look.
  std::string issued() {
    std::string text;
    for (; looked < memory.calls.size(); ++looked) {
      const auto& c = memory.calls[looked];
      text += (text.empty() ? "" : " ") + c.what + "(" + std::to_string(c.range.first.value) + "+" +
              std::to_string(c.range.count) + ")";
    }
    return text;
  }
  const block_state& state(std::uint32_t b) const { return (*script.map)[block_id{b}]; }
  bool on_host(std::uint32_t b) const { return state(b).copies.at(location::host()); }
  bool on_device(std::uint32_t b) const { return state(b).copies.at(location::device()); }
  bool resident(std::uint32_t b) const { return script.map->resident(block_id{b}); }
  statistics seen() { return made->snapshot(); }

  home_copy_fake_memory memory;
  scripted_policy::script script;
  std::unique_ptr<engine> made;
  stream_id stream;
  stream_id other;
  std::size_t looked = 0;
  std::size_t carried_out = 0;
};

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
  CHECK(s.in.blocks_for(reason::issued) == 6);
  CHECK(s.in.bytes_for(reason::issued) == 3 * block_size.count);
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
  CHECK(b.seen().out.bytes_for(reason::make_room) == block_size.count);
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
  CHECK(b.seen().out.blocks_for(reason::make_room) == 6);
  CHECK(b.seen().out.bytes_for(reason::make_room) == 2 * block_size.count);
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
  CHECK(b.seen().out.all_blocks() == 0);
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
  CHECK(b.seen().out.bytes_for(reason::make_room) == block_size.count);
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

// --- clean ---------------------------------------------------------------------------------------------------------

TEST_CASE("home copy: a cleaned block is on both sides, costs its bytes once, and is dropped without any") {
  bench b;
  b.bring_dirty(blocks(0, 2));
  b.plan({clean(blocks(0, 2))});
  CHECK(b.issued() == "clean(0+2)");
  CHECK(b.state(0).moving == motion::cleaning);
  CHECK(b.state(0).dirty);
  CHECK(b.seen().out.bytes_for(reason::write_back) == 0);
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
  CHECK(s.out.all_bytes() == 2 * block_size.count);
  CHECK(s.out.bytes_for(reason::write_back) == 2 * block_size.count);
  CHECK(s.out.blocks_for(reason::write_back) == 0);
  CHECK(s.out.blocks_for(reason::make_room) == 2);
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
  CHECK(b.seen().out.bytes_for(reason::write_back) == 2 * block_size.count);
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
  CHECK(b.seen().out.all_bytes() == 0);
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
  CHECK(b.seen().out.bytes_for(reason::write_back) == 0);
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

// --- whole overwrites ----------------------------------------------------------------------------------------------

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
  CHECK(b.seen().in.all_bytes() == 2 * block_size.count);
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
  script.plans.push_back({false, {prefetch(blocks(0, 3))}});
  e.pump();
  REQUIRE(memory.calls.size() == 1);
  CHECK(memory.calls[0].what == "prefetch");
  CHECK(memory.calls[0].range == blocks(0, 3));
  memory.carry_out(memory.calls[0]);
  memory.finish(l);
  memory.driver_brings(blocks(5), true);
  e.pump();
  CHECK((*script.map)[block_id{2}].dirty);
  script.plans.push_back({false, {evict(blocks(0, 6))}});
  e.set_budget(e.budget());
  e.pump();
  REQUIRE(memory.calls.size() == 3);
  CHECK(memory.calls[1].what == "evict");
  CHECK(memory.calls[1].range == blocks(0, 3));
}

}  // namespace home_copy_test
