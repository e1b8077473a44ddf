#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/location.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace deepum {
inline namespace v0 {

/// Why something was planned. Statistics are kept by reason.
enum class reason : std::uint8_t {
  predicted,    ///< a predicted launch needs it
  issued,       ///< a launch that is issued, but not finished, needs it
  requested,    ///< the program asked for it
  make_room,    ///< something that is needed sooner takes its place
  over_budget,  ///< the arena holds more than its budget
  dead,         ///< freed, marked inactive, or about to be overwritten as a whole
  write_back,   ///< the outward link was idle; what is clean can be dropped without a copy later
  keep,         ///< resident already; made the most recently migrated so that the driver keeps it
  learned,      ///< the tables show how it is used (advice)
  fault,        ///< the driver itself, on a page fault
  host,         ///< the host touched it
};
inline constexpr unsigned reason_count = 11;

/// What the place that blocks come from has of them when a transfer is over.
enum class afterwards : std::uint8_t {
  keep,     ///< what it had, where the memory lets two places have a copy
  release,  ///< nothing; another place has the contents
  forget,   ///< nothing, and no other place either: the contents are given up
};

/// What a transfer brings.
enum class payload : std::uint8_t {
  current,  ///< the contents
  none,     ///< nothing is copied: the target gets room alone, or has the contents already
};

/// Blocks that move from one place to another, or whose room is given up. A value: what it is follows from its fields.
///
/// | | `to` | `then` | `contents` |
/// |---|---|---|---|
/// | prefetch | a device | keep | current |
/// | populate | a device | keep | none |
/// | clean | the host | keep | current |
/// | evict | the host, or a device that only holds blocks | release | current |
/// | drop | the host | release | none |
/// | discard | - | forget | none |
///
/// A policy writes all but `from` and `via`, which the engine fills in. It may name `from` where the source is not the
/// device on which launches run, for what gives room up there.
struct transfer {
  block_range blocks{};
  location from = location::any();
  location to = location::device();
  std::uint8_t via = 0;  ///< which of the routes between these places, by the engine
  afterwards then = afterwards::keep;
  payload contents = payload::current;
  reason why = reason::predicted;
  bool exactly = false;  ///< of what leaves the device: to this place, also where a nearer one has room for it

  /// @name The compositions that policies use
  /// @{

  /// Current copy to a device. New or dead contents only get room there.
  [[nodiscard]] static constexpr transfer prefetch(location to, reason why, block_range blocks = {}) {
    return {.blocks = blocks, .to = to, .why = why};
  }
  /// Room on a device for contents that are yet to be written.
  [[nodiscard]] static constexpr transfer populate(location to, reason why, block_range blocks = {}) {
    return {.blocks = blocks, .to = to, .contents = payload::none, .why = why};
  }
  /// Copy to the host; the device keeps its own (only where `block_map::keeps_home_copy`).
  [[nodiscard]] static constexpr transfer clean(reason why, block_range blocks = {}) {
    return {.blocks = blocks, .to = location::host(), .why = why};
  }
  /// Move to another place; the device gives the room up.
  [[nodiscard]] static constexpr transfer evict(location to, reason why, block_range blocks = {}) {
    return {.blocks = blocks, .to = to, .then = afterwards::release, .why = why};
  }
  /// Give a device's room up without a copy, because another place has the contents.
  [[nodiscard]] static constexpr transfer drop(reason why, block_range blocks = {}) {
    return {
        .blocks = blocks, .to = location::host(), .then = afterwards::release, .contents = payload::none, .why = why};
  }
  /// Give the room up and forget the contents, because a fact says that they are dead.
  [[nodiscard]] static constexpr transfer discard(reason why, block_range blocks = {}) {
    return {
        .blocks = blocks, .to = location::host(), .then = afterwards::forget, .contents = payload::none, .why = why};
  }
  /// @}

  [[nodiscard]] constexpr bool forgets() const { return then == afterwards::forget; }
  [[nodiscard]] constexpr bool releases() const { return then == afterwards::release; }
  /// Contents cross a link.
  [[nodiscard]] constexpr bool copies() const { return contents == payload::current; }
  /// A device gets room for the blocks.
  [[nodiscard]] constexpr bool takes_room() const { return !to.is_host() && !forgets(); }
  /// The host gets a copy, and nothing else changes.
  [[nodiscard]] constexpr bool cleans() const { return to.is_host() && then == afterwards::keep; }

  friend constexpr bool operator==(const transfer&, const transfer&) = default;
};
// Plans are made of thousands of them.
static_assert(sizeof(transfer) == 16 && std::is_trivially_copyable_v<transfer>);

/// The word for messages, JSON and traces.
[[nodiscard]] constexpr const char* to_string(reason r) {
  constexpr const char* words[reason_count] = {"predicted",  "issued", "requested", "make_room", "over_budget", "dead",
                                               "write_back", "keep",   "learned",   "fault",     "host"};
  return words[static_cast<unsigned>(r)];
}
/// The word for messages, JSON and traces. Room without contents counts as a prefetch of them, and what goes from one
/// device to another as a move.
[[nodiscard]] constexpr std::string_view to_string(const transfer& t) {
  if (t.forgets()) {
    return "discard";
  }
  if (!t.to.is_host()) {
    return t.from.is_device() ? "move" : "prefetch";
  }
  return !t.releases() ? "clean" : t.copies() ? "evict" : "drop";
}

}  // namespace v0
}  // namespace deepum
