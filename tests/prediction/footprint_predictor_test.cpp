#include "policy/driver.hpp"
#include <deepum/prediction/footprint_predictor.hpp>

#include <doctest/doctest.h>

namespace footprint_predictor_test {

using namespace deepum_test;
using ranges = std::vector<block_range>;

launch_record record(std::vector<block_access> accesses, bool complete = true) {
  launch_record r;
  r.id = launch_id{1};
  r.accesses = std::move(accesses);
  r.complete = complete;
  return r;
}
constexpr execution_id a{1};
constexpr execution_id b{2};
const block_ledger nothing_there(10000, location::device(), 100, um_grid);

TEST_CASE("a footprint is what was declared, in the order of addresses, each block once") {
  footprint_predictor n;
  n.declare(a, record({reads(8, 2), updates(2, 3), overwrites(4, 3), reads(9)}));
  CHECK(*n.of(a) == ranges{blocks(2, 5), blocks(8, 2)});
  CHECK(n.of(b)->empty());
}

TEST_CASE("the same declaration leaves the same list") {
  footprint_predictor n;
  n.declare(a, record({reads(8, 2)}));
  const working_set list = n.of(a);
  n.declare(a, record({reads(8, 2)}));
  CHECK(n.of(a) == list);
}

TEST_CASE("faults add to a footprint and outlive the next equal declaration") {
  footprint_predictor n;
  n.declare(a, record({reads(1)}));
  CHECK(n.fault(a, block_id{5}, deepum::access::read));
  CHECK_FALSE(n.fault(a, block_id{5}, deepum::access::update));
  CHECK_FALSE(n.fault(a, block_id{1}, deepum::access::read));
  n.declare(a, record({reads(1)}));
  CHECK(*n.of(a) == ranges{blocks(1), blocks(5)});
}

TEST_CASE("another complete declaration replaces a footprint, an incomplete one adds to it") {
  footprint_predictor n;
  n.declare(a, record({reads(1)}));
  n.fault(a, block_id{5}, deepum::access::read);
  SUBCASE("complete") {
    n.declare(a, record({reads(3)}));
    CHECK(*n.of(a) == ranges{blocks(3)});
  }
  SUBCASE("incomplete") {
    n.declare(a, record({reads(3)}, false));
    CHECK(*n.of(a) == ranges{blocks(1), blocks(3), blocks(5)});
  }
}

TEST_CASE("a forgotten ID has no needs") {
  footprint_predictor n;
  n.declare(a, record({reads(3)}));
  n.fault(a, block_id{3}, deepum::access::read);
  n.finish(a, nothing_there);
  CHECK(*n.of(a) == ranges{blocks(3)});
  CHECK(n.memory().count > 0);
  n.forget(a);
  CHECK(n.of(a)->empty());
}

// A run of a launch that faults on these blocks. Returns whether its needs are others than before.
bool run(footprint_predictor& n, const std::vector<std::uint32_t>& faults, const block_map& at_end = nothing_there) {
  n.declare(a, record({reads(1)}, false));
  for (const std::uint32_t block : faults) {
    n.fault(a, block_id{block}, deepum::access::read);
  }
  return n.finish(a, at_end);
}
std::vector<std::uint32_t> from(std::uint32_t first, std::uint32_t count) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i != count; ++i) {
    all.push_back(first + i);
  }
  return all;
}

TEST_CASE(
    "a launch that faults on blocks which it has done without before is not steady, and what it faulted on is "
    "forgotten") {
  footprint_predictor n;
  CHECK_FALSE(run(n, from(10, 64)));  // all of the first run is new
  CHECK_FALSE(run(n, from(100, 32)));
  CHECK(n.steady(a));
  CHECK(run(n, from(200, 16)));  // no more than the random look-ups into a table of which half is known by now
  CHECK_FALSE(n.steady(a));
  CHECK(n.steady(b));
  CHECK(*n.of(a) == ranges{blocks(1)});  // what it declares
}

TEST_CASE("blocks that were there by chance in the runs before are learned when they have left") {
  footprint_predictor n;
  block_ledger map(100, location::device(), 100, um_grid);
  for (std::uint32_t there = 26; there != 70; ++there) {
    map.arrive(block_id{there}, true);
  }
  for (std::uint32_t first = 10; first != 58; first += 12) {
    CAPTURE(first);
    CHECK_FALSE(run(n, from(first, 16), map));
    for (std::uint32_t left = first + 16; left != std::min(first + 28, 70U); ++left) {
      map.drop(block_id{left});
    }
  }
  CHECK(n.steady(a));
  CHECK(*n.of(a) == ranges{blocks(1), blocks(10, 52)});
  CHECK_FALSE(run(n, {10}, map));
  CHECK(n.steady(a));
}

TEST_CASE("a launch that faults on many new blocks after it has settled needs those, and what it had needed no more") {
  footprint_predictor n;
  std::uint32_t first = 10;
  for (std::uint32_t phase = 0; phase != 20; ++phase, first += 100) {
    CAPTURE(phase);
    CHECK(run(n, from(first, 16)) == (phase != 0));
    CHECK(*n.of(a) == ranges{blocks(1), blocks(first, 16)});
    CHECK_FALSE(run(n, from(first + 12, 10)));  // six that had been there
    CHECK_FALSE(run(n, {first}));
    CHECK(n.steady(a));
    CHECK(*n.of(a) == ranges{blocks(1), blocks(first, 22)});
  }
}

TEST_CASE("few new blocks after a launch has settled are learned beside the others, until they are many") {
  footprint_predictor n;
  run(n, from(10, 16));
  CHECK_FALSE(run(n, {10}));  // settles
  CHECK_FALSE(run(n, from(100, 2)));
  CHECK_FALSE(run(n, from(102, 2)));
  CHECK(*n.of(a) == ranges{blocks(1), blocks(10, 16), blocks(100, 4)});
  CHECK(run(n, from(104, 2)));
  CHECK(n.steady(a));
  CHECK(*n.of(a) == ranges{blocks(1), blocks(100, 6)});
}

TEST_CASE("a launch that follows pointers to the same blocks each time is steady") {
  footprint_predictor n;
  for (std::uint32_t i = 0; i != 100; ++i) {
    CHECK_FALSE(run(n, from(10, 30)));
  }
  CHECK(n.steady(a));
  CHECK(*n.of(a) == ranges{blocks(1), blocks(10, 30)});
}

TEST_CASE("faults are learned again after so many runs") {
  footprint_predictor n;
  for (std::uint32_t i = 0; i != 3; ++i) {
    run(n, from(10 + 100 * i, 16));
  }
  for (std::uint32_t i = 0; i != footprint_predictor::runs_unlearned; ++i) {
    CHECK_FALSE(n.steady(a));
    CHECK_FALSE(run(n, from(1000 + 100 * i, 16)));
    CHECK(*n.of(a) == ranges{blocks(1)});
  }
  CHECK(n.steady(a));
  CHECK_FALSE(run(n, from(10, 2)));
  CHECK(*n.of(a) == ranges{blocks(1), blocks(10, 2)});
  CHECK(n.steady(a));
}

TEST_CASE("that a launch is not steady is forgotten with its ID") {
  footprint_predictor n;
  for (std::uint32_t i = 0; i != 3; ++i) {
    run(n, from(10 + 100 * i, 16));
  }
  REQUIRE_FALSE(n.steady(a));
  n.forget(a);
  CHECK(n.steady(a));
}

}  // namespace footprint_predictor_test
