// A launch does not begin against a fact, on either kind of memory: that waits for no policy and for no time.

#include "engine/fake_memory.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace admission_facts_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX
using deepum_test::fake_memory;
using deepum_test::paged_fake_memory;
using deepum_test::scripted_policy;

constexpr std::uint32_t arena_blocks = 8;

block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

/// An engine whose blocks are all alive, and on the device where they fit.
template <class Memory>
struct bench {
  explicit bench(bool holds, std::uint32_t budget = arena_blocks) : memory(arena_blocks) {
    script.holds_launches = holds;
    made = std::make_unique<engine>(memory, std::make_unique<scripted_policy>(script),
                                    engine_options{.budget = block_size * budget, .log = {}});
    stream = made->open_stream(std::nullopt);
    (void)made->live(blocks(0, arena_blocks));
    made->pump();
    if (Memory::traits.faults) {
      memory.driver_brings(blocks(0, arena_blocks));
    }
    carry_out_all();
  }
  void carry_out_all() {
    made->pump();
    for (; done < memory.calls.size(); made->pump()) {
      memory.carry_out(memory.calls[done++]);
    }
  }
  launch_id submit(block_range r, bool hold = false) {
    launch_record record;
    record.stream = stream;
    record.hold = hold;
    record.accesses = {{r, access::update}};
    record.name = "k";
    return made->submit(std::move(record));
  }
  /// Asks for ten seconds of the device's clock, in which it is also said that the launch has waited too long.
  /// @returns  Whether it was told once that it may begin.
  bool begins_within_ten_seconds(launch_id id) {
    bool begins = false;
    for (int tenths = 0; tenths != 100; ++tenths) {
      memory.time += std::chrono::milliseconds(100);
      begins = begins || made->admitted(id, stream) || (tenths >= 10 && made->admit(id));
      made->pump();
    }
    return begins;
  }

  Memory memory;
  scripted_policy::script script{};
  std::unique_ptr<engine> made;
  stream_id stream{};
  std::size_t done = 0;  ///< calls that were carried out
};

struct managed : fake_memory {
  static constexpr memory_capabilities traits{};
  using fake_memory::fake_memory;
};

TEST_CASE_TEMPLATE("a discard that the device has holds the launches on its blocks until it has ended", Memory, managed,
                   paged_fake_memory) {
  for (const bool policy_holds : {true, false}) {
    CAPTURE(policy_holds);
    bench<Memory> b(policy_holds);
    b.made->dead(blocks(0), liveness::inactive, {});
    b.script.plans.push_back({.transfers = {transfer::discard(reason::dead, blocks(0))}});
    b.made->pump();
    REQUIRE(b.memory.calls.back().what == "discard");
    CHECK(!b.made->live(blocks(0)));

    const launch_id held = b.submit(blocks(0));
    CHECK(!b.begins_within_ten_seconds(held));
    const launch_id beside = b.submit(blocks(1));  // on another block
    CHECK(b.made->admitted(beside, b.stream));

    b.memory.carry_out(b.memory.calls.back());
    b.done = b.memory.calls.size();
    b.carry_out_all();
    CHECK(b.made->live(blocks(0)));
    CHECK(b.made->admitted(held, b.stream));
  }
}

TEST_CASE("a view of the host that writes holds a launch that was submitted before, until the view ends") {
  bench<paged_fake_memory> b(true, 4);
  const launch_id held = b.submit(blocks(0));
  b.made->begin_host_access(blocks(0), access::overwrite);
  CHECK(b.made->host_may_use(blocks(0), access::overwrite));
  CHECK(!b.begins_within_ten_seconds(held));
  b.made->end_host_access(blocks(0), access::overwrite);
  for (int i = 0; i != 4; ++i) {
    (void)b.made->admitted(held, b.stream);
    b.carry_out_all();
  }
  CHECK(b.made->admitted(held, b.stream));
}

TEST_CASE("a launch on memory that is held does not wait for a view that waits until the hold ends") {
  bench<paged_fake_memory> b(true, 4);
  const auto begins = [&](launch_id id) {
    bool begun = false;
    for (int i = 0; i != 4 && !begun; ++i) {
      begun = b.made->admitted(id, b.stream);
      b.carry_out_all();
    }
    return begun;
  };
  const launch_id hold = b.submit(blocks(0), true);
  REQUIRE(begins(hold));
  const launch_id within = b.submit(blocks(0));
  // Another thread opens a view of memory in the same block, and waits. The thread that made the launch ends the hold
  // when it has begun.
  b.made->begin_host_access(blocks(0), access::overwrite);
  CHECK(!b.made->host_may_use(blocks(0), access::overwrite));
  b.carry_out_all();
  CHECK(begins(within));
  CHECK(!b.made->host_may_use(blocks(0), access::overwrite));
  b.memory.finish(within);
  b.memory.finish(hold);
  bool writes = false;
  for (int i = 0; i != 4 && !writes; ++i) {
    writes = b.made->host_may_use(blocks(0), access::overwrite);
    b.carry_out_all();
  }
  CHECK(writes);
  b.made->end_host_access(blocks(0), access::overwrite);
}

TEST_CASE("where the policy is all that holds a launch, it is not waited for for ever") {
  bench<managed> b(true);
  b.made->set_budget(block_size * 2);  // so that launches ask
  b.made->pump();
  b.script.plans.push_back({.transfers = {transfer::prefetch(location::device(), reason::predicted, blocks(0))}});
  const launch_id held = b.submit(blocks(0));
  b.script.unready.insert(held);
  CHECK(b.begins_within_ten_seconds(held));
}

}  // namespace admission_facts_test
