#include "policy/driver.hpp"
#include <deepum/planning/next_use_planner.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace next_use_planner_test {

using namespace deepum_test;
using numbers = std::vector<std::uint32_t>;

// A planner beside what it asks: launches on one stream, blocks that are all alive.
struct bench {
  explicit bench(std::uint32_t budget, next_use_options options = {}, std::uint32_t horizon = 64)
      : map(16, location::device(), budget, um_grid),
        coming({.horizon = horizon, .max_upcoming_uses = 1'000'000}),
        planner(options) {
    for (const block_id b : blocks(0, 16)) {
      map.set_liveness(b, liveness::live);
      map.write_on_host(b);
    }
  }
  void issue(std::uint64_t kernel, std::initializer_list<block_access> accesses) {
    launch_record r;
    r.id = launch_id{++launches};
    r.signature = {kernel, kernel};
    r.accesses = accesses;
    coming.issue(r, map);
    coming.predict_further(r.stream, map);
  }
  void finish() {
    coming.finish(launch_id{launches}, stream_id{0}, map, [](bool) {});
  }
  void arrive(std::initializer_list<std::uint32_t> all, bool host_copy_stays = true) {
    for (const std::uint32_t b : all) {
      map.arrive(block_id{b}, host_copy_stays);
      coming.moved(blocks(b), map);
    }
  }
  plan write() {
    plan out;
    planner.write(map, coming, dead, out);
    return out;
  }
  numbers planned(std::string_view what) { return blocks_of(write().transfers, what); }

  block_ledger map;
  launch_predictor coming;
  detail::dead_blocks dead{};
  next_use_planner planner;
  std::uint64_t launches = 0;
};

TEST_CASE("what is needed first is fetched first, as far as there is room") {
  bench t{3};
  t.issue(1, {reads(9)});
  t.issue(2, {reads(2, 2)});
  t.issue(3, {reads(5)});
  CHECK(t.planned("prefetch") == numbers{9, 2, 3});
}

TEST_CASE("what is needed last makes room, but never for what is needed no sooner") {
  bench t{3};
  t.arrive({1, 2, 3}, false);
  t.issue(1, {reads(1)});
  t.issue(2, {reads(7)});
  t.issue(3, {reads(2)});
  t.issue(4, {reads(3)});
  const plan p = t.write();
  CHECK(blocks_of(p.transfers, "evict") == numbers{3});
  CHECK(blocks_of(p.transfers, "prefetch") == numbers{7});
}

TEST_CASE("of blocks without a known use a clean one goes first, without a copy") {
  bench t{3};
  t.arrive({1}, false);
  t.arrive({2, 3});
  t.issue(1, {reads(8, 2)});
  CHECK(t.planned("drop") == numbers{2, 3});
}

TEST_CASE("dead contents make room before all others") {
  bench t{2};
  t.arrive({1, 2});
  t.map.set_liveness(block_id{2}, liveness::unallocated);
  t.dead.note(blocks(2));
  plan ignored;
  t.dead.forget_elsewhere(t.map, ignored);
  t.issue(1, {reads(8)});
  const plan p = t.write();
  CHECK(blocks_of(p.transfers, "discard") == numbers{2});
  CHECK(blocks_of(p.transfers, "evict") == numbers{});
  CHECK(blocks_of(p.transfers, "prefetch") == numbers{8});
}

TEST_CASE("what the host has just touched is not fetched for predictions until something is launched") {
  bench t{16};
  for (int round = 0; round != 2; ++round) {
    t.issue(1, {reads(1)});
    t.finish();
    t.issue(2, {reads(2)});
    t.finish();
  }
  CHECK(t.planned("prefetch") == numbers{1, 2});
  t.planner.on_host_access(blocks(1), t.coming);
  CHECK(t.planned("prefetch") == numbers{2});
  t.issue(1, {reads(1)});
  CHECK(t.planned("prefetch") == numbers{1, 2});
}

TEST_CASE(
    "where pre-eviction is off room is made for the budget alone, and where prefetching is off nothing is fetched") {
  bench no_room{2, {.pre_evict = false}};
  no_room.arrive({1, 2, 3});
  no_room.issue(1, {reads(8)});
  const plan p = no_room.write();
  CHECK(blocks_of(p.transfers, "drop").size() == 1);
  CHECK(blocks_of(p.transfers, "prefetch").empty());
  bench nothing{4, {.prefetch = false}};
  nothing.issue(1, {reads(8)});
  CHECK(nothing.write().transfers.empty());
}

// Launches that a plan looks at: those that may miss something, within reach.
std::size_t to_look_at(bench& t) {
  const stream_forecast& s = t.coming.stream(0);
  std::size_t count = 0;
  for (std::size_t at = s.ahead->first_missing(0, s.reach()); at < s.reach(); ++count) {
    at = s.ahead->first_missing(at + 1, s.reach());
  }
  return count;
}

TEST_CASE("where everything is on the device a plan looks at no launch, however far ahead launches are known") {
  for (const std::uint32_t horizon : {8U, 64U, 4096U}) {
    bench t{16, {}, horizon};
    t.arrive({0, 1, 2, 3, 4, 5, 6});
    std::size_t looked_at = 0;
    std::size_t far = 0;
    for (std::uint32_t i = 0; i != 6000; ++i) {
      t.issue(1 + i % 7, {reads(i % 7)});
      looked_at += to_look_at(t);
      CHECK(t.write().transfers.empty());
      far = std::max(far, t.coming.stream(0).ahead->size());
      t.finish();
    }
    CHECK(looked_at == 0);
    CHECK(far >= std::min(horizon, 1024U));
  }
}

TEST_CASE(
    "while nothing is missing a wrong prediction costs few others, and far launches are predicted again when it is") {
  bench t{16, {}, 4096};
  t.arrive({0, 1, 2, 3, 4, 5, 6});
  std::uint32_t launches = 0;
  std::size_t predicted = 0;
  const auto run = [&](std::uint32_t rounds) {
    for (std::uint32_t i = 0; i != rounds; ++i, ++launches) {
      const std::uint32_t block = (launches + launches / 50) % 7;  // now and then one is left out
      const std::size_t before = launches != 0 ? t.coming.stream(0).ahead->size() : 0;
      t.issue(1 + block, {reads(block)});
      predicted += t.coming.stream(0).ahead->size() - std::min(before, t.coming.stream(0).ahead->size());
      (void)t.write();
      t.finish();
    }
  };
  run(6000);
  predicted = 0;
  run(5000);
  CHECK(predicted <= 5000 * 3);
  t.map.drop(block_id{6});
  t.coming.moved(blocks(6), t.map);
  predicted = 0;
  run(49);
  CHECK(predicted >= 1000);
}

TEST_CASE("what has left is looked for once, and not again when it is back") {
  bench t{16, {}, 4096};
  t.arrive({0, 1, 2, 3, 4, 5, 6});
  for (std::uint32_t i = 0; i != 700; ++i) {
    t.issue(1 + i % 7, {reads(i % 7)});
    t.finish();
  }
  t.map.drop(block_id{3});
  t.coming.moved(blocks(3), t.map);
  CHECK(to_look_at(t) == 1);
  CHECK(t.planned("prefetch") == numbers{3});
  t.map.start_arriving(block_id{3});
  CHECK(t.planned("prefetch").empty());
  CHECK(to_look_at(t) == 1);
  t.map.cancel_arriving(block_id{3});  // of which nobody is told
  CHECK(t.planned("prefetch") == numbers{3});
  t.arrive({3});
  CHECK(t.planned("prefetch").empty());
  CHECK(to_look_at(t) == 0);
}

TEST_CASE("what holds nothing is not missing until it does") {
  bench t{16};
  t.arrive({0, 1, 2});
  for (std::uint32_t i = 0; i != 40; ++i) {
    t.issue(1 + i % 3, {reads(i % 3)});
    t.finish();
  }
  t.map.discard(block_id{1});
  t.map.set_liveness(block_id{1}, liveness::inactive);
  t.coming.moved(blocks(1), t.map);
  CHECK(t.write().transfers.empty());
  CHECK(to_look_at(t) == 0);
  t.map.set_liveness(block_id{1}, liveness::live);
  t.coming.moved(blocks(1), t.map);
  CHECK(t.planned("prefetch") == numbers{1});
}

}  // namespace next_use_planner_test
