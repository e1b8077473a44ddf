#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Blocks in which nothing is allocated but these bytes, which lie in one allocation: who writes all of the bytes
/// writes all that the blocks hold.
[[nodiscard]] inline block_range alone_in(const allocation_table& table, byte_span span, block_grid grid) {
  block_range blocks = grid.blocks_of(span.offset, span.size);
  const bytes last = span.offset + span.size;
  const std::optional<byte_span> mine = table.last_up_to(span.offset.count);
  const std::optional<byte_span> last_one = table.last_up_to((grid.block() * blocks.end_value()).count - 1);
  if (mine->offset + mine->size > last || last_one->offset != mine->offset) {
    const auto whole = static_cast<std::uint32_t>(last / grid.block());
    blocks.count = whole - std::min(whole, blocks.begin_value());
  }
  const bytes begin = grid.offset_of(blocks.first);
  if (blocks.count != 0 && begin < span.offset) {
    const std::optional<byte_span> before = table.last_up_to(span.offset.count - 1);
    if (before && before->offset + before->size > begin) {
      ++blocks.first.value;
      --blocks.count;
    }
  }
  return blocks;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
