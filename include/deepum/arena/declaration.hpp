#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/overlaps.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {

/// What one launch declares: its operands, with the bytes that they name, and the blocks that those touch.
struct declaration {
  std::vector<named_operand> operands{};
  std::vector<block_access> blocks{};
};

namespace detail {

/// Bytes of an operand, for people.
[[nodiscard]] inline std::string text_of(const named_operand& o) {
  return std::to_string(o.where.span.size.count) + " bytes at offset " + std::to_string(o.where.span.offset.count) +
         " of the arena";
}

/// The same for what lies in no allocation, or reaches past it.
[[gnu::noinline, gnu::cold]] inline bool name_stray_operand(const operand& o, const allocation_table& table,
                                                            std::string_view launch, named_operand& out) {
  const bool sized = o.size != operand::whole;
  if (!sized && !o.declared) {
    return false;
  }
  try {
    out.where = table.find(reinterpret_cast<std::uintptr_t>(o.address), sized ? o.size : bytes{1});
  } catch (const error& e) {
    throw error(e.code(), "launch '" + std::string(launch) + "': " + e.what());
  }
  return true;
}
/// The bytes that an operand of a launch names, which lies in the arena.
/// @param launch  Its name, for messages.
/// @param out     Where they go.
/// @returns       False for a plain pointer into free memory.
/// @errors        Those of `arena::name_operands`.
[[nodiscard]] inline bool name_operand(const operand& o, bytes offset, const allocation_table& table,
                                       std::string_view launch, named_operand& out) {
  const bool sized = o.size != operand::whole;
  out.mode = o.mode;
  out.sized = sized;
  out.scratch = o.scratch;
  out.sparse = o.sparse;
  out.row = o.row;
  out.touched = o.touched;
  return table.try_find(offset, o.size, sized, out.where) || name_stray_operand(o, table, launch, out);
}

/// Appends the blocks that overwritten bytes touch: those that are overwritten as a whole, and those that are in part.
[[gnu::noinline]] inline void append_overwritten(std::vector<block_access>& out, byte_span span, block_grid grid) {
  const block_range touched = grid.blocks_of(span.offset, span.size);
  const block_range whole = grid.whole_blocks_of(span.offset, span.size);
  if (whole.empty()) {
    out.push_back({touched, access::update});
    return;
  }
  if (touched.first < whole.first) {
    out.push_back({{touched.first, 1}, access::update});
  }
  out.push_back({whole, access::overwrite});
  if (whole.last() < touched.last()) {
    out.push_back({{touched.last(), 1}, access::update});
  }
}

/// The blocks that the operands of one launch touch.
/// @param out  Emptied first. An overwrite counts only for whole blocks that nothing else in the list touches.
inline void blocks_of(std::span<const named_operand> operands, block_grid grid, std::vector<block_access>& out) {
  out.clear();
  out.reserve(operands.size());
  bool overwrites = false;
  for (const named_operand& o : operands) {
    if (o.mode == access::overwrite) {
      overwrites = true;
      append_overwritten(out, o.where.span, grid);
    } else {
      out.push_back({.range = grid.blocks_of(o.where.span.offset, o.where.span.size),
                     .mode = o.mode,
                     .sparse = o.sparse,
                     .row_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(o.row.count, 0xffffffffU)),
                     .touched = o.touched.count});
    }
  }
  if (overwrites) {
    (void)degrade_overlapped(out);
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
