#include "driver.hpp"
#include <deepum/policy/auto.hpp>
#include <deepum/policy/um.hpp>

#include <doctest/doctest.h>

#include <random>

namespace auto_test {

using namespace deepum_test;
using numbers = std::vector<std::uint32_t>;

// Launches k0, k1, ... in a loop; launch i reads blocks [i * width, (i + 1) * width).
std::vector<kernel> loop(std::uint32_t launches, std::uint32_t width, bool declared = true) {
  std::vector<kernel> program;
  for (std::uint32_t i = 0; i < launches; ++i) {
    const std::string name = "k" + std::to_string(i);
    program.push_back(declared ? honest(name, {reads(i * width, width)}) : silent(name, {reads(i * width, width)}));
  }
  return program;
}

// Forward with activations, backward with gradients, an update of the weights: what training does to memory.
std::vector<kernel> training_step(std::uint32_t layers) {
  const auto weight = [&](std::uint32_t i) { return i; };
  const auto activation = [&](std::uint32_t i) { return layers + i; };
  const auto gradient = [&](std::uint32_t i) { return 2 * layers + i; };
  std::vector<kernel> step;
  for (std::uint32_t i = 0; i < layers; ++i) {
    std::vector<block_access> a{reads(weight(i)), overwrites(activation(i))};
    if (i != 0) a.push_back(reads(activation(i - 1)));
    step.push_back(honest("forward" + std::to_string(i), a));
  }
  for (std::uint32_t i = layers; i-- > 0;) {
    step.push_back(
        honest("backward" + std::to_string(i), {reads(weight(i)), reads(activation(i)), overwrites(gradient(i))}));
  }
  for (std::uint32_t i = 0; i < layers; ++i) {
    step.push_back(honest("update" + std::to_string(i), {updates(weight(i)), reads(gradient(i))}));
  }
  return step;
}

// A policy that is asked for plans that nobody carries out, with chosen blocks resident, oldest first.
// No advice, so that a plan is its transfers.
struct bench {
  explicit bench(std::uint32_t block_count, std::uint32_t budget, policy_options options = {})
      : policy([&] {
          options.advise = false;
          return options;
        }()),
        d(policy, block_count, budget) {
    d.automatic = false;
    d.make_live(blocks(0, block_count));
  }
  void resident(const numbers& which) {
    d.carry_out(transfer::evict(location::host(), reason::predicted, blocks(0, d.map.size())));
    for (const std::uint32_t b : which) {
      d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(b)));
    }
  }
  numbers planned(std::string_view what) { return blocks_of(d.next_plan().transfers, what); }

  auto_policy policy;
  driver d;
};

TEST_CASE("auto has no fault once it has seen a declared loop, and few before") {
  const auto program = loop(30, 4);
  auto_policy policy;
  driver d{policy, 120, 48};
  d.make_live(blocks(0, 120));
  d.run(program, 6);
  CHECK(d.faults == 0);
  CHECK(d.lost.empty());
  CHECK(policy.statistics().mispredicted == 0);
  CHECK(policy.statistics().execution_ids == 30);
}

TEST_CASE("auto learns what is not declared from faults, in one round") {
  auto_policy policy;
  driver d{policy, 120, 48};
  d.make_live(blocks(0, 120));
  d.run(loop(30, 4, false), 1);
  CHECK(d.faults == 120);
  d.run(loop(30, 4, false), 4);
  CHECK(d.faults <= 120 + 4);  // until the first launch comes again, nothing is predicted
  CHECK(d.lost.empty());
}

TEST_CASE("auto trains without faults, and moves hardly more than demand paging where the link takes no time") {
  const auto step = training_step(20);
  std::uint64_t in[2];
  for (const bool use_auto : {false, true}) {
    um_policy um;
    auto_policy automatic;
    policy& p = use_auto ? static_cast<policy&>(automatic) : um;
    driver d{p, 60, 24};
    d.make_live(blocks(0, 60));
    d.host_writes(blocks(0, 20));
    d.run(step, 2);
    const std::uint64_t faults = d.faults;
    d.run(step, 4);
    in[use_auto ? 1 : 0] = d.blocks_in;
    CHECK(d.lost.empty());
    if (use_auto) {
      CHECK(d.faults == faults);
    }
  }
  CHECK(in[1] < in[0] * 11 / 10);
}

TEST_CASE("a launch whose scalars change from step to step is predicted") {
  auto_policy policy;
  driver d{policy, 40, 16};
  d.make_live(blocks(0, 40));
  for (std::uint64_t step = 0; step < 5; ++step) {
    d.run(honest("norm", {reads(0, 4)}));
    for (std::uint32_t i = 0; i < 10; ++i) {
      d.run(honest("adamw" + std::to_string(i), {updates(i * 4, 4)}, step));
    }
  }
  CHECK(d.faults == 0);
  CHECK(policy.statistics().execution_ids == 11);
  CHECK(policy.statistics().mispredicted == 0);
}

TEST_CASE("without lookahead a known sequence costs as few fetches as Belady's rule") {
  const std::uint32_t seed = 4711;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 10; ++trial) {
    constexpr std::uint32_t length = 50;
    constexpr std::uint32_t budget = 8;
    numbers sequence;
    std::vector<kernel> program;
    for (std::uint32_t i = 0; i < length; ++i) {
      sequence.push_back(static_cast<std::uint32_t>(random() % 24));
      program.push_back(honest("k" + std::to_string(i), {reads(sequence.back())}));
    }
    policy_options o;
    o.lookahead = 0;
    auto_policy policy{o};
    driver d{policy, 24, budget};
    d.make_live(blocks(0, 24));
    d.run(program, 4);

    std::vector<bool> resident(24);
    for (std::uint32_t b = 0; b < 24; ++b) {
      resident[b] = d.map.resident(block_id{b});
    }
    const auto next_use = [&](std::uint32_t b, std::uint32_t from) {
      std::uint32_t distance = 0;
      while (distance < length && sequence[(from + distance) % length] != b) {
        ++distance;
      }
      return distance;
    };
    const std::uint64_t before = d.prefetched;
    std::uint64_t least = 0;
    // The policy fetches for a launch when the one before it has finished, so it has fetched for the first one already.
    for (std::uint32_t i = 1; i <= 5 * length; ++i) {
      if (resident[sequence[i % length]]) continue;
      ++least;
      std::uint32_t victim = 24;
      for (std::uint32_t b = 0; b < 24; ++b) {
        if (resident[b] && (victim == 24 || next_use(b, i) > next_use(victim, i))) victim = b;
      }
      resident[victim] = false;
      resident[sequence[i % length]] = true;
    }
    d.run(program, 5);
    CHECK(d.faults == 0);
    CHECK(d.prefetched - before == least);
  }
}

TEST_CASE("blocks are fetched in the order in which they are needed, and one launch's in the order of addresses") {
  bench t{16, 16};
  t.d.issue(honest("a", {reads(9), reads(4, 2)}));
  t.d.issue(honest("b", {reads(2), reads(4), reads(10)}));
  const plan p = t.d.next_plan();
  CHECK(p.supersedes);
  CHECK(blocks_of(p.transfers, "prefetch") == numbers{4, 5, 9, 2, 10});
  CHECK(p.transfers[0].why == reason::issued);
}

TEST_CASE("adjacent blocks of one plan are one command, whatever launches they are for") {
  bench t{16, 16};
  t.d.issue(honest("a", {reads(2, 2)}));
  t.d.issue(honest("b", {reads(4, 3)}));
  const plan p = t.d.next_plan();
  REQUIRE(p.transfers.size() == 1);
  CHECK(p.transfers[0].blocks == blocks(2, 5));
}

TEST_CASE("what is predicted is fetched after what is issued") {
  bench t{16, 16};
  for (int round = 0; round < 2; ++round) {
    t.d.run(honest("a", {reads(0)}));
    t.d.run(honest("b", {reads(1)}));
    t.d.run(honest("c", {reads(2)}));
  }
  t.resident({});
  t.d.issue(honest("a", {reads(0)}));
  const plan p = t.d.next_plan();
  CHECK(blocks_of(p.transfers, "prefetch") == numbers{0, 1, 2});
  CHECK(p.transfers[0].why == reason::issued);
  CHECK(p.transfers[1].why == reason::predicted);
}

TEST_CASE("room comes from the block whose next use is farthest away, and one that is not used again is the farthest") {
  bench t{16, 4};
  t.resident({1, 2, 3, 4});
  t.d.issue(honest("a", {reads(0)}));
  t.d.issue(honest("b", {reads(2)}));
  t.d.issue(honest("c", {reads(1)}));
  t.d.issue(honest("d", {reads(4)}));
  CHECK(t.planned("evict") == numbers{3});
  t.resident({1, 2, 4, 5});
  t.d.issue(honest("e", {reads(5)}));
  CHECK(t.planned("evict") == numbers{5});
  t.d.issue(honest("f", {reads(1)}));
  CHECK(t.planned("evict") == numbers{5});
  t.d.map.set_budget(3);
  CHECK(t.planned("evict") == numbers{5, 4});
}

TEST_CASE("among blocks that are not used again the least recently migrated one leaves, a clean one before all") {
  bench t{16, 4};
  t.resident({7, 5, 6, 8});
  t.d.issue(honest("a", {reads(0)}));
  CHECK(t.planned("evict") == numbers{7});
  t.d.map.start_cleaning(block_id{6});
  t.d.map.clean(block_id{6});
  const plan p = t.d.next_plan();
  CHECK(blocks_of(p.transfers, "drop") == numbers{6});
  CHECK(blocks_of(p.transfers, "evict").empty());
}

TEST_CASE("a clean block that a launch in flight may touch is not dropped but evicted") {
  bench t{16, 3};
  t.resident({6, 1, 2});
  t.d.map.start_cleaning(block_id{6});
  t.d.map.clean(block_id{6});
  for (const std::uint32_t b : {0U, 1U, 2U, 6U}) {
    t.d.issue(honest("k" + std::to_string(b), {updates(b)}));
  }
  CHECK(t.planned("drop").empty());
  CHECK(t.planned("evict") == numbers{6});
}

TEST_CASE("no block leaves for one that is needed no sooner: prefetching waits") {
  bench t{16, 3};
  t.resident({0, 1, 2});
  for (const std::uint32_t b : {0U, 1U, 2U, 3U}) {
    t.d.issue(honest("k" + std::to_string(b), {reads(b)}));
  }
  CHECK(t.d.next_plan().transfers.empty());
  t.d.execute();
  const plan p = t.d.next_plan();
  CHECK(blocks_of(p.transfers, "evict") == numbers{0});
  CHECK(blocks_of(p.transfers, "prefetch") == numbers{3});
  CHECK(to_string(p.transfers[0]) == "evict");
}

TEST_CASE("each block that leaves is needed later than the one that it leaves for") {
  bench t{16, 4};
  t.resident({3, 1, 2, 7});
  t.d.issue(honest("a", {reads(8), reads(3)}));  // 8 takes the place of 7, which nobody needs
  t.d.issue(honest("b", {reads(1)}));
  SUBCASE("a later launch needs the missing one") {
    t.d.issue(honest("c", {reads(9)}));
    t.d.issue(honest("d", {reads(2)}));
    CHECK(t.planned("evict") == numbers{7, 2});
    CHECK(t.planned("prefetch") == numbers{8, 9});
  }
  SUBCASE("a sooner launch needs the resident one") {
    t.d.issue(honest("c", {reads(2)}));
    t.d.issue(honest("d", {reads(9)}));
    CHECK(t.planned("evict") == numbers{7});
    CHECK(t.planned("prefetch") == numbers{8});
  }
  SUBCASE("the same launch needs both") {
    t.d.issue(honest("c", {reads(2), reads(9)}));
    CHECK(t.planned("evict") == numbers{7});
    CHECK(t.planned("prefetch") == numbers{8});
  }
}

TEST_CASE("of a launch that is larger than the budget, what fits is fetched") {
  bench t{16, 3};
  t.d.issue(honest("large", {reads(0, 8)}));
  CHECK(t.planned("prefetch") == numbers{0, 1, 2});
  t.resident({0, 1, 2});
  CHECK(t.d.next_plan().transfers.empty());
}

TEST_CASE("dead contents make room first, and are neither moved nor fetched") {
  bench t{16, 4};
  t.resident({1, 2, 3, 4});
  t.d.make_dead(blocks(2), liveness::inactive);
  t.d.make_dead(blocks(9));
  t.d.issue(honest("a", {reads(8, 4)}));
  const plan p = t.d.next_plan();
  CHECK(to_string(p.transfers[0]) == "discard");
  CHECK(p.transfers[0].blocks == blocks(2));
  CHECK(p.transfers[0].why == reason::dead);
  CHECK(blocks_of(p.transfers, "evict") == numbers{1, 3});
  CHECK(blocks_of(p.transfers, "prefetch") == numbers{8, 10, 11});

  SUBCASE("but not while a launch in flight may touch them") {
    t.d.map.add_user(block_id{2}, access::read);
    CHECK(t.planned("discard").empty());
    CHECK(t.planned("evict") == numbers{1, 3, 4});
  }
}

TEST_CASE("dead contents that a launch in flight brings to the device are not moved from there") {
  bench t{16, 2};
  t.resident({1});
  t.d.map.write_on_host(block_id{2});
  t.d.make_dead(blocks(2));
  CHECK(t.planned("discard") == numbers{2});  // cannot be carried out yet
  t.d.carry_out(transfer::prefetch(location::device(), reason::predicted, blocks(2)));
  t.d.issue(honest("a", {reads(8)}));
  CHECK(t.planned("discard") == numbers{2});
  CHECK(t.planned("evict").empty());
}

TEST_CASE("where invalidation is off dead contents are moved") {
  policy_options o;
  o.invalidate = false;
  bench t{16, 2, o};
  t.resident({1, 2});
  t.d.make_dead(blocks(2));
  t.d.issue(honest("a", {reads(8, 2)}));
  CHECK(t.planned("discard").empty());
  CHECK(t.planned("evict") == numbers{1, 2});
}

TEST_CASE("a fixed degree of lookahead is kept to, and a stream may have one of its own") {
  const auto program = loop(8, 1);
  policy_options o;
  o.lookahead = 2;
  bench t{8, 8, o};
  for (const kernel& k : program) {
    t.d.run(k);
  }
  t.d.run(program[0]);
  t.resident({});
  t.d.issue(program[1]);
  CHECK(t.planned("prefetch") == numbers{1, 2, 3});
  t.policy.on_stream(stream_id{0}, 4);
  CHECK(t.planned("prefetch") == numbers{1, 2, 3, 4, 5});
}

TEST_CASE("what has room is not held up by what waits for room") {
  bench t{16, 4};
  t.resident({14, 15});
  t.d.issue(honest("a", {reads(0, 4)}));
  const plan p = t.d.next_plan();
  REQUIRE(p.transfers.size() == 3);
  CHECK(p.transfers[0].blocks == blocks(14, 2));
  CHECK(p.transfers[1].blocks == blocks(0, 2));
  CHECK(p.transfers[2].blocks == blocks(2, 2));
}

TEST_CASE("room that blocks on their way out will leave is counted on") {
  bench t{16, 3};
  t.resident({1, 2, 3});
  t.d.map.start_leaving(block_id{2});
  t.d.issue(honest("a", {reads(8)}));
  CHECK(t.planned("evict").empty());
  CHECK(t.planned("prefetch") == numbers{8});
}

TEST_CASE("what the host has just touched is not fetched for a prediction before the next launch") {
  bench t{8, 8};
  for (int round = 0; round < 2; ++round) {
    t.d.run(honest("a", {reads(0)}));
    t.d.run(honest("b", {reads(1)}));
  }
  t.resident({0, 1});
  t.d.host_writes(blocks(1));
  CHECK(t.planned("prefetch").empty());
  t.d.issue(honest("a", {reads(0)}));
  CHECK(t.planned("prefetch") == numbers{1});
}

TEST_CASE("a block that leaves, or becomes live again, is fetched again") {
  bench t{8, 8};
  const auto program = loop(4, 2);
  for (int round = 0; round < 2; ++round) {
    for (const kernel& k : program) {
      t.d.run(k);
    }
  }
  t.resident({0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(t.d.next_plan().transfers.empty());
  t.d.carry_out(transfer::evict(location::host(), reason::predicted, blocks(5)));
  CHECK(t.planned("prefetch") == numbers{5});
  t.d.make_dead(blocks(5));
  CHECK(t.planned("prefetch").empty());
  t.d.make_live(blocks(5));
  CHECK(t.planned("prefetch") == numbers{5});
}

TEST_CASE("needs that change while their launch is predicted are those that count") {
  policy_options o;
  o.lookahead = 3;
  bench t{16, 16, o};
  const auto program = loop(3, 1);
  for (int round = 0; round < 3; ++round) {
    for (const kernel& k : program) {
      t.d.run(k);
    }
  }
  kernel changed = program[0];
  SUBCASE("by a fault") { changed.touched.push_back(reads(9)); }
  SUBCASE("by a declaration") { changed.declared.push_back(reads(9)); }
  t.d.run(changed);
  t.resident({0, 1, 2});
  const plan p = t.d.next_plan();
  REQUIRE(p.transfers.size() == 1);  // for the next round; this one is over
  CHECK(p.transfers[0].blocks == blocks(9));
}

TEST_CASE("a block whose arrival was called off is fetched when its launch is issued") {
  bench t{8, 8};
  const auto program = loop(3, 1);
  for (int round = 0; round < 3; ++round) {
    for (const kernel& k : program) {
      t.d.run(k);
    }
  }
  t.resident({0, 2});
  t.d.map.start_arriving(block_id{1});
  CHECK(t.planned("prefetch").empty());
  t.d.map.cancel_arriving(block_id{1});
  t.d.run(program[0]);
  t.d.issue(program[1]);
  CHECK(t.planned("prefetch") == numbers{1});
}

TEST_CASE("the plan asks for a bounded number of blocks") {
  bench t{1000, 1000};
  t.d.issue(honest("a", {reads(0, 1000)}));
  const plan p = t.d.next_plan();
  CHECK(blocks_of(p.transfers, "prefetch").size() == 128);
  CHECK(p.transfers.size() == 1);
}

TEST_CASE("an arena over its budget gives up the farthest blocks, but none of an executing launch") {
  bench t{8, 8};
  t.resident({0, 1, 2, 3, 4});
  t.d.issue(honest("a", {reads(0, 2)}));
  t.d.issue(honest("b", {reads(2)}));
  t.d.map.set_budget(1);
  const plan p = t.d.next_plan();
  CHECK(blocks_of(p.transfers, "evict") == numbers{3, 4, 2});
  CHECK(p.transfers[0].why == reason::over_budget);
}

TEST_CASE("nothing is fetched for predictions that are mostly wrong, until they have been right for a while") {
  auto_policy policy;
  driver d{policy, 40, 20};
  d.make_live(blocks(0, 40));
  const auto program = loop(20, 2);
  const std::uint32_t seed = 77;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    d.run(program[random() % program.size()]);
  }
  d.transfers.clear();
  for (int i = 0; i < 20; ++i) {
    d.run(program[random() % program.size()]);
  }
  for (const transfer& c : d.transfers) {
    CHECK(c.why != reason::predicted);
  }
  d.run(program, 4);
  d.transfers.clear();
  d.run(program, 1);
  CHECK(std::any_of(d.transfers.begin(), d.transfers.end(),
                    [](const transfer& c) { return c.why == reason::predicted; }));
  CHECK(d.lost.empty());
}

TEST_CASE("two streams are served by one plan, in the order of distance") {
  bench t{8, 8};
  t.d.issue(honest("a", {reads(0)}), 0);
  t.d.issue(honest("b", {reads(1)}), 1);
  t.d.issue(honest("c", {reads(2)}), 0);
  t.d.issue(honest("d", {reads(3)}), 1);
  CHECK(t.planned("prefetch") == numbers{0, 1, 2, 3});
  t.d.execute(1);
  t.resident({});
  CHECK(t.planned("prefetch") == numbers{0, 3, 2});
}

TEST_CASE("a stream that nobody uses any more does not hold its blocks for ever") {
  auto_policy policy;
  driver d{policy, 40, 16};
  d.make_live(blocks(0, 40));
  const auto other = loop(4, 2);
  for (int round = 0; round < 3; ++round) {
    for (const kernel& k : other) {
      d.run(k, 1);
    }
  }
  std::vector<kernel> model;
  for (std::uint32_t i = 0; i < 8; ++i) {
    model.push_back(honest("m" + std::to_string(i), {reads(8 + i * 2, 2)}));
  }
  d.run(model, 20);
  for (std::uint32_t b = 0; b < 8; ++b) {
    CHECK_FALSE(d.map.resident(block_id{b}));
  }
  CHECK(d.faults == 0);
  const std::uint64_t in = d.blocks_in;
  d.run(model, 4);
  CHECK(d.blocks_in == in);
}

TEST_CASE("a sequence that changes is followed within two rounds") {
  auto_policy policy;
  driver d{policy, 80, 30};
  d.make_live(blocks(0, 80));
  auto program = loop(20, 4, false);
  d.run(program, 4);
  std::swap(program[3], program[12]);
  program.erase(program.begin() + 7);
  const std::uint64_t before = d.faults;
  d.run(program, 1);
  const std::uint64_t during = d.faults - before;
  d.run(program, 1);
  const std::uint64_t after = d.faults;
  d.run(program, 3);
  CHECK(during <= 24);
  CHECK(d.faults == after);
}

TEST_CASE("tables stay inside their caps") {
  policy_options o;
  o.max_execution_ids = 16;
  o.max_execution_records = 64;
  o.horizon = 32;
  auto_policy policy{o};
  driver d{policy, 40, 20};
  d.make_live(blocks(0, 40));
  std::uint64_t tables = 0;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    d.run(honest("once" + std::to_string(i), {updates(i % 40)}));
    if (i == 1000) {
      tables = policy.statistics().table_bytes;
    }
  }
  CHECK(policy.statistics().execution_ids == 16);
  CHECK(policy.statistics().table_bytes <= tables + tables / 10);
  CHECK(d.lost.empty());
}

TEST_CASE("of many streams that are idle one comes back and is predicted again") {
  constexpr std::uint16_t streams = 1000;
  auto_policy p;
  driver d(p, 8, 8);
  d.make_live(blocks(0, 8));
  const std::vector<kernel> step{honest("a", {reads(0)}), honest("b", {reads(1)}), honest("c", {reads(2)})};
  for (int round = 0; round < 4; ++round) {
    for (std::uint16_t s = 0; s < streams; ++s) {
      for (const kernel& k : step) {
        d.run(k, s);
      }
    }
  }
  const std::uint64_t unpredicted = p.statistics().unpredicted;
  for (int i = 0; i < 1000; ++i) {
    d.run(step[static_cast<std::size_t>(i) % 3], 7);
  }
  CHECK(p.statistics().unpredicted == unpredicted);
  CHECK(p.statistics().mispredicted == 0);
  CHECK(d.lost.empty());
}

TEST_CASE(
    "advice is for the driver's own memory: where the host keeps a copy none is given, and nothing is kept for it") {
  std::uint64_t tables[2] = {};
  for (const bool keeps_home_copy : {false, true}) {
    auto_policy p;
    driver d(p, 4096, 4096);
    d.map.set_keeps_home_copy(keeps_home_copy);
    d.make_live(blocks(0, 4096));
    for (int round = 0; round != 4; ++round) {
      d.run(honest("a", {reads(0, 4096)}));
      d.run(honest("b", {updates(1)}));
    }
    const bool advised = !d.hints.empty();
    CHECK(advised == !keeps_home_copy);
    tables[keeps_home_copy ? 1 : 0] = p.statistics().table_bytes;
  }
  CHECK(tables[1] + std::uint64_t{4096} * 16 < tables[0]);
}

TEST_CASE("more distinct launches than execution IDs are fetched as they are issued, and are no step") {
  policy_options few_ids;
  few_ids.max_execution_ids = 100;
  auto_policy p(few_ids);
  driver d(p, 64, 16);
  d.make_live(blocks(0, 64));
  for (std::uint32_t i = 0; i < 3000; ++i) {
    const std::uint32_t launch = i % 130;
    d.run(honest("k" + std::to_string(launch), {updates(launch * 31 % 64)}));
  }
  CHECK(d.faults == 0);
  CHECK(p.statistics().execution_ids == 100);
  CHECK(p.statistics().predicted == 0);
  CHECK(d.lost.empty());
}

}  // namespace auto_test
