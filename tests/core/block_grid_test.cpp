#include "support/test_scale.hpp"
#include <deepum/core/block_grid.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>

namespace block_grid_test {

using namespace deepum;

block_range range(std::uint32_t first, std::uint32_t count) { return {block_id{first}, count}; }

TEST_CASE("the blocks of some bytes are those that hold at least one of them") {
  CHECK(um_grid.blocks_of(0_B, 0_B).empty());
  CHECK(um_grid.blocks_of(5_MiB, 0_B).empty());
  CHECK(um_grid.blocks_of(0_B, 1_B) == range(0, 1));
  CHECK(um_grid.blocks_of(0_B, 2_MiB) == range(0, 1));
  CHECK(um_grid.blocks_of(0_B, 2_MiB + 1_B) == range(0, 2));
  CHECK(um_grid.blocks_of(2_MiB - 1_B, 1_B) == range(0, 1));
  CHECK(um_grid.blocks_of(2_MiB - 1_B, 2_B) == range(0, 2));
  CHECK(um_grid.blocks_of(2_MiB, 2_MiB) == range(1, 1));
  CHECK(um_grid.blocks_of(3_MiB, 4_MiB) == range(1, 3));
  CHECK(um_grid.blocks_of(100_GiB, 6_MiB) == range(51200, 3));
}

TEST_CASE("the whole blocks of some bytes are those that hold nothing else") {
  CHECK(um_grid.whole_blocks_of(0_B, 0_B).empty());
  CHECK(um_grid.whole_blocks_of(2_MiB, 0_B).empty());
  CHECK(um_grid.whole_blocks_of(0_B, 2_MiB - 1_B).empty());
  CHECK(um_grid.whole_blocks_of(0_B, 2_MiB) == range(0, 1));
  CHECK(um_grid.whole_blocks_of(1_B, 2_MiB).empty());
  CHECK(um_grid.whole_blocks_of(1_B, 4_MiB - 2_B).empty());
  CHECK(um_grid.whole_blocks_of(1_B, 4_MiB - 1_B) == range(1, 1));
  CHECK(um_grid.whole_blocks_of(3_MiB, 6_MiB) == range(2, 2));
  CHECK(um_grid.whole_blocks_of(4_MiB, 3_MiB) == range(2, 1));
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
    const block_range some = um_grid.blocks_of(bytes{offset}, bytes{size});
    const block_range whole = um_grid.whole_blocks_of(bytes{offset}, bytes{size});
    for (std::uint32_t b = 0; b < 12; ++b) {
      const std::uint64_t begin = b * block_size.count;
      const std::uint64_t end = begin + block_size.count;
      CHECK(some.contains(block_id{b}) == (size != 0 && offset < end && begin < offset + size));
      CHECK(whole.contains(block_id{b}) == (offset <= begin && end <= offset + size));
    }
  }
}

TEST_CASE("blocks may be larger than those of the driver") {
  constexpr bytes block = 16_MiB;
  CHECK(block_grid{block}.blocks_of(bytes{1}, block) == range(0, 2));
  CHECK(block_grid{block}.blocks_of(2 * block, block) == range(2, 1));
  CHECK(block_grid{block}.whole_blocks_of(bytes{1}, 3 * block) == range(1, 2));
  CHECK(block_grid{block}.whole_blocks_of(bytes{1}, block).empty());
}

TEST_CASE("a grid says where its blocks are and how many make up some memory") {
  constexpr block_grid grid{16_MiB};
  CHECK(grid.block() == 16_MiB);
  CHECK(grid.offset_of(block_id{3}) == 48_MiB);
  CHECK(grid.size_of(range(7, 2)) == 32_MiB);
  CHECK(grid.blocks_in(47_MiB) == 2);
  CHECK(grid.blocks_in(1_B) == 1);
}

}  // namespace block_grid_test
