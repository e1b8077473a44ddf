#pragma once

#include <deepum/core/block.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace deepum {
inline namespace v0 {

/// How an address range is cut into blocks: all of one size, numbered from the beginning of the range.
class block_grid {
 public:
  /// @param block  Size of a block, a power of two: a launch looks for the blocks of each operand, and to divide is
  /// slow.
  constexpr explicit block_grid(bytes block) : block_(block), shift_(std::countr_zero(block.count)) {}

  /// Size of a block.
  [[nodiscard]] constexpr bytes block() const { return block_; }

  /// The blocks that the bytes [offset, offset + size) lie in. Empty for zero bytes.
  [[nodiscard]] constexpr block_range blocks_of(bytes offset, bytes size) const {
    if (size.count == 0) {
      return {};
    }
    const std::uint64_t first = offset.count >> shift_;
    const std::uint64_t last = (offset.count + size.count - 1) >> shift_;
    return {block_id{static_cast<std::uint32_t>(first)}, static_cast<std::uint32_t>(last - first + 1)};
  }
  /// The blocks that lie in the bytes [offset, offset + size) as a whole. What may be discarded with them.
  [[nodiscard]] constexpr block_range whole_blocks_of(bytes offset, bytes size) const {
    const std::uint64_t first = (offset.count + block_.count - 1) >> shift_;
    const std::uint64_t end = (offset.count + size.count) >> shift_;
    if (end <= first) {
      return {};
    }
    return {block_id{static_cast<std::uint32_t>(first)}, static_cast<std::uint32_t>(end - first)};
  }
  /// Where a block begins, from the beginning of the range.
  [[nodiscard]] constexpr bytes offset_of(block_id b) const { return block_ * b.value; }
  [[nodiscard]] constexpr bytes size_of(block_range range) const { return block_ * range.count; }
  /// Blocks that make up so much memory, rounded down; one at least.
  [[nodiscard]] constexpr std::uint32_t blocks_in(bytes n) const {
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, n / block_));
  }

  friend constexpr bool operator==(block_grid, block_grid) = default;

 private:
  bytes block_;
  int shift_;
};

/// The driver's blocks of managed memory.
inline constexpr block_grid um_grid{block_size};

}  // namespace v0
}  // namespace deepum
