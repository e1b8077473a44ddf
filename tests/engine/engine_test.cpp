#include "engine/fake_memory.hpp"
#include "support/test_scale.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace engine_test {

using namespace deepum;
using deepum_test::fake_memory;
using deepum_test::scripted_policy;

block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

/// An engine on a fake memory, with all blocks live.
struct bench {
  static engine_options with_budget(std::uint32_t budget) {
    engine_options o;
    o.budget = block_size * budget;
    return o;
  }

  explicit bench(std::uint32_t budget, std::uint32_t size = 64) : bench(with_budget(budget), size) {}
  bench(engine_options o, std::uint32_t size) : memory(size) {
    o.log = [this](std::string_view line) { log.emplace_back(line); };
    made = std::make_unique<engine>(memory, std::make_unique<scripted_policy>(script), std::move(o));
    stream = made->open_stream(std::nullopt);
    CHECK(made->live({block_id{0}, size}));
    made->pump();
  }

  launch_id launch(std::vector<block_access> accesses, bool complete = true) {
    return launch_on(stream, std::move(accesses), complete);
  }
  launch_id launch_on(stream_id s, std::vector<block_access> accesses, bool complete = true) {
    launch_record r;
    r.stream = s;
    r.accesses = std::move(accesses);
    r.complete = complete;
    r.name = "k";
    return made->submit(std::move(r));
  }
  void plan(std::vector<command> commands, bool supersedes = false) {
    script.plans.push_back({supersedes, std::move(commands)});
    made->set_budget(made->budget());  // something happens, so that the policy is asked
    made->pump();
  }
  /// The blocks are on the device, brought by the driver.
  void bring(block_range r) {
    memory.driver_brings(r);
    made->pump();
  }
  /// Carries out all that was issued, until nothing more is.
  void settle() {
    while (carried_out < memory.calls.size()) {
      if (memory.calls[carried_out].what != "advise") memory.carry_out(memory.calls[carried_out]);
      ++carried_out;
      made->pump();
    }
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

  fake_memory memory;
  scripted_policy::script script;
  std::vector<std::string> log;
  std::unique_ptr<engine> made;
  stream_id stream;
  std::size_t looked = 0;
  std::size_t carried_out = 0;
};

command prefetch(block_range r, reason why = reason::predicted) {
  return {.what = action::prefetch, .why = why, .range = r};
}
command evict(block_range r) {
  return {.what = action::evict, .why = reason::make_room, .to = location::host(), .range = r};
}
command discard(block_range r) { return {.what = action::discard, .why = reason::dead, .range = r}; }

TEST_CASE("launches are numbered in order, and the policy hears of everything in the order of the inbox") {
  bench b(8);
  b.script.told.clear();
  const stream_id second = b.made->open_stream(7);
  const launch_id one = b.launch({{blocks(0), access::read}});
  b.made->host_access(blocks(5), access::read);
  const launch_id two = b.launch_on(second, {});
  b.made->dead(blocks(9, 2), liveness::inactive, two);
  b.made->pump();
  CHECK(one.value + 1 == two.value);
  CHECK(b.made->last_launch() == two);
  CHECK(b.script.told ==
        std::vector<std::string>{"stream 1 7", "launch 1", "host 5+1", "launch 2", "dead 9+2 after 2", "asked"});
}

TEST_CASE("the first message after a pump notifies the memory, the next ones do not") {
  bench b(8);
  const int before = b.memory.notifications;
  b.launch({});
  b.launch({});
  CHECK(b.memory.notifications == before + 1);
  b.made->pump();
  b.launch({});
  CHECK(b.memory.notifications == before + 2);
}

TEST_CASE("a launch counts as finished when it and all before it on every stream have finished") {
  bench b(8);
  const stream_id second = b.made->open_stream(std::nullopt);
  const launch_id a = b.launch({});
  const launch_id c = b.launch_on(second, {});
  const launch_id d = b.launch({});
  b.memory.finish(c);
  b.made->pump();
  CHECK_FALSE(b.made->finished(a));
  CHECK_FALSE(b.made->finished(c));
  b.memory.finish(a);
  b.made->pump();
  CHECK(b.made->finished(a));
  CHECK(b.made->finished(c));
  CHECK_FALSE(b.made->finished(d));
  CHECK(b.made->finished(launch_id{}));
}

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

TEST_CASE("the plan for a fault goes before the prefetches that were planned earlier") {
  bench b(64);
  b.plan({prefetch(blocks(0)), prefetch(blocks(1)), prefetch(blocks(2))});
  b.issued();
  b.memory.carry_out(b.memory.calls[0]);
  b.memory.fault(block_id{30});
  b.script.plans.push_back({true, {prefetch(blocks(31))}});
  b.made->pump();
  CHECK(b.issued() == "prefetch(31+1)");
}

TEST_CASE("a policy is asked until it has nothing to say, and only when something happened") {
  bench b(64);
  b.script.told.clear();
  b.made->pump();
  CHECK(b.script.told.empty());
  b.script.plans.push_back({false, {prefetch(blocks(0))}});
  b.script.plans.push_back({false, {prefetch(blocks(1))}});
  b.launch({});
  b.made->pump();
  CHECK(std::count(b.script.told.begin(), b.script.told.end(), "asked") == 3);
  CHECK(b.issued() == "prefetch(0+1) prefetch(1+1)");
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

TEST_CASE("a discard that was not issued is cancelled when the block is used again, and one that was is awaited") {
  bench b(64);
  b.bring(blocks(0, 2));
  const launch_id l = b.launch({{blocks(0), access::update}});
  b.made->dead(blocks(0, 2), liveness::unallocated, l);
  b.plan({discard(blocks(0, 2)), discard(blocks(1))});
  CHECK(b.issued() == "discard(1+1)");
  CHECK(b.made->live(blocks(0)));
  CHECK_FALSE(b.made->live(blocks(1)));
  CHECK_FALSE(b.made->settled(blocks(0, 8)));
  b.memory.finish(l);
  b.settle();
  CHECK(b.made->settled(blocks(0, 8)));
  CHECK(b.issued().empty());
  CHECK(b.made->snapshot().refused == 0);
  CHECK(b.state(1).copies.empty());
  CHECK(b.script.map->occupied() == 1);
}

TEST_CASE("blocks are used again without waiting for the pump, and then not given up by the plan that it makes") {
  bench b(64);
  b.bring(blocks(0, 4));
  b.made->dead(blocks(0, 4), liveness::inactive, {});
  std::future<bool> alive;
  b.script.when_asked = [&] {  // the pump has the state lock, and has read the inbox
    alive = std::async(std::launch::async, [&] { return b.made->live(blocks(1, 2)); });
    CHECK(alive.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  };
  b.plan({discard(blocks(0, 4))});
  REQUIRE(alive.valid());
  CHECK(alive.get());
  CHECK(b.issued() == "discard(0+1) discard(3+1)");
  CHECK(b.state(1).life == liveness::live);
  CHECK(b.made->live(blocks(2)));  // what is not being discarded
  CHECK_FALSE(b.made->live(blocks(3)));
  b.settle();
  CHECK(b.made->settled(blocks(0, 4)));
}

TEST_CASE("blocks whose discard was asked for and not read yet are awaited") {
  bench b(64);
  b.made->dead(blocks(8), liveness::unallocated, {});  // else all that is alive takes the whole budget
  b.bring(blocks(0));
  b.made->discard(blocks(0));
  CHECK_FALSE(b.made->live(blocks(0)));
  b.made->pump();
  CHECK(b.issued() == "discard(0+1)");
  b.settle();
  CHECK(b.made->live(blocks(0)));
}

TEST_CASE("when discards have ended, blocks are used again without the state lock, whatever launches are unread") {
  bench b(64);
  b.made->dead(blocks(8), liveness::unallocated, {});  // else all that is alive takes the whole budget
  b.bring(blocks(0));
  b.made->discard(blocks(0));
  b.made->pump();
  b.settle();
  b.launch({{blocks(1), access::read}});
  b.made->pump();
  std::future<bool> alive;
  b.script.when_asked = [&] {
    alive = std::async(std::launch::async, [&] { return b.made->live(blocks(0)); });
    CHECK(alive.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  };
  b.plan({});
  CHECK(alive.get());
}

TEST_CASE("what comes alive takes the state lock where it may not fit, so that the next launch has to ask") {
  bench b(4, 16);
  b.made->dead(blocks(0, 16), liveness::unallocated, {});
  b.made->pump();
  std::vector<std::future<bool>> alive;
  const auto waits = [&](block_range r, std::chrono::milliseconds longest) {
    alive.push_back(std::async(std::launch::async, [&b, r] { return b.made->live(r); }));
    return alive.back().wait_for(longest) == std::future_status::timeout;
  };
  b.script.when_asked = [&] {  // the pump has the state lock
    CHECK_FALSE(waits(blocks(0, 3), std::chrono::seconds(30)));
    CHECK(waits(blocks(4, 2), std::chrono::milliseconds(50)));
  };
  b.plan({});
  CHECK(alive[0].get());
  CHECK(alive[1].get());
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
  b.plan({{.what = action::drop, .why = reason::make_room, .range = blocks(0, 3)}});
  CHECK(b.issued() == "evict(0+1)");
  const statistics s = b.made->snapshot();
  CHECK(s.refused == 2);
  b.settle();
  CHECK(b.made->snapshot().out.bytes_for(reason::make_room) == 0);
  CHECK(b.made->snapshot().out.blocks_for(reason::make_room) == 1);
}

TEST_CASE("a launch that does not say what it touches may have written every block") {
  bench b(64);
  b.made->host_access(blocks(0), access::update);
  b.memory.driver_brings(blocks(0), true);
  const launch_id l = b.launch({}, false);
  b.memory.finish(l);
  b.made->pump();
  b.plan({{.what = action::drop, .why = reason::make_room, .range = blocks(0)}});
  CHECK(b.issued().empty());
  CHECK(b.made->snapshot().refused == 1);
}

TEST_CASE("managed memory has no cleaning: it is dropped and counted") {
  bench b(64);
  b.bring(blocks(0));
  b.plan({{.what = action::clean, .why = reason::write_back, .range = blocks(0)}});
  CHECK(b.issued().empty());
  CHECK(b.made->snapshot().dropped == 1);
}

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

TEST_CASE("an observer sees each event with its launch") {
  engine_options o = bench::with_budget(8);
  std::vector<std::uint64_t> seen;
  o.observer = [&](const device_event& e, launch_id l) {
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
  CHECK(before.in.blocks_for(reason::issued) == 3);
  CHECK(before.in.bytes_for(reason::issued) == 2 * block_size.count);
  CHECK(before.in.blocks_for(reason::fault) == 1);
  CHECK(before.faults == 1);
  CHECK(before.policy.table_bytes == 4711);
  b.plan({evict(blocks(0, 2))});
  b.settle();
  const statistics step = b.made->snapshot() - before;
  CHECK(step.in.all_blocks() == 0);
  CHECK(step.out.bytes_for(reason::make_room) == 2 * block_size.count);
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

TEST_CASE("what has arrived holds its memory, also before the command that brought it is done") {
  deepum_test::fake_memory memory(64);
  scripted_policy::script script;
  engine_options o;
  o.headroom = block_size * 2;
  o.log = {};
  memory.free = block_size * 10;
  engine made(memory, std::make_unique<scripted_policy>(script), o);
  CHECK(made.budget() == block_size * 8);
  CHECK(made.live(blocks(0, 4)));
  script.plans.push_back({false, {prefetch(blocks(0, 4))}});
  (void)made.open_stream(std::nullopt);
  made.pump();
  REQUIRE(memory.calls.size() == 1);
  device_event arrived;
  arrived.what = device_event::kind::arrived;
  arrived.range = blocks(0, 3);
  arrived.ticket = memory.calls[0].ticket;
  memory.reports.push_back(arrived);
  memory.free = block_size * 7;
  for (int i = 0; i < 64; ++i) {
    made.pump();
  }
  CHECK(made.budget() == block_size * 8);
}

TEST_CASE("without a budget the engine follows the free memory, less the headroom") {
  std::vector<std::string> log;
  engine_options o;
  o.headroom = block_size * 2;
  o.log = [&](std::string_view line) { log.emplace_back(line); };
  fake_memory memory(64);
  memory.free = block_size * 10;
  scripted_policy::script script;
  engine e(memory, std::make_unique<scripted_policy>(script), o);
  CHECK(e.budget() == block_size * 8);
  CHECK(e.live(blocks(0, 64)));
  memory.driver_brings(blocks(0, 3));
  memory.free = block_size * 4;  // 3 are ours, 3 somebody else's
  for (int i = 0; i < 64; ++i)
    e.pump();
  CHECK(e.budget() == block_size * 5);
  CHECK(log == std::vector<std::string>{"the budget is " + std::to_string((block_size * 5).count) +
                                        " bytes now: others hold more of the device"});
  memory.free = block_size * 5;
  for (int i = 0; i < 64; ++i)
    e.pump();
  CHECK(e.budget() == block_size * 6);
  e.set_budget(block_size * 3);
  CHECK(e.budget() == block_size * 3);
  CHECK(log.size() == 1);  // what grows, and what the program chose, needs no line
}

TEST_CASE("whatever call fails, everything still comes to an end and the map stays true") {
  for (std::uint64_t nth = 0; nth < 24; ++nth) {
    CAPTURE(nth);
    bench b(6, 16);
    b.memory.fail_call = nth;
    for (std::uint32_t step = 0; step < 12; ++step) {
      const block_range r = blocks((step * 3) % 12, 3);
      const launch_id l = b.launch({{r, access::update}});
      b.plan({evict(blocks((step * 3 + 6) % 12, 3)),
              prefetch(r),
              {.what = action::advise, .hint = advice::set_read_mostly, .range = r}});
      b.settle();
      if (step % 4 == 3) {
        b.made->dead(r, liveness::inactive, l);
        b.plan({discard(r)});
        b.settle();
      }
      b.memory.finish(l);
      b.made->pump();
      b.settle();
      CHECK(b.made->live(r));
    }
    std::uint32_t present = 0;
    for (std::uint32_t i = 0; i < 16; ++i) {
      present += b.script.map->present(block_id{i}) ? 1U : 0U;
      CHECK(b.state(i).moving == motion::none);
      CHECK(b.state(i).users == 0);
    }
    CHECK(present == b.script.map->occupied());
    CHECK(b.made->snapshot().failed_calls == (nth < b.memory.calls.size() + 1 ? 1 : 0));
    CHECK(b.made->finished(b.made->last_launch()));
  }
}

TEST_CASE("random plans and random devices: the law, the room and the order hold") {
  const unsigned seed = 20230325;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const std::size_t rounds = deepum_test::scaled(300);
  for (std::size_t round = 0; round < rounds; ++round) {
    bench b(5, 12);
    std::vector<launch_id> running;
    std::vector<bool> dead(12, false);
    std::size_t judged = 0;
    for (int step = 0; step < 60; ++step) {
      const block_range r = blocks(draw(10), 1 + draw(3));
      switch (draw(8)) {
        case 0:
          running.push_back(b.launch({{r, draw(2) ? access::read : access::update}}, draw(4) != 0));
          break;
        case 1:
          if (!running.empty()) {
            b.memory.finish(running.front(), step);
            running.erase(running.begin());
          }
          break;
        case 2:
          b.script.plans.push_back(
              {draw(3) == 0, {prefetch(r), evict(blocks(draw(10), 2)), discard(blocks(draw(10), 2))}});
          break;
        case 3:
          b.made->dead(r, liveness::inactive, b.made->last_launch());
          for (std::uint32_t i = r.begin_value(); i < r.end_value(); ++i)
            dead[i] = true;
          break;
        case 4:
          (void)b.made->live(r);
          for (std::uint32_t i = r.begin_value(); i < r.end_value(); ++i)
            dead[i] = false;
          break;
        case 5:
          if (b.carried_out < b.memory.calls.size()) {
            const auto call = b.memory.calls[b.carried_out++];
            draw(6) == 0 ? b.memory.fail(call) : b.memory.carry_out(call);
          }
          break;
        default:
          break;
      }
      b.made->pump();
      CHECK(b.script.map->occupied() <= 5);
      for (; judged < b.memory.calls.size(); ++judged) {
        const auto& call = b.memory.calls[judged];
        if (call.what == "discard") {
          for (std::uint32_t i = call.range.begin_value(); i < call.range.end_value(); ++i) {
            CHECK(dead[i]);
            CHECK(b.state(i).users == 0);
          }
        }
      }
    }
    for (const launch_id l : running)
      b.memory.finish(l, 100);
    b.made->pump();
    b.settle();
    std::uint32_t present = 0;
    for (std::uint32_t i = 0; i < 12; ++i) {
      present += b.script.map->present(block_id{i}) ? 1U : 0U;
      CHECK(b.state(i).users == 0);
      CHECK(b.state(i).moving == motion::none);
    }
    CHECK(present == b.script.map->occupied());
  }
}

TEST_CASE("several threads may submit, ask and pump at once") {
  bench b(64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&b, t] {
      const stream_id s = b.made->open_stream(std::nullopt);
      for (std::uint32_t i = 0; i < 500; ++i) {
        const block_range r = blocks(static_cast<std::uint32_t>(t) * 8 + i % 8);
        b.launch_on(s, {{r, access::update}});
        if (i % 7 == 0) b.made->host_access(r, access::read);
        if (i % 11 == 0) (void)b.made->live(r);
        if (i % 13 == 0) b.made->pump();
        if (i % 17 == 0) (void)b.made->snapshot();
      }
    });
  }
  for (std::thread& t : threads)
    t.join();
  b.made->pump();
  CHECK(b.made->snapshot().launches == 1500);
  CHECK(b.made->last_launch().value == 1500);
}

}  // namespace engine_test
