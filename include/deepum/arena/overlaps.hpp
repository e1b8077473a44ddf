#pragma once

#include <deepum/core/launch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Of what one launch declares, overwrites that overlap anything else become updates: their order is not known.
/// Overwrites that overlap each other alone stay, for the blocks are overwritten all the same.
///
/// Cost: that of sorting them.
/// @returns  Pairs that were compared after that, at most one for each access.
[[gnu::noinline]] inline std::size_t degrade_overlapped(std::vector<block_access>& accesses) {
  std::array<std::uint32_t, 32> few;  // without an allocation, which launches with few operands would notice
  std::vector<std::uint32_t> many(accesses.size() > few.size() ? accesses.size() : 0);
  const std::span<std::uint32_t> order = many.empty() ? std::span(few).first(accesses.size()) : std::span(many);
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return accesses[a].range.first < accesses[b].range.first; });
  std::size_t compared = 0;
  // Accesses that hang together by overlaps, group by group: one that is no overwrite makes updates of all.
  for (std::size_t begin = 0; begin != order.size();) {
    std::uint32_t reach = accesses[order[begin]].range.end_value();
    bool all_overwrite = accesses[order[begin]].mode == access::overwrite;
    std::size_t end = begin + 1;
    for (; end != order.size(); ++end) {
      ++compared;
      const block_access& next = accesses[order[end]];
      if (next.range.begin_value() >= reach) {
        break;
      }
      reach = std::max(reach, next.range.end_value());
      all_overwrite = all_overwrite && next.mode == access::overwrite;
    }
    for (; begin != end; ++begin) {
      block_access& a = accesses[order[begin]];
      a.mode = a.mode == access::overwrite && !all_overwrite ? access::update : a.mode;
    }
  }
  return compared;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
