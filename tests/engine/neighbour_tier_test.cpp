// What the engine makes of a neighbour's memory, step by step.

#include "engine/three_places_bench.hpp"

#include <doctest/doctest.h>

#include <string>

namespace three_places_test {

namespace {

struct tier_bench : bench {
  explicit tier_bench(std::uint32_t lent, std::uint32_t budget = 4) : bench(budget, lent) {
    script.places_blocks = false;
  }
};

}  // namespace

TEST_CASE("what a policy lets go to the host goes to a neighbour while that has room") {
  tier_bench b(2);
  b.fill(blocks(0, 4));
  b.plan({transfer::evict(host, reason::make_room, blocks(0, 3))});
  CHECK(b.started() == "evict 2+1 DH1, move 0+2 DN4");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.at(2, host) == copy_state::current);
}

TEST_CASE("what the host has too goes to a neighbour, because it comes back sooner from there") {
  tier_bench b(2);
  b.fill(blocks(0));
  b.plan({transfer::prefetch(neighbour, reason::write_back, blocks(0))});
  b.carry_out_all();
  b.started();
  b.plan({transfer::evict(host, reason::make_room, blocks(0))});
  CHECK(b.started() == "drop 0+1 DH");  // the neighbour has it: no copy
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.at(0, here) == copy_state::absent);
}

TEST_CASE("older contents of a neighbour go before newer ones come") {
  tier_bench b(2);
  b.fill(blocks(0));
  b.plan({transfer::evict(host, reason::make_room, blocks(0))});
  b.carry_out_all();
  b.run({updates(0)});  // comes back, and is written
  b.carry_out_all();
  b.started();
  CHECK(b.at(0, neighbour) == copy_state::stale);
  b.plan({transfer::evict(host, reason::make_room, blocks(0))});
  b.carry_out_all();
  CHECK(b.started().find("DN4") != std::string::npos);
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.at(0, here) == copy_state::absent);
}

TEST_CASE("while the link is idle what only the neighbour has is copied to the host, and stays") {
  tier_bench b(2);
  b.fill(blocks(0));
  b.plan({transfer::evict(host, reason::make_room, blocks(0))});
  b.carry_out_all();
  b.plan({});
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.at(0, host) == copy_state::current);
  CHECK(b.made->snapshot().between(neighbour, host).bytes_for(reason::write_back) == block_size.count);
  b.started();
  b.made->set_budget(neighbour, bytes{});  // its owner wants it: no copy is needed
  b.made->pump();
  CHECK(b.started() == "drop 0+1 NH");
  b.carry_out_all();
  CHECK(b.made->within_budget(neighbour));
  CHECK(b.at(0, host) == copy_state::current);
}

TEST_CASE("what only the neighbour has goes on to the host when its owner wants the memory back") {
  tier_bench b(3);
  b.fill(blocks(0, 3));
  b.plan({transfer::evict(host, reason::make_room, blocks(0, 3))});
  b.carry_out();  // and nothing of it has been copied to the host
  b.made->set_budget(neighbour, block_size);
  b.made->pump();
  CHECK_FALSE(b.made->within_budget(neighbour));
  b.carry_out_all();
  b.made->pump();
  b.carry_out_all();
  CHECK(b.made->within_budget(neighbour));
  int at_neighbour = 0;
  for (std::uint32_t i = 0; i != 3; ++i) {
    at_neighbour += b.at(i, neighbour) == copy_state::current ? 1 : 0;
    CHECK((b.at(i, neighbour) == copy_state::current || b.at(i, host) == copy_state::current));
  }
  CHECK(at_neighbour == 1);
}

TEST_CASE("a launch that lacks room drives blocks to the neighbour, and to the host where that is full") {
  tier_bench b(1, 2);
  b.fill(blocks(0, 2));
  b.fill(blocks(2, 2));
  CHECK(b.made->snapshot().between(here, neighbour).all_blocks() == 1);
  CHECK(b.made->snapshot().between(here, host).all_blocks() == 1);
}

}  // namespace three_places_test
