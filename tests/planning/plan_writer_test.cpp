#include "policy/driver.hpp"
#include <deepum/planning/partial_blocks.hpp>
#include <deepum/planning/plan_writer.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace plan_writer_test {

using namespace deepum_test;

constexpr transfer fetch = transfer::prefetch(location::device(), reason::predicted);

TEST_CASE("adjacent blocks of one kind are one command, up to a limit and from a place on") {
  plan out;
  for (const block_id b : blocks(3, 4)) {
    detail::append(out, fetch, b, 3);
  }
  detail::append(out, transfer::prefetch(location::device(), reason::issued), block_id{7}, 3);
  detail::append(out, transfer::prefetch(location::device(), reason::issued), block_id{8}, 3, 3);
  REQUIRE(out.transfers.size() == 4);
  CHECK(out.transfers[0].blocks == blocks(3, 3));
  CHECK(out.transfers[1].blocks == blocks(6));
  CHECK(out.transfers[2].blocks == blocks(7));
  CHECK(out.transfers[3].blocks == blocks(8));
}

TEST_CASE("a gate opens after an event and where room or budget have changed, once") {
  block_ledger map(8, location::device(), 8, um_grid);
  detail::plan_gate gate;
  CHECK(gate.open(map));
  CHECK_FALSE(gate.open(map));
  gate.mark_dirty();
  CHECK(gate.open(map));
  CHECK_FALSE(gate.open(map));
  map.arrive(block_id{1}, true);
  CHECK(gate.open(map));
  map.set_budget(4);
  CHECK(gate.open(map));
  CHECK_FALSE(gate.open(map));
}

TEST_CASE("all of a launch is there where every block is, or is dead, or where it does not fit anyway") {
  block_ledger map(8, location::device(), 2, um_grid);
  for (const block_id b : blocks(0, 8)) {
    map.set_liveness(b, liveness::live);
  }
  map.arrive(block_id{1}, true);
  CHECK(detail::all_there(map, {blocks(1)}));
  CHECK_FALSE(detail::all_there(map, {blocks(1, 2)}));
  CHECK(detail::all_there(map, {blocks(1, 3)}));
  map.set_liveness(block_id{2}, liveness::inactive);
  CHECK(detail::all_there(map, {blocks(1, 2)}));
  CHECK(detail::all_ready(map, {reads(1, 2)}));
  CHECK_FALSE(detail::all_ready(map, {reads(3)}));
}

TEST_CASE("of a block that came in part the rest is fetched, once, until it is whole") {
  block_ledger map(8, location::device(), 8, um_grid);
  detail::partial_blocks partial;
  for (const std::uint32_t b : {5U, 4U, 6U}) {
    map.arrive(block_id{b}, false, b == 6);
    partial.note(blocks(b), map);
    partial.note(blocks(b), map);
  }
  plan out;
  partial.write(map, out);
  REQUIRE(out.transfers.size() == 1);
  CHECK(out.transfers[0].blocks == blocks(4, 2));
  CHECK(out.transfers[0].why == reason::keep);
  map.arrive(block_id{4}, false);
  out.clear();
  partial.write(map, out);
  REQUIRE(out.transfers.size() == 1);
  CHECK(out.transfers[0].blocks == blocks(5));
}

}  // namespace plan_writer_test
