#pragma once

#include <deepum/arena/allocation_table.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Bytes of an arena, from the first to before the last, counted from its base.
struct byte_interval {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// What is left of a range without others.
[[nodiscard]] inline std::vector<byte_interval> without(byte_interval all, std::vector<byte_interval> others) {
  std::sort(others.begin(), others.end(), [](byte_interval a, byte_interval b) { return a.begin < b.begin; });
  std::vector<byte_interval> left;
  for (const byte_interval& o : others) {
    if (o.end <= all.begin) {
      continue;
    }
    if (o.begin >= all.end) {
      break;
    }
    if (o.begin > all.begin) {
      left.push_back({all.begin, o.begin});
    }
    all.begin = o.end;
  }
  if (all.begin < all.end) {
    left.push_back(all);
  }
  return left;
}
[[nodiscard]] inline byte_interval interval_of(const byte_span& s) {
  return {s.offset.count, (s.offset + s.size).count};
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
