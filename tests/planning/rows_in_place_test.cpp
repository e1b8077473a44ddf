#include <deepum/core/block_ledger.hpp>
#include <deepum/planning/rows_in_place.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rows_in_place_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX

constexpr block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }
block_access looks_up(block_range table, std::uint64_t touched, std::uint32_t row = 256) {
  return {.range = table, .mode = access::read, .sparse = true, .row_bytes = row, .touched = touched};
}

/// A planner, and a memory that does what it is told.
struct bench {
  explicit bench(std::uint32_t budget, std::uint32_t arena_blocks = 256, bytes shortest = bytes{128})
      : map(arena_blocks, location::device(), budget, um_grid) {
    map.set_shortest_row(shortest);
  }
  /// @returns  The blocks that have to be brought for the launch.
  std::vector<block_access> launch(std::vector<block_access> accesses, bool carry_out = true) {
    launch_record r;
    r.accesses = std::move(accesses);
    std::vector<block_access> needed = rows.on_launch(r, map).accesses;
    if (carry_out) {
      tell();
    }
    return needed;
  }
  void tell() {
    plan p;
    rows.write(map, p);
    for (const driver_hint& h : p.hints) {
      ++told;
      for (const block_id b : h.blocks) {
        map.set_in_place(b, h.what == advice::set_in_place);
      }
    }
  }
  [[nodiscard]] bool in_place(block_range r) const {
    for (const block_id b : r) {
      if (!map.in_place(b)) {
        return false;
      }
    }
    return true;
  }

  block_ledger map;
  rows_in_place rows{};
  int told = 0;
};

TEST_CASE("a table that fits beside all else is brought like any other memory") {
  bench b(100);
  b.rows.on_live(blocks(0, 90), b.map);
  const std::vector<block_access> gather{looks_up(blocks(0, 64), 4096), {blocks(64, 2), access::update}};
  CHECK(b.launch(gather) == gather);
  CHECK(b.told == 0);
  CHECK(b.rows.settled(b.map));
}

TEST_CASE("of a table that does not fit rows are touched in place, and only the rest is brought") {
  bench b(64);
  b.rows.on_live(blocks(0, 90), b.map);
  const block_access other{blocks(64, 2), access::update};
  CHECK(b.launch({looks_up(blocks(0, 64), 4096), other}, false) == std::vector<block_access>{other});
  CHECK_FALSE(b.rows.settled(b.map));
  b.tell();
  CHECK(b.rows.settled(b.map));
  CHECK(b.in_place(blocks(0, 64)));
  CHECK(b.told == 1);
  // Whoever uses all of it has it brought.
  const block_access all{blocks(0, 64), access::update};
  CHECK(b.launch({all}) == std::vector<block_access>{all});
  CHECK(b.in_place(blocks(0, 64)));
  // And so has a launch that looks up as much as there is.
  const block_access dense = looks_up(blocks(0, 64), (128_MiB).count);
  CHECK(b.launch({dense}) == std::vector<block_access>{dense});
}

TEST_CASE("where the memory knows no rows in place, rows are taken for the blocks around them") {
  bench b(64, 256, bytes{});
  b.rows.on_live(blocks(0, 90), b.map);
  const std::vector<block_access> gather{looks_up(blocks(0, 64), 4096)};
  CHECK(b.launch(gather) == gather);
  CHECK(b.told == 0);
}

TEST_CASE("a table is brought when its rows have cost as much as bringing it would have, if there is room for it") {
  bench b(64);
  b.rows.on_live(blocks(0, 100), b.map);  // 20 beside the tables
  const block_access a = looks_up(blocks(0, 40), (8_MiB).count);
  const block_access c = looks_up(blocks(40, 40), (2_MiB).count);
  int launches = 0;
  while (b.launch({a, c}) == std::vector<block_access>{}) {
    REQUIRE(++launches < 20);
  }
  CHECK(launches == 9);  // and the tenth has spent 80 MiB
  CHECK_FALSE(b.in_place(blocks(0, 40)));
  CHECK(b.in_place(blocks(40, 40)));
  // The other one has no room, however much it is touched, but for twice as much.
  for (int i = 0; i != 100; ++i) {
    CHECK(b.launch({a, c}) == std::vector<block_access>{a});
  }
  int before = 0;
  while (b.launch({looks_up(blocks(40, 40), (8_MiB).count)}) == std::vector<block_access>{}) {
    REQUIRE(++before < 1000);
  }
  CHECK(b.in_place(blocks(0, 40)));
  CHECK_FALSE(b.in_place(blocks(40, 40)));
  CHECK(b.told == 5);  // both are in place, the first one is brought, it is in place again, and the second is brought
}

TEST_CASE("short rows cost the link what the shortest one does, which is not cut") {
  const auto launches_until_brought = [](std::uint32_t row, bytes shortest) {
    bench b(64, 256, shortest);
    b.rows.on_live(blocks(0, 100), b.map);
    int n = 1;
    while (b.launch({looks_up(blocks(0, 40), (4_MiB).count, row), looks_up(blocks(40, 40), 1)}).empty()) {
      ++n;
    }
    return n;
  };
  CHECK(launches_until_brought(256, bytes{128}) == 20);
  CHECK(launches_until_brought(128, bytes{128}) == 20);
  CHECK(launches_until_brought(64, bytes{128}) == 10);
  CHECK(launches_until_brought(64, bytes{512}) == 3);
}

TEST_CASE("a table that is freed is no table any more, and one that grows is one") {
  bench b(64);
  b.rows.on_live(blocks(0, 100), b.map);
  CHECK(b.launch({looks_up(blocks(0, 40), 4096)}).empty());
  CHECK(b.launch({looks_up(blocks(30, 40), 4096)}).empty());
  CHECK(b.in_place(blocks(0, 70)));
  b.rows.on_dead(blocks(10, 2));
  b.tell();
  for (const block_id at : blocks(0, 70)) {
    CHECK_FALSE(b.map.in_place(at));
  }
  // What is left fits, and has for some time: nothing need be in place.
  b.rows.on_dead(blocks(12, 60));
  CHECK(b.launch({looks_up(blocks(0, 10), 4096)}).empty());
  for (int i = 0; i != 1200; ++i) {
    (void)b.launch({looks_up(blocks(0, 10), 4096)});
  }
  CHECK(b.launch({looks_up(blocks(0, 10), 4096)}).size() == 1);
  CHECK_FALSE(b.in_place(blocks(0, 10)));
}

TEST_CASE("a memory that cannot do it is asked three times, and launches do not wait for it") {
  bench b(64);
  b.rows.on_live(blocks(0, 100), b.map);
  for (int i = 0; i != 10; ++i) {
    (void)b.launch({looks_up(blocks(0, 70), 4096)}, false);
    plan p;
    b.rows.write(b.map, p);
    CHECK(p.hints.size() == (i < 3 ? 1 : 0));
  }
  CHECK(b.rows.settled(b.map));
}

TEST_CASE("a table that was learned is in place, and opens a sample of its blocks to faults now and then") {
  bench b(64);
  b.rows.on_live(blocks(0, 200), b.map);
  b.rows.learn(blocks(0, 128), b.map);
  b.tell();
  CHECK(b.in_place(blocks(0, 128)));
  const auto opened = [&] {
    std::vector<std::uint32_t> open;
    for (const block_id at : blocks(0, 128)) {
      if (!b.map.in_place(at)) {
        open.push_back(at.value);
      }
    }
    return open;
  };
  std::vector<std::uint32_t> seen;
  for (int samples = 0; samples != 3; ++samples) {
    int launches = 0;
    while (opened().empty()) {
      (void)b.launch({{blocks(150), access::update}});
      REQUIRE(++launches <= 1024);
    }
    const std::vector<std::uint32_t> open = opened();
    REQUIRE(open.size() == 2);  // one in 64
    CHECK(open[1] == open[0] + 64);
    CHECK(std::find(seen.begin(), seen.end(), open[0]) == seen.end());
    seen.push_back(open[0]);
    if (samples == 0) {  // nothing touches them
      for (int i = 0; i != 64; ++i) {
        (void)b.launch({{blocks(150), access::update}});
      }
    } else {
      for (const std::uint32_t at : open) {
        CHECK(b.rows.on_fault({.block = block_id{at}, .pages = 3}));
      }
      b.tell();
    }
    CHECK(opened().empty());
  }
  CHECK_FALSE(b.rows.on_fault({.block = block_id{150}, .pages = 3}));
}

TEST_CASE("a table that was learned is none where the sample shows that it is used as a whole") {
  bench b(64);
  b.rows.on_live(blocks(0, 200), b.map);
  b.rows.learn(blocks(0, 128), b.map);
  b.tell();
  int launches = 0;
  while (b.in_place(blocks(0, 128))) {
    (void)b.launch({{blocks(150), access::update}});
    REQUIRE(++launches <= 1024);
  }
  std::uint32_t open = 0;
  while (b.map.in_place(block_id{open})) {
    ++open;
  }
  for (std::uint32_t page = 0; page != 20; ++page) {
    CHECK(b.rows.on_fault({.block = block_id{open}, .pages = 1U << page}));
    CHECK(b.rows.on_fault({.block = block_id{open + 64}, .pages = 1U << page}));
  }
  b.tell();
  CHECK_FALSE(b.rows.on_fault({.block = block_id{open}, .pages = 1}));
  for (const block_id at : blocks(0, 128)) {
    CHECK_FALSE(b.map.in_place(at));
  }
}

TEST_CASE("what was learned is brought where everything fits") {
  bench b(256);
  b.rows.on_live(blocks(0, 200), b.map);
  b.rows.learn(blocks(0, 128), b.map);
  b.tell();
  CHECK(b.told == 0);
  CHECK_FALSE(b.rows.on_fault({.block = block_id{5}, .pages = 1}));
}

}  // namespace rows_in_place_test
