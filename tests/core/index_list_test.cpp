#include <deepum/core/index_list.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace index_list_test {

using deepum::detail::index_list;

std::vector<std::uint32_t> all(const index_list& list) {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t i = list.front(); i != index_list::none; i = list.after(i)) {
    numbers.push_back(i);
  }
  return numbers;
}

TEST_CASE("a list is empty at first, and contains nothing") {
  const index_list list;
  CHECK(list.empty());
  CHECK(list.front() == index_list::none);
  CHECK_FALSE(list.contains(0));
  CHECK_FALSE(list.contains(index_list::none));
}

TEST_CASE("what moves to the back is the last one, and is there once") {
  index_list list;
  for (const std::uint32_t i : {3U, 0U, 7U, 0U}) {
    list.move_to_back(i);
  }
  CHECK(all(list) == std::vector<std::uint32_t>{3, 7, 0});
  CHECK(list.contains(7));
  CHECK_FALSE(list.contains(5));
}

TEST_CASE("a walk may take out the number that it is at, if it asks for the next one before") {
  index_list list(4);
  for (const std::uint32_t i : {0U, 1U, 2U, 3U}) {
    list.move_to_back(i);
  }
  for (std::uint32_t i = list.front(); i != index_list::none;) {
    const std::uint32_t next = list.after(i);
    if (i % 2 == 0) {
      list.erase(i);
    }
    i = next;
  }
  CHECK(all(list) == std::vector<std::uint32_t>{1, 3});
}

TEST_CASE("numbers below the size that was asked for take no more memory") {
  index_list list(100);
  const deepum::bytes before = list.memory();
  CHECK(before.count >= 800);
  for (std::uint32_t i = 0; i != 100; ++i) {
    list.move_to_back(i);
  }
  CHECK(list.memory() == before);
}

TEST_CASE("random changes leave a list as a vector would") {
  std::mt19937 random(7);
  index_list list;
  std::vector<std::uint32_t> twin;
  for (int round = 0; round != 5000; ++round) {
    const auto i = static_cast<std::uint32_t>(random() % 40);
    std::erase(twin, i);
    if (random() % 3 != 0) {
      list.move_to_back(i);
      twin.push_back(i);
    } else {
      list.erase(i);
    }
    REQUIRE(all(list) == twin);
    REQUIRE(list.empty() == twin.empty());
    REQUIRE(list.contains(i) == (std::find(twin.begin(), twin.end(), i) != twin.end()));
  }
}

}  // namespace index_list_test
