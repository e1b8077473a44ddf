#include "driver.hpp"
#include <deepum/policy/deepum.hpp>

#include <doctest/doctest.h>

namespace deepum_test {

using namespace deepum_test;
using numbers = std::vector<std::uint32_t>;

// Launches k0, k1, ... in a loop; launch i reads blocks [i * width, (i + 1) * width).
std::vector<kernel> loop(std::uint32_t launches, std::uint32_t width) {
  std::vector<kernel> program;
  for (std::uint32_t i = 0; i < launches; ++i) {
    program.push_back(silent("k" + std::to_string(i), {reads(i * width, width)}));
  }
  return program;
}

// A policy that has seen the loop often enough to know it, without having been able to prefetch. Nothing is resident.
struct trained {
  explicit trained(const std::vector<kernel>& program, std::uint32_t block_count, policy_options options = {})
      : policy(options),
        d(policy, block_count, block_count) {
    d.automatic = false;
    d.make_live(blocks(0, block_count));
    for (int i = 0; i < 2; ++i) {
      for (const kernel& k : program) {
        d.run(k);
      }
      evict_all();
    }
  }
  void evict_all() { d.carry_out(transfer::evict(location::host(), reason::predicted, blocks(0, d.map.size()))); }
  numbers prefetched() { return blocks_of(d.next_plan().transfers, "prefetch"); }

  deepum_policy policy;
  driver d;
};

policy_options lookahead(std::uint32_t n) {
  policy_options o;
  o.lookahead = n;
  return o;
}

TEST_CASE("a fault starts a chain at its block in the table of the executing launch") {
  trained t{loop(6, 4), 24, lookahead(0)};
  const launch_id l = t.d.issue(silent("k0", {}));
  t.d.fault(1, l);
  CHECK(t.prefetched() == numbers{2, 3});
}

TEST_CASE("a chain leaves a launch at its end block and goes on at the start block of the predicted next one") {
  trained t{loop(6, 4), 24, lookahead(2)};
  const launch_id l = t.d.issue(silent("k0", {}));
  t.d.fault(0, l);
  CHECK(t.prefetched() == numbers{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}

TEST_CASE("adjacent blocks of one plan are one command, whatever launches they are for") {
  trained t{loop(6, 4), 24, lookahead(1)};
  t.d.fault(0, t.d.issue(silent("k0", {})));
  const plan p = t.d.next_plan();
  REQUIRE(p.transfers.size() == 1);
  CHECK(p.supersedes);
  CHECK(p.transfers[0].blocks == blocks(1, 7));
  CHECK(p.transfers[0].why == reason::predicted);
}

TEST_CASE("a chain pauses N launches ahead and resumes when the executing launch finishes") {
  trained t{loop(6, 2), 12, lookahead(1)};
  t.d.fault(0, t.d.issue(silent("k0", {})));
  CHECK(t.prefetched() == numbers{1, 2, 3});
  t.d.issue(silent("k1", {}));
  CHECK(t.prefetched() == numbers{1, 2, 3});  // issued is not executing
  t.d.execute();
  CHECK(t.prefetched() == numbers{2, 3, 4, 5});  // block 1 is of the past
  t.d.execute();
  CHECK(t.prefetched() == numbers{4, 5, 6, 7});
}

TEST_CASE("a stream may have a degree of lookahead of its own") {
  trained t{loop(6, 2), 12, lookahead(1)};
  t.policy.on_stream(stream_id{0}, 3);
  t.d.fault(0, t.d.issue(silent("k0", {})));
  CHECK(t.prefetched() == numbers{1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("a chain ends at a new fault, which starts another") {
  trained t{loop(6, 2), 12, lookahead(1)};
  t.d.fault(0, t.d.issue(silent("k0", {})));
  CHECK(t.prefetched() == numbers{1, 2, 3});
  t.d.execute();
  const launch_id next = t.d.issue(silent("k1", {}));
  CHECK(t.prefetched() == numbers{2, 3, 4, 5});
  t.d.fault(3, next);
  CHECK(t.prefetched() == numbers{4, 5});  // block 2 belonged to the old chain
}

TEST_CASE("a chain ends where no next launch is predicted") {
  const auto program = loop(6, 2);
  deepum_policy policy{lookahead(32)};
  driver d{policy, 12, 12};
  d.automatic = false;
  d.make_live(blocks(0, 12));
  for (const kernel& k : program) {
    d.run(k);
  }
  d.carry_out(transfer::evict(location::host(), reason::predicted, blocks(0, 12)));
  // The published table has no record for these four yet: the loop has not closed.
  d.fault(10, d.issue(program[5]));
  CHECK(blocks_of(d.next_plan().transfers, "prefetch") == numbers{11});
}

TEST_CASE("a chain passes by a launch that has never faulted, and leaves one whose successors are exhausted") {
  auto program = loop(6, 2);
  program.insert(program.begin() + 1, silent("nothing", {}));
  trained t{program, 13, lookahead(2)};
  const launch_id l = t.d.issue(silent("k0", {}));
  t.d.fault(12, l);  // a block that the table does not know
  CHECK(t.prefetched() == numbers{2, 3});
}

TEST_CASE("a fault of no known launch trains nothing and leaves the chain alone") {
  trained t{loop(6, 2), 12, lookahead(1)};
  t.d.fault(0, t.d.issue(silent("k0", {})));
  t.d.fault(9, launch_id{});
  CHECK(t.prefetched() == numbers{1, 2, 3});
}

TEST_CASE("ranges are merged only where the chain has their blocks one after the other") {
  std::vector<kernel> program = loop(5, 1);
  program[1] = silent("k1", {reads(10), reads(12), reads(11), reads(13, 2)});
  trained t{program, 16, lookahead(1)};
  t.d.fault(0, t.d.issue(program[0]));
  const plan p = t.d.next_plan();
  REQUIRE(p.transfers.size() == 4);
  CHECK(p.transfers[0].blocks == blocks(10));
  CHECK(p.transfers[1].blocks == blocks(12));
  CHECK(p.transfers[2].blocks == blocks(11));
  CHECK(p.transfers[3].blocks == blocks(13, 2));
}

TEST_CASE("pre-eviction takes what was migrated least recently and is not expected") {
  trained t{loop(6, 2), 12, lookahead(1)};
  t.d.map.set_budget(4);
  for (const std::uint32_t b : {8U, 2U, 10U}) {
    t.d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(b)));
  }
  t.d.fault(0, t.d.issue(silent("k0", {})));
  // Wanted: 1, then 3. Resident: 8, 2 (expected), 10, 0 (executing).
  const plan p = t.d.next_plan();
  CHECK(blocks_of(p.transfers, "evict") == numbers{8, 10});
  CHECK(blocks_of(p.transfers, "prefetch") == numbers{1, 3});
  CHECK(to_string(p.transfers.front()) == "evict");
  CHECK(p.transfers.front().why == reason::make_room);
}

TEST_CASE("a chain pauses where what it expects fills the budget, and goes on when a launch has finished") {
  trained t{loop(6, 2), 12, lookahead(2)};
  t.d.map.set_budget(3);
  for (const std::uint32_t b : {4U, 2U}) {
    t.d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(b)));
  }
  t.d.fault(0, t.d.issue(silent("k0", {})));
  // Expected: 0 and 1 of this launch, 2 of the next one. What comes behind it may leave, though it is near.
  plan p = t.d.next_plan();
  CHECK(blocks_of(p.transfers, "evict") == numbers{4});
  CHECK(blocks_of(p.transfers, "prefetch") == numbers{1});
  t.d.execute();  // 0 and 1 are not expected any more; 3 and 4 are
  p = t.d.next_plan();
  CHECK(blocks_of(p.transfers, "evict") == numbers{0});
  CHECK(blocks_of(p.transfers, "prefetch") == numbers{3});
}

TEST_CASE("what the executing launch declares does not make room for it") {
  trained t{loop(6, 2), 12, lookahead(1)};
  t.d.map.set_budget(3);
  for (const std::uint32_t b : {8U, 9U}) {
    t.d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(b)));
  }
  // It declares 8, without ever having faulted there; 9 has been there for a shorter time.
  t.d.fault(0, t.d.issue({"k0", {reads(8)}, {reads(0, 2)}, false}));
  CHECK(blocks_of(t.d.next_plan().transfers, "evict") == numbers{9});
}

TEST_CASE("a launch is expected as a whole, however small the budget is") {
  trained t{loop(4, 6), 24, lookahead(2)};
  t.d.map.set_budget(2);
  t.d.fault(0, t.d.issue(silent("k0", {})));
  CHECK(t.prefetched() == numbers{1});  // as far as there is room
  t.d.map.set_budget(6);
  CHECK(t.prefetched() == numbers{1, 2, 3, 4, 5});
}

TEST_CASE("without pre-eviction room is made in the order of migration, expected or not") {
  policy_options o = lookahead(1);
  o.pre_evict = false;
  trained t{loop(6, 2), 12, o};
  t.d.map.set_budget(4);
  for (const std::uint32_t b : {2U, 8U, 9U}) {
    t.d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(b)));
  }
  t.d.fault(0, t.d.issue(silent("k0", {})));
  CHECK(blocks_of(t.d.next_plan().transfers, "evict") == numbers{2, 8});
}

TEST_CASE("where the driver makes room nothing is evicted ahead, but for what is over the budget") {
  policy_options o = lookahead(1);
  o.pre_evict = false;
  o.driver_makes_room = true;
  trained t{loop(6, 2), 12, o};
  t.d.map.set_budget(4);
  for (const std::uint32_t b : {2U, 8U, 9U}) {
    t.d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(b)));
  }
  t.d.fault(0, t.d.issue(silent("k0", {})));
  plan p = t.d.next_plan();
  CHECK(p.driver_makes_room);
  CHECK(blocks_of(p.transfers, "evict").empty());
  CHECK(blocks_of(p.transfers, "prefetch") == numbers{1, 3});
  t.d.map.set_budget(3);
  p = t.d.next_plan();
  CHECK(blocks_of(p.transfers, "evict") == numbers{2});
  CHECK(p.transfers[0].why == reason::over_budget);
}

TEST_CASE("dead contents are discarded, and neither moved nor fetched") {
  for (const bool invalidate : {true, false}) {
    policy_options o = lookahead(1);
    o.invalidate = invalidate;
    trained t{loop(6, 2), 12, o};
    t.d.map.set_budget(4);
    for (const std::uint32_t b : {8U, 9U, 10U}) {
      t.d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(b)));
    }
    t.d.make_dead(blocks(8), liveness::inactive);
    t.d.make_dead(blocks(2));
    t.d.fault(0, t.d.issue(silent("k0", {})));
    const plan p = t.d.next_plan();
    CHECK(blocks_of(p.transfers, "discard") == (invalidate ? numbers{8} : numbers{}));
    CHECK(blocks_of(p.transfers, "evict") == (invalidate ? numbers{9} : numbers{8, 9}));
    CHECK(blocks_of(p.transfers, "prefetch") == numbers{1, 3});
  }
}

TEST_CASE("dead contents that a launch in flight may touch are left alone") {
  trained t{loop(6, 2), 12, lookahead(1)};
  t.d.map.set_budget(3);
  for (const std::uint32_t b : {8U, 9U}) {
    t.d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(b)));
  }
  t.d.make_dead(blocks(8));
  t.d.map.add_user(block_id{8}, access::read);
  t.d.fault(0, t.d.issue(silent("k0", {})));
  CHECK(blocks_of(t.d.next_plan().transfers, "discard").empty());
}

TEST_CASE("an arena over its budget gives up what is not expected, and then the rest") {
  trained t{loop(6, 2), 12, lookahead(1)};
  for (const std::uint32_t b : {2U, 8U, 3U}) {
    t.d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(b)));
  }
  t.d.fault(0, t.d.issue(silent("k0", {})));
  t.d.next_plan();
  t.d.map.set_budget(2);
  const plan p = t.d.next_plan();
  CHECK(blocks_of(p.transfers, "evict") == numbers{8, 2});
  CHECK(p.transfers[0].why == reason::over_budget);
}

TEST_CASE("deepum has hardly a fault once it knows a loop that is larger than the memory") {
  const auto program = loop(40, 3);
  deepum_policy policy{lookahead(4)};
  driver d{policy, 120, 48};
  d.make_live(blocks(0, 120));
  d.run(program, 2);
  const std::uint64_t learning = d.faults;
  d.run(program, 1);
  const std::uint64_t third = d.faults - learning;
  d.run(program, 4);
  CHECK(learning >= 120);
  CHECK(third <= 12);
  CHECK(d.faults - learning - third <= 4);
  CHECK(d.lost.empty());
  CHECK(policy.statistics().execution_ids == 40);
  CHECK(policy.statistics().mispredicted == 0);
  CHECK(policy.statistics().table_bytes > 0);
  CHECK(policy.statistics().block_tables == 40);
}

TEST_CASE("deepum prefetches nothing where prefetching is off") {
  policy_options o;
  o.prefetch = false;
  deepum_policy policy{o};
  driver d{policy, 12, 12};
  d.make_live(blocks(0, 12));
  d.run(loop(6, 2), 3);
  CHECK(d.prefetched == 0);
}

}  // namespace deepum_test
