#include "driver.hpp"
#include <deepum/policy/um.hpp>

#include <doctest/doctest.h>

namespace um_test {

using namespace deepum_test;
using numbers = std::vector<std::uint32_t>;

TEST_CASE("um leaves everything to the driver while the arena is inside its budget") {
  um_policy um;
  driver d{um, 8, 4};
  d.make_live(blocks(0, 8));
  d.run({silent("a", {reads(0, 4)}), silent("b", {updates(4, 4)})}, 3);
  CHECK(d.transfers.empty());
  CHECK(d.faults == 24);
  CHECK(d.lost.empty());
  CHECK(um.statistics().launches == 6);
}

TEST_CASE("um evicts the least recently migrated blocks when the arena is over its budget") {
  um_policy um;
  driver d{um, 8, 6};
  d.make_live(blocks(0, 8));
  d.automatic = false;
  d.run(silent("a", {reads(5), reads(1), reads(0), reads(3), reads(2), reads(4)}));
  d.map.touch_migrated(block_id{1});
  d.map.set_budget(3);
  CHECK(blocks_of(d.next_plan().transfers, "evict") == numbers{5, 0, 3});

  SUBCASE("and counts those that are leaving already") {
    d.map.start_leaving(block_id{0});
    const plan p = d.next_plan();
    CHECK(blocks_of(p.transfers, "evict") == numbers{5, 3});
    CHECK(p.transfers[0].why == reason::over_budget);
  }
}

}  // namespace um_test
