#include <deepum/core/offset_map.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using map = deepum::detail::offset_map<std::string>;

TEST_CASE("an offset map finds the value at or before an offset") {
  map m;
  CHECK_FALSE(m.at_or_before(0));
  m.insert(10, "ten");
  m.insert(30, "thirty");
  CHECK_FALSE(m.at_or_before(9));
  CHECK(*m.at_or_before(10).value == "ten");
  CHECK(m.at_or_before(29).offset == 10);
  CHECK(*m.at_or_before(1000).value == "thirty");
  *m.at_or_before(31).value = "changed";
  CHECK(*static_cast<const map&>(m).at_or_before(30).value == "changed");
  m.erase(10);
  CHECK_FALSE(m.at_or_before(29));
  CHECK(m.size() == 1);
}

TEST_CASE("an offset map does what std::map does, for random changes") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    map m;
    std::map<std::uint64_t, std::string> model;
    const std::uint64_t range = seed % 2 == 0 ? 2'000 : 200'000;
    for (int i = 0; i < 40'000; ++i) {
      const std::uint64_t offset = random() % range;
      const bool grows = i / 8'000 % 2 == 0;
      if (random() % 4 < (grows ? 3 : 1)) {
        if (!model.contains(offset)) {
          m.insert(offset, std::to_string(i));
          model.emplace(offset, std::to_string(i));
        }
      } else if (auto it = model.lower_bound(offset); it != model.end()) {
        m.erase(it->first);
        model.erase(it);
      }
      const auto behind = model.upper_bound(offset);
      const auto found = m.at_or_before(offset);
      REQUIRE(static_cast<bool>(found) == (behind != model.begin()));
      if (found) {
        REQUIRE(found.offset == std::prev(behind)->first);
        REQUIRE(*found.value == std::prev(behind)->second);
      }
      REQUIRE(m.size() == model.size());
    }
  }
}

TEST_CASE("pages of an offset map are full where offsets ascend, and go when most of what they held has gone") {
  constexpr std::size_t many = 100 * map::most;
  map m;
  for (std::uint64_t i = 0; i != many; ++i) {
    m.insert(i, "x");
  }
  CHECK(m.pages() == 100);
  for (std::uint64_t i = 0; i != many; ++i) {
    if (i % map::most != 0) {
      m.erase(i);
    }
  }
  CHECK(m.size() == 100);
  CHECK(m.pages() <= 4);
  for (std::uint64_t i = 0; i != many; i += map::most) {
    m.erase(i);
  }
  CHECK(m.pages() == 0);
}

}  // namespace
