// What the engine does where no driver serves faults (docs/adr/0007): it brings what launches miss, makes room for it,
// and lets nothing leave that they use.

#include "engine/fake_memory.hpp"
#include "support/failure.hpp"
#include <deepum/engine/engine.hpp>
#include <deepum/engine/recent_peak.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace demand_pager_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX
using deepum_test::failure;
using deepum_test::mentions;
using deepum_test::paged_fake_memory;
using deepum_test::scripted_policy;

block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }
std::vector<block_access> updates(block_range r) { return {{r, access::update}}; }

engine_options with_budget(std::uint32_t blocks) {
  engine_options o;
  o.budget = block_size * blocks;
  o.headroom = block_size * 4;
  o.log = {};
  return o;
}

/// An engine on memory that never faults, all of it alive.
struct bench {
  explicit bench(std::uint32_t budget, std::uint32_t arena_blocks = 256) : memory(arena_blocks) {
    memory.free = block_size * (arena_blocks + 4);
    made = std::make_unique<engine>(memory, std::make_unique<scripted_policy>(script), with_budget(budget));
    stream = made->open_stream(std::nullopt);
    other = made->open_stream(std::nullopt);
    CHECK(made->live(blocks(0, arena_blocks)));
    made->pump();
    carry_all_out();
  }

  launch_id submit(std::vector<block_access> accesses) { return submit(stream, std::move(accesses)); }
  launch_id submit(stream_id s, std::vector<block_access> accesses) {
    launch_record r;
    r.stream = s;
    r.accesses = std::move(accesses);
    r.name = "k";
    return made->submit(std::move(r));
  }
  /// Asks again and again, while what that leads to is carried out. @returns  Whether the answer was yes in the end.
  template <class Ask>
  bool comes_to(Ask&& ask) {
    bool yes = false;
    for (int i = 0; i < 20 && !yes; ++i) {
      yes = ask();
      made->pump();
      carry_all_out();
    }
    return yes;
  }
  /// Every command that was given so far, and those that the engine gives then.
  void carry_all_out() {
    while (done < memory.calls.size()) {
      const auto call = memory.calls[done++];
      memory.carry_out(call);
      made->pump();
    }
  }
  /// A launch that finishes as soon as it has begun, whatever moves for it.
  void run(std::vector<block_access> accesses) {
    const launch_id l = submit(std::move(accesses));
    while (!made->admitted(l, stream)) {
      made->pump();
      carry_all_out();
    }
    memory.finish(l);
    made->pump();
    carry_all_out();
  }
  /// Moves of this kind among the commands from the given one on.
  [[nodiscard]] std::vector<block_range> moved(const std::string& what, std::size_t from = 0) const {
    std::vector<block_range> found;
    for (std::size_t i = from; i < memory.calls.size(); ++i) {
      if (memory.calls[i].what == what) found.push_back(memory.calls[i].range);
    }
    return found;
  }

  paged_fake_memory memory;
  scripted_policy::script script;
  std::unique_ptr<engine> made;
  stream_id stream;
  stream_id other;
  std::size_t done = 0;  ///< calls that were carried out
};

TEST_CASE("a launch is refused when what it misses failed 64 times in a row, however many blocks a command has") {
  for (const std::uint32_t size : {1U, 100U}) {
    CAPTURE(size);
    bench b(128);
    b.memory.why = "the device is full";
    const launch_id l = b.submit(updates(blocks(0, size)));
    int attempts = 0;
    std::string said;
    while (said.empty() && attempts < 1000) {
      bool begun = true;
      try {
        begun = b.made->admitted(l, b.stream);
      } catch (const error& e) {
        CHECK(e.code() == status::out_of_device_memory);
        said = e.what();
        break;
      }
      REQUIRE_FALSE(begun);
      b.made->pump();
      REQUIRE(b.memory.calls.size() - b.done == 1);
      CHECK(b.memory.calls[b.done].range == blocks(0, size));
      b.memory.fail(b.memory.calls[b.done++]);
      ++attempts;
      b.made->pump();
    }
    CHECK(attempts == 64);
    CHECK(mentions(said, "the device is full"));
    CHECK(mentions(said, "'k'"));
  }
}

TEST_CASE("what arrives in between starts the count of failures anew") {
  bench b(128);
  const launch_id l = b.submit(updates(blocks(0, 2)));
  for (int i = 0; i < 200; ++i) {
    CHECK_FALSE(b.made->admitted(l, b.stream));
    b.made->pump();
    REQUIRE(b.memory.calls.size() > b.done);
    if (i == 60) {
      b.memory.driver_brings(blocks(9));  // any arrival: memory is found again
    }
    if (i == 120) {
      b.carry_all_out();
      break;
    }
    b.memory.fail(b.memory.calls[b.done++]);
    b.made->pump();
  }
  CHECK(b.comes_to([&] { return b.made->admitted(l, b.stream); }));
}

TEST_CASE("a launch that did not have to ask keeps its blocks, also where the budget shrinks as it is submitted") {
  // While all that is alive is there, launches do not ask. The budget shrinks in the middle of a pump: a launch that
  // comes right before that is in the inbox, which the pump has read already.
  bench b(0, 16);
  for (int i = 0; i < 200; ++i) {
    b.made->pump();
    b.carry_all_out();
  }
  CHECK(b.made->admitted(b.submit({}), b.stream));
  const std::size_t before = b.memory.calls.size();
  launch_id late{};
  bool begun = false;
  b.memory.when_asked = [&] {
    if (!late.valid()) {
      late = b.submit(updates(blocks(0, 4)));  // the blocks that came first would leave first
      begun = b.made->admitted(late, b.stream);
      b.memory.free = {};
    }
  };
  // What it holds is all that is left then, and four of them are the headroom.
  for (int i = 0; i < 200; ++i) {
    b.memory.finish({});  // something happens, so that the pump goes to work
    b.made->pump();
  }
  CHECK(late.valid());
  CHECK(begun);
  CHECK(b.memory.calls.size() > before);
  for (const block_range r : b.moved("evict", before))
    CHECK_FALSE(r.overlaps(blocks(0, 4)));
  for (const block_range r : b.moved("drop", before))
    CHECK_FALSE(r.overlaps(blocks(0, 4)));
}

TEST_CASE("what fits between two steps alone is not brought, and what has fitted for long is") {
  // 16 blocks stay alive all the time and fit the budget; 8 more are alive in the middle of each step.
  bench b(20, 24);
  const auto run_step = [&] {
    for (std::uint32_t first = 0; first != 24; first += 8) {
      b.run(updates(blocks(first, 8)));
    }
  };
  for (int step = 0; step != 4; ++step) {
    CHECK(b.made->live(blocks(16, 8)));
    run_step();
    const std::size_t before = b.memory.calls.size();
    b.made->dead(blocks(16, 8), liveness::inactive, {});
    b.made->discard(blocks(16, 8));  // so that there is room
    for (int i = 0; i < 20; ++i) {
      b.made->pump();
      b.carry_all_out();
    }
    CHECK(b.moved("prefetch", before).empty());  // what left for them comes back when a launch needs it
  }
  for (std::uint64_t i = 0; i != 2 * detail::recent_peak::window; ++i) {
    b.run({});
  }
  const std::size_t before = b.memory.calls.size();
  b.run(updates(blocks(0, 8)));
  b.run(updates(blocks(8, 8)));
  CHECK(b.memory.calls.size() == before);
}

TEST_CASE("what no launch needs is not brought while one waits for the policy: it would come and go for ever") {
  bench b(8, 6);  // all of it fits, and is there
  b.made->dead(blocks(4), liveness::inactive, {});
  b.made->discard(blocks(4));
  b.made->pump();
  b.carry_all_out();
  b.script.holds_launches = true;
  const launch_id l = b.submit(updates(blocks(4)));
  b.script.unready.insert(l);
  CHECK(b.made->live(blocks(4)));
  const std::size_t before = b.memory.calls.size();
  // The policy makes room for what the launch misses, which the device has no memory for.
  for (int round = 0; round != 30 && b.script.faults.empty(); ++round) {
    plan p;
    p.supersedes = true;
    p.transfers.push_back(transfer::evict(location::host(), reason::make_room, blocks(0)));
    p.transfers.push_back(transfer::prefetch(location::device(0), reason::issued, blocks(4)));
    b.script.plans.push_back(std::move(p));
    REQUIRE_FALSE(b.made->admitted(l, b.stream));
    b.made->pump();
    while (b.done < b.memory.calls.size()) {
      const auto call = b.memory.calls[b.done++];
      if (call.range.overlaps(blocks(4))) {
        b.memory.fail(call);
      } else {
        b.memory.carry_out(call);
      }
    }
  }
  for (const char* what : {"prefetch", "populate"}) {
    for (const block_range r : b.moved(what, before)) {
      CHECK(r == blocks(4));
    }
  }
  CHECK(b.script.faults.size() == 1);  // the engine brings it: so much failed that the policy is not waited for
}

TEST_CASE("a view that writes and a launch that was held back before it do not wait for each other") {
  bench b(4, 8);
  b.run(updates(blocks(0, 4)));  // so these are there, and have been written
  const launch_id l = b.submit(updates(blocks(3, 3)));
  CHECK_FALSE(b.made->admitted(l, b.stream));  // 4 and 5 are missing
  b.made->begin_host_access(blocks(3), access::update);
  CHECK(b.comes_to([&] {
    const bool mine = b.made->host_may_use(blocks(3), access::update);
    (void)b.made->admitted(l, b.stream);
    return mine;
  }));
  CHECK_FALSE(b.made->admitted(l, b.stream));  // until the view ends
  b.made->end_host_access(blocks(3), access::update);
  CHECK(b.comes_to([&] { return b.made->admitted(l, b.stream); }));
}

TEST_CASE("a view that reads what a launch will write is there before that launch, where that waits for another view") {
  bench b(4, 8);
  b.run(updates(blocks(0, 2)));  // these are there, and have been written
  // A launch of another thread; the views are of other bytes in the same blocks.
  const launch_id l = b.submit(b.other, {{blocks(1), access::update}, {blocks(6), access::update}});
  CHECK_FALSE(b.made->admitted(l, b.other));
  b.made->begin_host_access(blocks(6), access::update);
  REQUIRE(b.made->host_may_use(blocks(6), access::update));
  b.made->begin_host_access(blocks(1), access::read);
  CHECK(b.comes_to([&] {
    const bool mine = b.made->host_may_use(blocks(1), access::read);
    (void)b.made->admitted(l, b.other);
    return mine;
  }));
  CHECK(b.moved("clean") == std::vector<block_range>{blocks(1)});
  CHECK_FALSE(b.made->admitted(l, b.other));
}

TEST_CASE("room that an abandoned launch left without contents makes way for what a launch needs") {
  bench b(6, 8);
  const auto run_away = [&](block_range r) {  // the host alone has it
    b.run(updates(r));
    b.made->prefetch(r, location::host());
    b.made->pump();
    b.carry_all_out();
  };
  run_away(blocks(0));
  const launch_id busy = b.submit(updates(blocks(1)));
  REQUIRE(b.comes_to([&] { return b.made->admitted(busy, b.stream); }));
  b.made->prefetch(blocks(1), location::host());  // waits until the launches are done that use the block
  const launch_id failing = b.submit({{blocks(0), access::overwrite}});
  REQUIRE(b.comes_to([&] { return b.made->admitted(failing, b.stream); }));
  REQUIRE(b.moved("populate").size() >= 1);
  b.made->abandon(failing, b.stream);
  b.memory.finish(failing);
  const launch_id both = b.submit({{blocks(0), access::read}, {blocks(1), access::update}});
  b.memory.finish(busy);
  const std::size_t before = b.memory.calls.size();
  CHECK(b.comes_to([&] { return b.made->admitted(both, b.stream); }));
  CHECK(b.moved("drop", before) == std::vector<block_range>{blocks(0)});
  CHECK(b.moved("prefetch", before) == std::vector<block_range>{blocks(0)});
  CHECK(b.moved("evict", before).empty());
}

TEST_CASE("blocks that are kept stay on the device when their launch has finished, until they are let go") {
  bench b(4, 8);
  const std::vector<block_access> accesses = updates(blocks(0, 2));
  const launch_id l = b.submit(accesses);
  REQUIRE(b.comes_to([&] { return b.made->admitted(l, b.stream); }));
  b.made->keep(l, b.stream, accesses);
  b.memory.finish(l);
  b.made->prefetch(blocks(0, 2), location::host());
  const launch_id next = b.submit(updates(blocks(4, 4)));
  CHECK_FALSE(b.comes_to([&] { return b.made->admitted(next, b.stream); }));
  CHECK(b.moved("evict").empty());
  b.made->release_kept(l, accesses);
  CHECK(b.comes_to([&] { return b.made->admitted(next, b.stream); }));
  CHECK_FALSE(b.moved("evict").empty());
}

TEST_CASE("a copy for the host is not relied on where a launch that writes has begun meanwhile") {
  bench b(4, 8);
  b.run(updates(blocks(0, 2)));
  const launch_id l = b.submit({{blocks(1), access::update}, {blocks(6), access::read}});
  CHECK_FALSE(b.made->admitted(l, b.stream));
  b.made->begin_host_access(blocks(1), access::read);
  CHECK_FALSE(b.made->host_may_use(blocks(1), access::read));
  b.made->pump();
  REQUIRE(b.moved("clean") == std::vector<block_range>{blocks(1)});
  for (auto& call : b.memory.calls) {  // all but the copy
    if (call.what != "clean" && &call >= b.memory.calls.data() + b.done) b.memory.carry_out(call);
  }
  b.made->pump();
  REQUIRE(b.made->admitted(l, b.stream));
  for (auto& call : b.memory.calls) {
    if (call.what == "clean") b.memory.carry_out(call);
  }
  CHECK_FALSE(b.made->host_may_use(blocks(1), access::read));
  b.made->pump();
  CHECK_FALSE(b.made->host_may_use(blocks(1), access::read));  // the launch is still writing
  CHECK(b.moved("clean").size() == 1);
  b.memory.finish(l);
  b.made->pump();
  CHECK_FALSE(b.made->host_may_use(blocks(1), access::read));
  b.made->pump();
  CHECK(b.moved("clean") == std::vector<block_range>{blocks(1), blocks(1)});
}

TEST_CASE("what is of no value is there for the host as it is") {
  bench b(4, 8);
  b.run(updates(blocks(0, 2)));
  b.made->dead(blocks(0), liveness::inactive, b.made->last_launch());
  b.made->begin_host_access(blocks(0), access::read);
  CHECK(b.comes_to([&] { return b.made->host_may_use(blocks(0), access::read); }));
}

}  // namespace demand_pager_test
