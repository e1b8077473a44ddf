#include "replay/placement.hpp"
#include "replay/replay.hpp"
#include "schedule_checker.hpp"
#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace driver_room_test {

using namespace deepum;
using namespace deepum::replay;
using namespace std::chrono_literals;

/// 24 launches of a microsecond in turn, each reading four blocks of its own.
std::shared_ptr<const workload> many_by_four() {
  workload_description d;
  d.name = "many_by_four";
  for (std::int64_t id = 0; id != 24; ++id) {
    d.tensors.push_back({.id = id, .size = 4 * block_size, .persistent = true});
    d.launches.push_back({.kernel = "read" + std::to_string(id), .duration = 1us, .in = {id}, .out = {}, .blocks = {}});
  }
  place(d, {.which = std::vector<bool>(24, true), .taken = {}, .from_block = 0, .reuse = false});
  return std::make_shared<const workload>(build_workload("many_by_four", d));
}

constexpr double block_in_a_microsecond = 2097.152;  // GB/s

struct outcome {
  replayed_turn steady{};
  std::vector<schedule_entry> entries{};
};

/// The last but one of ten steps under `deepum`, with room for eight launches.
outcome run(bool driver_makes_room, double both_gbps = 0) {
  const program what{.name = "steps", .workloads = {many_by_four()}, .turns = std::vector<program_turn>(10)};
  replay_options how{.memory = replay_memory::managed, .budget = 32 * block_size};
  how.costs = {.h2d_gbps = block_in_a_microsecond,
               .d2h_gbps = block_in_a_microsecond,
               .copy_latency = 0ns,
               .fault_latency = 100us,
               .both_gbps = both_gbps,
               .driver_makes_room = driver_makes_room};
  how.run_ahead = 4;
  outcome o;
  how.schedule = [&o](const schedule_entry& e) { o.entries.push_back(e); };
  policy_options tuning;
  tuning.lookahead = 4;
  tuning.pre_evict = !driver_makes_room;
  tuning.driver_makes_room = driver_makes_room;
  o.steady = deepum::replay::replay(what, make_policy("deepum", tuning), how).turns[8];
  CHECK(deepum_test::schedule_checker(what, one_device(how.budget, how.costs)).check(o.entries).empty());
  return o;
}

/// Nanoseconds in which copies go both ways at once.
std::int64_t both_ways(const std::vector<schedule_entry>& entries) {
  std::int64_t sum = 0;
  for (const schedule_entry& in : entries) {
    for (const schedule_entry& out : entries) {
      if (in.what == schedule_event::copy_in && out.what == schedule_event::copy_out) {
        sum += std::max<std::int64_t>(0, (std::min(in.end, out.end) - std::max(in.start, out.start)).count());
      }
    }
  }
  return sum;
}

TEST_CASE("the driver makes room on the path of a prefetch: one block leaves, then the other comes") {
  const outcome driver = run(true);
  CHECK(both_ways(driver.entries) == 0);
  CHECK(driver.steady.used.in().all_bytes() >= (64 * block_size).count);
  // No block leaves unless one comes for it.
  for (const schedule_entry& e : driver.entries) {
    CHECK((e.what != schedule_event::copy_out || e.blocks.count == 1));
  }
}

TEST_CASE("blocks that leave ahead leave beside what comes, and the step is the shorter for it") {
  const outcome ahead = run(false);
  const outcome driver = run(true);
  CHECK(both_ways(ahead.entries) > 0);
  CHECK(ahead.steady.time < driver.steady.time);
}

TEST_CASE("where both directions share the rate of one, copies follow each other") {
  const outcome shared = run(false, block_in_a_microsecond);
  CHECK(both_ways(shared.entries) == 0);
  CHECK(shared.steady.time > run(false).steady.time);
}

}  // namespace driver_room_test
