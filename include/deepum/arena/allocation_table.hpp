#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/live_bytes.hpp>
#include <deepum/core/range_allocator.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Bytes of an arena, counted from its base.
struct byte_span {
  bytes offset{};
  bytes size{};
  friend constexpr bool operator==(const byte_span&, const byte_span&) = default;
};

/// Bytes that an operand names, and the allocation that they lie in.
struct named_bytes {
  byte_span span{};
  std::uint64_t allocation = 0;  ///< its number; one that is made later at the same place has another
};

/// An operand of a launch, with the bytes that it names: what its pointer meant at that moment.
struct named_operand {
  named_bytes where{};
  access mode = access::update;
  bool sized = false;    ///< the program gave the size; else it is that of the allocation or part
  bool scratch = false;  ///< see `operand`
};

/// What became of blocks when memory was allocated, freed or marked.
struct liveness_change {
  block_range range{};
  liveness now = liveness::live;
  launch_id last{};  ///< where they died: the last launch that may still use them
};

/// What an arena has handed out: allocations, their parts, frees that wait for launches, and what is live. Knows no
/// device.
///
/// Addresses are numbers here; nothing is ever dereferenced. Not synchronised: the arena calls it under its lock.
class allocation_table {
 public:
  /// @param base      Address of the first byte, aligned to a block.
  /// @param capacity  Whole blocks.
  /// @param block     Size of one.
  allocation_table(std::uintptr_t base, bytes capacity, bytes block)
      : base_(base),
        space_(capacity, block),
        live_(static_cast<std::uint32_t>(capacity / block), block_grid{block}) {}

  /// @param size       1 byte or more.
  /// @param alignment  A power of two; at least 256 bytes is given.
  /// @returns          Address of the allocation; nothing where no gap is large enough.
  [[nodiscard]] std::optional<std::uintptr_t> try_allocate(bytes size, bytes alignment,
                                                           std::vector<liveness_change>& changes) {
    const std::optional<bytes> offset = space_.try_allocate(size, alignment);
    if (!offset) {
      return std::nullopt;
    }
    allocations_.emplace(offset->count, allocation{size, ++made_, {}, false});
    allocated_ += size;
    peak_ = std::max(peak_, allocated_);
    report([&](auto& blocks) { live_.allocate(*offset, range_allocator::rounded(size), blocks); }, {}, changes);
    return base_ + offset->count;
  }

  /// Gives an allocation back. Its contents are dead at once; its addresses can be handed out again when the launches
  /// that may use it have finished.
  /// @param address   As `try_allocate` returned it.
  /// @param last      The last launch that may use the memory.
  /// @param finished  Whether it has finished, with all before it.
  /// @errors          `status::foreign_pointer`, `status::double_free`, `status::invalid_argument` for an interior
  /// pointer.
  void free(std::uintptr_t address, launch_id last, bool finished, std::vector<liveness_change>& changes) {
    const std::uint64_t offset = checked(address, bytes{1}).count;
    const auto it = containing(offset);
    if (it == allocations_.end() || (it->first == offset && it->second.freeing)) {
      throw error(status::double_free,
                  text(address) + " is not allocated: it was given back already, or never handed out");
    }
    if (it->first != offset) {
      throw error(status::invalid_argument,
                  text(address) + " points " + std::to_string(offset - it->first) +
                      " bytes into an allocation; give back the pointer that was handed out, " +
                      text(base_ + it->first));
    }
    const bytes size = it->second.size;
    allocated_ -= size;
    it->second.freeing = true;
    waiting_.push_back({offset, last});
    report([&](auto& blocks) { live_.mark_inactive(bytes{offset}, range_allocator::rounded(size), blocks); }, last,
           changes);
    if (finished) {
      reclaim(last, changes);
    }
  }
  /// Carries out the frees that waited for this launch or one before it.
  void reclaim(launch_id finished_up_to, std::vector<liveness_change>& changes) {
    while (!waiting_.empty() && waiting_.front().last <= finished_up_to) {
      const waiting_free f = waiting_.front();
      waiting_.pop_front();
      const auto it = allocations_.find(f.offset);
      const bytes size = it->second.size;
      allocations_.erase(it);
      space_.release(bytes{f.offset}, size);
      report([&](auto& blocks) { live_.deallocate(bytes{f.offset}, range_allocator::rounded(size), blocks); }, f.last,
             changes);
    }
  }
  /// The launch that the oldest waiting free waits for; nothing where none waits.
  [[nodiscard]] std::optional<launch_id> awaited() const {
    return waiting_.empty() ? std::nullopt : std::optional<launch_id>(waiting_.front().last);
  }

  /// Names the parts of an allocation, one after the other from its beginning. What is left over is a part too.
  /// @errors  `status::invalid_argument` where the parts do not fit, or one is empty; those of `allocation_of`.
  void split(std::uintptr_t address, std::span<const bytes> parts) {
    const std::uint64_t offset = checked(address, bytes{1}).count;
    const auto it = containing(offset);
    if (it == allocations_.end() || it->first != offset) {
      throw error(status::foreign_pointer,
                  text(address) + " is not the beginning of an allocation that could be split");
    }
    std::vector<std::uint64_t> ends;
    std::uint64_t end = 0;
    for (const bytes part : parts) {
      if (part.count == 0 || part.count > it->second.size.count - end) {
        throw error(status::invalid_argument, "part " + std::to_string(ends.size()) + " of " +
                                                  std::to_string(part.count) +
                                                  " bytes does not fit: the allocation has " +
                                                  std::to_string(it->second.size.count - end) + " bytes left there");
      }
      end += part.count;
      ends.push_back(end);
    }
    if (end < it->second.size.count) {
      ends.push_back(it->second.size.count);
    }
    it->second.part_ends = std::move(ends);
  }

  /// The allocation that an address lies in, or its part where it was split. Nothing where it was given back.
  [[nodiscard]] std::optional<named_bytes> find(std::uintptr_t address) const {
    if (address < base_ || address - base_ >= space_.capacity().count) {
      return std::nullopt;
    }
    const std::uint64_t offset = address - base_;
    const auto it = containing(offset);
    if (it == allocations_.end() || it->second.freeing) {
      return std::nullopt;
    }
    const std::vector<std::uint64_t>& ends = it->second.part_ends;
    if (ends.empty()) {
      return named_bytes{{bytes{it->first}, it->second.size}, it->second.number};
    }
    const auto end = std::upper_bound(ends.begin(), ends.end(), offset - it->first);
    const std::uint64_t begin = end == ends.begin() ? 0 : *std::prev(end);
    return named_bytes{{bytes{it->first + begin}, bytes{*end - begin}}, it->second.number};
  }
  /// All of the allocation that begins at an address. Nothing where none does, or it was given back.
  [[nodiscard]] std::optional<byte_span> whole(std::uintptr_t address) const {
    const auto it = address < base_ ? allocations_.end() : allocations_.find(address - base_);
    return it == allocations_.end() || it->second.freeing
               ? std::nullopt
               : std::optional<byte_span>({bytes{it->first}, it->second.size});
  }
  /// Bytes of one allocation, from an address on.
  /// @errors  Those of `checked_in_allocation`.
  [[nodiscard]] named_bytes find(std::uintptr_t address, bytes size) const {
    const bytes offset = checked_in_allocation(address, size);
    return {{offset, size}, containing(offset.count)->second.number};
  }
  /// Whether an allocation has not been given back since it was named.
  [[nodiscard]] bool exists(const named_bytes& named) const {
    const auto it = containing(named.span.offset.count);
    return it != allocations_.end() && !it->second.freeing && it->second.number == named.allocation;
  }

  /// The offset of bytes that lie in the arena.
  /// @errors  `status::foreign_pointer` where they do not.
  [[nodiscard]] bytes checked(std::uintptr_t address, bytes size) const {
    const std::uint64_t capacity = space_.capacity().count;
    if (address < base_ || address - base_ >= capacity || size.count > capacity - (address - base_)) {
      throw error(status::foreign_pointer, std::to_string(size.count) + " bytes at " + text(address) +
                                               " are not memory of this arena, which is " + std::to_string(capacity) +
                                               " bytes at " + text(base_));
    }
    return bytes{address - base_};
  }
  /// The offset of bytes that lie in one allocation.
  /// @errors  `status::foreign_pointer`, `status::invalid_argument` where they reach beyond it.
  [[nodiscard]] bytes checked_in_allocation(std::uintptr_t address, bytes size) const {
    const bytes offset = checked(address, size);
    const auto it = containing(offset.count);
    if (it == allocations_.end() || it->second.freeing) {
      throw error(status::foreign_pointer,
                  text(address) + " is not allocated: it was given back already, or never handed out");
    }
    if (offset + size > bytes{it->first} + it->second.size) {
      throw error(status::invalid_argument,
                  std::to_string(size.count) + " bytes at " + text(address) + " reach beyond their allocation of " +
                      std::to_string(it->second.size.count) + " bytes at " + text(base_ + it->first));
    }
    return offset;
  }

  /// The bytes of an allocation hold nothing of value until they are marked active.
  /// @param last  The last launch that may use them.
  void mark_inactive(std::uintptr_t address, bytes size, launch_id last, std::vector<liveness_change>& changes) {
    const bytes offset = checked_in_allocation(address, size);
    const auto it = containing(offset.count);
    const bool to_the_end = offset + size == bytes{it->first} + it->second.size;
    if (to_the_end) {  // then what the allocation was rounded up to, too
      size = bytes{it->first} + range_allocator::rounded(it->second.size) - offset;
    }
    report([&](auto& blocks) { live_.mark_inactive(offset, size, blocks); }, last, changes);
  }
  void mark_active(std::uintptr_t address, bytes size, std::vector<liveness_change>& changes) {
    use_again({checked_in_allocation(address, size), size}, changes);
  }

  /// How much of the bytes holds nothing of value: marked inactive, or given back.
  /// Cost: nothing while all that is allocated is of value.
  [[nodiscard]] bytes given_up(byte_span span) const { return live_.given_up(span.offset, span.size); }
  /// The bytes are used again. They lie in one allocation.
  void use_again(byte_span span, std::vector<liveness_change>& changes) {
    report([&](auto& blocks) { live_.mark_active(span.offset, span.size, blocks); }, {}, changes);
  }

  [[nodiscard]] bytes capacity() const { return space_.capacity(); }
  [[nodiscard]] bytes free_space() const { return space_.free(); }
  [[nodiscard]] bytes largest_gap() const { return space_.largest_gap(); }
  /// Bytes handed out and not given back, and the most that ever were.
  [[nodiscard]] bytes allocated() const { return allocated_; }
  [[nodiscard]] bytes peak() const { return peak_; }
  [[nodiscard]] liveness of(block_id b) const { return live_.of(b); }

 private:
  struct allocation {
    bytes size{};
    std::uint64_t number = 0;
    std::vector<std::uint64_t> part_ends{};  // from its beginning; empty: not split
    bool freeing = false;
  };
  struct waiting_free {
    std::uint64_t offset = 0;
    launch_id last{};
  };
  using allocation_map = std::map<std::uint64_t, allocation>;

  static std::string text(std::uintptr_t address) {
    constexpr const char* digits = "0123456789abcdef";
    std::string s;
    do {
      s.insert(s.begin(), digits[address % 16]);
      address /= 16;
    } while (address != 0);
    return "0x" + s;
  }

  /// Makes a change of liveness and reports the blocks that it changed, each with what it is now.
  template <class Change>
  void report(Change&& change, launch_id last, std::vector<liveness_change>& changes) {
    changed_.clear();
    change(changed_);
    for (const block_range& r : changed_) {
      for (const block_id b : r) {
        const liveness now = live_.of(b);
        if (!changes.empty() && changes.back().range.end_value() == b.value && changes.back().now == now &&
            changes.back().last == last) {
          ++changes.back().range.count;
        } else {
          changes.push_back({{b, 1}, now, last});
        }
      }
    }
  }

  template <class Map>
  static auto containing_in(Map& map, std::uint64_t offset) {
    auto it = map.upper_bound(offset);
    if (it == map.begin()) {
      return map.end();
    }
    --it;
    return offset - it->first < it->second.size.count ? it : map.end();
  }
  [[nodiscard]] allocation_map::iterator containing(std::uint64_t offset) {
    return containing_in(allocations_, offset);
  }
  [[nodiscard]] allocation_map::const_iterator containing(std::uint64_t offset) const {
    return containing_in(allocations_, offset);
  }

  std::uintptr_t base_;
  range_allocator space_;
  live_bytes live_;
  allocation_map allocations_{};
  std::deque<waiting_free> waiting_{};  // in the order of the launches that they wait for
  std::vector<block_range> changed_{};
  std::uint64_t made_ = 0;  // allocations so far
  bytes allocated_{};
  bytes peak_{};
};

}  // namespace v0
}  // namespace deepum
