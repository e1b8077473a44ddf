#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/dim.hpp>
#include <deepum/grid_slice.hpp>
#include <deepum/slices.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// An operand of a launch that may run in slices, as the planner sees it.
struct sliced_access {
  std::optional<bytes> offset{};  // in the arena; nothing: it lies elsewhere
  bytes size{};
  access mode = access::update;
  slice_shape shape{};
  std::function<byte_span(const grid_slice&)> part{};  // from the operand's beginning on; empty: `shape` says it
};

/// The grid as one slice.
[[nodiscard]] constexpr grid_slice all_of(dim grid) { return {dim{0, 0, 0}, grid, grid}; }
[[nodiscard]] constexpr unsigned extent_along(dim d, grid_axis axis) {
  return axis == grid_axis::x ? d.x : axis == grid_axis::y ? d.y : d.z;
}
/// Thread blocks of a grid whose places along one dimension are these, and any along the others.
[[nodiscard]] grid_slice slice_along(dim grid, grid_axis axis, unsigned begin, unsigned places);

/// The bytes of an operand that a slice touches, counted from the operand's beginning.
[[nodiscard]] byte_span part_of(const sliced_access& of, const grid_slice& slice);
/// What a slice does with its part. Bytes that several slices touch are not overwritten by each of them as a whole.
[[nodiscard]] access mode_of(const sliced_access& of, const grid_slice& slice);

/// @errors  `status::invalid_argument` where the shape of an operand does not fit its size and the grid.
/// @param position  Of the argument, counted from 1, for the message.
void check_shape(std::string_view launch, std::size_t position, const slice_shape& shape, access mode, bytes size,
                 dim grid);

/// Where a grid is cut: along one dimension, in slices of so many places, the last of which may have fewer.
struct slice_cuts {
  dim grid{};
  grid_axis axis = grid_axis::x;
  unsigned places = 1;

  [[nodiscard]] std::size_t size() const { return (extent_along(grid, axis) - 1) / places + 1; }
  [[nodiscard]] grid_slice operator[](std::size_t i) const;
};

/// Cuts the grid of a launch so that each slice fits the budget beside what the next one needs.
///
/// Pure: knows no device. Not synchronised. Cost: linear in slices and operands.
class slicing {
 public:
  /// @param touched  Outlives it.
  slicing(dim whole_grid, std::span<const sliced_access> touched, block_grid unit);

  /// Blocks that a slice touches.
  [[nodiscard]] std::uint64_t footprint(const grid_slice& slice) const { return footprint({&slice, 1}); }
  /// @param room  Blocks.
  /// @returns     Nothing where even the smallest slice does not fit.
  [[nodiscard]] std::optional<slice_cuts> cut(std::uint64_t room) const;
  /// Whether every slice fits beside the next one.
  [[nodiscard]] bool fit(const slice_cuts& cuts, std::uint64_t room) const;
  /// The least that one slice touches, in blocks, and along which dimension. For messages, too.
  [[nodiscard]] std::pair<std::uint64_t, grid_axis> smallest() const;

 private:
  /// Of what the room has beside what all slices touch, a slice takes so much: then one executes, one leaves, and one
  /// arrives, in pieces that keep both directions of a link busy.
  static constexpr std::uint64_t slices_in_room = 8;

  [[nodiscard]] std::uint64_t footprint(std::span<const grid_slice> slices) const;
  /// Whether an operand is another one in each slice along a dimension.
  [[nodiscard]] static bool moves(const sliced_access& a, grid_axis axis) {
    return a.part || (!a.shape.everywhere && a.shape.axis == axis);
  }
  [[nodiscard]] unsigned aligned(grid_axis axis, unsigned places) const;
  [[nodiscard]] bool each_fits(const slice_cuts& cuts, std::uint64_t room) const;

  dim grid_;
  std::span<const sliced_access> accesses_;
  block_grid unit_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/slicing.hpp>  // what it declares
#endif
