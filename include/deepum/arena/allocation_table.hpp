#pragma once

#include <deepum/arena/stream_gaps.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/fifo.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/live_bytes.hpp>
#include <deepum/core/offset_map.hpp>
#include <deepum/core/range_allocator.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
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
  bool sparse = false;   ///< and these
  bytes row{};
  bytes touched{};
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
  /// @param first_byte  Address of the first byte, aligned to a block.
  /// @param capacity    Whole blocks.
  /// @param unit        Size of one.
  allocation_table(std::uintptr_t first_byte, bytes capacity, bytes unit)
      : base_(first_byte),
        space_(capacity, unit),
        kept_(capacity, unit),
        live_(static_cast<std::uint32_t>(capacity / unit), block_grid{unit}) {}

  /// @param size       1 byte or more.
  /// @param alignment  A power of two; at least 256 bytes is given.
  /// @param on         Launches of this stream use it first, or what is ordered behind them: then it may be what was
  ///                   given back in this stream's order.
  /// @returns          Address of the allocation; nothing where no gap is large enough.
  [[nodiscard]] std::optional<std::uintptr_t> try_allocate(bytes size, bytes alignment,
                                                           std::vector<liveness_change>& changes,
                                                           std::optional<stream_id> on = {}) {
    const std::optional<bytes> offset = on ? try_place(*on, size, alignment) : space_.try_allocate(size, alignment);
    if (!offset) {
      return std::nullopt;
    }
    allocations_.insert(offset->count, allocation{size, ++made_, {}, false});
    allocated_ += size;
    peak_ = std::max(peak_, allocated_);
    report(
        [&](auto& blocks) {
          // What a stream keeps counts as allocated.
          on ? live_.mark_active(*offset, range_allocator::rounded(size), blocks)
             : live_.allocate(*offset, range_allocator::rounded(size), blocks);
        },
        {}, changes);
    return base_ + offset->count;
  }

  /// Gives an allocation back. Its contents are dead at once; its addresses can be handed out again when the launches
  /// that may use it have finished.
  /// @param address   As `try_allocate` returned it.
  /// @param last      The last launch that may use the memory.
  /// @param finished  Whether it has finished, with all before it.
  /// @param on        The stream in whose order the memory is given back: it keeps the addresses.
  /// @errors          `status::foreign_pointer`, `status::double_free`, `status::invalid_argument` for an interior
  /// pointer.
  void free(std::uintptr_t address, launch_id last, bool finished, std::vector<liveness_change>& changes,
            std::optional<stream_id> on = {}) {
    const std::uint64_t offset = checked(address, bytes{1}).count;
    const auto [begin, it] = containing(offset);
    if (it == nullptr || (begin == offset && it->freeing)) {
      throw error(status::double_free,
                  text(address) + " is not allocated: it was given back already, or never handed out");
    }
    if (begin != offset) {
      throw error(status::invalid_argument,
                  text(address) + " points " + std::to_string(offset - begin) +
                      " bytes into an allocation; give back the pointer that was handed out, " + text(base_ + begin));
    }
    const bytes size = it->size;
    allocated_ -= size;
    report([&](auto& blocks) { live_.mark_inactive(bytes{offset}, range_allocator::rounded(size), blocks); }, last,
           changes);
    if (on) {
      allocations_.erase(offset);
      kept_.keep(*on, bytes{offset}, size, kept_.is_small(size), last);
      return;
    }
    it->freeing = true;
    waiting_.push_back({offset, last});
    if (finished) {
      reclaim(last, changes);
    }
  }
  /// A stream ends, which may keep addresses. All that was launched on it has finished.
  void retire(stream_id on) { kept_.retire(on); }
  /// What streams keep, and no launch uses any more, is anyone's. For when there is no other room.
  void take_kept(launch_id finished_up_to, std::vector<liveness_change>& changes) {
    take(finished_up_to, true, changes);
  }
  /// The launch after which all that streams keep could be anyone's; nothing where they keep nothing.
  [[nodiscard]] std::optional<launch_id> kept_until() const { return kept_.last(); }
  /// Carries out the frees that waited for this launch or one before it.
  void reclaim(launch_id finished_up_to, std::vector<liveness_change>& changes) {
    if (kept_.any_retired()) [[unlikely]] {
      take(finished_up_to, false, changes);
    }
    while (!waiting_.empty() && waiting_.front().last <= finished_up_to) {
      const waiting_free f = waiting_.front();
      waiting_.pop_front();
      const bytes size = containing(f.offset).value->size;
      allocations_.erase(f.offset);
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
    const auto [begin, it] = containing(offset);
    if (it == nullptr || begin != offset) {
      throw error(status::foreign_pointer,
                  text(address) + " is not the beginning of an allocation that could be split");
    }
    sequence<std::uint64_t> ends;
    std::uint64_t end = 0;
    for (const bytes part : parts) {
      if (part.count == 0 || part.count > it->size.count - end) {
        throw error(status::invalid_argument, "part " + std::to_string(ends.size()) + " of " +
                                                  std::to_string(part.count) +
                                                  " bytes does not fit: the allocation has " +
                                                  std::to_string(it->size.count - end) + " bytes left there");
      }
      end += part.count;
      ends.push_back(end);
    }
    if (end < it->size.count) {
      ends.push_back(it->size.count);
    }
    it->part_ends = std::move(ends);
  }

  /// Names one part of an allocation: an operand without a size that points into these bytes means them. What was named
  /// before and lies in them is one with them; what it cut keeps the rest.
  /// @errors  Those of `checked_in_allocation`; `status::invalid_argument` for a part without bytes.
  /// Cost: linear in the parts of the allocation.
  void name_part(std::uintptr_t address, bytes size) {
    if (size.count == 0) {
      throw error(status::invalid_argument, "a part at " + text(address) + " has no bytes");
    }
    (void)checked_in_allocation(address, size);
    const auto [begin, it] = containing(address - base_);
    const std::uint64_t from = address - base_ - begin;
    const std::uint64_t to = from + size.count;
    sequence<std::uint64_t>& ends = it->part_ends;
    if (ends.empty()) {
      ends.push_back(it->size.count);
    }
    auto* at = std::lower_bound(ends.begin(), ends.end(), from);
    at = ends.erase(at, std::upper_bound(at, ends.end(), to));
    at = ends.insert(at, to);
    if (from != 0) {
      ends.insert(at, from);
    }
  }

  /// A part of an allocation begins at an address from now on, as in one that was split. Nothing happens where that
  /// would tell little: less than `unit` behind the beginning of a part, which may be another place in the same object,
  /// or where the allocation has many parts already.
  /// @param most  Parts of one allocation.
  /// @returns     Whether it was cut. Cost: linear in the parts where it was, else as `find`.
  bool cut(std::uintptr_t address, bytes unit, std::size_t most) {
    const std::uint64_t offset = address - base_;
    if (address < base_ || offset >= space_.capacity().count) {
      return false;
    }
    const auto [begin, it] = containing(offset);
    if (it == nullptr || it->freeing || offset - begin < unit.count || it->part_ends.size() >= most) {
      return false;
    }
    sequence<std::uint64_t>& ends = it->part_ends;
    const auto after = std::upper_bound(ends.begin(), ends.end(), offset - begin);
    const std::uint64_t part = after == ends.begin() ? 0 : *std::prev(after);
    if (offset - begin - part < unit.count) {
      return false;
    }
    ends.insert(after, offset - begin);
    if (ends.back() != it->size.count) {  // the first one
      ends.push_back(it->size.count);
    }
    return true;
  }

  /// Finds what an operand names, by its place in the arena: bytes from there on where it has a size, else the
  /// allocation or part. The way that every operand of a launch goes.
  /// @returns  Whether that lies in one allocation, which was not given back. If not, the calls above say why.
  [[nodiscard]] bool try_find(bytes offset, bytes size, bool sized, named_bytes& out) const {
    const found in = containing(offset.count);
    if (!in || in.value->freeing) [[unlikely]] {
      return false;
    }
    const allocation& a = *in.value;
    if (sized) {
      out = {{offset, size}, a.number};
      return size.count <= a.size.count - (offset.count - in.offset);
    }
    out = {a.part_ends.empty() ? byte_span{bytes{in.offset}, a.size} : part_at(in, offset.count), a.number};
    return true;
  }
  /// All of the allocation that begins at an address. Nothing where none does, or it was given back.
  [[nodiscard]] std::optional<byte_span> whole(std::uintptr_t address) const {
    const auto [begin, it] = address < base_ ? found{} : containing(address - base_);
    return it == nullptr || it->freeing || begin != address - base_
               ? std::nullopt
               : std::optional<byte_span>({bytes{begin}, it->size});
  }
  /// Bytes of one allocation, from an address on.
  /// @errors  Those of `checked_in_allocation`.
  [[nodiscard]] named_bytes find(std::uintptr_t address, bytes size) const {
    const found in = allocation_of(address, size);
    return {{bytes{address - base_}, size}, in.value->number};
  }
  /// Whether an allocation has not been given back since it was named.
  [[nodiscard]] bool exists(const named_bytes& named) const {
    const allocation* const it = containing(named.span.offset.count).value;
    return it != nullptr && !it->freeing && it->number == named.allocation;
  }

  /// The offset of bytes that lie in the arena.
  /// @errors  `status::foreign_pointer` where they do not.
  [[nodiscard]] bytes checked(std::uintptr_t address, bytes size) const {
    const std::uint64_t offset = address - base_;  // wraps for what lies before the arena
    const std::uint64_t capacity = space_.capacity().count;
    if (offset >= capacity || size.count > capacity - offset) [[unlikely]] {
      throw not_of_this_arena(address, size);
    }
    return bytes{offset};
  }
  /// The offset of bytes that lie in one allocation.
  /// @errors  `status::foreign_pointer`, `status::invalid_argument` where they reach beyond it.
  [[nodiscard]] bytes checked_in_allocation(std::uintptr_t address, bytes size) const {
    (void)allocation_of(address, size);
    return bytes{address - base_};
  }

  /// The bytes of an allocation hold nothing of value until they are marked active.
  /// @param last  The last launch that may use them.
  void mark_inactive(std::uintptr_t address, bytes size, launch_id last, std::vector<liveness_change>& changes) {
    const auto [begin, it] = allocation_of(address, size);
    const bytes offset{address - base_};
    const bool to_the_end = offset + size == bytes{begin} + it->size;
    if (to_the_end) {  // then what the allocation was rounded up to, too
      size = bytes{begin} + range_allocator::rounded(it->size) - offset;
    }
    report([&](auto& blocks) { live_.mark_inactive(offset, size, blocks); }, last, changes);
  }
  void mark_active(std::uintptr_t address, bytes size, std::vector<liveness_change>& changes) {
    use_again({checked_in_allocation(address, size), size}, changes);
  }

  /// Whether anything that is allocated, or given back and not free yet, holds nothing of value. Cost: constant.
  [[nodiscard]] bool any_given_up() const { return live_.any_given_up(); }
  /// How much of the bytes holds nothing of value: marked inactive, or given back.
  /// Cost: nothing while all that is allocated is of value.
  [[nodiscard]] bytes given_up(byte_span span) const { return live_.given_up(span.offset, span.size); }
  /// The bytes are used again. They lie in one allocation.
  void use_again(byte_span span, std::vector<liveness_change>& changes) {
    report([&](auto& blocks) { live_.mark_active(span.offset, span.size, blocks); }, {}, changes);
  }

  /// The last allocation that begins at an offset or before it. Nothing where none does.
  [[nodiscard]] std::optional<byte_span> last_up_to(std::uint64_t offset) const {
    const found at = allocations_.at_or_before(offset);
    return at ? std::optional(byte_span{bytes{at.offset}, at.value->size}) : std::nullopt;
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
    sequence<std::uint64_t> part_ends{};  // from its beginning; empty: not split
    bool freeing = false;
  };
  struct waiting_free {
    std::uint64_t offset = 0;
    launch_id last{};
  };
  using found = detail::offset_map<allocation>::found<const allocation>;

  static std::string text(std::uintptr_t address) {
    constexpr const char* digits = "0123456789abcdef";
    std::string s;
    do {
      s.insert(s.begin(), digits[address % 16]);
      address /= 16;
    } while (address != 0);
    return "0x" + s;
  }

  /// Room for a stream: of what it keeps, else of whole blocks that it gets and keeps.
  [[nodiscard]] std::optional<bytes> try_place(stream_id on, bytes size, bytes alignment) {
    if (size > space_.capacity()) {
      return std::nullopt;
    }
    if (const std::optional<bytes> offset = kept_.try_allocate(on, size, alignment)) {
      return offset;
    }
    const bytes wanted = kept_.wanted_for(size);
    const std::optional<bytes> more = space_.try_allocate(wanted, alignment);
    if (!more) {
      return std::nullopt;
    }
    changed_.clear();  // nobody has to hear of it: it is of no value before and after
    live_.allocate(*more, wanted, changed_);
    live_.mark_inactive(*more, wanted, changed_);
    kept_.keep(on, *more, wanted, kept_.is_small(size), {});
    return kept_.try_allocate(on, size, alignment);
  }
  void take(launch_id finished_up_to, bool of_all, std::vector<liveness_change>& changes) {
    kept_.take(finished_up_to, of_all, [&](bytes offset, bytes size, launch_id last) {
      space_.release(offset, size);
      report([&](auto& blocks) { live_.deallocate(offset, size, blocks); }, last, changes);
    });
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

  /// The allocation that an offset lies in, given back or not; nothing where it lies in none.
  [[nodiscard]] found containing(std::uint64_t offset) const {
    const found before = allocations_.at_or_before(offset);
    return before && offset - before.offset < before.value->size.count ? before : found{};
  }
  [[nodiscard]] detail::offset_map<allocation>::found<allocation> containing(std::uint64_t offset) {
    const auto before = allocations_.at_or_before(offset);
    return before && offset - before.offset < before.value->size.count ? before : decltype(before){};
  }
  /// The part of an allocation that was split, at an offset in the arena.
  [[nodiscard, gnu::noinline]] static byte_span part_at(const found& in, std::uint64_t offset) {
    const sequence<std::uint64_t>& ends = in.value->part_ends;
    const auto end = std::upper_bound(ends.begin(), ends.end(), offset - in.offset);
    const std::uint64_t from = end == ends.begin() ? 0 : *std::prev(end);
    return {bytes{in.offset + from}, bytes{*end - from}};
  }
  /// The allocation that bytes lie in.
  /// @errors  Those of `checked_in_allocation`.
  [[nodiscard]] found allocation_of(std::uintptr_t address, bytes size) const {
    const found in = containing(checked(address, size).count);
    if (!in || in.value->freeing || address - base_ + size.count > in.offset + in.value->size.count) [[unlikely]] {
      throw not_in_one_allocation(address, size, in);
    }
    return in;
  }
  [[nodiscard]] error not_of_this_arena(std::uintptr_t address, bytes size) const {
    return error(status::foreign_pointer, std::to_string(size.count) + " bytes at " + text(address) +
                                              " are not memory of this arena, which is " +
                                              std::to_string(space_.capacity().count) + " bytes at " + text(base_));
  }
  [[nodiscard]] error not_in_one_allocation(std::uintptr_t address, bytes size, const found& in) const {
    if (!in || in.value->freeing) {
      return error(status::foreign_pointer,
                   text(address) + " is not allocated: it was given back already, or never handed out");
    }
    return error(status::invalid_argument,
                 std::to_string(size.count) + " bytes at " + text(address) + " reach beyond their allocation of " +
                     std::to_string(in.value->size.count) + " bytes at " + text(base_ + in.offset));
  }

  std::uintptr_t base_;
  range_allocator space_;
  detail::stream_gaps kept_;
  live_bytes live_;
  detail::offset_map<allocation> allocations_{};
  fifo<waiting_free> waiting_{};  // in the order of the launches that they wait for
  std::vector<block_range> changed_{};
  std::uint64_t made_ = 0;  // allocations so far
  bytes allocated_{};
  bytes peak_{};
};

}  // namespace v0
}  // namespace deepum
