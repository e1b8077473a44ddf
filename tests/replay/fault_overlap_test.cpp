#include "replay/placement.hpp"
#include "replay/replay.hpp"
#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace fault_overlap_test {

using namespace deepum;
using namespace deepum::replay;
using namespace std::chrono_literals;

/// Two launches of 100 ns in turn, each reading four blocks that the other one does not use.
std::shared_ptr<const workload> two_by_four() {
  workload_description d;
  d.name = "two_by_four";
  for (std::int64_t id = 0; id != 2; ++id) {
    d.tensors.push_back({.id = id, .size = 4 * block_size, .persistent = true});
    d.launches.push_back({.kernel = "read", .duration = 100ns, .in = {id}, .out = {}, .blocks = {}});
  }
  place(d, {.which = {true, true}, .taken = {}, .from_block = 0, .reuse = false});
  return std::make_shared<const workload>(build_workload("two_by_four", d));
}

constexpr double block_in_a_microsecond = 2097.152;  // GB/s

/// The fourth of five steps under demand paging, with room for what one launch reads or for more.
replayed_turn steady_step(bool overlap, double d2h_gbps, nanoseconds fault_latency,
                          std::vector<schedule_entry>* copies = nullptr, std::uint64_t room = 4) {
  const program what{.name = "steps", .workloads = {two_by_four()}, .turns = std::vector<program_turn>(5)};
  replay_options how{.memory = replay_memory::managed, .budget = room * block_size};
  how.costs = {.h2d_gbps = block_in_a_microsecond,
               .d2h_gbps = d2h_gbps,
               .copy_latency = 0ns,
               .fault_latency = fault_latency,
               .fault_overlap = overlap};
  how.schedule = [copies](const schedule_entry& e) {
    if (copies != nullptr && (e.what == schedule_event::copy_in || e.what == schedule_event::copy_out)) {
      copies->push_back(e);
    }
  };
  return deepum::replay::replay(what, make_policy("um", {}), how).turns[3];
}

TEST_CASE("one after the other, a fault pays for its victim and for its block") {
  const replayed_turn t = steady_step(false, block_in_a_microsecond, 0ns);
  CHECK(t.used.faults == 8);
  CHECK(t.time == 2 * (8 * 1000ns + 100ns));
}

TEST_CASE("where faults overlap, both directions work from the second block of a launch on") {
  const replayed_turn t = steady_step(true, block_in_a_microsecond, 0ns);
  CHECK(t.used.faults == 8);
  // A launch's first victim leaves before anything comes; its last block comes when nothing has to leave any more.
  CHECK(t.time == 2 * (5 * 1000ns + 100ns));
}

TEST_CASE("the slower direction decides how long overlapping faults take") {
  const replayed_turn t = steady_step(true, block_in_a_microsecond / 2, 0ns);
  CHECK(t.time == 2 * (4 * 2000ns + 1000ns + 100ns));
}

TEST_CASE("overlapping faults are still served one by one") {
  const replayed_turn t = steady_step(true, block_in_a_microsecond, 300ns);
  CHECK(t.time == 2 * (5 * 1000ns + 4 * 300ns + 100ns));
}

TEST_CASE("overlapping faults move no more, and keep within the budget") {
  for (const bool overlap : {false, true}) {
    std::vector<schedule_entry> copies;
    const replayed_turn t = steady_step(overlap, block_in_a_microsecond, 0ns, &copies);
    CHECK(t.used.in().all_bytes() == (8 * block_size).count);
    CHECK(t.used.out().all_bytes() == (8 * block_size).count);
    // Room is taken when a copy to the device starts, and given back when one to the host has ended.
    std::int64_t started_in = 0;
    for (const schedule_entry& in : copies) {
      if (in.what == schedule_event::copy_in) {
        ++started_in;
        std::int64_t gone = 0;
        for (const schedule_entry& out : copies) {
          gone += out.what == schedule_event::copy_out && out.end <= in.start;
        }
        CHECK(started_in - gone <= 4);
      }
    }
    CHECK(started_in == 40);
  }
}

TEST_CASE("overlapping faults drive out no block for which nothing comes") {
  for (const bool overlap : {false, true}) {
    // One of the other launch's blocks can stay each time.
    const replayed_turn t = steady_step(overlap, block_in_a_microsecond, 0ns, nullptr, 5);
    CHECK(t.used.faults == 6);
    CHECK(t.used.out().all_bytes() == (6 * block_size).count);
  }
}

}  // namespace fault_overlap_test
