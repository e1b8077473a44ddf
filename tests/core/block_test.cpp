#include <deepum/core/block.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <iterator>
#include <vector>

namespace block_test {

using namespace deepum;

block_range range(std::uint32_t first, std::uint32_t count) { return {block_id{first}, count}; }

TEST_CASE("a range contains its blocks and overlaps what shares one with it") {
  const block_range r = range(4, 3);
  CHECK(r.last() == block_id{6});
  CHECK_FALSE(r.contains(block_id{3}));
  CHECK(r.contains(block_id{4}));
  CHECK(r.contains(block_id{6}));
  CHECK_FALSE(r.contains(block_id{7}));
  CHECK(r.overlaps(range(6, 1)));
  CHECK(r.overlaps(range(0, 5)));
  CHECK(r.overlaps(range(5, 1)));
  CHECK_FALSE(r.overlaps(range(7, 2)));
  CHECK_FALSE(r.overlaps(range(0, 4)));
  CHECK_FALSE(block_range{}.contains(block_id{0}));
}

TEST_CASE("a range is walked block by block, an empty one not at all") {
  std::vector<block_id> walked;
  for (const block_id b : range(4, 3)) {
    walked.push_back(b);
  }
  CHECK(walked == std::vector<block_id>{block_id{4}, block_id{5}, block_id{6}});
  for ([[maybe_unused]] const block_id b : range(4, 0)) {
    FAIL_CHECK("there is none");
  }
  static_assert(std::forward_iterator<block_range::iterator>);
  const block_range r = range(2, 2);
  CHECK(std::vector<block_id>(r.begin(), r.end()) == std::vector<block_id>{block_id{2}, block_id{3}});
}

TEST_CASE("a block is merged into the range that it follows directly, and only into the last one") {
  std::vector<block_range> ranges;
  for (const std::uint32_t b : {7U, 8U, 3U, 9U, 10U, 10U, 2U}) {
    append_merged(ranges, block_id{b});
  }
  CHECK(ranges == std::vector<block_range>{range(7, 2), range(3, 1), range(9, 2), range(10, 1), range(2, 1)});
}

TEST_CASE("a range falls into runs of blocks that have something and blocks that have not") {
  const auto odd_pair = [](block_id b) { return b.value % 4 >= 2; };
  std::vector<block_range> with;
  for_each_run(range(3, 9), odd_pair, [&](block_range r) { with.push_back(r); });
  CHECK(with == std::vector<block_range>{range(3, 1), range(6, 2), range(10, 2)});
  std::vector<block_range> all;
  for_each_split(range(3, 9), odd_pair, [&](block_range r, bool has) {
    CHECK(has == odd_pair(r.first));
    all.push_back(r);
  });
  CHECK(all == std::vector<block_range>{range(3, 1), range(4, 2), range(6, 2), range(8, 2), range(10, 2)});
  CHECK(count_prefix(range(6, 5), odd_pair) == 2);
  CHECK(count_prefix(range(6, 1), odd_pair) == 1);
  CHECK(count_prefix(range(4, 5), odd_pair) == 0);
  for_each_run(block_range{}, odd_pair, [](block_range) { FAIL_CHECK("there is none"); });
}

}  // namespace block_test
