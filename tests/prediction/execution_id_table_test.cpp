#include "support/test_scale.hpp"
#include <deepum/prediction/execution_id_table.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace execution_id_table_test {

using namespace deepum;

launch_signature signature(std::uint64_t exact, std::uint64_t shape) { return {.exact = exact, .shape = shape}; }

identified fresh(std::uint32_t id) { return {.id = execution_id{id}, .is_new = true}; }
identified known(std::uint32_t id) { return {.id = execution_id{id}}; }
identified rebound(std::uint32_t id) { return {.id = execution_id{id}, .rebound = true}; }
identified reused(std::uint32_t id) { return {.id = execution_id{id}, .is_new = true, .retired = execution_id{id}}; }

TEST_CASE("launches get IDs from 1 in the order of their first sight and keep them") {
  execution_id_table table{recognition::exact};
  CHECK(table.size() == 0);
  CHECK(table.identify(signature(0, 0)) == fresh(1));
  CHECK(table.identify(signature(70, 7)) == fresh(2));
  CHECK(table.identify(signature(0, 0)) == known(1));
  CHECK(table.identify(signature(70, 7)) == known(2));
  CHECK(table.size() == 2);
}

TEST_CASE("exact recognition takes new scalars for a new launch, as published") {
  execution_id_table table{recognition::exact};
  table.identify(signature(70, 7));
  CHECK(table.identify(signature(71, 7), execution_id{1}) == fresh(2));
  CHECK(table.identify(signature(70, 7), execution_id{2}) == known(1));
}

TEST_CASE("adaptive recognition takes the expected launch with new scalars for the same launch") {
  execution_id_table table{recognition::adaptive};
  table.identify(signature(10, 1));
  table.identify(signature(70, 7));
  CHECK(table.identify(signature(71, 7), execution_id{2}) == rebound(2));
  CHECK(table.identify(signature(71, 7), execution_id{1}) == known(2));
  CHECK(table.identify(signature(72, 7), execution_id{2}) == rebound(2));
  CHECK(table.size() == 2);
}

TEST_CASE("the scalars before a rebinding are forgotten") {
  execution_id_table table{recognition::adaptive};
  table.identify(signature(70, 7));
  table.identify(signature(71, 7), execution_id{1});
  CHECK(table.identify(signature(70, 7)) == fresh(2));
}

TEST_CASE("adaptive recognition prefers an exact match to the expected launch") {
  execution_id_table table{recognition::adaptive};
  table.identify(signature(70, 7));
  table.identify(signature(71, 7));
  CHECK(table.identify(signature(70, 7), execution_id{2}) == known(1));
}

TEST_CASE("adaptive recognition rebinds nothing that is not expected or has another shape") {
  execution_id_table table{recognition::adaptive};
  table.identify(signature(70, 7));
  CHECK(table.identify(signature(71, 7)) == fresh(2));
  CHECK(table.identify(signature(80, 8), execution_id{1}) == fresh(3));
  CHECK(table.identify(signature(72, 7), execution_id{99}) == fresh(4));
  CHECK(table.identify(signature(0, 0), execution_id{}) == fresh(5));
}

TEST_CASE("with a limit the least recently seen ID is retired and its number used again") {
  execution_id_table table{recognition::exact, 3};
  table.identify(signature(1, 1));
  table.identify(signature(2, 2));
  table.identify(signature(3, 3));
  table.identify(signature(1, 1));
  CHECK(table.identify(signature(4, 4)) == reused(2));
  CHECK(table.size() == 3);
  CHECK(table.identify(signature(1, 1)) == known(1));
  CHECK(table.identify(signature(2, 2)) == reused(3));
  CHECK(table.identify(signature(4, 4)) == known(2));
}

TEST_CASE("a rebinding counts as sight of the ID") {
  execution_id_table table{recognition::adaptive, 2};
  table.identify(signature(1, 1));
  table.identify(signature(2, 2));
  CHECK(table.identify(signature(10, 1), execution_id{1}) == rebound(1));
  CHECK(table.identify(signature(3, 3)) == reused(2));
}

TEST_CASE("a table limited to one ID still identifies a launch that repeats") {
  execution_id_table table{recognition::exact, 1};
  CHECK(table.identify(signature(1, 1)) == fresh(1));
  CHECK(table.identify(signature(1, 1)) == known(1));
  CHECK(table.identify(signature(2, 2)) == reused(1));
  CHECK(table.identify(signature(1, 1)) == reused(1));
}

TEST_CASE("random launches are identified as a plain list would") {
  struct item {
    std::uint32_t id;
    launch_signature signature;
  };
  for (std::uint64_t seed = 1; seed <= deepum_test::scaled(40); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const auto how = seed % 2 != 0 ? recognition::exact : recognition::adaptive;
    const auto limit = static_cast<std::uint32_t>(random() % 3 == 0 ? 0 : 1 + random() % 20);
    execution_id_table table{how, limit};
    std::vector<item> naive;  // least recently seen first

    for (int step = 0; step < 1500; ++step) {
      const std::uint64_t shape = random() % 6;
      const launch_signature s = signature(shape * 1000 + random() % 12, shape);
      const execution_id expected{static_cast<std::uint32_t>(random() % 24)};

      identified want;
      auto place = std::find_if(naive.begin(), naive.end(), [&](const item& i) { return i.signature == s; });
      if (place != naive.end()) {
        want = known(place->id);
      } else {
        place = std::find_if(naive.begin(), naive.end(), [&](const item& i) {
          return how == recognition::adaptive && i.id == expected.value && i.signature.shape == shape;
        });
        if (place != naive.end()) {
          want = rebound(place->id);
        } else if (limit != 0 && naive.size() == limit) {
          place = naive.begin();
          want = reused(place->id);
        } else {
          want = fresh(static_cast<std::uint32_t>(naive.size() + 1));
        }
      }
      if (place != naive.end()) {
        naive.erase(place);
      }
      naive.push_back({want.id.value, s});

      REQUIRE(table.identify(s, expected) == want);
      REQUIRE(table.size() == naive.size());
    }
  }
}

}  // namespace execution_id_table_test
