// The engine with a neighbour beside the host: nothing in it takes two places for granted.

#include "engine/three_places_bench.hpp"
#include <deepum/core/topology.hpp>
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace three_places_test {

/// A device that holds fewer blocks than are alive, so that nothing is brought unasked.
constexpr std::uint32_t small = 6;

TEST_CASE("a policy sees three places with their budgets and ranks") {
  bench b(small, 5);
  const block_map& map = *b.script.map;
  CHECK(map.places() == 3);
  CHECK(map.device() == here);
  CHECK(map.budget(neighbour) == 5);
  CHECK(map.budget() == small);
  CHECK(map.rank(here) == 0);
  CHECK(map.rank(neighbour) == 1);
  CHECK(map.rank(host) == 2);
  b.made->set_budget(neighbour, 3 * block_size);
  CHECK(map.budget(neighbour) == 3);
}

TEST_CASE("blocks move to the neighbour and back, and the host hears nothing of it") {
  bench b(small);
  b.fill(blocks(0, 2));
  b.seen.clear();
  const statistics before = b.seen_traffic();
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0, 2))});
  CHECK(b.started() == "move 0+2 DN4");
  CHECK(b.at(0, neighbour) == copy_state::arriving);
  CHECK(b.at(0, here) == copy_state::leaving);
  b.carry_out();
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.at(0, here) == copy_state::absent);
  CHECK(b.at(0, host) != copy_state::current);
  CHECK(b.script.map->occupied(neighbour) == 2);
  CHECK(b.script.map->occupied() == 0);

  b.plan({transfer::evict(here, reason::issued, blocks(0))});  // back, and the neighbour gives the room up
  CHECK(b.started() == "move 0+1 ND5");
  b.plan({transfer::prefetch(here, reason::issued, blocks(1))});  // back, and the neighbour keeps its copy
  CHECK(b.started() == "move 1+1 ND5");
  b.carry_out_all();
  CHECK(b.at(0, here) == copy_state::current);
  CHECK(b.at(0, neighbour) == copy_state::absent);
  CHECK(b.at(1, here) == copy_state::current);
  CHECK(b.at(1, neighbour) == copy_state::current);

  const statistics did = b.seen_traffic() - before;
  CHECK(did.between(here, neighbour).bytes_for(reason::make_room) == (2 * block_size).count);
  CHECK(did.between(neighbour, here).bytes_for(reason::issued) == (2 * block_size).count);
  CHECK(did.out().all_blocks() == 2);
  CHECK(did.in().all_blocks() == 2);
  CHECK(did.between(here, host).all_bytes() == 0);
  CHECK(b.seen.front() == "device 0 to device 1");
  CHECK(b.seen.back() == "device 1 to device 0");
}

TEST_CASE("a write makes the neighbour's copy stale: it is not used, and its room can be given up") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::prefetch(neighbour, reason::write_back, blocks(0))});
  CHECK(b.started() == "move 0+1 DN4");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::current);
  b.run({updates(0)});
  CHECK(b.at(0, neighbour) == copy_state::stale);
  b.plan({transfer::evict(host, reason::make_room, blocks(0))});
  CHECK(b.started() == "evict 0+1 DH1");  // a copy: nobody else has the contents
  b.carry_out_all();
  b.plan({transfer::prefetch(here, reason::issued, blocks(0))});
  CHECK(b.started() == "prefetch 0+1 HD0");
  b.carry_out_all();
  transfer release = transfer::drop(reason::make_room, blocks(0));
  release.from = neighbour;
  b.plan({release});
  CHECK(b.started() == "drop 0+1 NH");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::absent);
  CHECK(b.at(0, here) == copy_state::current);
}

TEST_CASE("a copy that is written while it is made is of no use at the neighbour") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::prefetch(neighbour, reason::write_back, blocks(0))});
  const launch_id l = b.launch({updates(0)});
  CHECK(b.made->admitted(l, b.stream));
  b.carry_out_all();
  CHECK(b.at(0, neighbour) != copy_state::current);
  b.memory.finish(l);
  b.made->pump();
  CHECK(b.at(0, neighbour) != copy_state::current);
  CHECK(b.at(0, here) == copy_state::current);
}

TEST_CASE("what is to be written by a launch that comes while it moves to the neighbour is there afterwards") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  const launch_id l = b.launch({updates(0)});  // waits for the block to come back
  CHECK_FALSE(b.made->admitted(l, b.stream));
  b.carry_out_all();
  CHECK(b.script.map->of(block_id{0}).nowhere() == false);
  for (int i = 0; i != 10 && !b.made->admitted(l, b.stream); ++i) {
    b.made->pump();
    b.carry_out_all();
  }
  CHECK(b.made->admitted(l, b.stream));
  CHECK(b.started() == "move 0+1 DN4, move 0+1 ND5");
}

TEST_CASE("what the device drops because the neighbour has it is not taken to be on the host") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::prefetch(neighbour, reason::write_back, blocks(0))});
  b.carry_out_all();
  b.started();
  b.plan({transfer::evict(host, reason::make_room, blocks(0))});
  CHECK(b.started() == "drop 0+1 DH");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.at(0, host) != copy_state::current);
}

TEST_CASE("a neighbour gets no room for what is nowhere") {
  bench b(small);
  b.plan({transfer::prefetch(neighbour, reason::predicted, blocks(20))});
  CHECK(b.started().empty());
  CHECK(b.script.map->occupied(neighbour) == 0);
}

TEST_CASE("the only copy of a neighbour is not dropped, and one that the host has too is") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  b.carry_out_all();
  b.started();
  transfer release = transfer::drop(reason::make_room, blocks(0));
  release.from = neighbour;
  b.plan({release});
  CHECK(b.started().empty());
  CHECK(b.made->snapshot().refused == 1);
  b.plan({transfer::clean(reason::write_back, blocks(0))});
  CHECK(b.started() == "clean 0+1 NH3");
  b.carry_out_all();
  CHECK(b.at(0, host) == copy_state::current);
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.made->snapshot().between(neighbour, host).bytes_for(reason::write_back) == block_size.count);
  b.plan({release});
  CHECK(b.started() == "drop 0+1 NH");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::absent);
}

TEST_CASE("a launch demands a block that only the neighbour holds, and it comes from there") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  b.carry_out_all();
  b.started();
  const launch_id l = b.launch({reads(0)});
  CHECK_FALSE(b.made->admitted(l, b.stream));
  b.made->pump();
  CHECK(b.started() == "move 0+1 ND5");
  b.carry_out_all();
  CHECK(b.made->admitted(l, b.stream));
  CHECK(b.at(0, neighbour) == copy_state::current);  // what was only read stays there, too
  CHECK(b.made->snapshot().between(neighbour, here).bytes_for(reason::fault) == block_size.count);
}

TEST_CASE("the host reads and writes a block that only the neighbour holds") {
  for (const access mode : {access::read, access::update}) {
    bench b(small);
    b.fill(blocks(0));
    b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
    b.carry_out_all();
    b.started();
    b.made->begin_host_access(blocks(0), mode);
    CHECK_FALSE(b.made->host_may_use(blocks(0), mode));
    b.made->pump();
    CHECK(b.started() == (mode == access::read ? "clean 0+1 NH3" : "evict 0+1 NH3"));
    b.carry_out_all();
    CHECK(b.made->host_may_use(blocks(0), mode));
    b.made->end_host_access(blocks(0), mode);
    b.made->pump();
    CHECK(b.at(0, host) == copy_state::current);
    CHECK(b.at(0, neighbour) == (mode == access::read ? copy_state::current : copy_state::absent));
  }
}

TEST_CASE("what leaves for a full neighbour waits for its room, and what leaves for the host does not wait for it") {
  bench b(small, 2);
  b.fill(blocks(0, 4));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0, 3)),
          transfer::evict(host, reason::make_room, blocks(3))});
  CHECK(b.started() == "evict 3+1 DH1, move 0+2 DN4");
  b.carry_out_all();
  CHECK(b.started().empty());
  CHECK(b.at(2, here) == copy_state::current);
  b.made->set_budget(neighbour, 3 * block_size);
  b.made->pump();
  CHECK(b.started() == "move 2+1 DN4");
  b.carry_out_all();
  CHECK(b.script.map->occupied(neighbour) == 3);
  CHECK(b.script.map->room(neighbour) == 0);
}

TEST_CASE("a request of the program for a neighbour that stays full is dropped when nothing leaves that") {
  bench b(small, 1);
  b.fill(blocks(0, 2));
  b.made->prefetch(blocks(0, 2), neighbour);
  b.made->pump();
  CHECK(b.started() == "move 0+1 DN4");
  CHECK(b.made->snapshot().dropped == 1);
  b.carry_out_all();
  CHECK(b.started().empty());
  CHECK(b.at(1, here) == copy_state::current);
}

TEST_CASE("a transfer that fails leaves the blocks where they were, and both places as they were") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  b.memory.fail_job(b.memory.started.at(b.begun++));
  b.made->pump();
  CHECK(b.at(0, here) == copy_state::current);
  CHECK(b.at(0, neighbour) == copy_state::absent);
  CHECK(b.script.map->occupied(neighbour) == 0);
  CHECK(b.made->snapshot().failed_calls == 1);
  b.started();
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  CHECK(b.started() == "move 0+1 DN4");
  b.carry_out_all();
  b.plan({transfer::evict(here, reason::issued, blocks(0))});
  b.memory.fail_job(b.memory.started.at(b.begun++));  // on the way back
  b.made->pump();
  CHECK(b.at(0, here) == copy_state::absent);
  CHECK(b.at(0, neighbour) == copy_state::current);
  CHECK(b.script.map->occupied() == 0);
}

TEST_CASE("what comes from the host takes both routes: the one that would be over first, as far as links have room") {
  bench b(8);
  b.fill(blocks(0, 8));
  b.plan({transfer::evict(host, reason::make_room, blocks(0, 8))});
  b.carry_out_all();
  b.started();
  std::vector<transfer> wanted;
  for (std::uint32_t i = 0; i != 8; ++i) {
    wanted.push_back(transfer::prefetch(here, i % 2 == 0 ? reason::issued : reason::predicted, blocks(i)));
  }
  const statistics before = b.seen_traffic();
  b.plan(wanted);  // two on each link at a time
  CHECK(b.started() == "prefetch 0+1 HD0, prefetch 1+1 HD6, prefetch 2+1 HD0, prefetch 3+1 HD6");
  b.carry_out_all();
  const statistics did = b.seen_traffic() - before;
  CHECK(did.between(host, here).all_blocks() + did.between(host, neighbour).all_blocks() == 8);
  CHECK(did.between(host, neighbour).all_bytes() != 0);
  CHECK(did.between(host, neighbour).all_bytes() == did.between(neighbour, here).all_bytes());
  CHECK(did.in().all_bytes() == (8 * block_size).count);
}

TEST_CASE("where the way by the neighbour is the faster one, it is taken first, in both directions") {
  bench b(small, 8, 10);
  b.fill(blocks(0));
  b.plan({transfer::evict(host, reason::make_room, blocks(0))});
  CHECK(b.started() == "evict 0+1 DH7");
  b.carry_out_all();
  CHECK(b.script.map->occupied(neighbour) == 0);  // it only passed
  b.plan({transfer::prefetch(here, reason::issued, blocks(0))});
  CHECK(b.started() == "prefetch 0+1 HD6");
  b.carry_out_all();
  CHECK(b.at(0, here) == copy_state::current);
}

TEST_CASE("blocks of one transfer that lie at several places come from each of them") {
  bench b(small);
  b.fill(blocks(0, 3));
  b.plan({transfer::evict(host, reason::make_room, blocks(0, 3))});
  b.carry_out_all();
  b.plan({transfer::prefetch(neighbour, reason::predicted, blocks(1))});  // staged, and the host keeps it
  CHECK(b.at(1, neighbour) == copy_state::arriving);
  b.carry_out_all();
  b.started();
  b.plan({transfer::prefetch(here, reason::issued, blocks(0, 3))});
  b.carry_out_all();
  CHECK(b.started().find("move 1+1 ND5") != std::string::npos);
  for (std::uint32_t i = 0; i != 3; ++i) {
    CHECK(b.at(i, here) == copy_state::current);
  }
}

TEST_CASE("contents that are given up are given up at every place") {
  bench b(small);
  b.fill(blocks(0));
  b.plan({transfer::evict(neighbour, reason::make_room, blocks(0))});
  b.carry_out_all();
  b.started();
  b.made->dead(blocks(0), liveness::inactive, {});
  b.plan({transfer::discard(reason::dead, blocks(0))});
  CHECK(b.started() == "discard 0+1 DH");
  b.carry_out_all();
  CHECK(b.at(0, neighbour) == copy_state::absent);
  CHECK(b.script.map->nowhere(block_id{0}));
  CHECK(b.script.map->occupied(neighbour) == 0);
}

}  // namespace three_places_test
