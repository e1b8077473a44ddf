// Blocks with more than two places, and what becomes of a generation of contents at each.

#include "core/block_ledger_bench.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <optional>

namespace block_ledger_places_test {

using namespace block_ledger_bench_of_tests;
TEST_CASE("a block is in one state at each place, and each place has a ledger of its own") {
  block_ledger map = two_devices();
  const block_id b{1};
  CHECK(map.places() == 3);
  map.write_on_host(b);
  CHECK(map.state(b, home) == copy_state::current);
  map.start_arriving(b, beside, home);
  CHECK(map.state(b, beside) == copy_state::arriving);
  CHECK(map.occupied(beside) == 1);
  CHECK(map.occupied() == 0);
  map.arrive_at(b, beside);
  CHECK(map.state(b, beside) == copy_state::current);
  map.start_arriving(b, here, beside);
  CHECK(map.of(b).read_at(beside));
  CHECK_FALSE(map.of(b).read_at(home));
  map.arrive_at(b, here);
  CHECK_FALSE(map.of(b).read_at(beside));
  CHECK(map[b].copies.count() == 3);
  map.write(b);
  CHECK(map.state(b, here) == copy_state::current);
  CHECK(map.state(b, beside) == copy_state::stale);
  CHECK(map.state(b, home) == copy_state::stale);
  map.start_leaving(b, beside);
  CHECK(map.state(b, beside) == copy_state::leaving);
  CHECK(map.room(beside) == 1);
  map.release(b, beside);
  CHECK(map.state(b, beside) == copy_state::absent);
  CHECK(map.room(beside) == 2);
  CHECK(map.room() == 2);
  CHECK(map.occupied() == 1);
}

TEST_CASE("several transfers of a block may be under way, and each ends for itself") {
  block_ledger map = two_devices();
  const block_id b{0};
  map.arrive(b, false);
  map.write(b);
  map.start_arriving(b, home, here);  // a copy home
  map.give_ticket(b, home, 7);
  map.start_arriving(b, beside, here);  // and one to the neighbour
  map.give_ticket(b, beside, 8);
  CHECK(map.of(b).in_motion(here));
  CHECK(map.take_ticket(b, 8) == beside);
  CHECK(map.take_ticket(b, 8) == std::nullopt);
  map.stop_moving(b, beside);
  CHECK(map.state(b, beside) == copy_state::absent);
  CHECK(map.moving(b) == motion::cleaning);
  CHECK(map.take_ticket(b, 7) == home);
  CHECK(map.clean(b));
  CHECK(map.state(b, home) == copy_state::current);
  CHECK_FALSE(map.of(b).in_motion());
  CHECK_FALSE(map.of(b).has_ticket());
}

TEST_CASE("what is written while it is copied is stale where it arrives") {
  block_ledger map = two_devices();
  const block_id b{0};
  map.arrive(b, false);
  SUBCASE("at the host") {
    map.start_cleaning(b);
    SUBCASE("by a launch that finishes meanwhile") { map.write(b); }
    SUBCASE("by one that may have begun") { map.may_be_written(b); }
    CHECK_FALSE(map.clean(b));
    CHECK(map.state(b, home) == copy_state::absent);
    CHECK(map.dirty(b));
  }
  SUBCASE("at a neighbour") {
    map.start_arriving(b, beside, here);
    map.write(b);
    map.arrive_at(b, beside);
    CHECK(map.state(b, beside) == copy_state::stale);
  }
  CHECK(map.state(b, here) == copy_state::current);
}

TEST_CASE("contents that were set aside for a launch come back when it does not run") {
  block_ledger map = two_devices();
  const block_id b{0};
  map.write_on_host(b);
  map.forget(b, launch_id{3});
  CHECK(map.nowhere(b));
  SUBCASE("the launch") {
    CHECK_FALSE(map.remember(b, launch_id{4}));
    CHECK(map.remember(b, launch_id{3}));
    CHECK(map.state(b, home) == copy_state::current);
  }
  SUBCASE("not after it has run") {
    CHECK(map.take_overwriter(b, launch_id{3}));
    CHECK_FALSE(map.remember(b, launch_id{3}));
  }
  SUBCASE("not when another one writes the block, too") {
    map.settle_overwriter(b);
    CHECK_FALSE(map.remember(b, launch_id{3}));
  }
}

TEST_CASE("given up everywhere is given up at each place") {
  block_ledger map = two_devices();
  const block_id b{2};
  map.write_on_host(b);
  map.start_arriving(b, beside, home);
  map.arrive_at(b, beside);
  map.start_forgetting(b);
  CHECK(map.of(b)->forgetting);
  CHECK(map.state(b, beside) == copy_state::leaving);
  SUBCASE("when it is done") {
    map.discard(b);
    CHECK(map.state(b, home) == copy_state::absent);
    CHECK(map.state(b, beside) == copy_state::absent);
    CHECK(map.occupied(beside) == 0);
    CHECK(map.nowhere(b));
  }
  SUBCASE("and nowhere when it fails") {
    map.stop_moving(b);
    CHECK(map.state(b, home) == copy_state::current);
    CHECK(map.state(b, beside) == copy_state::current);
  }
  CHECK_FALSE(map.of(b)->forgetting);
}

/// One that has used up nearly all numbers of generations.
struct old_ledger : block_ledger {
  old_ledger() : block_ledger(two_devices(1)) { blocks_[0].generation = std::numeric_limits<std::uint32_t>::max() - 1; }
};

TEST_CASE("numbers of generations begin anew, and what is stale stays stale") {
  old_ledger map;
  const block_id b{0};
  map.write_on_host(b);  // the last number
  map.start_arriving(b, here, home);
  map.arrive_at(b, here);
  CHECK(map.state(b, home) == copy_state::current);
  map.write(b);
  CHECK(map.state(b, here) == copy_state::current);
  CHECK(map.state(b, home) == copy_state::stale);
  map.start_arriving(b, beside, here);
  map.arrive_at(b, beside);
  for (int i = 0; i < 3; ++i) {
    map.write(b);
    CHECK(map.state(b, home) == copy_state::stale);
    CHECK(map.state(b, beside) == copy_state::stale);
  }
}

TEST_CASE("a block takes as many bytes as docs/adr/0012 says") {
  constexpr std::uint32_t blocks = 1024;
  const auto bytes_a_block = [](const block_map& map) { return map.memory().count / blocks; };
  CHECK(bytes_a_block(block_ledger{blocks, here, 8, um_grid}) == 96);
  CHECK(bytes_a_block(two_devices(blocks)) == 128);
}

}  // namespace block_ledger_places_test
