#include "policy/driver.hpp"
#include <deepum/planning/next_use_planner.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace next_use_planner_test {

using namespace deepum_test;
using numbers = std::vector<std::uint32_t>;

// A planner beside what it asks: launches on one stream, blocks that are all alive.
struct bench {
  explicit bench(std::uint32_t budget, next_use_options options = {})
      : map(16, location::device(), budget, um_grid),
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
    coming.issue(r);
    coming.predict_further(r.stream);
  }
  void finish() {
    coming.finish(launch_id{launches}, stream_id{0}, map, [](bool) {});
  }
  void arrive(std::initializer_list<std::uint32_t> all, bool host_copy_stays = true) {
    for (const std::uint32_t b : all) {
      map.arrive(block_id{b}, host_copy_stays);
      coming.set_resident(block_id{b}, true);
    }
  }
  plan write() {
    plan out;
    planner.write(map, coming, dead, out);
    return out;
  }
  numbers planned(action what) { return blocks_of_action(write().commands, what); }

  block_map map;
  launch_predictor coming{{.horizon = 64, .max_upcoming_uses = 1000}};
  detail::dead_blocks dead{};
  next_use_planner planner;
  std::uint64_t launches = 0;
};

TEST_CASE("what is needed first is fetched first, as far as there is room") {
  bench t{3};
  t.issue(1, {reads(9)});
  t.issue(2, {reads(2, 2)});
  t.issue(3, {reads(5)});
  CHECK(t.planned(action::prefetch) == numbers{9, 2, 3});
}

TEST_CASE("what is needed last makes room, but never for what is needed no sooner") {
  bench t{3};
  t.arrive({1, 2, 3}, false);
  t.issue(1, {reads(1)});
  t.issue(2, {reads(7)});
  t.issue(3, {reads(2)});
  t.issue(4, {reads(3)});
  const plan p = t.write();
  CHECK(blocks_of_action(p.commands, action::evict) == numbers{3});
  CHECK(blocks_of_action(p.commands, action::prefetch) == numbers{7});
}

TEST_CASE("of blocks without a known use a clean one goes first, without a copy") {
  bench t{3};
  t.arrive({1}, false);
  t.arrive({2, 3});
  t.issue(1, {reads(8, 2)});
  CHECK(t.planned(action::drop) == numbers{2, 3});
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
  CHECK(blocks_of_action(p.commands, action::discard) == numbers{2});
  CHECK(blocks_of_action(p.commands, action::evict) == numbers{});
  CHECK(blocks_of_action(p.commands, action::prefetch) == numbers{8});
}

TEST_CASE("what the host has just touched is not fetched for predictions until something is launched") {
  bench t{16};
  for (int round = 0; round != 2; ++round) {
    t.issue(1, {reads(1)});
    t.finish();
    t.issue(2, {reads(2)});
    t.finish();
  }
  CHECK(t.planned(action::prefetch) == numbers{1, 2});
  t.planner.on_host_access(blocks(1), t.coming);
  CHECK(t.planned(action::prefetch) == numbers{2});
  t.issue(1, {reads(1)});
  CHECK(t.planned(action::prefetch) == numbers{1, 2});
}

TEST_CASE(
    "where pre-eviction is off room is made for the budget alone, and where prefetching is off nothing is fetched") {
  bench no_room{2, {.pre_evict = false}};
  no_room.arrive({1, 2, 3});
  no_room.issue(1, {reads(8)});
  const plan p = no_room.write();
  CHECK(blocks_of_action(p.commands, action::drop).size() == 1);
  CHECK(blocks_of_action(p.commands, action::prefetch).empty());
  bench nothing{4, {.prefetch = false}};
  nothing.issue(1, {reads(8)});
  CHECK(nothing.write().commands.empty());
}

}  // namespace next_use_planner_test
