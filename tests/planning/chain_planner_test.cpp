#include "policy/driver.hpp"
#include <deepum/planning/chain_planner.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace chain_planner_test {

using namespace deepum_test;
using numbers = std::vector<std::uint32_t>;

// Tables that have seen a step of three launches, each of which faulted on its four blocks in order.
struct trained {
  explicit trained(std::uint32_t budget, std::uint32_t lookahead = 2, chain_options options = {})
      : map(16, location::device(), budget, um_grid),
        chains(launches, tables, lookahead, options) {
    for (const block_id b : blocks(0, 16)) {
      map.set_liveness(b, liveness::live);
      map.write_on_host(b);
    }
    chains.open(stream_id{0}, {});
    for (int round = 0; round != 2; ++round) {
      for (std::uint32_t k = 0; k != 3; ++k) {
        issue(k);
        for (std::uint32_t b = 4 * k; b != 4 * k + 4; ++b) {
          fault(b);
        }
        finish();
      }
    }
  }
  void issue(std::uint32_t kernel, std::vector<block_access> declared = {}) {
    launch_record r;
    r.id = launch_id{++number};
    r.signature = {kernel + 1, kernel + 1};
    r.accesses = std::move(declared);
    chains.issue(r, launches.observe(r.stream, r.signature));
  }
  void fault(std::uint32_t b) {
    chains.fault({.block = block_id{b}, .launch = launch_id{number}},
                 [&](launch_id l, execution_id id) { tables.fault(l, id, block_id{b}); });
  }
  void finish() {
    chains.finish(launch_id{number}, stream_id{0}, [&](launch_id l) { tables.finish(l); });
  }
  numbers planned(std::string_view what) {
    plan out;
    chains.write(map, true, out);
    return blocks_of(out.transfers, what);
  }

  history launches{recognition::exact, execution_table::match::published};
  pair_tables tables{{}};
  block_ledger map;
  chain_planner chains;
  std::uint64_t number = 0;
};

TEST_CASE("a fault starts a chain, which goes on in the predicted launches, N of them") {
  trained t{16};
  t.issue(0);
  t.fault(0);
  CHECK(t.planned("prefetch") == numbers{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  trained one{16, 1};
  one.issue(0);
  one.fault(0);
  CHECK(one.planned("prefetch") == numbers{1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("a chain pauses where what is expected fills the budget, and goes on when the launch is over") {
  trained t{6};
  t.issue(0);
  t.fault(0);
  CHECK(t.planned("prefetch") == numbers{1, 2, 3, 4, 5});
  t.finish();
  CHECK(t.planned("prefetch") == numbers{4, 5, 6, 7, 8, 9});
}

TEST_CASE(
    "what is not expected makes room, least recently migrated first, and not what the executing launch declares") {
  trained t{4, 0};
  for (const std::uint32_t b : {14U, 15U, 13U, 12U}) {
    t.map.arrive(block_id{b}, true);
  }
  t.issue(0, {reads(15)});
  t.fault(0);
  CHECK(t.planned("evict") == numbers{14, 13, 12});
}

TEST_CASE("a launch waits for what the chain has visited in it, and for a chain that will come to it") {
  trained t{16, 1};
  t.issue(0);
  const launch_id executing{t.number};
  t.fault(0);
  t.issue(1);
  const launch_id next{t.number};
  t.issue(2);
  const launch_id beyond{t.number};
  CHECK(t.planned("prefetch").size() == 7);
  CHECK_FALSE(t.chains.ready(next, stream_id{0}, t.map));
  for (const block_id b : blocks(4, 4)) {
    t.map.arrive(b, true);
  }
  CHECK(t.chains.ready(next, stream_id{0}, t.map));
  CHECK_FALSE(t.chains.ready(beyond, stream_id{0}, t.map));
  CHECK(t.chains.ready(launch_id{99}, stream_id{0}, t.map));
  CHECK_FALSE(t.chains.ready(executing, stream_id{0}, t.map));
}

TEST_CASE("dead contents that a chain visits are fetched when they become live in time") {
  trained t{16, 0};
  t.map.set_liveness(block_id{2}, liveness::unallocated);
  t.issue(0);
  t.fault(0);
  CHECK(t.planned("prefetch") == numbers{1, 3});
  t.map.set_liveness(block_id{2}, liveness::live);
  t.chains.became_live(blocks(2));
  CHECK(t.planned("prefetch") == numbers{1, 2, 3});
}

TEST_CASE("a stream that is closed ends its chain, and nothing is expected for it") {
  trained t{16};
  t.issue(0);
  t.fault(0);
  t.finish();
  t.chains.close(stream_id{0});
  CHECK(t.planned("prefetch").empty());
}

}  // namespace chain_planner_test
