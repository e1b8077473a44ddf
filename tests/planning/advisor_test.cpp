#include "policy/driver.hpp"
#include <deepum/planning/advisor.hpp>
#include <deepum/policy/auto.hpp>

#include <doctest/doctest.h>

namespace advice_test {

using namespace deepum_test;

struct adviser_bench {
  block_ledger map{8, location::device(), 8, um_grid};
  advisor a{};

  void launch(std::uint32_t id, std::vector<block_access> accesses) {
    launch_record r;
    r.accesses = std::move(accesses);
    a.on_launch(execution_id{id}, r, map);
  }
  void fault(std::uint32_t id, std::uint32_t block, deepum::access mode = deepum::access::read) {
    a.on_fault({.block = block_id{block}, .mode = mode}, execution_id{id}, map);
  }
  void idle(int launches) {
    for (int i = 0; i < launches; ++i) {
      launch(1000, {});
    }
  }
  std::vector<driver_hint> advised() {
    plan p;
    a.write(p);
    return p.hints;
  }
};

TEST_CASE("blocks that a launch reads for the third time without a write become read-mostly") {
  adviser_bench t;
  for (const std::uint32_t id : {1U, 2U, 1U, 2U}) {
    t.launch(id, {reads(0, id == 1 ? 4 : 5)});
    CHECK(t.advised().empty());
  }
  t.launch(1, {reads(0, 4)});
  const auto c = t.advised();
  REQUIRE(c.size() == 1);
  CHECK(c[0].what == advice::set_read_mostly);
  CHECK(c[0].blocks == blocks(0, 4));
  CHECK(c[0].why == reason::learned);
  CHECK(t.advised().empty());
}

TEST_CASE("blocks that are written in between do not become read-mostly, nor those that one launch faults on often") {
  adviser_bench t;
  for (int round = 0; round < 5; ++round) {
    t.launch(1, {reads(1)});
    t.launch(2, {reads(1)});
    t.launch(3, {updates(1)});
  }
  for (int i = 0; i < 5; ++i) {
    t.fault(3, 2, deepum::access::read);
  }
  CHECK(t.advised().empty());
}

TEST_CASE("launches that come one after the other under a recycled ID are not one launch that reads again") {
  adviser_bench t;
  for (int i = 0; i < 10; ++i) {
    t.a.forget(execution_id{1});
    t.launch(1, {reads(0)});
  }
  CHECK(t.advised().empty());
  t.launch(1, {reads(0)});
  t.launch(1, {reads(0)});
  CHECK(t.advised().size() == 1);
}

TEST_CASE("a launch that declares a block and faults on it has read it once") {
  adviser_bench t;
  for (int i = 0; i < 2; ++i) {
    t.launch(1, {reads(1)});
    t.fault(1, 1, deepum::access::read);
  }
  CHECK(t.advised().empty());
}

TEST_CASE("read-mostly is taken back as soon as a write is declared or faults") {
  adviser_bench t;
  for (const std::uint32_t id : {1U, 2U, 1U, 1U}) {
    t.launch(id, {reads(0, 4)});
  }
  t.advised();
  SUBCASE("declared") { t.launch(3, {updates(2, 2)}); }
  SUBCASE("overwritten") { t.launch(3, {overwrites(2, 2)}); }
  SUBCASE("faulted") {
    t.fault(3, 2, deepum::access::update);
    t.fault(3, 3, deepum::access::update);
  }
  const auto c = t.advised();
  REQUIRE(c.size() == 1);
  CHECK(c[0].what == advice::unset_read_mostly);
  CHECK(c[0].blocks == blocks(2, 2));
  t.launch(3, {updates(2, 2)});
  CHECK(t.advised().empty());
}

TEST_CASE("undeclared blocks that are read once in a long while are read in place") {
  adviser_bench t;
  t.map.set_shortest_row(bytes{128});
  const int period = static_cast<int>(advisor::long_period);
  t.launch(1, {});
  t.fault(1, 5);
  t.idle(period);
  t.fault(1, 5);
  CHECK(t.advised().empty());
  t.idle(period);
  t.fault(1, 5);
  const auto c = t.advised();
  REQUIRE(c.size() == 1);
  CHECK(c[0].what == advice::set_in_place);
  SUBCASE("until a use comes sooner") {
    t.idle(3);
    t.fault(2, 5);
    CHECK(t.advised().size() == 1);
  }
  SUBCASE("until a write") {
    t.idle(period);
    t.fault(1, 5, deepum::access::update);
    REQUIRE(t.advised().size() == 1);
    t.idle(period);
    t.fault(1, 5);
    t.idle(period);
    t.fault(1, 5);
    CHECK(t.advised().empty());
  }
  SUBCASE("until a launch declares them") {
    t.launch(2, {reads(5)});
    CHECK(t.advised().size() == 1);
  }
}

TEST_CASE("auto gives advice only where it is asked to, and takes it back before the writer runs") {
  for (const bool advise : {false, true}) {
    policy_options o;
    o.advise = advise;
    auto_policy policy{o};
    driver d{policy, 4, 4};
    d.make_live(blocks(0, 4));
    d.run({honest("a", {reads(0)}), honest("b", {reads(0), updates(1)})}, 3);
    const auto advised = [&] { return d.hints.size(); };
    CHECK(advised() == (advise ? 1 : 0));
    d.issue(honest("c", {updates(0)}));
    CHECK(advised() == (advise ? 2 : 0));
    d.execute();
  }
}

}  // namespace advice_test
