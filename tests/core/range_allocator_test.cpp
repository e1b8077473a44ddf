#include "support/test_scale.hpp"
#include <deepum/core/range_allocator.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace range_allocator_test {

using namespace deepum;
using namespace deepum::literals;

/// The same rules over an array of units of 256 bytes, with nothing clever.
class naive_allocator {
 public:
  explicit naive_allocator(bytes capacity) : used_(capacity.count / 256) {}

  std::optional<bytes> try_allocate(bytes size, bytes alignment) {
    const std::uint64_t need = (size.count + 255) / 256;
    std::optional<std::uint64_t> best;
    std::uint64_t best_gap = 0;
    for (std::uint64_t i = 0; i < used_.size();) {
      std::uint64_t end = i;
      while (end < used_.size() && !used_[end])
        ++end;
      for (std::uint64_t at = i; at + need <= end; ++at) {
        if (allowed(at, need, size, alignment)) {
          if (!best || end - i < best_gap) {
            best = at;
            best_gap = end - i;
          }
          break;
        }
      }
      i = std::max(end, i + 1);
    }
    if (best) std::fill_n(used_.begin() + static_cast<std::ptrdiff_t>(*best), need, true);
    return best ? std::optional<bytes>(bytes{*best * 256}) : std::nullopt;
  }
  void release(bytes offset, bytes size) {
    std::fill_n(used_.begin() + static_cast<std::ptrdiff_t>(offset.count / 256), (size.count + 255) / 256, false);
  }
  bytes free() const { return bytes{static_cast<std::uint64_t>(std::count(used_.begin(), used_.end(), false)) * 256}; }
  bytes largest_gap() const {
    std::uint64_t most = 0;
    std::uint64_t here = 0;
    for (const bool u : used_)
      most = std::max(most, here = u ? 0 : here + 1);
    return bytes{most * 256};
  }

 private:
  static bool allowed(std::uint64_t at, std::uint64_t need, bytes size, bytes alignment) {
    const std::uint64_t block = block_size.count / 256;
    if (at * 256 % alignment.count != 0) return false;
    return size >= 1_MiB ? at % block == 0 : at / block == (at + need - 1) / block;
  }
  std::vector<bool> used_;
};

TEST_CASE("large ranges begin at a block boundary and small ones fill the gaps behind them") {
  range_allocator a(16_MiB, block_size);
  CHECK(a.try_allocate(bytes{100}) == bytes{0});
  CHECK(a.try_allocate(3_MiB) == 2_MiB);
  CHECK(a.try_allocate(1_MiB) == 6_MiB);
  CHECK(a.try_allocate(900_KiB) == 5_MiB);  // the smallest gap that holds it is the tail of the first large one
  CHECK(a.try_allocate(bytes{1}) == 5_MiB + 900_KiB);
}

TEST_CASE("a small range does not straddle a block boundary") {
  range_allocator a(4_MiB, block_size);
  CHECK(a.try_allocate(900_KiB) == bytes{0});
  CHECK(a.try_allocate(900_KiB) == 900_KiB);
  CHECK(a.try_allocate(900_KiB) == 2_MiB);
  CHECK(a.try_allocate(200_KiB) == 1800_KiB);
}

TEST_CASE("an alignment is kept") {
  range_allocator a(4_MiB, block_size);
  CHECK(a.try_allocate(bytes{10}) == bytes{0});
  CHECK(a.try_allocate(bytes{10}, 64_KiB) == 64_KiB);
  CHECK(a.try_allocate(bytes{10}, bytes{1}) == bytes{256});
}

TEST_CASE("given-back ranges merge on both sides and are reused") {
  range_allocator a(8_MiB, block_size);
  std::vector<bytes> at;
  for (int i = 0; i < 4; ++i)
    at.push_back(*a.try_allocate(2_MiB));
  CHECK_FALSE(a.try_allocate(bytes{1}).has_value());
  a.release(at[0], 2_MiB);
  a.release(at[2], 2_MiB);
  CHECK(a.largest_gap() == 2_MiB);
  CHECK_FALSE(a.try_allocate(4_MiB).has_value());
  a.release(at[1], 2_MiB);
  CHECK(a.largest_gap() == 6_MiB);
  CHECK(a.try_allocate(6_MiB) == bytes{0});
  CHECK(a.free() == bytes{0});
}

TEST_CASE("what can never fit is refused, however large") {
  range_allocator a(4_MiB, block_size);
  CHECK_FALSE(a.try_allocate(bytes{~std::uint64_t{0}}).has_value());
  CHECK_FALSE(a.try_allocate(4_MiB + bytes{1}).has_value());
  CHECK(a.try_allocate(4_MiB).has_value());
  range_allocator none(bytes{0}, block_size);
  CHECK_FALSE(none.try_allocate(bytes{1}).has_value());
}

TEST_CASE("random requests give the addresses that the naive allocator gives") {
  const unsigned seed = 4711;
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (std::size_t round = 0; round < deepum_test::scaled(8); ++round) {
    range_allocator a(8_MiB, block_size);
    naive_allocator naive(8_MiB);
    std::vector<std::pair<bytes, bytes>> held;
    for (int step = 0; step < 150; ++step) {
      if (random() % 5 < 3) {
        const std::uint64_t limit = random() % 3 == 0 ? 3U << 20U : 1U << (8U + random() % 13U);
        const bytes size{1 + random() % limit};
        const bytes alignment{1U << (random() % 18U)};
        const auto got = a.try_allocate(size, alignment);
        REQUIRE(got == naive.try_allocate(size, alignment));
        if (got) held.emplace_back(*got, size);
      } else if (!held.empty()) {
        const std::size_t i = random() % held.size();
        a.release(held[i].first, held[i].second);
        naive.release(held[i].first, held[i].second);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      }
      REQUIRE(a.free() == naive.free());
      REQUIRE(a.largest_gap() == naive.largest_gap());
    }
  }
}

TEST_CASE("with larger blocks, ranges of half a block begin at one, and smaller ones never straddle two") {
  constexpr bytes block{std::uint64_t{16} << 20};
  range_allocator space(8 * block, block);
  CHECK(space.try_allocate(bytes{1000}) == bytes{0});
  CHECK(space.try_allocate(bytes{block.count / 2}) == block);
  CHECK(space.try_allocate(bytes{block.count / 2 - 256}) == bytes{1024});
  CHECK(space.try_allocate(bytes{block.count / 2 - 256}) == bytes{block.count + block.count / 2});
  CHECK(space.try_allocate(bytes{block.count / 2 - 256}) == bytes{2 * block.count});
}

TEST_CASE("the cost of a range grows with the logarithm of the gaps, whatever makes them unfit") {
  constexpr int ranges = 4000;
  const auto looked_at = [](bytes capacity, auto&& fill) {
    range_allocator a(capacity, block_size);
    fill(a);
    return static_cast<double>(a.gaps_looked_at()) / ranges;
  };
  const auto allocate = [](range_allocator& a, bytes size, bytes alignment = range_allocator::granularity) {
    for (int i = 0; i < ranges; ++i) {
      REQUIRE(a.try_allocate(size, alignment).has_value());
    }
  };
  constexpr double most = 80;  // a search tree of 4,000 gaps is some 30 deep
  // Each leaves half a block that no other can begin in.
  CHECK(looked_at(16_GiB, [&](range_allocator& a) { allocate(a, 1_MiB); }) < most);
  CHECK(looked_at(16_GiB, [&](range_allocator& a) { allocate(a, 1500_KiB); }) < most);
  CHECK(looked_at(16_GiB, [&](range_allocator& a) { allocate(a, 260_KiB, 1_MiB); }) < most);
  CHECK(looked_at(16_GiB, [&](range_allocator& a) { allocate(a, 300_KiB, 512_KiB); }) < most);
  // Gaps that a block boundary divides, so that none of their parts is large enough.
  CHECK(looked_at(16_GiB, [&](range_allocator& a) {
          std::vector<bytes> first;
          for (int i = 0; i < ranges; ++i) {
            for (int k = 0; k < 3; ++k) {
              const bytes at = *a.try_allocate(600_KiB);
              if (k == 0) {
                first.push_back(at);
              }
            }
          }
          for (const bytes at : first) {
            a.release(at, 600_KiB);
          }
          allocate(a, 700_KiB);
        }) < 5 * most);
}

TEST_CASE("random requests with blocks of 16 MiB and large alignments give ranges that keep all rules") {
  constexpr bytes block{std::uint64_t{16} << 20};
  std::mt19937_64 generator(7);
  const auto below = [&](std::uint64_t n) { return generator() % n; };
  range_allocator a(64 * block, block);
  std::vector<std::pair<bytes, bytes>> held;
  for (std::size_t step = 0; step < deepum_test::scaled(4000); ++step) {
    if (below(5) < 3) {
      const bytes size{1 + below(std::uint64_t{1} << (8 + below(18)))};
      const bytes alignment{std::uint64_t{1} << below(26)};
      const auto got = a.try_allocate(size, alignment);
      if (!got) continue;
      CHECK(got->count % std::max<std::uint64_t>(alignment.count, 256) == 0);
      const bool large = size.count >= block.count / 2;
      CHECK((large ? got->count % block.count == 0
                   : got->count / block.count == (got->count + size.count - 1) / block.count));
      for (const auto& [at, length] : held) {
        REQUIRE((got->count >= at.count + length.count || got->count + size.count <= at.count));
      }
      held.emplace_back(*got, size);
    } else if (!held.empty()) {
      const std::size_t i = below(held.size());
      a.release(held[i].first, held[i].second);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  for (const auto& [at, length] : held) {
    a.release(at, length);
  }
  CHECK(a.largest_gap() == 64 * block);
}

}  // namespace range_allocator_test
