#include "support/test_scale.hpp"
#include <deepum/prediction/footprint.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace footprint_test {

using namespace deepum;

using entries = std::vector<footprint_entry>;

block_range range(std::uint32_t first, std::uint32_t count) { return {block_id{first}, count}; }

entries entries_of(const footprint& f) { return {f.entries().begin(), f.entries().end()}; }

constexpr deepum::access every_mode[] = {access::read, access::update, access::overwrite};

TEST_CASE("an empty footprint has no blocks and no memory") {
  footprint f;
  CHECK(f.empty());
  CHECK(f.entries().empty());
  CHECK_FALSE(f.contains(block_id{0}));
  CHECK(f.memory() == 0_B);
  f.touch({}, access::read, true);
  f.touch(range(7, 0), access::read, true);
  CHECK(f.empty());
}

TEST_CASE("blocks stay in the order of their first touch, and adjacent ones merge") {
  footprint f;
  f.touch(range(10, 2), access::read, true);
  f.touch(range(12, 3), access::read, true);
  f.touch(range(4, 1), access::read, true);
  f.touch(range(5, 1), access::read, true);
  f.touch(range(15, 1), access::read, true);
  CHECK(entries_of(f) == entries{{range(10, 5), access::read, true},
                                 {range(4, 2), access::read, true},
                                 {range(15, 1), access::read, true}});
  CHECK(f.block_count() == 8);
}

TEST_CASE("adjacent blocks that are treated differently do not merge") {
  footprint f;
  f.touch(range(0, 2), access::read, true);
  f.touch(range(2, 2), access::update, true);
  f.touch(range(4, 2), access::update, false);
  CHECK(entries_of(f) == entries{{range(0, 2), access::read, true},
                                 {range(2, 2), access::update, true},
                                 {range(4, 2), access::update, false}});
}

TEST_CASE("a second touch keeps the place of a block and joins the modes") {
  const auto joined = [](deepum::access first, deepum::access then) {
    footprint f;
    f.touch(range(1, 1), first, true);
    f.touch(range(9, 1), access::read, true);
    f.touch(range(1, 1), then, true);
    CHECK(f.entries().size() == 2);
    CHECK(f.entries()[0].range == range(1, 1));
    return f.entries()[0].mode;
  };
  CHECK(joined(access::read, access::read) == access::read);
  CHECK(joined(access::read, access::update) == access::update);
  CHECK(joined(access::read, access::overwrite) == access::update);
  CHECK(joined(access::update, access::read) == access::update);
  CHECK(joined(access::update, access::update) == access::update);
  CHECK(joined(access::update, access::overwrite) == access::update);
  for (const deepum::access then : every_mode) {
    CHECK(joined(access::overwrite, then) == access::overwrite);
  }
}

TEST_CASE("what a fault showed is an update, whatever the fault was") {
  for (const deepum::access mode : every_mode) {
    footprint f;
    f.touch(range(3, 1), mode, false);
    CHECK(entries_of(f) == entries{{range(3, 1), access::update, false}});
  }
}

TEST_CASE("a fault does not unsettle a declaration, except that a write makes a read an update") {
  const auto after_fault = [](deepum::access declared, deepum::access fault) {
    footprint f;
    f.touch(range(3, 1), declared, true);
    f.touch(range(3, 1), fault, false);
    CHECK(f.entries()[0].mode_known);
    return f.entries()[0].mode;
  };
  CHECK(after_fault(access::read, access::read) == access::read);
  CHECK(after_fault(access::read, access::update) == access::update);
  CHECK(after_fault(access::update, access::read) == access::update);
  CHECK(after_fault(access::overwrite, access::update) == access::overwrite);
}

TEST_CASE("a declaration after a fault is known, and never makes contents dead") {
  for (const deepum::access mode : every_mode) {
    footprint f;
    f.touch(range(3, 1), access::read, false);
    f.touch(range(3, 1), mode, true);
    CHECK(entries_of(f) == entries{{range(3, 1), access::update, true}});
  }
}

TEST_CASE("a touch of the middle of an entry splits it where it stands") {
  footprint f;
  f.touch(range(0, 10), access::read, true);
  f.touch(range(20, 1), access::read, true);
  f.touch(range(4, 2), access::update, true);
  CHECK(entries_of(f) == entries{{range(0, 4), access::read, true},
                                 {range(4, 2), access::update, true},
                                 {range(6, 4), access::read, true},
                                 {range(20, 1), access::read, true}});
  CHECK(f.block_count() == 11);
}

TEST_CASE("parts of an entry that become alike again merge again") {
  footprint f;
  f.touch(range(0, 6), access::read, true);
  for (const std::uint32_t b : {0U, 5U, 2U, 1U, 4U, 3U}) {
    f.touch(range(b, 1), access::update, true);
  }
  CHECK(entries_of(f) == entries{{range(0, 6), access::update, true}});
}

TEST_CASE("a touch across entries and gaps appends only the gaps") {
  footprint f;
  f.touch(range(4, 2), access::update, true);
  f.touch(range(1, 1), access::update, true);
  f.touch(range(0, 8), access::read, true);
  CHECK(entries_of(f) == entries{{range(4, 2), access::update, true},
                                 {range(1, 1), access::update, true},
                                 {range(0, 1), access::read, true},
                                 {range(2, 2), access::read, true},
                                 {range(6, 2), access::read, true}});
}

TEST_CASE("footprints are equal if blocks, order and modes are") {
  footprint a;
  footprint b;
  a.touch(range(0, 2), access::read, true);
  b.touch(range(0, 1), access::read, true);
  CHECK_FALSE(a == b);
  b.touch(range(1, 1), access::read, true);
  CHECK(a == b);
  b.touch(range(1, 1), access::update, true);
  CHECK_FALSE(a == b);
  footprint c;
  footprint d;
  c.touch(range(0, 1), access::read, true);
  c.touch(range(5, 1), access::read, true);
  d.touch(range(5, 1), access::read, true);
  d.touch(range(0, 1), access::read, true);
  CHECK_FALSE(c == d);
}

TEST_CASE("thousands of scattered blocks in any order are all found again") {
  std::vector<std::uint32_t> order(4096);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937_64{1});
  footprint f;
  for (const std::uint32_t b : order) {
    f.touch(range(2 * b, 1), access::update, false);
  }
  CHECK(f.block_count() == 4096);
  CHECK(f.entries().size() == 4096);
  for (std::size_t i = 0; i < order.size(); ++i) {
    REQUIRE(f.entries()[i].range == range(2 * order[i], 1));
    REQUIRE(f.contains(block_id{2 * order[i]}));
    REQUIRE_FALSE(f.contains(block_id{2 * order[i] + 1}));
  }
}

TEST_CASE("random touches leave a footprint as a list of single blocks would") {
  struct touched {
    std::uint32_t block;
    deepum::access mode;
    bool known;
  };
  for (std::uint64_t seed = 1; seed <= deepum_test::scaled(120); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const auto size = static_cast<std::uint32_t>(4 + random() % 60);
    const auto longest = static_cast<std::uint32_t>(1 + random() % size);
    footprint f;
    std::vector<touched> naive;

    for (int step = 0; step < 120; ++step) {
      const block_range r =
          range(static_cast<std::uint32_t>(random() % size), static_cast<std::uint32_t>(random() % (longest + 1)));
      const deepum::access mode = every_mode[random() % 3];
      const bool known = random() % 3 != 0;
      f.touch(r, mode, known);

      for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
        const auto place = std::find_if(naive.begin(), naive.end(), [&](const touched& t) { return t.block == b; });
        if (place == naive.end()) {
          naive.push_back({b, known ? mode : access::update, known});
        } else {
          if (place->mode == access::read && mode != access::read) {
            place->mode = access::update;
          }
          place->known = place->known || known;
        }
      }

      entries want;
      for (const touched& t : naive) {
        if (!want.empty() && want.back().range.end_value() == t.block && want.back().mode == t.mode &&
            want.back().mode_known == t.known) {
          ++want.back().range.count;
        } else {
          want.push_back({range(t.block, 1), t.mode, t.known});
        }
      }
      REQUIRE(entries_of(f) == want);
      REQUIRE(f.block_count() == naive.size());
      for (std::uint32_t b = 0; b < 2 * size; ++b) {
        REQUIRE(f.contains(block_id{b}) ==
                std::any_of(naive.begin(), naive.end(), [&](const touched& t) { return t.block == b; }));
      }
    }
  }
}

TEST_CASE("a footprint table finds what was put in, and only that") {
  footprint_table table;
  const footprint_table& view = table;
  CHECK(table.find(execution_id{5}) == nullptr);
  CHECK(table.find(execution_id{}) == nullptr);
  footprint& five = table.at(execution_id{5});
  CHECK(five.empty());
  five.touch(range(1, 1), access::read, true);
  CHECK(table.find(execution_id{5}) == &five);
  CHECK(view.find(execution_id{5}) == &five);
  CHECK(table.find(execution_id{4}) == nullptr);
  CHECK(table.find(execution_id{6}) == nullptr);
}

TEST_CASE("a footprint stays where it is while others come and go") {
  footprint_table table;
  footprint& first = table.at(execution_id{1});
  for (std::uint32_t id = 2; id < 1000; ++id) {
    table.at(execution_id{id}).touch(range(id, 1), access::read, true);
  }
  table.forget(execution_id{2});
  CHECK(table.find(execution_id{1}) == &first);
  CHECK(&table.at(execution_id{1}) == &first);
}

TEST_CASE("a footprint can be replaced and forgotten") {
  footprint_table table;
  footprint other;
  other.touch(range(8, 2), access::update, true);
  table.at(execution_id{3}).touch(range(1, 1), access::read, true);
  table.replace(execution_id{3}, other);
  table.replace(execution_id{7}, other);
  CHECK(*table.find(execution_id{3}) == other);
  CHECK(*table.find(execution_id{7}) == other);
  table.forget(execution_id{3});
  table.forget(execution_id{3});
  table.forget(execution_id{99});
  CHECK(table.find(execution_id{3}) == nullptr);
  CHECK(table.at(execution_id{3}).empty());
}

}  // namespace footprint_test
