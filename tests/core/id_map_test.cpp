#include <deepum/core/block.hpp>
#include <deepum/core/id_map.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace id_map_test {

using deepum::block_id;

TEST_CASE("a value is made when its ID is named, and found by it") {
  deepum::detail::id_map<block_id, int> map;
  CHECK(map.find(block_id{3}) == nullptr);
  CHECK(map.get(block_id{3}) == 0);
  map[block_id{3}] = 5;
  CHECK(map.size() == 4);
  REQUIRE(map.find(block_id{3}) != nullptr);
  CHECK(*map.find(block_id{3}) == 5);
  CHECK(map.get(block_id{3}) == 5);
  CHECK(map.get(block_id{2}) == 0);
  CHECK(map.find(block_id{4}) == nullptr);
  CHECK(map.memory().count >= 4 * sizeof(int));
}

TEST_CASE("to reset a value makes it what it is without an assignment, and makes none") {
  deepum::detail::id_map<block_id, std::unique_ptr<int>> map;
  map[block_id{1}] = std::make_unique<int>(7);
  map.reset(block_id{1});
  CHECK(map[block_id{1}] == nullptr);
  map.reset(block_id{9});
  CHECK(map.size() == 2);
}

TEST_CASE("a walk names all IDs in ascending order") {
  deepum::detail::id_map<block_id, int> map;
  map[block_id{2}] = 4;
  map[block_id{0}] = 1;
  std::vector<std::uint32_t> ids;
  int sum = 0;
  map.for_each([&](block_id b, int value) {
    ids.push_back(b.value);
    sum += value;
  });
  CHECK(ids == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(sum == 5);
  map.clear();
  CHECK(map.size() == 0);
}

}  // namespace id_map_test
