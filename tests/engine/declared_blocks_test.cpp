#include <deepum/engine/declared_blocks.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace declared_blocks_test {

using namespace deepum;

launch_record declares(std::vector<block_range> ranges) {
  launch_record r;
  for (const block_range range : ranges) {
    r.accesses.push_back({range, access::read});
  }
  return r;
}
block_range blocks(std::uint32_t first, std::uint32_t count) { return {block_id{first}, count}; }

using runs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // first, count
runs distinct(const launch_record& r) {
  runs all;
  detail::for_each_distinct_run(
      r, [&](block_range run) { all.emplace_back(run.begin_value(), static_cast<std::uint32_t>(run.count)); });
  return all;
}

TEST_CASE("a block is visited as often as it is declared, or once") {
  const launch_record r = declares({blocks(4, 3), blocks(5, 4), blocks(0, 1), blocks(5, 1)});
  std::vector<std::uint32_t> visited;
  detail::for_each_declared_block(r, [&](block_id b) { visited.push_back(b.value); });
  CHECK(visited == std::vector<std::uint32_t>{4, 5, 6, 5, 6, 7, 8, 0, 5});
  CHECK(distinct(r) == runs{{0, 1}, {4, 3}, {7, 2}});
  CHECK(detail::distinct_blocks(r) == 6);
}

TEST_CASE("a launch without operands, or with an empty one, declares no block") {
  CHECK(distinct(declares({})).empty());
  CHECK(distinct(declares({blocks(3, 0)})).empty());
  CHECK(detail::distinct_blocks(declares({blocks(3, 0)})) == 0);
}

TEST_CASE("random operands: each block of any of them is in exactly one run, and the runs ascend") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 generator(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(generator() % n); };
    std::vector<block_range> ranges;
    std::set<std::uint32_t> wanted;
    for (std::uint32_t i = below(6); i > 0; --i) {
      ranges.push_back(blocks(below(20), below(8)));
      for (const block_id b : ranges.back()) {
        wanted.insert(b.value);
      }
    }
    std::vector<std::uint32_t> seen;
    for (const auto& [first, count] : distinct(declares(ranges))) {
      for (std::uint32_t b = first; b != first + count; ++b) {
        seen.push_back(b);
      }
    }
    CHECK(seen == std::vector<std::uint32_t>(wanted.begin(), wanted.end()));
  }
}

}  // namespace declared_blocks_test
