// Which launches are ready to begin, by the policies that hold launches back (docs/adr/0004).

#include "policy/driver.hpp"
#include <deepum/policy/auto.hpp>
#include <deepum/policy/deepum.hpp>
#include <deepum/policy/ideal.hpp>
#include <deepum/policy/um.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace launch_admission_test {

using namespace deepum_test;
using numbers = std::vector<std::uint32_t>;

// Launches k0, k1, ... in a loop; launch i reads blocks [i * width, (i + 1) * width).
std::vector<kernel> loop(std::uint32_t launches, std::uint32_t width, bool declared) {
  std::vector<kernel> program;
  for (std::uint32_t i = 0; i < launches; ++i) {
    const std::string name = "k" + std::to_string(i);
    program.push_back(declared ? honest(name, {reads(i * width, width)}) : silent(name, {reads(i * width, width)}));
  }
  return program;
}

/// A policy whose plans are carried out only where the test says so.
template <class Policy>
struct bench {
  bench(std::uint32_t block_count, std::uint32_t budget, policy_options options = {})
      : policy(options),
        d(policy, block_count, budget) {
    d.automatic = false;
    d.make_live(blocks(0, block_count));
  }
  void evict_all() { d.carry_out(transfer::evict(location::host(), reason::predicted, blocks(0, d.map.size()))); }
  void bring(block_range r) { d.carry_out(transfer::prefetch(location::device(), reason::predicted, r)); }
  /// A fault brings in some pages of the block.
  void bring_some(std::uint32_t b) {
    d.map.arrive(block_id{b}, false, false);
    policy.on_migrated(blocks(b), d.map.device(), d.map);
  }
  /// The rest of it arrives.
  void complete(std::uint32_t b) {
    d.map.arrive(block_id{b}, false);
    policy.on_migrated(blocks(b), d.map.device(), d.map);
  }
  bool ready(launch_id l, std::uint16_t stream = 0) { return policy.ready(l, stream_id{stream}, d.map); }
  numbers kept(const plan& p) {
    std::vector<transfer> keeps;
    std::copy_if(p.transfers.begin(), p.transfers.end(), std::back_inserter(keeps),
                 [](const transfer& c) { return c.why == reason::keep; });
    return blocks_of(keeps, "prefetch");
  }

  Policy policy;
  driver d;
};

policy_options lookahead(std::uint32_t n) {
  policy_options o;
  o.lookahead = n;
  return o;
}

/// A `deepum` that knows a loop of six launches with two blocks each. Nothing is resident.
struct trained : bench<deepum_policy> {
  explicit trained(policy_options options = lookahead(1), std::uint32_t budget = 12) : bench(12, budget, options) {
    for (int i = 0; i < 2; ++i) {
      for (const kernel& k : program) {
        d.run(k);
      }
      evict_all();
    }
  }
  std::vector<kernel> program = loop(6, 2, false);
};

TEST_CASE("policies hold launches back only where they bring blocks and were not told to let go") {
  policy_options never;
  never.hold_launches = false;
  policy_options brings_nothing;
  brings_nothing.prefetch = false;
  CHECK(auto_policy().holds_launches());
  CHECK(deepum_policy().holds_launches());
  for (const policy_options& o : {never, brings_nothing}) {
    CHECK_FALSE(auto_policy(o).holds_launches());
    CHECK_FALSE(deepum_policy(o).holds_launches());
  }
  CHECK_FALSE(um_policy().holds_launches());
  CHECK_FALSE(ideal_policy().holds_launches());
}

TEST_CASE("auto: a launch is ready when all that it needs is there as a whole and stays") {
  bench<auto_policy> b(16, 8);
  const launch_id l = b.d.issue(honest("k", {reads(0, 2), updates(4)}));
  CHECK_FALSE(b.ready(l));
  b.bring(blocks(0, 2));
  CHECK_FALSE(b.ready(l));
  SUBCASE("whole") {
    b.bring(blocks(4));
    CHECK(b.ready(l));
  }
  SUBCASE("in part") {
    b.bring_some(4);
    CHECK_FALSE(b.ready(l));
    b.complete(4);
    CHECK(b.ready(l));
  }
  SUBCASE("on its way") {
    b.d.map.start_arriving(block_id{4});
    CHECK_FALSE(b.ready(l));
  }
  SUBCASE("on its way out") {
    b.bring(blocks(4));
    b.d.map.start_leaving(block_id{4});
    CHECK_FALSE(b.ready(l));
  }
  SUBCASE("of no value") {
    b.d.make_dead(blocks(4), liveness::inactive);
    CHECK(b.ready(l));
  }
}

TEST_CASE("auto: a launch that needs more than the budget does not wait for it") {
  bench<auto_policy> b(16, 4);
  CHECK_FALSE(b.ready(b.d.issue(honest("fits", {reads(0, 4)}))));
  CHECK(b.ready(b.d.issue(honest("does not", {reads(0, 5)}))));
}

TEST_CASE("auto: what a launch needs is learned from faults too, and asked of the launch itself") {
  bench<auto_policy> b(16, 8);
  const kernel k = silent("k", {reads(3)});
  const launch_id first = b.d.issue(k);
  CHECK(b.ready(first));  // nothing is known
  b.d.execute();
  b.evict_all();
  const launch_id l = b.d.issue(k);
  CHECK_FALSE(b.ready(l));
  const launch_id next = b.d.issue(honest("other", {reads(9)}));
  b.bring(blocks(3));
  CHECK(b.ready(l));
  CHECK_FALSE(b.ready(next));
}

TEST_CASE("auto: launches of different streams do not wait for each other, and unknown ones for nothing") {
  bench<auto_policy> b(16, 8);
  const launch_id here = b.d.issue(honest("k", {reads(0)}), 0);
  const launch_id there = b.d.issue(honest("m", {reads(1)}), 1);
  b.bring(blocks(1));
  CHECK_FALSE(b.ready(here, 0));
  CHECK(b.ready(there, 1));
  CHECK(b.ready(here, 1));
  CHECK(b.ready(here, 7));
  b.d.execute(0);
  CHECK(b.ready(here, 0));
}

TEST_CASE("deepum: a launch that the chain has visited is ready when what it visited has arrived") {
  trained t;
  t.d.fault(0, t.d.issue(t.program[0]));
  const launch_id l = t.d.issue(t.program[1]);
  CHECK_FALSE(t.ready(l));  // the chain will come to it
  (void)t.d.next_plan();
  CHECK_FALSE(t.ready(l));
  SUBCASE("whole") {
    t.bring(blocks(2));
    CHECK_FALSE(t.ready(l));
    t.bring(blocks(3));
    CHECK(t.ready(l));
  }
  SUBCASE("which what is on its way has not, also when it was planned long ago") {
    t.bring(blocks(1));
    for (const std::uint32_t b : {2U, 3U}) {
      t.d.map.start_arriving(block_id{b});
    }
    for (int i = 0; i < 3; ++i) {
      CHECK(blocks_of(t.d.next_plan().transfers, "prefetch").empty());
      CHECK_FALSE(t.ready(l));
    }
    t.complete(2);
    t.complete(3);
    (void)t.d.next_plan();
    CHECK(t.ready(l));
  }
  SUBCASE("and what is there in part has not") {
    t.bring(blocks(2));
    t.bring_some(3);
    CHECK_FALSE(t.ready(l));
    t.complete(3);
    CHECK(t.ready(l));
  }
  SUBCASE("but nothing that is dead") {
    t.d.make_dead(blocks(2, 2), liveness::inactive);
    CHECK(t.ready(l));
  }
}

TEST_CASE("deepum: a launch beyond the lookahead waits for the chain to resume") {
  trained t;
  t.d.fault(0, t.d.issue(t.program[0]));
  t.d.issue(t.program[1]);
  const launch_id beyond = t.d.issue(t.program[2]);
  (void)t.d.next_plan();
  t.bring(blocks(0, 6));
  CHECK_FALSE(t.ready(beyond));
  t.d.execute();
  (void)t.d.next_plan();
  CHECK(t.ready(beyond));
}

TEST_CASE("deepum: without a chain a launch with missing blocks waits only for the launches before it") {
  trained t;
  t.d.fault(0, t.d.issue(silent("where the chain ends", {})));
  (void)t.d.next_plan();
  t.d.execute();
  t.evict_all();
  const launch_id first = t.d.issue(t.program[0]);
  const launch_id second = t.d.issue(t.program[1]);
  const launch_id unknown = t.d.issue(silent("new", {}));
  CHECK(t.ready(first));
  CHECK_FALSE(t.ready(second));
  CHECK(t.ready(unknown));
  SUBCASE("until they have finished") {
    t.policy.on_finish(first, stream_id{0}, t.d.map);
    CHECK(t.ready(second));
  }
  SUBCASE("or its blocks are there") {
    t.bring(blocks(2));
    CHECK_FALSE(t.ready(second));
    t.bring(blocks(3));
    CHECK(t.ready(second));
  }
}

TEST_CASE("deepum: a chain is no reason to hold back launches of another stream") {
  trained t;
  t.d.fault(0, t.d.issue(t.program[0]));
  (void)t.d.next_plan();
  CHECK(t.ready(t.d.issue(t.program[3], 1), 1));
  CHECK(t.ready(launch_id{1}, 9));
}

TEST_CASE_TEMPLATE("blocks that came in part are completed, at once and without room", Policy, deepum_policy,
                   auto_policy) {
  bench<Policy> b(8, 3);
  const launch_id l = b.d.issue(honest("k", {reads(0, 3)}));
  for (const std::uint32_t block : {2U, 0U, 2U, 1U, 0U}) {  // piece by piece
    b.bring_some(block);
  }
  CHECK(b.d.map.room() == 0);
  plan p = b.d.next_plan();
  REQUIRE_FALSE(p.transfers.empty());
  CHECK(p.transfers.front() == transfer::prefetch(location::device(), reason::keep, blocks(0, 3)));
  CHECK(b.kept(p).size() == 3);
  b.complete(1);
  CHECK(b.kept(b.d.next_plan()) == numbers{0, 2});
  b.d.map.start_leaving(block_id{0});  // what leaves is not kept
  CHECK(b.kept(b.d.next_plan()) == numbers{2});
  b.d.carry_out(transfer::evict(location::host(), reason::predicted, blocks(0)));
  b.complete(2);
  CHECK(b.kept(b.d.next_plan()).empty());
  b.bring_some(1);  // all of it is there
  CHECK(b.kept(b.d.next_plan()).empty());
  CHECK(b.ready(l) == (b.policy.name() == "deepum"));
}

TEST_CASE_TEMPLATE("a policy that prefetches nothing completes nothing", Policy, deepum_policy, auto_policy) {
  policy_options o;
  o.prefetch = false;
  bench<Policy> b(8, 3, o);
  b.bring_some(0);
  CHECK(b.kept(b.d.next_plan()).empty());
}

}  // namespace launch_admission_test
