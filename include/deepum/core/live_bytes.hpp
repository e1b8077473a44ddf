#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Which bytes of an arena are allocated, and which of them hold something of value; from it, the liveness of each
/// block.
///
/// A block is dead only as a whole: several inactive or freed ranges that together cover it count, one that covers half
/// of it does not. Not synchronised. Cost of a change: the blocks of the range, and the inactive ranges in it.
class live_bytes {
 public:
  /// @param block_count  Number of blocks in the arena's address range.
  /// @param units        How that range is cut into blocks.
  live_bytes(std::uint32_t block_count, block_grid units)
      : block_(units.block()),
        allocated_(block_count),
        live_(block_count) {}

  [[nodiscard]] liveness of(block_id b) const {
    if (live_[b.value] > 0) {
      return liveness::live;
    }
    return allocated_[b.value] > 0 ? liveness::inactive : liveness::unallocated;
  }

  /// Whether some of the bytes that are allocated hold nothing of value. Cost: constant.
  [[nodiscard]] bool any_given_up() const { return live_bytes_ != allocated_bytes_; }
  /// How many of the bytes hold nothing of value. Cost: constant while all that is allocated does.
  [[nodiscard]] bytes given_up(bytes offset, bytes size) const {
    if (!any_given_up()) {
      return {};
    }
    const std::uint64_t end = offset.count + size.count;
    auto it = intervals_.upper_bound(offset.count);
    it = it != intervals_.begin() ? std::prev(it) : it;
    std::uint64_t live = 0;
    for (; it != intervals_.end() && it->first < end; ++it) {
      const std::uint64_t from = std::max(it->first, offset.count);
      live += std::max(from, std::min(it->second, end)) - from;
    }
    return size - bytes{live};
  }

  /// The bytes became an allocation. They were free. @param changed  The blocks that became live are appended.
  void allocate(bytes offset, bytes size, std::vector<block_range>& changed) {
    for_each_part(offset.count, offset.count + size.count,
                  [&](block_id b, std::uint32_t n) { allocated_[b.value] += n; });
    allocated_bytes_ += size.count;
    mark_active(offset, size, changed);
  }
  /// The bytes of an allocation became free. @param changed  The blocks that became unallocated are appended.
  void deallocate(bytes offset, bytes size, std::vector<block_range>& changed) {
    std::vector<block_range> died;
    mark_inactive(offset, size, died);
    allocated_bytes_ -= size.count;
    for_each_part(offset.count, offset.count + size.count, [&](block_id b, std::uint32_t n) {
      expects(allocated_[b.value] >= n, "bytes are freed that were not allocated");
      allocated_[b.value] -= n;
      if (allocated_[b.value] == 0) {
        append_merged(changed, b);
      }
    });
    // A block whose last live bytes went, and whose other bytes are inactive, is dead too.
    for (const block_range& r : died) {
      for (const block_id b : r) {
        if (allocated_[b.value] > 0) {
          append_merged(changed, b);
        }
      }
    }
  }
  /// Allocated bytes hold nothing of value. @param changed  The blocks that died as a whole by it are appended.
  void mark_inactive(bytes offset, bytes size, std::vector<block_range>& changed) {
    const std::uint64_t begin = offset.count;
    const std::uint64_t end = begin + size.count;
    auto it = intervals_.upper_bound(begin);
    if (it != intervals_.begin() && std::prev(it)->second > begin) {
      --it;
    }
    while (it != intervals_.end() && it->first < end) {
      const auto [from, to] = *it;
      it = intervals_.erase(it);
      if (from < begin) {
        intervals_.emplace(from, begin);
      }
      if (to > end) {
        it = intervals_.emplace(end, to).first;
      }
      for_each_part(std::max(from, begin), std::min(to, end), [&](block_id b, std::uint32_t n) {
        live_[b.value] -= n;
        live_bytes_ -= n;
        if (live_[b.value] == 0) {
          append_merged(changed, b);
        }
      });
    }
  }
  /// Allocated bytes hold something of value (again). @param changed  The blocks that became live are appended.
  void mark_active(bytes offset, bytes size, std::vector<block_range>& changed) {
    std::uint64_t begin = offset.count;
    std::uint64_t end = begin + size.count;
    auto it = intervals_.upper_bound(begin);
    if (it != intervals_.begin() && std::prev(it)->second >= begin) {
      --it;
    }
    std::uint64_t at = offset.count;  // up to here everything is live
    while (it != intervals_.end() && it->first <= end) {
      revive(at, std::min(it->first, offset.count + size.count), changed);
      at = std::max(at, it->second);
      begin = std::min(begin, it->first);
      end = std::max(end, it->second);
      it = intervals_.erase(it);
    }
    revive(at, offset.count + size.count, changed);
    intervals_.emplace(begin, end);
  }

 private:
  template <class Visit>
  void for_each_part(std::uint64_t begin, std::uint64_t end, Visit&& visit) const {
    while (begin < end) {
      const std::uint64_t block = begin / block_.count;
      const std::uint64_t stop = std::min(end, (block + 1) * block_.count);
      visit(block_id{static_cast<std::uint32_t>(block)}, static_cast<std::uint32_t>(stop - begin));
      begin = stop;
    }
  }
  void revive(std::uint64_t begin, std::uint64_t end, std::vector<block_range>& changed) {
    for_each_part(begin, end, [&](block_id b, std::uint32_t n) {
      if (live_[b.value] == 0) {
        append_merged(changed, b);
      }
      live_[b.value] += n;
      live_bytes_ += n;
    });
  }

  bytes block_;
  sequence<std::uint32_t> allocated_;                   // bytes of each block that are allocated
  sequence<std::uint32_t> live_;                        // bytes of each block that are allocated and active
  std::map<std::uint64_t, std::uint64_t> intervals_{};  // live bytes: begin -> end, merged
  std::uint64_t allocated_bytes_ = 0;                   // of all blocks
  std::uint64_t live_bytes_ = 0;
};

}  // namespace v0
}  // namespace deepum
