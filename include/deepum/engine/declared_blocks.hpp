#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Calls `visit(block_id)` for the blocks that a launch declares, as often as it does.
template <class Visit>
void for_each_declared_block(const launch_record& record, Visit&& visit) {
  for (const block_access& a : record.accesses) {
    for (const block_id b : a.range) {
      visit(b);
    }
  }
}
/// Calls `visit(block_range)` for the blocks that a launch declares, each once.
/// @param rows  Also those that it only looks rows up in.
template <class Visit>
void for_each_distinct_run(const launch_record& record, Visit&& visit, bool rows = true) {
  std::vector<block_range> ranges;
  ranges.reserve(record.accesses.size());
  for (const block_access& a : record.accesses) {
    if (rows || !a.sparse) {
      ranges.push_back(a.range);
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](block_range earlier, block_range later) { return earlier.first < later.first; });
  std::uint32_t end = 0;
  for (const block_range& r : ranges) {
    const std::uint32_t from = std::max(end, r.begin_value());
    end = std::max(end, r.end_value());
    if (from < end) {
      visit(block_range{block_id{from}, end - from});
    }
  }
}
/// Blocks that a launch declares, each counted once.
/// @param rows  As above.
[[nodiscard]] inline std::uint64_t distinct_blocks(const launch_record& record, bool rows = true) {
  std::uint64_t sum = 0;
  for_each_distinct_run(
      record, [&](block_range run) { sum += run.count; }, rows);
  return sum;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
