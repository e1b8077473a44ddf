#include <deepum/core/block_ledger.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/policy/harvest.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace harvest_test {

using namespace deepum;
using namespace deepum::literals;

constexpr location host = location::host();
constexpr location here = location::device();
constexpr location beside = location::device(1);

/// A device of 32 blocks, a neighbour of 4, and 256 blocks of an arena, all on the host.
struct fixture {
  fixture()
      : map(256,
            topology(here, {{}, {}, {}},
                     {{host, here, 12},
                      {here, host, 12},
                      {host, beside, 12},
                      {beside, host, 12},
                      {beside, here, 40},
                      {here, beside, 40}}),
            um_grid) {
    map.set_budget(32);
    map.set_budget(beside, 4);
    for (const block_id b : block_range{block_id{0}, 256}) {
      map.set_liveness(b, liveness::live);
      map.write_on_host(b);
    }
    map.set_keeps_home_copy(true);
  }

  void bring(std::uint32_t b) {
    map.start_arriving(block_id{b}, here, host);
    map.arrive(block_id{b}, here, true);
    p.on_migrated({block_id{b}, 1}, here, map);
  }
  void write(std::uint32_t b) { map.write(block_id{b}); }
  void move_to_neighbour(std::uint32_t b) {
    map.start_arriving(block_id{b}, beside, here);
    map.start_leaving(block_id{b}, here);
    map.arrive_at(block_id{b}, beside);
    map.release(block_id{b}, here);
    p.on_migrated({block_id{b}, 1}, beside, map);
  }
  void fault(std::uint32_t b) { p.on_fault({block_id{b}, deepum::access::read, {}, {}}, map); }

  std::vector<transfer> plan_now() {
    plan made;
    p.plan_next(map, made);
    return made.transfers;
  }
  static std::vector<std::uint32_t> moved(const std::vector<transfer>& all, const char* what, location to) {
    std::vector<std::uint32_t> found;
    for (const transfer& t : all) {
      for (const block_id b : t.blocks) {
        if (to_string(t) == what && t.to == to) found.push_back(b.value);
      }
    }
    return found;
  }

  block_ledger map;
  harvest_policy p{};
};
using list = std::vector<std::uint32_t>;

TEST_CASE_FIXTURE(fixture,
                  "the least recently migrated go to the neighbour while it has room, so that a reserve is free") {
  for (std::uint32_t b = 0; b != 28; ++b)
    bring(b);
  CHECK(fixture::moved(plan_now(), "move", beside).empty());  // an eighth is free
  for (std::uint32_t b = 28; b != 32; ++b)
    bring(b);
  CHECK(fixture::moved(plan_now(), "move", beside) == list{0, 1, 2, 3});
}

TEST_CASE_FIXTURE(fixture, "what a neighbour got is copied to the host, then its room may be taken") {
  for (std::uint32_t b = 0; b != 32; ++b) {
    bring(b);
    write(b);
  }
  for (std::uint32_t b = 0; b != 4; ++b)
    move_to_neighbour(b);
  CHECK(fixture::moved(plan_now(), "clean", host) == list{0, 1, 2, 3});
  for (std::uint32_t b = 32; b != 36; ++b)
    bring(b);
  CHECK(fixture::moved(plan_now(), "evict", host) == list{4, 5, 6, 7});  // the neighbour has the only copies
  for (std::uint32_t b = 0; b != 2; ++b) {
    map.start_arriving(block_id{b}, host, beside);
    REQUIRE(map.clean(block_id{b}));
  }
  p.on_migrated({block_id{0}, 2}, host, map);
  const std::vector<transfer> made = plan_now();
  CHECK(fixture::moved(made, "drop", host) == list{0, 1});
  CHECK(fixture::moved(made, "move", beside) == list{4, 5});
  CHECK(fixture::moved(made, "evict", host) == list{6, 7});
}

TEST_CASE_FIXTURE(fixture,
                  "ahead of faults the neighbour gets what the host has, every second block in their direction") {
  fault(100);
  (void)plan_now();
  fault(101);
  CHECK(fixture::moved(plan_now(), "prefetch", beside) == list{103, 105, 107, 109});
  fault(90);
  CHECK(fixture::moved(plan_now(), "prefetch", beside) == list{88, 86, 84, 82});
}

TEST_CASE_FIXTURE(fixture, "what a neighbour has comes to the device ahead of faults") {
  bring(105);
  move_to_neighbour(105);
  fault(101);
  CHECK(fixture::moved(plan_now(), "prefetch", here) ==
        list{105, 111, 113, 115, 117, 119, 121, 123, 125, 127, 129, 131, 133});
}

TEST_CASE_FIXTURE(fixture, "a block that came back leaves its room at the neighbour") {
  bring(5);
  move_to_neighbour(5);
  bring(5);
  const std::vector<transfer> made = plan_now();
  CHECK(fixture::moved(made, "drop", host) == list{5});
  CHECK(made.front().from == beside);
}

}  // namespace harvest_test
