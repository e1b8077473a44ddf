// Which launches the engine holds back, and what lets them go (docs/adr/0004).

#include "engine/fake_memory.hpp"
#include <deepum/engine/engine.hpp>
#include <deepum/engine/recent_peak.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace admission_test {

using namespace deepum;
using deepum_test::fake_memory;
using deepum_test::scripted_policy;

constexpr std::uint32_t arena_blocks = 16;

block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

transfer prefetch(block_range r, reason why = reason::predicted) {
  return transfer::prefetch(location::device(), why, r);
}
transfer evict(block_range r) { return transfer::evict(location::host(), reason::make_room, r); }

engine_options with_budget(std::uint32_t blocks) {
  engine_options o;
  o.budget = block_size * blocks;
  o.log = {};
  return o;
}

/// An engine that holds launches, with more alive than its budget.
struct bench {
  explicit bench(std::uint32_t budget = 8, bool holds = true) : bench(with_budget(budget), holds) {}
  explicit bench(engine_options options, bool holds = true) : memory(arena_blocks) {
    script.holds_launches = holds;
    made = std::make_unique<engine>(memory, std::make_unique<scripted_policy>(script), std::move(options));
    stream = made->open_stream(std::nullopt);
    other = made->open_stream(std::nullopt);
    CHECK(made->live(blocks(0, arena_blocks)));
    made->pump();
  }

  launch_id submit(stream_id s, std::vector<block_access> accesses = {}) {
    launch_record r;
    r.stream = s;
    r.accesses = std::move(accesses);
    r.name = "k";
    return made->submit(std::move(r));
  }
  /// Of which the policy says that something is on its way for it.
  launch_id submit_unready(stream_id s, std::vector<block_access> accesses = {}) {
    const launch_id id = submit(s, std::move(accesses));
    script.unready.insert(id);
    return id;
  }
  void plan(std::vector<transfer> transfers) {
    script.plans.push_back({.transfers = std::move(transfers)});
    made->set_budget(made->budget());  // something happens, so that the policy is asked
    made->pump();
  }
  bool ask(launch_id id) { return made->admitted(id, stream); }
  /// The program asks, and the migration thread does what it can.
  bool ask_and_pump(launch_id id) {
    const bool yes = ask(id);
    made->pump();
    return yes;
  }
  std::uint64_t unprepared() { return made->snapshot().unprepared_launches; }

  fake_memory memory;
  scripted_policy::script script;
  std::unique_ptr<engine> made;
  stream_id stream;
  stream_id other;
};

TEST_CASE("a launch is held back until the policy calls it ready") {
  bench b;
  b.plan({prefetch(blocks(0))});
  const launch_id l = b.submit_unready(b.stream);
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(b.ask_and_pump(l));
  }
  b.script.unready.clear();
  CHECK(b.ask(l));
  CHECK(b.unprepared() == 0);
}

TEST_CASE("the policy hears of a launch before it is asked about it") {
  bench b;
  b.script.told.clear();
  CHECK(b.ask(b.submit(b.stream)));
  CHECK(b.script.told == std::vector<std::string>{"launch 1"});
}

TEST_CASE("no launch is held back where the policy holds none") {
  bench b(8, false);
  CHECK(b.ask(b.submit_unready(b.stream)));
}

TEST_CASE("no launch is held back where all that is alive fits the budget") {
  bench b(arena_blocks);
  CHECK(b.ask(b.submit_unready(b.stream)));
  b.made->set_budget(block_size * (arena_blocks - 1));
  b.plan({prefetch(blocks(0))});
  CHECK_FALSE(b.ask(b.submit_unready(b.stream)));
}

TEST_CASE("a launch that is held back has the migration thread called, so that something is done for it") {
  bench b;
  const launch_id l = b.submit_unready(b.stream);
  b.made->pump();
  const int before = b.memory.notifications;
  CHECK_FALSE(b.ask(l));
  CHECK(b.memory.notifications > before);
  b.script.plans.push_back({.supersedes = false, .transfers = {prefetch(blocks(3))}});
  b.made->pump();
  CHECK(b.memory.calls.size() == 1);
}

TEST_CASE("who asks again does not wake the migration thread, unless something has happened that it has not seen") {
  bench b;
  CHECK(b.ask(b.submit(b.stream)));  // executes: nothing lets the other one go
  const launch_id l = b.submit_unready(b.stream);
  CHECK_FALSE(b.ask_and_pump(l));
  const int before = b.memory.notifications;
  for (int i = 0; i < 100; ++i) {
    CHECK_FALSE(b.ask(l));
  }
  CHECK(b.memory.notifications == before);
  b.memory.driver_brings(blocks(0));
  CHECK_FALSE(b.ask(l));  // who asks takes it in
  CHECK(b.memory.notifications == before + 1);
  b.made->pump();
  CHECK_FALSE(b.ask(l));
  CHECK(b.memory.notifications == before + 1);
}

TEST_CASE("a launch for which nothing moves, behind nothing that executes, is let go") {
  bench b;
  const launch_id l = b.submit_unready(b.stream);
  CHECK_FALSE(b.ask_and_pump(l));
  CHECK(b.ask(l));
  CHECK(b.unprepared() == 1);
}

TEST_CASE("a launch is not let go while something can still change for it") {
  bench b;
  SUBCASE("because blocks arrive") {
    b.plan({prefetch(blocks(0))});
    const launch_id l = b.submit_unready(b.stream);
    CHECK_FALSE(b.ask_and_pump(l));
    CHECK_FALSE(b.ask(l));
    b.memory.carry_out(b.memory.calls[0]);
    b.made->pump();
    CHECK(b.ask(l));
  }
  SUBCASE("because blocks leave") {
    b.memory.driver_brings(blocks(0));
    b.made->pump();
    b.plan({evict(blocks(0))});
    const launch_id l = b.submit_unready(b.stream);
    CHECK_FALSE(b.ask_and_pump(l));
    CHECK_FALSE(b.ask(l));
    b.memory.carry_out(b.memory.calls[0]);
    b.made->pump();
    CHECK(b.ask(l));
  }
  SUBCASE("because contents are being given up") {
    b.memory.driver_brings(blocks(0));
    b.made->pump();
    b.made->discard(blocks(0));
    b.made->pump();
    const launch_id l = b.submit_unready(b.stream);
    CHECK_FALSE(b.ask_and_pump(l));
    CHECK_FALSE(b.ask(l));
    b.memory.carry_out(b.memory.calls[0]);
    b.made->pump();
    CHECK(b.ask(l));
  }
  SUBCASE("because another launch executes") {
    const launch_id running = b.submit(b.other);
    CHECK(b.made->admitted(running, b.other));
    const launch_id l = b.submit_unready(b.stream);
    CHECK_FALSE(b.ask_and_pump(l));
    CHECK_FALSE(b.ask(l));
    b.memory.finish(running);
    b.made->pump();
    CHECK(b.ask(l));
  }
  SUBCASE("because another launch has been reported that has not asked yet") {
    const launch_id l = b.submit_unready(b.stream);
    const launch_id reported = b.submit_unready(b.other);
    CHECK_FALSE(b.ask_and_pump(l));
    CHECK_FALSE(b.ask_and_pump(l));
    CHECK_FALSE(b.made->admitted(reported, b.other));
    b.made->pump();
    CHECK(b.ask(l));
  }
  SUBCASE("because the policy has not been asked since") {
    const launch_id l = b.submit_unready(b.stream);
    CHECK_FALSE(b.ask(l));
    b.script.plans.push_back({.supersedes = false, .transfers = {prefetch(blocks(0))}});
    b.made->pump();
    CHECK_FALSE(b.ask(l));
    b.memory.carry_out(b.memory.calls[0]);
    b.made->pump();
    CHECK(b.ask(l));
  }
  CHECK(b.unprepared() == 1);
}

TEST_CASE("of several launches that are stuck, one goes at a time, in the order in which they asked") {
  bench b;
  const launch_id second = b.submit_unready(b.other);
  const launch_id first = b.submit_unready(b.stream);
  CHECK_FALSE(b.made->admitted(first, b.stream));
  CHECK_FALSE(b.made->admitted(second, b.other));
  for (int i = 0; i < 3; ++i) {
    b.made->pump();
    CHECK_FALSE(b.made->admitted(second, b.other));
  }
  CHECK(b.made->admitted(first, b.stream));
  b.made->pump();
  CHECK_FALSE(b.made->admitted(second, b.other));  // `first` executes
  b.memory.finish(first);
  b.made->pump();
  CHECK(b.made->admitted(second, b.other));
  CHECK(b.unprepared() == 2);
}

TEST_CASE("a launch that was held back when all began to fit goes, and leaves nothing behind that holds up others") {
  bench b;
  const launch_id first = b.submit_unready(b.stream);
  CHECK_FALSE(b.ask(first));
  SUBCASE("because the budget grew") { b.made->set_budget(block_size * arena_blocks); }
  SUBCASE("because memory was freed, and that has lasted") {
    b.made->dead(blocks(0, arena_blocks - 8), liveness::unallocated, {});
    b.made->catch_up();
    CHECK_FALSE(b.ask(first));
    for (std::uint64_t i = 0; i != 2 * detail::recent_peak::window; ++i) {
      const launch_id other = b.submit(b.other);
      CHECK(b.made->admitted(other, b.other));
      b.memory.finish(other);
      b.made->catch_up();
    }
  }
  CHECK(b.ask(first));
  b.memory.finish(first);
  b.made->pump();

  b.made->set_budget(block_size * 4);
  const launch_id second = b.submit_unready(b.other);
  CHECK_FALSE(b.made->admitted(second, b.other));
  b.made->pump();
  CHECK(b.made->admitted(second, b.other));  // stuck: nothing else is in flight or held
  CHECK(b.unprepared() == 1);
}

TEST_CASE("a launch that waited too long goes as it is, and is counted once") {
  bench b;
  b.plan({prefetch(blocks(0))});
  SUBCASE("while something moves") {
    const launch_id l = b.submit_unready(b.stream);
    CHECK_FALSE(b.ask_and_pump(l));
    b.made->admit(l);
    b.made->admit(l);
  }
  SUBCASE("also when it has just been let go") {
    b.memory.carry_out(b.memory.calls[0]);
    b.made->pump();
    const launch_id l = b.submit_unready(b.stream);
    CHECK_FALSE(b.ask_and_pump(l));
    b.made->admit(l);
  }
  CHECK(b.unprepared() == 1);
  b.memory.finish(b.made->last_launch());
  b.made->pump();
  CHECK(b.made->finished(b.made->last_launch()));
}

TEST_CASE("no launch is held back while prefetching pauses after failures") {
  engine_options o = with_budget(8);
  o.failures_until_pause = 2;
  o.launches_of_pause = 1;
  bench b(o);
  b.plan({prefetch(blocks(4))});
  const launch_id held = b.submit_unready(b.stream);
  CHECK_FALSE(b.ask_and_pump(held));
  b.memory.fail_all = true;
  b.plan({prefetch(blocks(0))});
  b.plan({prefetch(blocks(1))});
  CHECK(b.ask(held));
  CHECK(b.ask(b.submit_unready(b.stream)));
  CHECK(b.unprepared() == 0);
  b.memory.finish(held);  // the pause is over
  b.made->pump();
  CHECK_FALSE(b.ask(b.submit_unready(b.stream)));
}

TEST_CASE("a command that fails leaves no launch waiting for it") {
  bench b;
  const launch_id l = b.submit_unready(b.stream);
  SUBCASE("at the call") {
    b.memory.fail_all = true;
    b.plan({prefetch(blocks(0))});
    CHECK_FALSE(b.ask_and_pump(l));
  }
  SUBCASE("later") {
    b.plan({prefetch(blocks(0))});
    CHECK_FALSE(b.ask_and_pump(l));
    CHECK_FALSE(b.ask_and_pump(l));
    b.memory.fail(b.memory.calls[0]);
    b.made->pump();
  }
  CHECK(b.ask(l));
}

TEST_CASE("blocks that a launch declares do not leave while it is held back") {
  bench b;
  b.memory.driver_brings(blocks(0, 2));
  b.made->pump();
  const launch_id l = b.submit_unready(b.stream, {{blocks(0), access::read}});
  CHECK_FALSE(b.ask(l));
  b.plan({evict(blocks(1)), evict(blocks(0))});
  REQUIRE(b.memory.calls.size() == 1);
  CHECK(b.memory.calls[0].range == blocks(1));
}

TEST_CASE("a prefetch of the program's own that has no room does not hold up what launches wait for") {
  bench b(1);
  b.memory.driver_brings(blocks(0));
  b.made->pump();
  const launch_id l = b.submit_unready(b.stream, {{blocks(1), access::read}});
  b.made->prefetch(blocks(5), location::device());
  b.made->pump();
  CHECK(b.made->snapshot().dropped == 0);  // the launch may make room when it executes
  CHECK_FALSE(b.ask_and_pump(l));
  CHECK(b.made->snapshot().dropped == 1);
}

TEST_CASE("time in which launches are held back and nothing executes counts as stalled") {
  bench b;
  b.plan({prefetch(blocks(0))});
  const auto at = [&](std::int64_t t) { b.memory.time = nanoseconds{t}; };
  SUBCASE("from the first time that it asks on") {
    at(100);
    const launch_id l = b.submit_unready(b.stream);
    CHECK_FALSE(b.ask(l));
    at(130);
    CHECK_FALSE(b.ask(l));
    at(150);
    b.script.unready.clear();
    CHECK(b.ask(l));
    CHECK(b.made->snapshot().stalled == nanoseconds{50});
  }
  SUBCASE("from the end of what executed on") {
    const launch_id running = b.submit(b.other);
    at(100);
    const launch_id l = b.submit_unready(b.stream);
    CHECK_FALSE(b.ask(l));
    b.memory.finish(running, 120);
    at(150);
    b.script.unready.clear();
    CHECK(b.ask(l));
    CHECK(b.made->snapshot().stalled == nanoseconds{30});
  }
  SUBCASE("but not while others execute") {
    CHECK(b.made->admitted(b.submit(b.other), b.other));
    at(100);
    const launch_id l = b.submit_unready(b.stream);
    CHECK_FALSE(b.ask(l));
    at(150);
    b.script.unready.clear();
    CHECK(b.ask(l));
    CHECK(b.made->snapshot().stalled == nanoseconds{0});
  }
}

}  // namespace admission_test
