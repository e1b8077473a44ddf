#pragma once

#include <deepum/arena/slicing.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE grid_slice slice_along(dim grid, grid_axis axis, unsigned begin, unsigned places) {
  grid_slice s = all_of(grid);
  unsigned& from = axis == grid_axis::x ? s.begin.x : axis == grid_axis::y ? s.begin.y : s.begin.z;
  unsigned& extent_there = axis == grid_axis::x ? s.blocks.x : axis == grid_axis::y ? s.blocks.y : s.blocks.z;
  from = begin;
  extent_there = places;
  return s;
}

DEEPUM_SEPARATE byte_span part_of(const sliced_access& of, const grid_slice& slice) {
  if (of.part) {
    return of.part(slice);
  }
  if (of.shape.everywhere) {
    return {bytes{}, of.size};
  }
  const std::uint64_t step = of.shape.step.count;
  const std::uint64_t from = extent_along(slice.begin, of.shape.axis) * step;
  const std::uint64_t to = from + extent_along(slice.blocks, of.shape.axis) * step + of.shape.halo.count;
  const std::uint64_t begin = std::min(from - std::min(from, of.shape.halo.count), of.size.count);
  return {bytes{begin}, bytes{std::min(to, of.size.count) - begin}};
}

DEEPUM_SEPARATE access mode_of(const sliced_access& of, const grid_slice& slice) {
  if (of.mode != access::overwrite || of.part) {
    return of.mode;
  }
  // Cut along another dimension than its own, every slice touches all of it and overwrites some.
  for (const grid_axis axis : {grid_axis::x, grid_axis::y, grid_axis::z}) {
    const bool its_own = !of.shape.everywhere && of.shape.axis == axis;
    if (!its_own && extent_along(slice.blocks, axis) != extent_along(slice.grid, axis)) {
      return access::update;
    }
  }
  return access::overwrite;
}

DEEPUM_SEPARATE void check_shape(std::string_view launch, std::size_t position, const slice_shape& shape, access mode,
                                 bytes size, dim grid) {
  if (shape.everywhere) {
    return;
  }
  const std::uint64_t step = shape.step.count;
  const std::uint64_t places = extent_along(grid, shape.axis);
  const std::uint64_t used = step == 0 ? 0 : (size.count - (size.count != 0 ? 1 : 0)) / step + 1;
  if (step != 0 && (mode == access::read || shape.halo.count == 0) && (used == places || size.count == 0)) [[likely]] {
    return;  // without a size it is known later
  }
  const char* const by = shape.axis == grid_axis::x ? "by_x" : shape.axis == grid_axis::y ? "by_y" : "by_z";
  const std::string operand_there = "launch '" + std::string(launch) + "': argument " + std::to_string(position) +
                                    ", which it describes " + by + ", ";
  if (step == 0) {
    throw error(
        status::invalid_argument,
        operand_there + "has no elements for each place of the grid; give the number that one thread block touches");
  }
  if (mode != access::read && shape.halo.count != 0) {
    throw error(status::invalid_argument,
                operand_there +
                    "is written and has a halo: thread blocks that write to each other's elements have no order; "
                    "describe what each writes without a halo, or the operand as everywhere(updates(p, n))");
  }
  const std::string sizes = "has " + std::to_string(size.count) + " bytes, with " + std::to_string(step) +
                            " for each of the " + std::to_string(places) + " places of the grid, ";
  if (used > places) {
    throw error(
        status::invalid_argument,
        operand_there + sizes +
            "so that the grid does not reach all of them: launch more thread blocks, or declare fewer elements; "
            "a kernel that strides over its elements by the size of the grid is for stream::launch_in_pieces");
  }
  throw error(status::invalid_argument,
              operand_there + sizes + "so that they end at place " + std::to_string(used) +
                  ": give the elements of one place, not bytes, or describe the operand by_slice");
}

DEEPUM_SEPARATE grid_slice slice_cuts::operator[](std::size_t i) const {
  const unsigned begin = static_cast<unsigned>(i) * places;
  return slice_along(grid, axis, begin, std::min(places, extent_along(grid, axis) - begin));
}

// --- the planner -----------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE slicing::slicing(dim whole_grid, std::span<const sliced_access> touched, block_grid unit)
    : grid_(whole_grid),
      accesses_(touched),
      unit_(unit) {}

DEEPUM_SEPARATE std::uint64_t slicing::footprint(std::span<const grid_slice> slices) const {
  std::vector<block_range> ranges;
  ranges.reserve(accesses_.size() * slices.size());
  for (const sliced_access& a : accesses_) {
    for (const grid_slice& s : slices) {
      const byte_span part = a.offset ? part_of(a, s) : byte_span{};
      if (part.size.count != 0) {
        ranges.push_back(unit_.blocks_of(*a.offset + part.offset, part.size));
      }
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](block_range a, block_range b) { return a.first < b.first; });
  std::uint64_t blocks = 0;
  std::uint32_t reach = 0;
  for (const block_range& r : ranges) {
    const std::uint32_t from = std::max(reach, r.begin_value());
    reach = std::max(reach, r.end_value());
    blocks += reach - std::min(reach, from);
  }
  return blocks;
}

DEEPUM_SEPARATE std::pair<std::uint64_t, grid_axis> slicing::smallest() const {
  std::pair<std::uint64_t, grid_axis> least{std::numeric_limits<std::uint64_t>::max(), grid_axis::z};
  for (const grid_axis axis : {grid_axis::z, grid_axis::y, grid_axis::x}) {
    const unsigned extent_there = extent_along(grid_, axis);
    if (extent_there > 1) {
      const std::uint64_t one = footprint(slice_along(grid_, axis, extent_there / 2, 1));
      if (one < least.first) {
        least = {one, axis};
      }
    }
  }
  return least;
}

DEEPUM_SEPARATE std::optional<slice_cuts> slicing::cut(std::uint64_t room) const {
  const auto [one, axis] = smallest();
  if (one > room) {
    return std::nullopt;
  }
  std::uint64_t fixed = 0;   // blocks that all slices touch
  std::uint64_t moving = 0;  // operands that each has its part of
  for (const sliced_access& a : accesses_) {
    if (a.offset) {
      moves(a, axis) ? ++moving : fixed += unit_.blocks_of(*a.offset, a.size).count;
    }
  }
  const unsigned extent_there = extent_along(grid_, axis);
  const std::uint64_t all = footprint(all_of(grid_));
  const double of_each = static_cast<double>(all - std::min(all, fixed)) / extent_there;
  const double wanted =
      static_cast<double>(std::max<std::uint64_t>({(room - std::min(room, fixed)) / slices_in_room, moving, 1}));
  const double places = of_each > 0 ? wanted / of_each : 1;
  const unsigned most = (extent_there + 1) / 2;
  slice_cuts cuts{grid_, axis, most};
  if (places < most) {
    cuts.places = aligned(axis, std::max(1U, static_cast<unsigned>(places)));
  }
  while (!fit(cuts, room)) {
    if (cuts.places == 1) {
      return each_fits(cuts, room) ? std::optional(cuts) : std::nullopt;
    }
    cuts.places = aligned(axis, cuts.places / 2);
  }
  return cuts;
}

DEEPUM_SEPARATE bool slicing::fit(const slice_cuts& cuts, std::uint64_t room) const {
  const std::size_t slices = cuts.size();
  for (std::size_t i = 0; i + 1 < slices; ++i) {
    const std::array<grid_slice, 2> both{cuts[i], cuts[i + 1]};
    if (footprint(both) > room) {
      return false;
    }
  }
  return slices > 1 || footprint(cuts[0]) <= room;
}

DEEPUM_SEPARATE bool slicing::each_fits(const slice_cuts& cuts, std::uint64_t room) const {
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (footprint(cuts[i]) > room) {
      return false;
    }
  }
  return true;
}

DEEPUM_SEPARATE unsigned slicing::aligned(grid_axis axis, unsigned places) const {
  std::uint64_t even = 1;  // places whose bytes are whole blocks of memory, so that slices share none
  for (const sliced_access& a : accesses_) {
    if (!a.part && moves(a, axis) && a.shape.step.count != 0 && even <= places) {
      const std::uint64_t block = unit_.block().count;
      even = std::lcm(even, block / std::gcd(block, a.shape.step.count));
    }
  }
  return even <= places ? static_cast<unsigned>(places - places % even) : places;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
