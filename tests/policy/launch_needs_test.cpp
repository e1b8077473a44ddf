#include "driver.hpp"
#include <deepum/policy/launch_needs.hpp>

#include <doctest/doctest.h>

using namespace deepum_test;
using ranges = std::vector<block_range>;

namespace {

launch_record record(std::vector<block_access> accesses, bool complete = true) {
  launch_record r;
  r.id = launch_id{1};
  r.accesses = std::move(accesses);
  r.complete = complete;
  return r;
}
constexpr execution_id a{1};
constexpr execution_id b{2};
constexpr launch_id l{1};

}  // namespace

TEST_CASE("a footprint is what was declared, in the order of addresses, each block once") {
  footprint_needs n;
  n.declare(a, record({reads(8, 2), updates(2, 3), overwrites(4, 3), reads(9)}));
  CHECK(*n.of(a) == ranges{blocks(2, 5), blocks(8, 2)});
  CHECK(n.of(b)->empty());
}

TEST_CASE("the same declaration leaves the same list") {
  footprint_needs n;
  n.declare(a, record({reads(8, 2)}));
  const need_list list = n.of(a);
  n.declare(a, record({reads(8, 2)}));
  CHECK(n.of(a) == list);
}

TEST_CASE("faults add to a footprint and outlive the next equal declaration") {
  footprint_needs n;
  n.declare(a, record({reads(1)}));
  CHECK(n.fault(a, l, block_id{5}, deepum::access::read));
  CHECK_FALSE(n.fault(a, l, block_id{5}, deepum::access::update));
  CHECK_FALSE(n.fault(a, l, block_id{1}, deepum::access::read));
  n.declare(a, record({reads(1)}));
  CHECK(*n.of(a) == ranges{blocks(1), blocks(5)});
}

TEST_CASE("another complete declaration replaces a footprint, an incomplete one adds to it") {
  footprint_needs n;
  n.declare(a, record({reads(1)}));
  n.fault(a, l, block_id{5}, deepum::access::read);
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
  for (const prediction how : {prediction::footprints, prediction::pairs}) {
    const auto n = make_launch_needs(how, {});
    n->declare(a, record({reads(3)}));
    n->fault(a, l, block_id{3}, deepum::access::read);
    n->finish(a, l);
    CHECK(*n->of(a) == ranges{blocks(3)});
    CHECK(n->memory().count > 0);
    n->forget(a);
    CHECK(n->of(a)->empty());
  }
}

TEST_CASE("pairs know nothing of what is declared, and all that a chain would take") {
  pair_needs n{{}};
  n.declare(a, record({reads(1, 9)}));
  CHECK(n.of(a)->empty());
  for (const std::uint32_t block : {4U, 2U, 3U}) {
    CHECK_FALSE(n.fault(a, l, block_id{block}, deepum::access::read));
  }
  CHECK(n.finish(a, l));
  CHECK_FALSE(n.finish(a, launch_id{2}));
  CHECK(*n.of(a) == ranges{blocks(2, 3)});
}
