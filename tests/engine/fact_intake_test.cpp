#include "engine/engine_bench.hpp"
#include <deepum/engine/engine.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <vector>

namespace fact_intake_test {

using namespace engine_bench_of_tests;
using bench = engine_bench;

TEST_CASE("a discard that was not issued is cancelled when the block is used again, and one that was is awaited") {
  bench b(64);
  b.bring(blocks(0, 2));
  const launch_id l = b.launch({{blocks(0), access::update}});
  b.made->dead(blocks(0, 2), liveness::unallocated, l);
  b.plan({discard(blocks(0, 2)), discard(blocks(1))});
  CHECK(b.issued() == "discard(1+1)");
  CHECK(b.made->live(blocks(0)));
  CHECK_FALSE(b.made->live(blocks(1)));
  CHECK_FALSE(b.made->settled(blocks(0, 8)));
  b.memory.finish(l);
  b.settle();
  CHECK(b.made->settled(blocks(0, 8)));
  CHECK(b.issued().empty());
  CHECK(b.made->snapshot().refused == 0);
  CHECK(b.state(1).copies.empty());
  CHECK(b.script.map->occupied() == 1);
}

TEST_CASE("blocks are used again without waiting for the pump, and then not given up by the plan that it makes") {
  bench b(64);
  b.bring(blocks(0, 4));
  b.made->dead(blocks(0, 4), liveness::inactive, {});
  std::future<bool> alive;
  b.script.when_asked = [&] {  // the pump has the state lock, and has read the inbox
    alive = std::async(std::launch::async, [&] { return b.made->live(blocks(1, 2)); });
    CHECK(alive.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  };
  b.plan({discard(blocks(0, 4))});
  REQUIRE(alive.valid());
  CHECK(alive.get());
  CHECK(b.issued() == "discard(0+1) discard(3+1)");
  CHECK(b.state(1).life == liveness::live);
  CHECK(b.made->live(blocks(2)));  // what is not being discarded
  CHECK_FALSE(b.made->live(blocks(3)));
  b.settle();
  CHECK(b.made->settled(blocks(0, 4)));
}

TEST_CASE("blocks whose discard was asked for and not read yet are awaited") {
  bench b(64);
  b.made->dead(blocks(8), liveness::unallocated, {});  // else all that is alive takes the whole budget
  b.bring(blocks(0));
  b.made->discard(blocks(0));
  CHECK_FALSE(b.made->live(blocks(0)));
  b.made->pump();
  CHECK(b.issued() == "discard(0+1)");
  b.settle();
  CHECK(b.made->live(blocks(0)));
}

TEST_CASE("when discards have ended, blocks are used again without the state lock, whatever launches are unread") {
  bench b(64);
  b.made->dead(blocks(8), liveness::unallocated, {});  // else all that is alive takes the whole budget
  b.bring(blocks(0));
  b.made->discard(blocks(0));
  b.made->pump();
  b.settle();
  b.launch({{blocks(1), access::read}});
  b.made->pump();
  std::future<bool> alive;
  b.script.when_asked = [&] {
    alive = std::async(std::launch::async, [&] { return b.made->live(blocks(0)); });
    CHECK(alive.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  };
  b.plan(plan{});
  CHECK(alive.get());
}

TEST_CASE("what comes alive takes the state lock where it may not fit, so that the next launch has to ask") {
  bench b(4, 16);
  b.made->dead(blocks(0, 16), liveness::unallocated, {});
  b.made->pump();
  std::vector<std::future<bool>> alive;
  const auto waits = [&](block_range r, std::chrono::milliseconds longest) {
    alive.push_back(std::async(std::launch::async, [&b, r] { return b.made->live(r); }));
    return alive.back().wait_for(longest) == std::future_status::timeout;
  };
  b.script.when_asked = [&] {  // the pump has the state lock
    CHECK_FALSE(waits(blocks(0, 3), std::chrono::seconds(30)));
    CHECK(waits(blocks(4, 2), std::chrono::milliseconds(50)));
  };
  b.plan(plan{});
  CHECK(alive[0].get());
  CHECK(alive[1].get());
}

}  // namespace fact_intake_test
