#include "../support/test_scale.hpp"
#include <deepum/core/block.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace block_test {

using namespace deepum;

block_range range(std::uint32_t first, std::uint32_t count) { return {block_id{first}, count}; }

TEST_CASE("the blocks of some bytes are those that hold at least one of them") {
  CHECK(blocks_of(0_B, 0_B).empty());
  CHECK(blocks_of(5_MiB, 0_B).empty());
  CHECK(blocks_of(0_B, 1_B) == range(0, 1));
  CHECK(blocks_of(0_B, 2_MiB) == range(0, 1));
  CHECK(blocks_of(0_B, 2_MiB + 1_B) == range(0, 2));
  CHECK(blocks_of(2_MiB - 1_B, 1_B) == range(0, 1));
  CHECK(blocks_of(2_MiB - 1_B, 2_B) == range(0, 2));
  CHECK(blocks_of(2_MiB, 2_MiB) == range(1, 1));
  CHECK(blocks_of(3_MiB, 4_MiB) == range(1, 3));
  CHECK(blocks_of(100_GiB, 6_MiB) == range(51200, 3));
}

TEST_CASE("the whole blocks of some bytes are those that hold nothing else") {
  CHECK(whole_blocks_of(0_B, 0_B).empty());
  CHECK(whole_blocks_of(2_MiB, 0_B).empty());
  CHECK(whole_blocks_of(0_B, 2_MiB - 1_B).empty());
  CHECK(whole_blocks_of(0_B, 2_MiB) == range(0, 1));
  CHECK(whole_blocks_of(1_B, 2_MiB).empty());
  CHECK(whole_blocks_of(1_B, 4_MiB - 2_B).empty());
  CHECK(whole_blocks_of(1_B, 4_MiB - 1_B) == range(1, 1));
  CHECK(whole_blocks_of(3_MiB, 6_MiB) == range(2, 2));
  CHECK(whole_blocks_of(4_MiB, 3_MiB) == range(2, 1));
}

TEST_CASE("blocks of bytes agree with a look at every block") {
  for (std::uint64_t seed = 1; seed <= deepum_test::scaled(200); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    // Near the edges of blocks as often as anywhere.
    const auto draw = [&](std::uint64_t blocks) {
      const std::uint64_t edge = random() % blocks * block_size.count;
      return random() % 2 != 0 ? edge + random() % block_size.count : edge + random() % 3;
    };
    const std::uint64_t offset = draw(6);
    const std::uint64_t size = draw(4);
    const block_range some = blocks_of(bytes{offset}, bytes{size});
    const block_range whole = whole_blocks_of(bytes{offset}, bytes{size});
    for (std::uint32_t b = 0; b < 12; ++b) {
      const std::uint64_t begin = b * block_size.count;
      const std::uint64_t end = begin + block_size.count;
      CHECK(some.contains(block_id{b}) == (size != 0 && offset < end && begin < offset + size));
      CHECK(whole.contains(block_id{b}) == (offset <= begin && end <= offset + size));
    }
  }
}

TEST_CASE("a range contains its blocks and overlaps what shares one with it") {
  const block_range r = range(4, 3);
  CHECK(r.last() == block_id{6});
  CHECK(r.size() == 6_MiB);
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

TEST_CASE("a block is merged into the range that it follows directly, and only into the last one") {
  std::vector<block_range> ranges;
  for (const std::uint32_t b : {7U, 8U, 3U, 9U, 10U, 10U, 2U}) {
    append_merged(ranges, block_id{b});
  }
  CHECK(ranges == std::vector<block_range>{range(7, 2), range(3, 1), range(9, 2), range(10, 1), range(2, 1)});
}

TEST_CASE("blocks may be larger than those of the driver") {
  constexpr bytes block{std::uint64_t{16} << 20};
  CHECK(blocks_of(bytes{1}, block, block) == range(0, 2));
  CHECK(blocks_of(2 * block, block, block) == range(2, 1));
  CHECK(whole_blocks_of(bytes{1}, 3 * block, block) == range(1, 2));
  CHECK(whole_blocks_of(bytes{1}, block, block).empty());
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
