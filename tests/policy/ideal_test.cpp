#include "driver.hpp"
#include <deepum/policy/ideal.hpp>

#include <doctest/doctest.h>

namespace ideal_test {

using namespace deepum_test;
using numbers = std::vector<std::uint32_t>;

TEST_CASE("ideal brings in what becomes live and never evicts it") {
  ideal_policy ideal;
  driver d{ideal, 16, 16};
  d.make_live(blocks(2, 5));
  CHECK(blocks_of(d.transfers, "prefetch") == numbers{2, 3, 4, 5, 6});
  CHECK(d.transfers.size() == 1);
  d.run({silent("a", {updates(2, 3)}), silent("b", {reads(4, 3)})}, 3);
  CHECK(d.faults == 0);
  CHECK(d.blocks_out == 0);
}

TEST_CASE("ideal brings back what the host took, with the next launch and not before") {
  ideal_policy ideal;
  driver d{ideal, 8, 8};
  d.make_live(blocks(0, 8));
  d.host_writes(blocks(3));
  CHECK_FALSE(d.map.resident(block_id{3}));
  d.run(silent("a", {reads(3)}));
  CHECK(d.faults == 0);
}

TEST_CASE("ideal asks for no more than fits") {
  ideal_policy ideal;
  driver d{ideal, 8, 3};
  d.automatic = false;
  d.make_live(blocks(0, 8));
  CHECK(blocks_of(d.next_plan().transfers, "prefetch") == numbers{0, 1, 2});
}

}  // namespace ideal_test
