#pragma once

#include <deepum/core/location.hpp>

#include <cstdint>
#include <span>

namespace deepum {
inline namespace v0 {

/// Whether a block's contents matter. These are facts that the program stated, never predictions.
enum class liveness : std::uint8_t {
  unallocated,  ///< no live allocation has a byte in the block
  live,         ///< contents matter
  inactive,     ///< allocated, but the program marked the whole block as holding nothing of value
};

/// What a place has of a block.
enum class copy_state : std::uint8_t {
  absent,    ///< nothing
  room,      ///< memory without contents
  arriving,  ///< memory is taken for it, and contents (or room alone) are on their way
  current,   ///< the contents
  stale,     ///< older contents
  leaving,   ///< what it has is being given up
};
inline constexpr unsigned copy_state_count = 6;

/// One block at one place.
struct block_copy {
  enum class phase : std::uint8_t { absent, arriving, there, leaving };

  std::uint32_t generation = 0;  ///< of the contents that are there or on their way; 0: room alone
  std::uint32_t ticket = 0;      ///< the transfer that changes it, by a mark of its number; 0: none
  std::uint32_t unused = 0;      ///< a prefetch brought it and no launch has used it: since when, in the engine's count
  phase is = phase::absent;
  std::uint8_t from = 0;  ///< arriving: index of the place that it is copied from; its own: it is not a copy
  bool partial = false;   ///< a fault may have brought in only some of its pages
  bool late = false;      ///< arriving: a launch faulted on it meanwhile

  /// Takes memory at the place.
  [[nodiscard]] constexpr bool takes_room() const { return is != phase::absent; }
  /// Memory is there, perhaps on its way out.
  [[nodiscard]] constexpr bool holds() const { return is == phase::there || is == phase::leaving; }
};

/// What is known of one block, whatever place it is at. Where it is, `block_copy` says.
struct block_record {
  std::uint64_t dead_after = 0;   ///< the last launch that may use it, where it is dead
  std::uint32_t generation = 1;   ///< of its contents: a copy with another one is stale
  std::uint32_t overwriter = 0;   ///< mark of the launch in flight that overwrites what the host still has; 0: none
  std::uint32_t served_in = 0;    ///< the launch that was served last and declares it, by its number among those
  std::uint32_t users = 0;        ///< launches in flight that declare it
  std::uint32_t writers = 0;      ///< those of them that declare to write it
  std::uint32_t pins = 0;         ///< users that may execute (counted where the memory never faults)
  std::uint32_t holds = 0;        ///< pins that are an `arena::hold`
  std::uint32_t host_views = 0;   ///< through which the host reads or writes it
  std::uint32_t host_writes = 0;  ///< those through which it writes
  liveness life = liveness::unallocated;
  bool forgetting : 1 = false;   ///< its contents are being given up everywhere
  bool filling : 1 = false;      ///< an upload is writing all of it in host memory, or is about to
  bool read_mostly : 1 = false;  ///< the driver was told that it is
  bool in_place : 1 = false;     ///< rows of it are touched where it is, while it is not on the device
  bool reachable : 1 = false;    ///< launches find the host's memory at its address (where the memory never faults)
};

/// One block with its copies: what the law is asked about.
class block_view {
 public:
  constexpr block_view(const block_record& record, std::span<const block_copy> copies)
      : record_(record),
        copies_(copies) {}

  constexpr const block_record* operator->() const { return &record_; }
  [[nodiscard]] constexpr const block_copy& at(location l) const { return copies_[l.index()]; }

  [[nodiscard]] constexpr copy_state state(location l) const {
    const block_copy& c = at(l);
    switch (c.is) {
      case block_copy::phase::absent:
        return copy_state::absent;
      case block_copy::phase::arriving:
        return copy_state::arriving;
      case block_copy::phase::leaving:
        return copy_state::leaving;
      case block_copy::phase::there:
        break;
    }
    return c.generation == 0 ? copy_state::room : is_newest(c) ? copy_state::current : copy_state::stale;
  }
  /// The place has the contents, perhaps on their way out.
  [[nodiscard]] constexpr bool current(location l) const { return at(l).holds() && is_newest(at(l)); }
  /// Another place has the contents, and they stay there.
  [[nodiscard]] constexpr bool current_beside(location l) const {
    for (const block_copy& c : copies_) {
      if (&c != &at(l) && c.is == block_copy::phase::there && is_newest(c)) {
        return true;
      }
    }
    return false;
  }
  /// No place has the contents: they are new, were given up, or are about to be overwritten.
  [[nodiscard]] constexpr bool nowhere() const {
    for (const block_copy& c : copies_) {
      if (c.holds() && is_newest(c)) {
        return false;
      }
    }
    return true;
  }
  /// The contents are being copied from there.
  [[nodiscard]] constexpr bool read_at(location l) const {
    for (const block_copy& c : copies_) {
      if (c.is == block_copy::phase::arriving && c.from == l.index() && &c != &at(l)) {
        return true;
      }
    }
    return false;
  }
  /// A transfer moves what the place has, or reads it, or the contents are being given up everywhere.
  [[nodiscard]] constexpr bool in_motion(location l) const {
    return record_.forgetting || at(l).is == block_copy::phase::arriving || at(l).is == block_copy::phase::leaving ||
           read_at(l);
  }
  /// The same of any place.
  [[nodiscard]] constexpr bool in_motion() const {
    for (const block_copy& c : copies_) {
      if (c.is == block_copy::phase::arriving || c.is == block_copy::phase::leaving) {
        return true;
      }
    }
    return record_.forgetting;
  }
  /// A device has something of it, or is about to.
  [[nodiscard]] constexpr bool on_any_device() const {
    for (const block_copy& c : copies_.subspan(1)) {
      if (c.takes_room()) {
        return true;
      }
    }
    return false;
  }
  /// A transfer has been given to it that has not ended.
  [[nodiscard]] constexpr bool has_ticket() const {
    for (const block_copy& c : copies_) {
      if (c.ticket != 0) {
        return true;
      }
    }
    return false;
  }

 private:
  [[nodiscard]] constexpr bool is_newest(const block_copy& c) const { return c.generation == record_.generation; }

  const block_record& record_;
  std::span<const block_copy> copies_;
};

}  // namespace v0
}  // namespace deepum
