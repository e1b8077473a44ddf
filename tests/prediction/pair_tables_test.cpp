#include "policy/driver.hpp"
#include <deepum/prediction/pair_tables.hpp>

#include <doctest/doctest.h>

#include <algorithm>

namespace pair_tables_test {

using namespace deepum_test;
using numbers = std::vector<std::uint32_t>;

numbers walk(const block_table& t, std::uint32_t from) {
  block_walk w;
  w.start(t, block_id{from});
  numbers all;
  while (const auto b = w.next()) {
    all.push_back(b->value);
  }
  CHECK_FALSE(w.next().has_value());
  return all;
}

struct trainer {
  pair_tables tables{{}};
  std::uint64_t launches = 0;
  execution_id id{1};

  void run(const numbers& faults) {
    const launch_id l{++launches};
    for (const std::uint32_t b : faults) {
      tables.fault(l, id, block_id{b});
    }
    CHECK(tables.finish(l) == !faults.empty());
  }
  numbers chain() {
    const block_table& t = *tables.find(id);
    numbers all = walk(t, t.start()->value);
    all.insert(all.begin(), t.start()->value);
    return all;
  }
};

TEST_CASE("a walk takes all successors, breadth first and most recent first, each block once") {
  block_table t;
  t.record(block_id{1}, block_id{2});
  t.record(block_id{1}, block_id{3});
  t.record(block_id{3}, block_id{4});
  t.record(block_id{2}, block_id{5});
  t.record(block_id{5}, block_id{1});
  CHECK(walk(t, 1) == numbers{3, 2, 4, 5});
  CHECK(walk(t, 5) == numbers{1, 3, 2, 4});
  CHECK(walk(t, 7).empty());
}

TEST_CASE("a walk is over at the end block") {
  block_table t;
  for (std::uint32_t b = 1; b < 6; ++b) {
    t.record(block_id{b}, block_id{b + 1});
  }
  t.set_end(block_id{3});
  CHECK(walk(t, 1) == numbers{2, 3});
  CHECK(walk(t, 3).empty());
  CHECK(walk(t, 4) == numbers{5, 6});
}

TEST_CASE("the faults of the first run are learned with their start and end") {
  trainer t;
  t.run({4, 9, 2});
  CHECK(t.tables.find(t.id)->start() == block_id{4});
  CHECK(t.tables.find(t.id)->end() == block_id{2});
  CHECK(t.chain() == numbers{4, 9, 2});
  CHECK(t.tables.find(execution_id{2}) == nullptr);
}

TEST_CASE("a run with few faults does not shorten a chain") {
  trainer t;
  t.run({1, 2, 3, 4, 5, 6});
  const numbers learned = t.chain();
  SUBCASE("by its start") { t.run({5}); }
  SUBCASE("by its end") { t.run({2}); }
  SUBCASE("by a short cut to the end") { t.run({1, 6}); }
  SUBCASE("by going backwards") { t.run({5, 3, 2}); }
  SUBCASE("by the same block again and again") { t.run({4, 4, 4}); }
  CHECK(t.chain() == learned);
}

TEST_CASE("a run with few faults adds what the chain did not reach behind its end") {
  trainer t;
  t.run({1, 2, 3, 4});
  t.run({8, 2, 9, 8});
  CHECK(t.chain() == numbers{1, 2, 3, 4, 8, 9});
  t.run({7});
  CHECK(t.chain() == numbers{1, 2, 3, 4, 8, 9, 7});
}

TEST_CASE("a run with as many faults as ever, the start block among them, sets start and end anew") {
  trainer t;
  t.run({1, 2, 3});
  t.run({3, 2, 1});
  CHECK(t.chain() == numbers{3, 2, 1});
  t.run({9, 3, 2, 9});
  CHECK(t.chain().front() == 9);
  CHECK(t.tables.find(t.id)->end() == block_id{2});
  t.run({5, 9, 3});
  CHECK(t.chain().front() == 5);
  t.run({});
  CHECK(t.chain().front() == 5);
}

TEST_CASE("a run without the start block only adds, however many faults it has") {
  trainer t;
  t.run({1, 2, 3});
  t.run({5, 6, 7, 2});
  CHECK(t.tables.find(t.id)->start() == block_id{1});
  CHECK(t.chain() == numbers{1, 2, 3, 5, 6, 7});
}

TEST_CASE("two blocks of a launch do not take turns: the chain comes to hold both") {
  trainer t;
  t.run({1});
  for (int i = 0; i < 4; ++i) {  // a chain that begins at one of them serves that one, and the other one faults
    const numbers served = t.chain();
    numbers faults;
    for (const std::uint32_t b : {1U, 2U}) {
      if (std::find(served.begin(), served.end(), b) == served.end()) {
        faults.push_back(b);
      }
    }
    t.run(faults);
  }
  CHECK(t.chain() == numbers{1, 2});
}

TEST_CASE("runs of several launches at once are kept apart") {
  pair_tables t{{}};
  t.fault(launch_id{1}, execution_id{1}, block_id{1});
  t.fault(launch_id{2}, execution_id{2}, block_id{7});
  t.fault(launch_id{1}, execution_id{1}, block_id{2});
  t.fault(launch_id{2}, execution_id{2}, block_id{8});
  t.finish(launch_id{1});
  t.finish(launch_id{2});
  CHECK(walk(*t.find(execution_id{1}), 1) == numbers{2});
  CHECK(walk(*t.find(execution_id{2}), 7) == numbers{8});
  t.forget(execution_id{1});
  CHECK(t.find(execution_id{1}) == nullptr);
  CHECK(t.find(execution_id{2}) != nullptr);
  CHECK(t.memory().count > 0);
}

}  // namespace pair_tables_test
