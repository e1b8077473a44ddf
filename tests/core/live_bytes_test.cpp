#include "support/test_scale.hpp"
#include <deepum/core/live_bytes.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace live_bytes_test {

using namespace deepum;
using namespace deepum::literals;

TEST_CASE("several inactive ranges that together cover a block count, one that does not is nothing") {
  live_bytes l(4, um_grid);
  std::vector<block_range> changed;
  l.allocate(bytes{0}, 5_MiB, changed);
  CHECK(changed == std::vector<block_range>{{block_id{0}, 3}});
  changed.clear();
  l.mark_inactive(1_MiB, 2_MiB, changed);
  CHECK(changed.empty());
  CHECK(l.of(block_id{0}) == liveness::live);
  l.mark_inactive(bytes{0}, 1_MiB, changed);
  CHECK(changed == std::vector<block_range>{{block_id{0}, 1}});
  CHECK(l.of(block_id{0}) == liveness::inactive);
  changed.clear();
  l.mark_active(bytes{100}, bytes{1}, changed);
  CHECK(changed == std::vector<block_range>{{block_id{0}, 1}});
  CHECK(l.of(block_id{0}) == liveness::live);
  CHECK(l.of(block_id{3}) == liveness::unallocated);
}

TEST_CASE("bytes that are not allocated hold nothing of value either") {
  live_bytes l(2, um_grid);
  std::vector<block_range> changed;
  l.allocate(bytes{0}, 1_MiB, changed);
  l.allocate(1_MiB, 1_MiB, changed);
  changed.clear();
  l.mark_inactive(bytes{0}, 1_MiB, changed);
  CHECK(changed.empty());
  l.deallocate(1_MiB, 1_MiB, changed);
  CHECK(changed == std::vector<block_range>{{block_id{0}, 1}});
  CHECK(l.of(block_id{0}) == liveness::inactive);
  changed.clear();
  l.deallocate(bytes{0}, 1_MiB, changed);
  CHECK(changed == std::vector<block_range>{{block_id{0}, 1}});
  CHECK(l.of(block_id{0}) == liveness::unallocated);
}

TEST_CASE("random changes give the liveness that a byte map gives") {
  // The naive twin keeps units of 64 KiB.
  constexpr std::uint32_t blocks = 6;
  constexpr std::uint32_t units = 32;
  enum class unit : std::uint8_t { none, live, inactive };
  const unsigned seed = 99;
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (std::size_t round = 0; round < deepum_test::scaled(60); ++round) {
    live_bytes l(blocks, um_grid);
    std::vector<unit> naive(blocks * units, unit::none);
    const auto of = [&](std::uint32_t b) {
      liveness how = liveness::unallocated;
      for (std::uint32_t i = b * units; i < (b + 1) * units; ++i) {
        if (naive[i] == unit::live) return liveness::live;
        if (naive[i] == unit::inactive) how = liveness::inactive;
      }
      return how;
    };
    for (int step = 0; step < 80; ++step) {
      const auto first = static_cast<std::uint32_t>(random() % (blocks * units));
      const unsigned what = random() % 4;
      const bool wants_none = what == 0;
      std::uint32_t end = first;  // as far as all units are allocated, or all are not
      const auto longest = static_cast<std::uint32_t>(1 + random() % 80);
      while (end < naive.size() && end - first < longest && (naive[end] == unit::none) == wants_none)
        ++end;
      if (end == first) continue;
      std::vector<liveness> before;
      for (std::uint32_t b = 0; b < blocks; ++b)
        before.push_back(of(b));
      const bytes offset = 64_KiB * first;
      const bytes size = 64_KiB * (end - first);
      std::vector<block_range> changed;
      unit now = unit::live;
      switch (what) {
        case 0:
          l.allocate(offset, size, changed);
          break;
        case 1:
          l.deallocate(offset, size, changed);
          now = unit::none;
          break;
        case 2:
          l.mark_inactive(offset, size, changed);
          now = unit::inactive;
          break;
        default:
          l.mark_active(offset, size, changed);
          break;
      }
      for (std::uint32_t i = first; i < end; ++i)
        naive[i] = now;
      for (std::uint32_t b = 0; b < blocks; ++b) {
        REQUIRE(l.of(block_id{b}) == of(b));
        int reported = 0;
        for (const block_range& r : changed)
          reported += r.contains(block_id{b}) ? 1 : 0;
        REQUIRE(reported == (before[b] != of(b) ? 1 : 0));
      }
    }
  }
}

}  // namespace live_bytes_test
