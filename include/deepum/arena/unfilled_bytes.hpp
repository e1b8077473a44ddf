#pragma once

#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace deepum {
inline namespace v0 {

/// With what memory is filled whose contents were never written.
enum class filling : std::uint8_t {
  zero,    ///< `arena_options::zero_new`
  poison,  ///< `arena_options::checked`: not a number, in every format
};

/// Bytes of an arena that have to be filled before they are read, each with what.
///
/// Not synchronised: the arena calls it under its lock. Cost of a call: the ranges that it meets.
class unfilled_bytes {
 public:
  /// Bytes from `begin` on, before `end`, counted from the arena's base.
  struct range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    filling with = filling::zero;
    friend constexpr bool operator==(const range&, const range&) = default;
  };

  /// From now on the bytes have to be filled, whatever was said about them before.
  void add(const range& r) {
    if (r.begin < r.end) {
      (void)take(r.begin, r.end);
      ranges_.emplace(r.begin, rest{r.end, r.with});
    }
  }
  /// The bytes need not be filled any more. @returns  Those of them that had to be, in order.
  std::vector<range> take(std::uint64_t begin, std::uint64_t end) {
    std::vector<range> taken;
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second.end > begin) {
      --it;
    }
    while (it != ranges_.end() && it->first < end) {
      const range whole{it->first, it->second.end, it->second.with};
      it = ranges_.erase(it);
      if (whole.begin < begin) {
        ranges_.emplace(whole.begin, rest{begin, whole.with});
      }
      if (whole.end > end) {
        it = ranges_.emplace(end, rest{whole.end, whole.with}).first;
      }
      taken.push_back({std::max(whole.begin, begin), std::min(whole.end, end), whole.with});
    }
    return taken;
  }
  [[nodiscard]] bool empty() const { return ranges_.empty(); }

 private:
  struct rest {
    std::uint64_t end = 0;
    filling with = filling::zero;
  };
  std::map<std::uint64_t, rest> ranges_{};  // by their first byte; they do not overlap
};

}  // namespace v0
}  // namespace deepum
