#include "policy/driver.hpp"
#include <deepum/planning/dead_blocks.hpp>
#include <deepum/planning/unplanned_blocks.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace dead_blocks_test {

using namespace deepum_test;
using numbers = std::vector<std::uint32_t>;

// Blocks 0 to 3 on the device, 4 to 7 on the host, all alive.
block_ledger half_there() {
  block_ledger map(8, location::device(), 8, um_grid);
  for (const block_id b : blocks(0, 8)) {
    map.set_liveness(b, liveness::live);
    map.write_on_host(b);
  }
  for (const block_id b : blocks(0, 4)) {
    map.arrive(b, true);
  }
  return map;
}
void kill(block_ledger& map, detail::dead_blocks& dead, block_range range) {
  for (const block_id b : range) {
    map.set_liveness(b, liveness::unallocated);
  }
  dead.note(range);
}
numbers discarded(const plan& p) { return blocks_of(p.transfers, "discard"); }

TEST_CASE("what died elsewhere is forgotten at once, what died on the device gives its room when it is asked for") {
  block_ledger map = half_there();
  detail::dead_blocks dead;
  kill(map, dead, blocks(2, 4));
  plan out;
  dead.forget_elsewhere(map, out);
  CHECK(discarded(out) == numbers{4, 5});
  out.clear();
  CHECK(dead.give_room(map, 1, out) == 1);
  CHECK(discarded(out) == numbers{2});
  out.clear();
  CHECK(dead.give_room(map, 5, out) == 2);
  CHECK(discarded(out) == numbers{2, 3});
  out.clear();
  CHECK(dead.give_room(map, 0, out) == 0);
  CHECK(out.transfers.empty());
}

TEST_CASE("where the driver makes room for faults, a full device has room for one as long as something dead is there") {
  block_ledger map = half_there();
  map.set_budget(4);
  detail::dead_blocks dead;
  plan out;
  dead.keep_room_for_faults(map, out);
  CHECK(out.transfers.empty());
  kill(map, dead, blocks(2, 3));
  dead.list_on_device(map);
  dead.keep_room_for_faults(map, out);
  CHECK(discarded(out) == numbers{2});
  dead.keep_room_for_faults(map, out);  // it leaves already
  CHECK(discarded(out) == numbers{2});
  out.clear();
  map.set_budget(5);
  dead.keep_room_for_faults(map, out);
  CHECK(out.transfers.empty());
}

TEST_CASE("what a launch in flight may use is not given up before it is over") {
  block_ledger map = half_there();
  detail::dead_blocks dead;
  kill(map, dead, blocks(3, 2));
  map.add_user(block_id{3}, deepum::access::update);
  map.add_user(block_id{4}, deepum::access::read);
  plan out;
  dead.forget_elsewhere(map, out);
  CHECK(dead.give_room(map, 5, out) == 0);
  CHECK(out.transfers.empty());
  map.remove_user(block_id{3}, deepum::access::update);
  map.remove_user(block_id{4}, deepum::access::read);
  dead.forget_elsewhere(map, out);
  CHECK(discarded(out) == numbers{4});
  CHECK(dead.give_room(map, 5, out) == 1);
}

TEST_CASE("what is used again is not dead any more") {
  block_ledger map = half_there();
  detail::dead_blocks dead;
  kill(map, dead, blocks(0, 2));
  plan out;
  dead.forget_elsewhere(map, out);
  map.set_liveness(block_id{0}, liveness::live);
  numbers seen;
  dead.for_each_on_device(map, [&](block_id b) { seen.push_back(b.value); });
  CHECK(seen == numbers{1});
}

TEST_CASE("blocks without a plan leave in the order in which they came, but not what is dead, moving or gone") {
  block_ledger map = half_there();
  detail::unplanned_blocks unplanned;
  for (const std::uint32_t b : {3U, 1U, 0U, 2U, 1U}) {
    unplanned.arrived(block_id{b});
  }
  map.set_liveness(block_id{0}, liveness::inactive);
  plan out;
  CHECK(unplanned.give_room(map, 2, out) == 2);
  CHECK(blocks_of(out.transfers, "evict") == numbers{3, 2});
  map.drop(block_id{3});
  map.start_leaving(block_id{2});
  out.clear();
  CHECK(unplanned.give_room(map, 5, out) == 1);
  CHECK(blocks_of(out.transfers, "evict") == numbers{1});
}

}  // namespace dead_blocks_test
