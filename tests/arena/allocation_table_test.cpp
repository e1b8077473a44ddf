#include "support/failure.hpp"
#include "support/test_scale.hpp"
#include <deepum/arena/allocation_table.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace allocation_table_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::failure;
using deepum_test::mentions;

constexpr std::uintptr_t base = 0x7000'0000'0000;

/// The bytes that a pointer names; none where it names nothing.
std::optional<byte_span> found(const allocation_table& t, std::uintptr_t p) {
  named_bytes it;
  return t.try_find(bytes{p - base}, {}, false, it) ? std::optional(it.span) : std::nullopt;
}
byte_span named(const allocation_table& t, std::uintptr_t p) { return found(t, p).value_or(byte_span{}); }

TEST_CASE("wrong frees are told apart, in words that help") {
  allocation_table t(base, 8_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t p = *t.try_allocate(3_MiB, bytes{1}, changes);
  CHECK(mentions(failure(status::invalid_argument, [&] { t.free(p + 4096, {}, true, changes); }),
                 "4096 bytes into an allocation"));
  CHECK(mentions(failure(status::foreign_pointer, [&] { t.free(base - 1, {}, true, changes); }),
                 "not memory of this arena"));
  failure(status::foreign_pointer, [&] { t.free(base + (8_MiB).count, {}, true, changes); });
  t.free(p, {}, true, changes);
  CHECK(mentions(failure(status::double_free, [&] { t.free(p, {}, true, changes); }), "given back already"));
}

TEST_CASE("a free with work in flight waits, also for the second free of the same pointer") {
  allocation_table t(base, 4_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t p = *t.try_allocate(4_MiB, bytes{1}, changes);
  changes.clear();
  t.free(p, launch_id{7}, false, changes);
  REQUIRE(changes.size() == 1);  // its contents are dead at once
  CHECK(changes[0].range == block_range{block_id{0}, 2});
  CHECK(changes[0].now == liveness::inactive);
  CHECK(changes[0].last == launch_id{7});
  changes.clear();
  CHECK_FALSE(found(t, p).has_value());
  CHECK(t.allocated() == bytes{0});
  CHECK(t.peak() == 4_MiB);
  failure(status::double_free, [&] { t.free(p, launch_id{8}, false, changes); });
  CHECK_FALSE(t.try_allocate(bytes{1}, bytes{1}, changes).has_value());
  CHECK(t.awaited() == launch_id{7});
  t.reclaim(launch_id{6}, changes);
  CHECK(changes.empty());
  t.reclaim(launch_id{7}, changes);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].range == block_range{block_id{0}, 2});
  CHECK(changes[0].now == liveness::unallocated);
  CHECK(changes[0].last == launch_id{7});
  CHECK(t.try_allocate(4_MiB, bytes{1}, changes) == p);
}

TEST_CASE("a pointer means its allocation, and where it was split, its part") {
  allocation_table t(base, 16_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t p = *t.try_allocate(10_MiB, bytes{1}, changes);
  CHECK(named(t, p + 5) == byte_span{bytes{0}, 10_MiB});
  const std::array<bytes, 2> parts{1_MiB, 4_MiB};
  t.split(p, parts);
  CHECK(named(t, p) == byte_span{bytes{0}, 1_MiB});
  CHECK(named(t, p + (1_MiB).count - 1) == byte_span{bytes{0}, 1_MiB});
  CHECK(named(t, p + (1_MiB).count) == byte_span{1_MiB, 4_MiB});
  CHECK(named(t, p + (9_MiB).count) == byte_span{5_MiB, 5_MiB});
  CHECK_FALSE(found(t, p + (10_MiB).count).has_value());
  const std::array<bytes, 2> too_much{6_MiB, 5_MiB};
  CHECK(mentions(failure(status::invalid_argument, [&] { t.split(p, too_much); }),
                 "part 1 of 5242880 bytes does not fit"));
  const std::array<bytes, 1> nothing{bytes{0}};
  failure(status::invalid_argument, [&] { t.split(p, nothing); });
  failure(status::foreign_pointer, [&] { t.split(p + 1, parts); });
  CHECK(named(t, p + (9_MiB).count) == byte_span{5_MiB, 5_MiB});
}

TEST_CASE("a part can be named where it is carved, one at a time") {
  allocation_table t(base, 16_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t p = *t.try_allocate(10_MiB, bytes{1}, changes);
  const std::uintptr_t other = *t.try_allocate(1_MiB, bytes{1}, changes);
  t.name_part(p + (2_MiB).count, 3_MiB);
  CHECK(named(t, p) == byte_span{bytes{0}, 2_MiB});
  CHECK(named(t, p + (2_MiB).count) == byte_span{2_MiB, 3_MiB});
  CHECK(named(t, p + (5_MiB).count) == byte_span{5_MiB, 5_MiB});

  t.name_part(p, 1_MiB);  // at the beginning, and up to the end
  t.name_part(p + (9_MiB).count, 1_MiB);
  CHECK(named(t, p) == byte_span{bytes{0}, 1_MiB});
  CHECK(named(t, p + (1_MiB).count) == byte_span{1_MiB, 1_MiB});
  CHECK(named(t, p + (5_MiB).count) == byte_span{5_MiB, 4_MiB});
  CHECK(named(t, p + (9_MiB).count) == byte_span{9_MiB, 1_MiB});

  t.name_part(p + (4_MiB).count, 3_MiB);  // across a boundary: one part, and what is left of the others
  CHECK(named(t, p + (2_MiB).count) == byte_span{2_MiB, 2_MiB});
  CHECK(named(t, p + (6_MiB).count) == byte_span{4_MiB, 3_MiB});
  CHECK(named(t, p + (8_MiB).count) == byte_span{7_MiB, 2_MiB});
  t.name_part(p + (4_MiB).count, 3_MiB);  // again
  CHECK(named(t, p + (3_MiB).count) == byte_span{2_MiB, 2_MiB});
  t.name_part(p, 10_MiB);
  CHECK(named(t, p + (9_MiB).count) == byte_span{bytes{0}, 10_MiB});

  failure(status::invalid_argument, [&] { t.name_part(p, bytes{0}); });
  failure(status::invalid_argument, [&] { t.name_part(other, 2_MiB); });
  failure(status::foreign_pointer, [&] { t.name_part(1, 2_MiB); });
  CHECK(named(t, other) == byte_span{10_MiB, 1_MiB});
}

TEST_CASE("only bytes of one allocation can be marked") {
  allocation_table t(base, 8_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t p = *t.try_allocate(3_MiB, bytes{1}, changes);
  failure(status::invalid_argument, [&] { t.mark_inactive(p, 4_MiB, {}, changes); });
  failure(status::foreign_pointer, [&] { t.mark_inactive(p + (5_MiB).count, 1_MiB, {}, changes); });
  failure(status::foreign_pointer, [&] { t.mark_active(p, 9_MiB, changes); });
  changes.clear();
  t.mark_inactive(p, 3_MiB, launch_id{3}, changes);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].now == liveness::inactive);
  CHECK(changes[0].last == launch_id{3});
  t.free(p, launch_id{3}, true, changes);
  CHECK(t.of(block_id{0}) == liveness::unallocated);
  CHECK(t.of(block_id{1}) == liveness::unallocated);
}

TEST_CASE("random allocations never overlap, are found again, and leave nothing behind") {
  const unsigned seed = 31337;
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (std::size_t round = 0; round < deepum_test::scaled(40); ++round) {
    allocation_table t(base, 64_MiB, block_size);
    std::vector<liveness_change> changes;
    std::map<std::uintptr_t, std::uint64_t> held;     // address -> size
    std::map<std::uintptr_t, std::uint64_t> waiting;  // given back, still in use
    std::vector<std::pair<std::uintptr_t, launch_id>> order;
    std::vector<liveness> told(32, liveness::unallocated);
    std::uint64_t launched = 0;
    for (int step = 0; step < 200; ++step) {
      changes.clear();
      switch (random() % 4) {
        case 0:
        case 1: {
          const std::uint64_t size = 1 + random() % (random() % 4 == 0 ? 9U << 20U : 600U << 10U);
          const auto p = t.try_allocate(bytes{size}, bytes{1}, changes);
          if (!p) break;
          for (const auto* taken : {&held, &waiting}) {
            for (const auto& [at, n] : *taken)
              REQUIRE((at + n <= *p || *p + size <= at));
          }
          held[*p] = size;
          break;
        }
        case 2:
          if (!held.empty()) {
            const auto it = std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
            t.free(it->first, launch_id{++launched}, false, changes);
            order.emplace_back(it->first, launch_id{launched});
            waiting.insert(*it);
            held.erase(it);
          }
          break;
        default:
          if (!order.empty()) {
            const std::size_t n = 1 + random() % order.size();
            t.reclaim(order[n - 1].second, changes);
            for (std::size_t i = 0; i < n; ++i)
              waiting.erase(order[i].first);
            order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n));
          }
      }
      for (const auto& c : changes) {
        for (std::uint32_t b = c.range.begin_value(); b < c.range.end_value(); ++b)
          told[b] = c.now;
      }
      for (std::uint32_t b = 0; b < 32; ++b)
        REQUIRE(told[b] == t.of(block_id{b}));
      for (const auto& [at, n] : held)
        REQUIRE(named(t, at + n / 2) == byte_span{bytes{at - base}, bytes{n}});
    }
    for (const auto& [at, n] : held)
      t.free(at, launch_id{++launched}, false, changes);
    t.reclaim(launch_id{launched}, changes);
    CHECK(t.largest_gap() == 64_MiB);
    CHECK(t.allocated() == bytes{0});
  }
}

TEST_CASE("a part begins where an allocation is cut, and nowhere else") {
  allocation_table t(base, 16_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t p = *t.try_allocate(10_MiB, bytes{256}, changes);
  CHECK(t.cut(p + (4_MiB).count, 2_MiB, 4));
  CHECK_FALSE(t.cut(p + (4_MiB).count, 2_MiB, 4));  // it begins there already
  CHECK_FALSE(t.cut(p, 2_MiB, 4));
  CHECK(named(t, p + (4_MiB).count - 1) == byte_span{bytes{}, 4_MiB});
  CHECK(named(t, p + (4_MiB).count) == byte_span{4_MiB, 6_MiB});
  CHECK(t.cut(p + (2_MiB).count, 2_MiB, 4));
  CHECK(named(t, p + (3_MiB).count) == byte_span{2_MiB, 2_MiB});
  CHECK(t.cut(p + (6_MiB).count, 2_MiB, 4));
  CHECK_FALSE(t.cut(p + (8_MiB).count, 2_MiB, 4));  // it has as many parts as it may
  CHECK(named(t, p + (9_MiB).count) == byte_span{6_MiB, 4_MiB});
}

TEST_CASE("places close behind the beginning of a part are taken for the same object") {
  allocation_table t(base, 16_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t p = *t.try_allocate(10_MiB, bytes{256}, changes);
  CHECK_FALSE(t.cut(p + 1536, 2_MiB, 100));
  CHECK(t.cut(p + (4_MiB).count, 2_MiB, 100));
  CHECK_FALSE(t.cut(p + (4_MiB).count + 1536, 2_MiB, 100));
  CHECK(named(t, p + (4_MiB).count + 1536) == byte_span{4_MiB, 6_MiB});
}

TEST_CASE("an allocation is not cut where that would make no difference, nor what is none") {
  allocation_table t(base, 16_MiB, block_size);
  std::vector<liveness_change> changes;
  const std::uintptr_t small = *t.try_allocate(2_MiB, bytes{256}, changes);
  CHECK_FALSE(t.cut(small + 512, 2_MiB, 4));
  const std::uintptr_t large = *t.try_allocate(4_MiB, bytes{256}, changes);
  t.free(large, launch_id{1}, false, changes);
  CHECK_FALSE(t.cut(large + 512, 2_MiB, 4));
  CHECK_FALSE(t.cut(1, 2_MiB, 4));
}

}  // namespace allocation_table_test
