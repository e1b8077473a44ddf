#include "policy/driver.hpp"
#include <deepum/planning/pre_eviction.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace pre_eviction_test {

using namespace deepum_test;
using deepum::detail::pre_eviction;
using numbers = std::vector<std::uint32_t>;

// Blocks 0 to 7 arrived in this order; 0 and 1 are expected, and 2 is of the executing launch.
struct bench {
  bench() : map(8, location::device(), 8, um_grid) {
    for (const block_id b : blocks(0, 8)) {
      map.set_liveness(b, liveness::live);
      map.write_on_host(b);
      map.arrive(b, false);
    }
  }
  std::int64_t write(const pre_eviction& by, std::int64_t needed, std::int64_t excess = 0) {
    out = {};
    return by.write(
        map, {.needed = needed, .excess = excess}, [](block_id b) { return b.value < 2; },
        [](block_id b) { return b.value == 2; }, out);
  }
  [[nodiscard]] numbers evicted() const { return blocks_of(out.transfers, "evict"); }
  [[nodiscard]] numbers discarded() const { return blocks_of(out.transfers, "discard"); }

  block_ledger map;
  plan out;
};

TEST_CASE("the least recently migrated blocks leave, but none that is expected or in use") {
  bench b;
  CHECK(b.write({true, true}, 3) == 3);
  CHECK(b.evicted() == numbers{3, 4, 5});
  CHECK(b.write({true, true}, 8) == 5);
  CHECK(b.evicted() == numbers{3, 4, 5, 6, 7});
}

TEST_CASE("beyond the budget expected blocks leave, too, and never one in use") {
  bench b;
  CHECK(b.write({true, true}, 8, 6) == 6);
  CHECK(b.evicted() == numbers{3, 4, 5, 6, 7, 0});
  CHECK(b.out.transfers.front().why == reason::over_budget);
}

TEST_CASE("dead contents are discarded, expected or not; without invalidation they are copied out") {
  bench b;
  b.map.set_liveness(block_id{0}, liveness::inactive);
  b.map.set_liveness(block_id{4}, liveness::inactive);
  CHECK(b.write({true, true}, 3) == 3);
  CHECK(b.discarded() == numbers{0, 4});
  CHECK(b.evicted() == numbers{3});
  CHECK(b.write({true, false}, 3) == 3);
  CHECK(b.discarded().empty());
}

TEST_CASE("dead contents that a launch in flight may use are left alone") {
  bench b;
  b.map.set_liveness(block_id{3}, liveness::inactive);
  b.map.add_user(block_id{3}, access::read);
  CHECK(b.write({true, true}, 1) == 1);
  CHECK(b.evicted() == numbers{4});
}

TEST_CASE("without pre-eviction the victims are those of the driver") {
  bench b;
  CHECK(b.write({false, true}, 3) == 3);
  CHECK(b.evicted() == numbers{0, 1, 3});
}

}  // namespace pre_eviction_test
