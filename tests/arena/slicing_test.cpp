// Where the grid of a launch is cut: pure functions of operands, grid and room.

#include "support/failure.hpp"
#include <deepum/arena/slicing.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace slicing_test {

using namespace deepum;
using namespace deepum::literals;
using deepum::access;  // not that of POSIX
using deepum_test::failure;
using deepum_test::mentions;
using detail::all_of;
using detail::mode_of;
using detail::part_of;
using detail::slice_along;
using detail::slice_cuts;
using detail::sliced_access;
using detail::slicing;

constexpr block_grid unit{1_MiB};

sliced_access by(grid_axis axis, bytes offset, bytes size, bytes step, access mode = access::update, bytes halo = {}) {
  return {offset, size, mode, {false, axis, step, halo}, {}};
}
sliced_access anywhere(bytes offset, bytes size, access mode = access::read) { return {offset, size, mode, {}, {}}; }
bool operator==(const byte_span& a, std::pair<std::uint64_t, std::uint64_t> b) {
  return a.offset.count == b.first && a.size.count == b.second;
}

TEST_CASE("a slice touches the bytes of its places, with a halo on either side, as far as the operand reaches") {
  const dim grid{1, 10, 1};
  const sliced_access rows = by(grid_axis::y, 0_B, 95_B, 10_B);
  CHECK(part_of(rows, slice_along(grid, grid_axis::y, 0, 3)) == std::pair{0UL, 30UL});
  CHECK(part_of(rows, slice_along(grid, grid_axis::y, 7, 3)) == std::pair{70UL, 25UL});
  CHECK(part_of(rows, slice_along(grid, grid_axis::y, 9, 1)) == std::pair{90UL, 5UL});
  const sliced_access with_halo = by(grid_axis::y, 0_B, 95_B, 10_B, access::read, 12_B);
  CHECK(part_of(with_halo, slice_along(grid, grid_axis::y, 0, 3)) == std::pair{0UL, 42UL});
  CHECK(part_of(with_halo, slice_along(grid, grid_axis::y, 5, 1)) == std::pair{38UL, 34UL});
  CHECK(part_of(with_halo, slice_along(grid, grid_axis::y, 9, 1)) == std::pair{78UL, 17UL});
  CHECK(part_of(rows, slice_along(dim{4, 10, 1}, grid_axis::x, 2, 1)) == std::pair{0UL, 95UL});
  CHECK(part_of(anywhere(0_B, 95_B), slice_along(grid, grid_axis::y, 7, 3)) == std::pair{0UL, 95UL});
}

TEST_CASE("what several slices write is not overwritten by each of them") {
  const dim grid{8, 8, 1};
  const sliced_access rows = by(grid_axis::y, 0_B, 800_B, 100_B, access::overwrite);
  CHECK(mode_of(rows, all_of(grid)) == access::overwrite);
  CHECK(mode_of(rows, slice_along(grid, grid_axis::y, 2, 2)) == access::overwrite);
  CHECK(mode_of(rows, slice_along(grid, grid_axis::x, 2, 2)) == access::update);
  const sliced_access all = anywhere(0_B, 800_B, access::overwrite);
  CHECK(mode_of(all, all_of(grid)) == access::overwrite);
  CHECK(mode_of(all, slice_along(grid, grid_axis::y, 2, 2)) == access::update);
  CHECK(mode_of(by(grid_axis::y, 0_B, 800_B, 100_B, access::read), slice_along(grid, grid_axis::x, 2, 2)) ==
        access::read);
}

TEST_CASE("slices are all of the grid, each place once, whatever is left over") {
  for (const unsigned places : {1U, 2U, 7U, 63U, 64U, 65U}) {
    for (const unsigned each : {1U, 2U, 63U, 64U, 65U}) {
      const slice_cuts cuts{dim{3, places, 2}, grid_axis::y, each};
      unsigned next = 0;
      for (std::size_t i = 0; i < cuts.size(); ++i) {
        const grid_slice s = cuts[i];
        CHECK(s.grid == dim{3, places, 2});
        CHECK(s.begin == dim{0, next, 0});
        CHECK(s.blocks.x == 3);
        CHECK(s.blocks.z == 2);
        CHECK(s.blocks.y >= 1);
        CHECK(s.blocks.y <= each);
        next += s.blocks.y;
      }
      CHECK(next == places);
    }
  }
}

TEST_CASE("each slice fits beside the next one, and memory is cut where its blocks end") {
  const std::vector<sliced_access> arrays{by(grid_axis::x, 0_MiB, 96_MiB, 1_KiB),
                                          by(grid_axis::x, 96_MiB, 96_MiB, 1_KiB),
                                          by(grid_axis::x, 192_MiB, 48_MiB, 512_B, access::read)};
  const slicing planner(dim{96 * 1024}, arrays, unit);
  CHECK(planner.footprint(all_of(dim{96 * 1024})) == 240);
  const std::optional<slice_cuts> cuts = planner.cut(95);
  REQUIRE(cuts);
  CHECK(cuts->axis == grid_axis::x);
  CHECK(planner.fit(*cuts, 95));
  CHECK(cuts->places % 2048 == 0);             // of the third array, too, which has 512 bytes for each place
  CHECK(planner.footprint((*cuts)[0]) == 10);  // about an eighth of the room
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < cuts->size(); ++i) {
    sum += planner.footprint((*cuts)[i]);
  }
  CHECK(sum == 240);  // no block belongs to two slices
}

TEST_CASE("the dimension is cut along which a slice touches least") {
  // C (rows along y) = A (rows along y) * B, which every row needs, and the other way round.
  const std::vector<sliced_access> by_rows{by(grid_axis::y, 0_MiB, 64_MiB, 1_MiB),
                                           by(grid_axis::y, 64_MiB, 64_MiB, 1_MiB), anywhere(128_MiB, 8_MiB)};
  const std::optional<slice_cuts> rows = slicing(dim{64, 64, 1}, by_rows, unit).cut(32);
  REQUIRE(rows);
  CHECK(rows->axis == grid_axis::y);
  CHECK(rows->places == 1);
  const std::vector<sliced_access> by_columns{by(grid_axis::x, 0_MiB, 64_MiB, 1_MiB),
                                              by(grid_axis::x, 64_MiB, 64_MiB, 1_MiB),
                                              by(grid_axis::y, 128_MiB, 8_MiB, 128_KiB, access::read)};
  const std::optional<slice_cuts> columns = slicing(dim{64, 64, 1}, by_columns, unit).cut(64);
  REQUIRE(columns);
  CHECK(columns->axis == grid_axis::x);
  // Where two are as good, neighbours along x stay together.
  const std::vector<sliced_access> either{by(grid_axis::x, 0_MiB, 8_MiB, 1_MiB), by(grid_axis::y, 8_MiB, 8_MiB, 1_MiB)};
  CHECK(slicing(dim{8, 8, 1}, either, unit).smallest().second == grid_axis::y);
}

TEST_CASE("nothing is cut where the smallest slice does not fit; one that fits alone is taken where two do not") {
  const std::vector<sliced_access> wide{by(grid_axis::z, 0_MiB, 40_MiB, 10_MiB), anywhere(40_MiB, 5_MiB)};
  const slicing planner(dim{1, 1, 4}, wide, unit);
  CHECK_FALSE(planner.cut(14));
  CHECK(planner.smallest() == std::pair<std::uint64_t, grid_axis>{15, grid_axis::z});
  const std::optional<slice_cuts> alone = planner.cut(15);
  REQUIRE(alone);
  CHECK(alone->places == 1);
  CHECK_FALSE(planner.fit(*alone, 15));
  CHECK(planner.fit(*alone, 25));
  CHECK_FALSE(slicing(dim{}, wide, unit).cut(40));  // a grid of one thread block
}

TEST_CASE("a function of the program may tell the parts") {
  std::vector<sliced_access> odd(1);
  odd[0].offset = 0_MiB;
  odd[0].size = 64_MiB;
  odd[0].part = [](const grid_slice& s) {  // the square of its place
    const std::uint64_t from = std::uint64_t{s.begin.x} * s.begin.x;
    const std::uint64_t to = std::uint64_t{s.begin.x + s.blocks.x} * (s.begin.x + s.blocks.x);
    return byte_span{1_MiB * from, 1_MiB * (to - from)};
  };
  const slicing planner(dim{8}, odd, unit);
  const std::optional<slice_cuts> cuts = planner.cut(28);
  REQUIRE(cuts);
  CHECK(cuts->places == 1);
  CHECK(planner.fit(*cuts, 28));
  CHECK_FALSE(planner.fit(*cuts, 27));
}

TEST_CASE("whatever the shapes, what is cut fits and is all of the grid") {
  std::mt19937 random(7);
  const auto pick = [&](unsigned most) { return 1 + static_cast<unsigned>(random() % most); };
  unsigned cut = 0;
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const dim grid{pick(300), pick(4), pick(3)};
    std::vector<sliced_access> arrays;
    bytes at{};
    for (unsigned i = 0, n = pick(5); i < n; ++i) {
      const auto axis = static_cast<grid_axis>(random() % 4 == 0 ? 1 : 0);
      const bytes step{pick(700'000)};
      const bytes size = bytes{step.count * detail::extent_along(grid, axis) - random() % step.count};
      const bool read = random() % 2 == 0;
      arrays.push_back(random() % 5 == 0 ? anywhere(at, size)
                                         : by(axis, at, size, step, read ? access::read : access::update,
                                              bytes{read ? pick(5000) : 0}));
      at += size + bytes{pick(100'000)};
    }
    const slicing planner(grid, arrays, unit);
    const std::uint64_t room = pick(200);
    const std::optional<slice_cuts> cuts = planner.cut(room);
    if (!cuts) {
      CHECK((grid == dim{} || planner.smallest().first > room || planner.smallest().first + 10 > room));
      continue;
    }
    ++cut;
    unsigned next = 0;
    for (std::size_t i = 0; i < cuts->size(); ++i) {
      CHECK(detail::extent_along((*cuts)[i].begin, cuts->axis) == next);
      next += detail::extent_along((*cuts)[i].blocks, cuts->axis);
      CHECK(planner.footprint((*cuts)[i]) <= room);
    }
    CHECK(next == detail::extent_along(grid, cuts->axis));
    CHECK((planner.fit(*cuts, room) || cuts->places == 1));
  }
  CHECK(cut > 100);
}

TEST_CASE("a description that does not fit its operand and the grid is refused in words") {
  const auto fits = [](bytes step, access mode, bytes halo, bytes size) {
    detail::check_shape("scale", 2, {false, grid_axis::x, step, halo}, mode, size, dim{10});
  };
  const auto check = [&](bytes step, access mode, bytes halo, bytes size) {
    return failure(status::invalid_argument, [&] { fits(step, mode, halo, size); });
  };
  CHECK_NOTHROW(fits(100_B, access::update, 0_B, 1000_B));
  CHECK_NOTHROW(fits(100_B, access::update, 0_B, 901_B));
  CHECK_NOTHROW(fits(100_B, access::read, 7_B, 1000_B));
  CHECK_NOTHROW(fits(100_B, access::update, 0_B, 0_B));
  CHECK(mentions(check(0_B, access::update, 0_B, 1000_B), "argument 2, which it describes by_x, has no elements"));
  CHECK(mentions(check(100_B, access::update, 7_B, 1000_B), "is written and has a halo"));
  CHECK(mentions(check(100_B, access::read, 0_B, 1001_B), "does not reach all of them"));
  CHECK(mentions(check(100_B, access::read, 0_B, 900_B), "they end at place 9"));
  CHECK(mentions(check(400_B, access::read, 0_B, 1000_B), "give the elements of one place, not bytes"));
  CHECK(mentions(check(100_B, access::read, 0_B, bytes{std::numeric_limits<std::uint64_t>::max() / 2}), "reach all"));
}

}  // namespace slicing_test
