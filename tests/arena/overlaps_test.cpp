#include "support/test_scale.hpp"
#include <deepum/arena/overlaps.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace overlaps_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX

block_access declared(access mode, std::uint32_t first, std::uint32_t count) {
  return {{block_id{first}, count}, mode};
}

TEST_CASE("an overwrite that overlaps a read or an update becomes an update, whichever comes first") {
  for (const access other : {access::read, access::update}) {
    std::vector<block_access> all{declared(access::overwrite, 0, 4), declared(other, 3, 1),
                                  declared(access::overwrite, 4, 4)};
    detail::degrade_overlapped(all);
    CHECK(all == std::vector<block_access>{declared(access::update, 0, 4), declared(other, 3, 1),
                                           declared(access::overwrite, 4, 4)});
  }
}

TEST_CASE("overwrites that overlap each other alone stay; what hangs together with an update does not") {
  std::vector<block_access> alone{declared(access::overwrite, 0, 4), declared(access::overwrite, 2, 4)};
  detail::degrade_overlapped(alone);
  CHECK(alone[0].mode == access::overwrite);
  CHECK(alone[1].mode == access::overwrite);
  // The middle one is an update, so the first one overlaps an update too.
  std::vector<block_access> chain{declared(access::overwrite, 0, 4), declared(access::overwrite, 2, 4),
                                  declared(access::update, 5, 1)};
  detail::degrade_overlapped(chain);
  CHECK(chain[0].mode == access::update);
  CHECK(chain[1].mode == access::update);
}

TEST_CASE("random accesses: no overwrite that is left overlaps anything else, and the others have a reason") {
  std::mt19937 random(17);
  for (std::size_t round = 0; round < deepum_test::scaled(2000); ++round) {
    std::vector<block_access> all(1 + random() % 60);
    for (block_access& a : all) {
      a = declared(static_cast<access>(random() % 4 == 0 ? random() % 2 : 2),
                   static_cast<std::uint32_t>(random() % 300), 1 + static_cast<std::uint32_t>(random() % 6));
    }
    const std::vector<block_access> before = all;
    detail::degrade_overlapped(all);
    // The same by repeating the rule until nothing changes.
    std::vector<block_access> naive = before;
    for (bool changed = true; changed;) {
      changed = false;
      for (block_access& a : naive) {
        for (const block_access& b : naive) {
          if (a.mode == access::overwrite && b.mode != access::overwrite && a.range.overlaps(b.range)) {
            a.mode = access::update;
            changed = true;
          }
        }
      }
    }
    REQUIRE(all == naive);
  }
}

TEST_CASE("each of a thousand operands is compared once") {
  std::vector<block_access> all;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    all.push_back(declared(i % 2 == 0 ? access::overwrite : access::read, 7 * (i * 619 % 1000), 3));
  }
  CHECK(detail::degrade_overlapped(all) <= all.size());
}

}  // namespace overlaps_test
