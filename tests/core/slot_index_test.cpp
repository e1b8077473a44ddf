#include "../support/test_scale.hpp"
#include <deepum/core/slot_index.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace slot_index_test {

using deepum::detail::slot_index;

TEST_CASE("an empty slot index finds nothing and holds no memory") {
  const slot_index index;
  CHECK(index.find(1, [](std::uint32_t) { return true; }) == slot_index::none);
  CHECK(index.memory() == deepum::bytes{});
}

TEST_CASE("slots whose hashes are equal are told apart by their keys") {
  const std::vector<int> keys{10, 11, 12};
  slot_index index;
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    index.insert(99, slot);
  }
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    CHECK(index.find(99, [&](std::uint32_t s) { return keys[s] == keys[slot]; }) == slot);
  }
  index.erase(99, 1);
  CHECK(index.find(99, [&](std::uint32_t s) { return keys[s] == 11; }) == slot_index::none);
  CHECK(index.find(99, [&](std::uint32_t s) { return keys[s] == 10; }) == 0);
  CHECK(index.find(99, [&](std::uint32_t s) { return keys[s] == 12; }) == 2);
}

TEST_CASE("a key is offered for comparison only where its hash is equal") {
  slot_index index;
  index.insert(1, 0);
  for (std::uint64_t other = 2; other < 100; ++other) {
    CHECK(index.find(other, [](std::uint32_t) { return true; }) == slot_index::none);
  }
}

TEST_CASE("random insertions and removals leave a slot index as a map has it") {
  for (std::uint64_t seed = 1; seed <= deepum_test::scaled(20); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    // Few different hashes in some rounds, so that chains are long; all of 64 bits in others.
    const std::uint64_t hashes = seed % 3 == 0 ? 5 : seed % 3 == 1 ? 300 : ~std::uint64_t{0};
    std::map<std::uint32_t, std::uint64_t> naive;
    slot_index index;
    for (int step = 0; step < 2000; ++step) {
      const auto slot = static_cast<std::uint32_t>(random() % 300);
      if (const auto place = naive.find(slot); place != naive.end()) {
        index.erase(place->second, slot);
        naive.erase(place);
      } else {
        naive[slot] = random() % hashes;
        index.insert(naive[slot], slot);
      }
      const auto asked = static_cast<std::uint32_t>(random() % 300);
      const auto known = naive.find(asked);
      const std::uint64_t hash = known != naive.end() ? known->second : random() % hashes;
      REQUIRE(index.find(hash, [&](std::uint32_t s) { return s == asked; }) ==
              (known != naive.end() ? asked : slot_index::none));
    }
  }
}

}  // namespace slot_index_test
