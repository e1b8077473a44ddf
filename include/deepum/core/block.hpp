#pragma once

#include <deepum/core/strong_id.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Size of a UM block, the unit in which the NVIDIA driver migrates, evicts and keeps its tables (2 MiB). Memory that
/// is not the driver's to move may have larger blocks (`memory_kind`).
inline constexpr bytes block_size = 2_MiB;

/// Number of a UM block, counted from the base address of its arena.
using block_id = strong_id<struct block_tag, std::uint32_t>;

/// Adjacent blocks [first, first + count). Iterable: `for (const block_id b : range)`.
struct block_range {
  class iterator;

  block_id first{};
  std::uint32_t count = 0;

  [[nodiscard]] constexpr iterator begin() const;
  [[nodiscard]] constexpr iterator end() const;
  [[nodiscard]] constexpr block_id last() const { return block_id{first.value + count - 1}; }
  [[nodiscard]] constexpr std::uint32_t begin_value() const { return first.value; }
  [[nodiscard]] constexpr std::uint32_t end_value() const { return first.value + count; }
  [[nodiscard]] constexpr bool empty() const { return count == 0; }
  [[nodiscard]] constexpr bool contains(block_id b) const { return b >= first && b.value < end_value(); }
  [[nodiscard]] constexpr bool overlaps(block_range o) const {
    return first.value < o.end_value() && o.first.value < end_value();
  }
  friend constexpr bool operator==(block_range, block_range) = default;
};

/// A block of a range.
class block_range::iterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = block_id;
  using difference_type = std::ptrdiff_t;
  using pointer = const block_id*;
  using reference = block_id;

  constexpr iterator() = default;
  constexpr explicit iterator(block_id at) : at_(at) {}

  [[nodiscard]] constexpr block_id operator*() const { return at_; }
  constexpr iterator& operator++() {
    ++at_.value;
    return *this;
  }
  constexpr iterator operator++(int) {
    const iterator before = *this;
    ++*this;
    return before;
  }
  friend constexpr bool operator==(iterator, iterator) = default;

 private:
  block_id at_{};
};
constexpr block_range::iterator block_range::begin() const { return iterator{first}; }
constexpr block_range::iterator block_range::end() const { return iterator{block_id{end_value()}}; }

/// @name Walks over a range
/// @{

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
    const std::uint32_t run = count_prefix(range, [&](block_id at) { return holds(at) == wanted; });
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
