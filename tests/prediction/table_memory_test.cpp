// The tables report the heap memory that they hold. Here every allocation of the program is counted, and the two
// compared.

#include "support/counted_heap.hpp"
#include <deepum/prediction/block_table.hpp>
#include <deepum/prediction/execution_id_table.hpp>
#include <deepum/prediction/execution_table.hpp>
#include <deepum/prediction/footprint.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>

namespace table_memory_test {

using namespace deepum;

using deepum_test::held_since;

TEST_CASE("the execution ID table reports the memory it holds") {
  for (const std::uint32_t limit : {0U, 100U}) {
    const held_since held;
    execution_id_table table{recognition::exact, limit};
    for (std::uint64_t i = 0; i < 1000; ++i) {
      table.identify({.exact = i * 0x9e3779b97f4a7c15ULL, .shape = i});
      REQUIRE(table.memory() == held());
    }
    CHECK(table.memory() > bytes{table.size() * sizeof(launch_signature)});
    CHECK(table.memory() < bytes{table.size() * 6 * sizeof(launch_signature)});
  }
}

TEST_CASE("the execution correlation table reports the memory it holds") {
  for (const auto how : {execution_table::match::published, execution_table::match::longest_suffix}) {
    const held_since held;
    execution_table table{how, 500};
    std::mt19937_64 random{1};
    execution_context context;
    for (int i = 0; i < 2000; ++i) {
      const execution_id next{static_cast<std::uint32_t>(1 + random() % 20)};
      table.record(context, next);
      context.push(next);
      if (i % 100 == 0) {
        table.forget(next);
      }
      REQUIRE(table.memory() == held());
    }
    const std::uint64_t least = sizeof(execution_context) + sizeof(execution_id);
    CHECK(table.memory() > bytes{table.records() * least});
    CHECK(table.memory() < bytes{table.records() * least * 20});
  }
}

TEST_CASE("the block table reports the memory it holds, which stays near that of the paper when it is full") {
  const held_since held;
  block_table table;
  for (std::uint32_t b = 0; b < 3 * 2048; ++b) {
    table.record(block_id{b}, block_id{b + 1});
    REQUIRE(table.memory() == held());
  }
  constexpr bytes published = 80_KiB;  // 2048 rows of two ways, each a block and four successors
  CHECK(table.memory() >= published);
  CHECK(table.memory() < 2 * published);
}

TEST_CASE("footprints report the memory they hold") {
  const held_since held;
  footprint_table table;
  std::mt19937_64 random{1};
  for (int i = 0; i < 2000; ++i) {
    const execution_id id{static_cast<std::uint32_t>(1 + random() % 50)};
    if (random() % 20 == 0) {
      table.forget(id);
    } else {
      table.at(id).touch(
          {block_id{static_cast<std::uint32_t>(random() % 500)}, static_cast<std::uint32_t>(random() % 9)},
          random() % 2 != 0 ? access::read : access::update, random() % 2 != 0);
    }
    REQUIRE(table.memory() == held());
  }
}

}  // namespace table_memory_test
