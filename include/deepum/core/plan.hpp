#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/location.hpp>

#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {

/// What a command does to its blocks.
enum class action : std::uint8_t {
  prefetch,  ///< move to `to` before it is needed; new or dead contents only get room there
  evict,     ///< move to the host, the device gives the room up
  clean,     ///< copy to the host, the device keeps its copy (only where `block_map::keeps_home_copy`)
  drop,      ///< give the device's room up without a copy, because the host's copy is current
  discard,   ///< give the room up and forget the contents, because a fact says that they are dead
  advise,    ///< tell the driver how the blocks will be used
};
inline constexpr unsigned action_count = 6;

/// Why a command was planned. Statistics are kept by reason.
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

/// Hints to the driver (CUDA C++ Programming Guide, "Data Usage Hints").
enum class advice : std::uint8_t {
  none,
  set_read_mostly,
  unset_read_mostly,
  set_preferred_location,
  unset_preferred_location,
  set_accessed_by,
  unset_accessed_by,
};

/// One step of a plan.
struct command {
  action what = action::prefetch;
  reason why = reason::predicted;
  advice hint = advice::none;        ///< for `action::advise`
  location to = location::device();  ///< prefetch and evict: where to; advise: which place is meant
  block_range range{};

  friend constexpr bool operator==(const command&, const command&) = default;
};

/// What a policy wants done, in order. The engine executes it, each direction in order; a prefetch waits for room.
struct plan {
  bool supersedes = false;  ///< commands of earlier plans that have not been issued are forgotten first
  std::vector<command> commands{};

  void clear() {
    supersedes = false;
    commands.clear();
  }
};

/// The word for messages, JSON and traces.
[[nodiscard]] constexpr const char* to_string(action a) {
  constexpr const char* words[action_count] = {"prefetch", "evict", "clean", "drop", "discard", "advise"};
  return words[static_cast<unsigned>(a)];
}
/// The word for messages, JSON and traces.
[[nodiscard]] constexpr const char* to_string(reason r) {
  constexpr const char* words[reason_count] = {"predicted",  "issued", "requested", "make_room", "over_budget", "dead",
                                               "write_back", "keep",   "learned",   "fault",     "host"};
  return words[static_cast<unsigned>(r)];
}

}  // namespace v0
}  // namespace deepum
