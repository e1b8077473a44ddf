#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/alone.hpp>
#include <deepum/arena/back.hpp>
#include <deepum/arena/new_memory.hpp>
#include <deepum/arena/options.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The allocation front of an arena: which bytes are handed out, what of them is of value, and what the back is told of
/// that. Its lock orders launches and facts, over all streams (docs/adr/0008).
///
/// `arena` documents the calls of the same names. Threads: every call, any thread.
class allocation_front {
 public:
  /// @param of     Outlives it.
  /// @param fills  Fills new memory; null where nothing does.
  allocation_front(arena_back& of, new_memory* fills);

  // The address range. No lock: it never changes.
  [[nodiscard]] bool contains(const void* p) const { return address_of(p) - base_ < capacity_.count; }
  [[nodiscard]] std::optional<bytes> offset_of(const void* p) const {
    const bytes offset{address_of(p) - base_};  // wraps for what lies before the arena
    return offset < capacity_ ? std::optional<bytes>(offset) : std::nullopt;
  }
  /// @errors  `status::foreign_pointer` for bytes that are not the arena's.
  [[nodiscard]] byte_span span_at(const void* p, bytes size) const {
    return {table_.checked(address_of(p), size), size};
  }
  /// The blocks that bytes lie in. @errors  As above, where there are any.
  [[nodiscard]] block_range blocks_at(const void* p, bytes size) const;

  // Allocation.
  /// @param on  In whose order it is used first, or given back; none: in that of all.
  [[nodiscard]] void* allocate(bytes size, bytes alignment, std::optional<stream_id> on = {});
  void deallocate(const void* p, std::optional<stream_id> on = {});
  /// A stream has ended, with all that was launched on it.
  void retire(stream_id ended);
  void split(const void* p, std::span<const bytes> parts);
  void name_part(const void* p, bytes size);
  void cut(const void* p, bytes unit);
  [[nodiscard]] arena_footprint footprint() const;

  // Contents that are of no value.
  void discard(const void* p, bytes size);
  void mark_inactive(const void* p, bytes size);
  void mark_active(const void* p, bytes size);
  /// The host is about to use bytes. Memory that it writes is in use again.
  /// @returns  Where they are.
  /// @errors   `status::invalid_argument` where it reads what was given up.
  byte_span used_by_host(const void* p, bytes size, access mode);
  /// Blocks in which nothing is allocated but these bytes.
  [[nodiscard]] block_range alone_in(byte_span span) const {
    const std::lock_guard lock(mutex_);
    return detail::alone_in(table_, span, back_.grid());
  }

  // For the reports of launches, under the lock.
  [[nodiscard]] std::mutex& mutex() const { return mutex_; }
  [[nodiscard]] allocation_table& table() { return table_; }
  [[nodiscard]] const allocation_table& table() const { return table_; }

 private:
  static std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
  /// @param waits  Memory that was given back would do, but for the launch that this thread is enqueuing.
  [[nodiscard]] error out_of_space(bytes asked, bool waits) const;
  void* handed_out(void* p, bytes size);
  /// An allocation is about to be given back.
  void forget_new(const void* p);
  /// The contents of bytes are about to be given up.
  void give_up(const void* p, bytes size);

  arena_back& back_;
  new_memory* const fills_;
  const std::uintptr_t base_;
  const bytes capacity_;
  mutable std::mutex mutex_;
  allocation_table table_;  // its base and capacity never change and need no lock
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/front.hpp>  // what it declares
#endif
