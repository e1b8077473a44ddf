#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/gap_index.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace deepum {
inline namespace v0 {

/// Hands out byte ranges of an address range, without touching memory or a device.
///
/// Best fit, lowest address first among equals, so that the same calls give the same addresses. Ranges of half a block
/// and more begin at a block boundary: what overwrites them as a whole then overwrites whole blocks. Smaller ranges
/// fill the gaps behind them, share blocks, and never straddle a block boundary. Given-back ranges merge with their
/// neighbours.
///
/// Not synchronised. Cost: logarithmic in the number of gaps, for alignments of up to a block.
class range_allocator {
 public:
  static constexpr bytes granularity{256};        ///< every range begins and ends at a multiple
  static constexpr bytes largest_block = 32_MiB;  ///< that a block may be

  /// @param capacity  Length of the address range; a multiple of `granularity`.
  /// @param unit      Size of a block, a power of two of at most 32 MiB.
  range_allocator(bytes capacity, bytes unit)
      : capacity_(capacity),
        free_(capacity),
        block_(unit),
        gaps_(granularity.count, unit.count) {
    expects(capacity.count % granularity.count == 0, "the capacity is a multiple of the granularity");
    expects(unit > granularity && (unit.count & (unit.count - 1)) == 0 && unit <= largest_block,
            "a block is a power of two, larger than the granularity and of at most 32 MiB");
    if (capacity.count > 0) {
      add_gap(0, capacity.count);
    }
  }

  /// One that has no range at first: they come by `release`. @param capacity, unit  As above.
  [[nodiscard]] static range_allocator without_any(bytes capacity, bytes unit) {
    range_allocator made(bytes{}, unit);
    made.capacity_ = capacity;
    return made;
  }

  /// What a range of `size` bytes really takes.
  [[nodiscard]] static constexpr bytes rounded(bytes size) { return bytes{align_up(size.count, granularity.count)}; }

  /// @param size       1 byte or more.
  /// @param alignment  A power of two; at least `granularity` is given.
  /// @returns          Offset of the range; nothing where no gap is large enough.
  [[nodiscard]] std::optional<bytes> try_allocate(bytes size, bytes alignment = granularity) {
    expects(size.count > 0, "a range has at least one byte");
    expects(alignment.count > 0 && (alignment.count & (alignment.count - 1)) == 0, "an alignment is a power of two");
    if (size > capacity_) {
      return std::nullopt;
    }
    const std::uint64_t need = rounded(size).count;
    const bool large = size >= bytes{block_.count / 2};
    const std::optional<gap> found =
        large ? gaps_.find_large(need, alignment.count) : gaps_.find_small(need, alignment.count);
    if (!found) {
      return std::nullopt;
    }
    const std::uint64_t at = place(found->begin, need, size, alignment);
    take_gap(found->begin, found->length);
    add_gap(found->begin, at - found->begin);
    add_gap(at + need, found->end() - at - need);
    free_ -= bytes{need};
    return bytes{at};
  }

  /// Gives a range back.
  /// @param offset, size  As they were asked for and handed out.
  void release(bytes offset, bytes size) {
    std::uint64_t begin = offset.count;
    std::uint64_t end = begin + rounded(size).count;
    expects(end <= capacity_.count, "a range is given back that was not handed out");
    free_ += bytes{end - begin};
    const auto next = by_offset_.lower_bound(begin);
    expects(next == by_offset_.end() || next->first >= end, "a range is given back that is free already");
    if (next != by_offset_.begin()) {
      const auto [left, length] = *std::prev(next);
      expects(left + length <= begin, "a range is given back that is free already");
      if (left + length == begin) {
        begin = left;
      }
    }
    if (next != by_offset_.end() && next->first == end) {
      end += next->second;
      take_gap(next->first, next->second);
    }
    if (begin != offset.count) {
      take_gap(begin, offset.count - begin);
    }
    add_gap(begin, end - begin);
  }

  /// Takes all gaps away. @param taken  (offset, size) of each, in the order of addresses.
  template <class Taken>
  void take_all(Taken&& taken) {
    while (!by_offset_.empty()) {
      const auto [begin, length] = *by_offset_.begin();
      take_gap(begin, length);
      free_ -= bytes{length};
      taken(bytes{begin}, bytes{length});
    }
  }

  [[nodiscard]] bytes capacity() const { return capacity_; }
  /// Bytes in all gaps together.
  [[nodiscard]] bytes free() const { return free_; }
  [[nodiscard]] bytes largest_gap() const {
    const std::optional<gap> longest = gaps_.longest();
    return longest ? bytes{longest->length} : bytes{};
  }
  /// Gaps that all calls so far have looked at to find room: what they cost.
  [[nodiscard]] std::uint64_t gaps_looked_at() const { return gaps_.looked_at(); }

 private:
  using gap = detail::gap_index::gap;

  static constexpr std::uint64_t align_up(std::uint64_t x, std::uint64_t to) { return (x + to - 1) & ~(to - 1); }

  /// Where a range would begin in a gap that begins at `begin`.
  [[nodiscard]] std::uint64_t place(std::uint64_t begin, std::uint64_t need, bytes size, bytes alignment) const {
    const bool large = size >= bytes{block_.count / 2};
    std::uint64_t unit = std::max(alignment, granularity).count;
    if (large) {
      unit = std::max(unit, block_.count);
    }
    const std::uint64_t at = align_up(begin, unit);
    const bool straddles = !large && at / block_.count != (at + need - 1) / block_.count;
    return straddles ? align_up(at, std::max(unit, block_.count)) : at;
  }

  void add_gap(std::uint64_t begin, std::uint64_t length) {
    if (length > 0) {
      by_offset_.emplace(begin, length);
      gaps_.insert({begin, length});
    }
  }
  void take_gap(std::uint64_t begin, std::uint64_t length) {
    by_offset_.erase(begin);
    gaps_.erase({begin, length});
  }

  bytes capacity_;
  bytes free_;
  bytes block_;
  std::map<std::uint64_t, std::uint64_t> by_offset_{};  // begin -> length
  detail::gap_index gaps_;                              // the same ones
};

}  // namespace v0
}  // namespace deepum
