#pragma once

#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Size of a UM block, the unit in which the NVIDIA driver migrates, evicts and keeps its tables (2 MiB). Memory that
/// is not the driver's to move may have larger blocks (`memory_kind`).
inline constexpr bytes block_size{std::uint64_t{2} << 20};

/// Number of a UM block, counted from the base address of its arena.
struct block_id {
  std::uint32_t value = 0;

  constexpr block_id() = default;
  constexpr explicit block_id(std::uint32_t v) : value(v) {}
  friend constexpr auto operator<=>(block_id, block_id) = default;
  friend constexpr bool operator==(block_id, block_id) = default;  // nvcc does not define the implied one
};

/// Adjacent blocks [first, first + count).
struct block_range {
  block_id first{};
  std::uint32_t count = 0;

  [[nodiscard]] constexpr block_id last() const { return block_id{first.value + count - 1}; }
  [[nodiscard]] constexpr std::uint32_t begin_value() const { return first.value; }
  [[nodiscard]] constexpr std::uint32_t end_value() const { return first.value + count; }
  [[nodiscard]] constexpr bool empty() const { return count == 0; }
  /// Of blocks of 2 MiB.
  [[nodiscard]] constexpr bytes size() const { return block_size * count; }
  [[nodiscard]] constexpr bool contains(block_id b) const { return b >= first && b.value < end_value(); }
  [[nodiscard]] constexpr bool overlaps(block_range o) const {
    return first.value < o.end_value() && o.first.value < end_value();
  }
  friend constexpr bool operator==(block_range, block_range) = default;
};

/// The blocks that the bytes [offset, offset + size) of an arena lie in. Empty for zero bytes.
/// @param block  Size of a block.
[[nodiscard]] constexpr block_range blocks_of(bytes offset, bytes size, bytes block = block_size) {
  if (size.count == 0) {
    return {};
  }
  const std::uint64_t first = offset / block;
  const std::uint64_t last = (offset + size - bytes{1}) / block;
  return {block_id{static_cast<std::uint32_t>(first)}, static_cast<std::uint32_t>(last - first + 1)};
}

/// The blocks that lie in the bytes [offset, offset + size) as a whole. What may be discarded with them.
/// @param block  Size of a block.
[[nodiscard]] constexpr block_range whole_blocks_of(bytes offset, bytes size, bytes block = block_size) {
  const std::uint64_t first = (offset + block - bytes{1}) / block;
  const std::uint64_t end = (offset + size) / block;
  if (end <= first) {
    return {};
  }
  return {block_id{static_cast<std::uint32_t>(first)}, static_cast<std::uint32_t>(end - first)};
}

/// @name Walks over a range
/// @{

/// Calls `visit(block_id)` for each block.
template <class Visit>
void for_each_block(block_range range, Visit&& visit) {
  for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
    visit(block_id{b});
  }
}
/// Number of blocks at the beginning of the range for which the predicate holds.
template <class Predicate>
[[nodiscard]] std::uint32_t count_prefix(block_range range, Predicate&& holds) {
  std::uint32_t n = 0;
  while (n < range.count && holds(block_id{range.first.value + n})) {
    ++n;
  }
  return n;
}
/// Takes blocks off its beginning.
constexpr void advance(block_range& range, std::uint32_t blocks) {
  range.first.value += blocks;
  range.count -= blocks;
}
/// Calls `visit(block_range, bool)` for the longest runs of blocks for which the predicate holds, or does not.
template <class Predicate, class Visit>
void for_each_split(block_range range, Predicate&& holds, Visit&& visit) {
  while (!range.empty()) {
    const bool wanted = holds(range.first);
    const std::uint32_t run = count_prefix(range, [&](block_id b) { return holds(b) == wanted; });
    visit(block_range{range.first, run}, wanted);
    advance(range, run);
  }
}
/// Calls `visit(block_range)` for the longest runs of blocks for which the predicate holds.
template <class Predicate, class Visit>
void for_each_run(block_range range, Predicate&& holds, Visit&& visit) {
  for_each_split(range, holds, [&](block_range run, bool wanted) {
    if (wanted) {
      visit(run);
    }
  });
}
/// @}

/// Appends a block to ranges in first-touch order, growing the last range where the block follows it directly.
inline void append_merged(std::vector<block_range>& ranges, block_id b) {
  if (!ranges.empty() && ranges.back().end_value() == b.value) {
    ++ranges.back().count;
  } else {
    ranges.push_back({b, 1});
  }
}

}  // namespace v0
}  // namespace deepum

/// @cond  What doxygen cannot place: a specialisation in std.
template <>
struct std::hash<deepum::block_id> {
  std::size_t operator()(deepum::block_id b) const noexcept { return std::hash<std::uint32_t>{}(b.value); }
};
/// @endcond
