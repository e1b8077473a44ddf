#include "support/test_scale.hpp"
#include <deepum/prediction/block_table.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace block_table_test {

using namespace deepum;

using blocks = std::vector<std::uint32_t>;

blocks successors(const block_table& table, std::uint32_t block) {
  blocks result;
  for (const block_id b : table.successors(block_id{block})) {
    result.push_back(b.value);
  }
  return result;
}

void record(block_table& table, std::uint32_t from, std::uint32_t to) { table.record(block_id{from}, block_id{to}); }

TEST_CASE("a block table has the paper's shape unless told otherwise") {
  const block_table_shape shape = block_table{}.shape();
  CHECK(shape.rows == 2048);
  CHECK(shape.ways == 2);
  CHECK(shape.successors == 4);
}

TEST_CASE("a shape with a zero is refused") {
  for (const block_table_shape shape : {block_table_shape{0, 2, 4}, {2048, 0, 4}, {2048, 2, 0}}) {
    try {
      const block_table table{shape};
      FAIL("no error");
    } catch (const error& e) {
      CHECK(e.code() == status::invalid_argument);
    }
  }
}

TEST_CASE("successors come back most recently recorded first") {
  block_table table;
  CHECK(successors(table, 1).empty());
  record(table, 1, 10);
  record(table, 1, 11);
  record(table, 1, 12);
  CHECK(successors(table, 1) == blocks{12, 11, 10});
  record(table, 1, 10);
  CHECK(successors(table, 1) == blocks{10, 12, 11});
  record(table, 1, 10);
  CHECK(successors(table, 1) == blocks{10, 12, 11});
  CHECK(successors(table, 10).empty());
}

TEST_CASE("the oldest successor falls out where there is no room for another") {
  block_table table{{.rows = 4, .ways = 1, .successors = 3}};
  for (const std::uint32_t to : {10U, 11U, 12U, 10U, 13U}) {
    record(table, 1, to);
  }
  CHECK(successors(table, 1) == blocks{13, 10, 12});
}

TEST_CASE("blocks of one row share its ways, and the least recently used one makes way") {
  block_table table{{.rows = 8, .ways = 2, .successors = 2}};
  record(table, 3, 100);
  record(table, 11, 101);
  record(table, 3, 102);
  record(table, 19, 103);
  CHECK(successors(table, 3) == blocks{102, 100});
  CHECK(successors(table, 11).empty());
  CHECK(successors(table, 19) == blocks{103});
}

TEST_CASE("blocks of different rows do not disturb each other") {
  block_table table{{.rows = 8, .ways = 1, .successors = 1}};
  for (std::uint32_t b = 0; b < 8; ++b) {
    record(table, b, 100 + b);
  }
  for (std::uint32_t b = 0; b < 8; ++b) {
    CHECK(successors(table, b) == blocks{100 + b});
  }
}

TEST_CASE("a block that came back into its row has only successors recorded since") {
  block_table table{{.rows = 1, .ways = 1, .successors = 4}};
  record(table, 1, 10);
  record(table, 2, 20);
  record(table, 1, 11);
  CHECK(successors(table, 1) == blocks{11});
}

TEST_CASE("to ask for successors does not keep a block in its row") {
  block_table table{{.rows = 1, .ways = 2, .successors = 1}};
  record(table, 1, 10);
  record(table, 2, 20);
  CHECK(successors(table, 1) == blocks{10});
  record(table, 3, 30);
  CHECK(successors(table, 1).empty());
  CHECK(successors(table, 2) == blocks{20});
}

TEST_CASE("block 0 is a block like any other") {
  block_table table;
  record(table, 0, 0);
  record(table, 5, 0);
  CHECK(successors(table, 0) == blocks{0});
  CHECK(successors(table, 5) == blocks{0});
  CHECK(successors(table, 0xffffffffU).empty());
}

TEST_CASE("start and end block are nothing until they are set") {
  block_table table;
  CHECK_FALSE(table.start().has_value());
  CHECK_FALSE(table.end().has_value());
  table.set_start(block_id{0});
  table.set_end(block_id{9});
  CHECK(table.start() == block_id{0});
  CHECK(table.end() == block_id{9});
  table.set_start(block_id{4});
  CHECK(table.start() == block_id{4});
}

TEST_CASE("a table with few pairs is small") {
  block_table table;
  CHECK(table.memory() == 0_B);
  for (std::uint32_t b = 0; b < 4; ++b) {
    record(table, b, b + 1);
  }
  CHECK(table.memory() < 512_B);
}

TEST_CASE("random pairs leave a block table as plain lists would") {
  struct way {
    std::uint32_t from;
    blocks successors;
  };
  for (std::uint64_t seed = 1; seed <= deepum_test::scaled(40); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const block_table_shape shape{static_cast<std::uint32_t>(1 + random() % 9),
                                  static_cast<std::uint32_t>(1 + random() % 4),
                                  static_cast<std::uint32_t>(1 + random() % 5)};
    const auto range = static_cast<std::uint32_t>(shape.rows * shape.ways * 2);
    block_table table{shape};
    std::map<std::uint32_t, std::vector<way>> naive;  // ways most recently used first

    for (int step = 0; step < 1000; ++step) {
      const auto from = static_cast<std::uint32_t>(random() % range);
      const auto to = static_cast<std::uint32_t>(random() % (shape.successors * 2));
      record(table, from, to);

      std::vector<way>& row = naive[from % shape.rows];
      way used{from, {}};
      const auto place = std::find_if(row.begin(), row.end(), [&](const way& w) { return w.from == from; });
      if (place != row.end()) {
        used = *place;
        row.erase(place);
      }
      std::erase(used.successors, to);
      used.successors.insert(used.successors.begin(), to);
      used.successors.resize(std::min<std::size_t>(used.successors.size(), shape.successors));
      row.insert(row.begin(), used);
      row.resize(std::min<std::size_t>(row.size(), shape.ways));

      const auto asked = static_cast<std::uint32_t>(random() % range);
      blocks want;
      for (const way& w : naive[asked % shape.rows]) {
        if (w.from == asked) {
          want = w.successors;
        }
      }
      REQUIRE(successors(table, asked) == want);
    }
  }
}

}  // namespace block_table_test
