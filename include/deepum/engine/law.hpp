#pragma once

#include <deepum/core/block_record.hpp>
#include <deepum/core/location.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {

/// What may become of contents. Nothing else in the library decides whether contents may go.
///
/// Pure functions over the record of one block and its copies at any number of places. Each names the fact that admits
/// it: a fact is what the program has stated, or what the device has reported, and never a prediction. A command for
/// several blocks is lawful where it is so for each of them.
namespace law {

/// What is known beside the record of a block, at the moment of the question.
struct circumstances {
  bool home_stays = false;            ///< of the memory: the host's copy stays while a device has one
  bool in_use = false;                ///< a launch that executes, or that waits for its turn, needs it where it is
  bool writer_executes = true;        ///< one of its writers may be executing
  bool unknown_users = false;         ///< a launch in flight may touch blocks that it does not declare
  bool unknown_before_death = false;  ///< such a launch was issued before the block died
};

/// Why contents are of no value.
enum class because : std::uint8_t {
  died,         ///< the program freed the memory, or marked it inactive
  requested,    ///< the program asks for these contents to be given up now
  overwritten,  ///< a launch that was submitted writes every byte before it reads any
  uploaded,     ///< an upload writes every byte in host memory
};

/// Contents may come to a place, or room for new ones. Fact: something in the block is allocated and its contents are
/// not being given up, the place has nothing of it, what it is to get stays somewhere or is nowhere, and no view of the
/// host or upload writes it.
[[nodiscard]] constexpr bool may_arrive(const block_view& b, location to) {
  return b->life != liveness::unallocated && !b->forgetting && b.state(to) == copy_state::absent &&
         (b.current_beside(to) || (b.nowhere() && !b.in_motion())) && b->host_writes == 0 && !b->filling;
}

/// What a place has may leave it, with or without a copy. Fact: it is there, no transfer moves or reads it, and no
/// launch that executes or is about to needs it there.
[[nodiscard]] constexpr bool may_leave(const block_view& b, location from, const circumstances& c) {
  return b.at(from).holds() && !b.in_motion(from) && !c.in_use;
}

/// The room at a place may be given up without a copy, where the block may leave. Fact: another place has the contents
/// and keeps them, or these are older ones or none; where home copies stay, also no launch in flight that touches
/// blocks which it does not declare, because that may be writing it now.
[[nodiscard]] constexpr bool may_release(const block_view& b, location from, const circumstances& c) {
  return (!b.current(from) || b.current_beside(from)) && !(c.home_stays && c.unknown_users);
}

/// Contents may be copied to another place and count as current at both. Fact: they are at the one place and stay, the
/// other one has none and gets none (a device: nothing of the block at all), and no launch that was submitted may write
/// them meanwhile. One that is submitted later is noticed.
/// @param for_host  The host waits for the copy. Launches that are held back may be waiting for the host in turn, so
///                  that only those count which may be executing.
[[nodiscard]] constexpr bool may_copy(const block_view& b, location from, location to, const circumstances& c,
                                      bool for_host = false) {
  return c.home_stays && b.current(from) && !b.in_motion(from) &&
         (to.is_host() ? !b.current(to) : b.state(to) == copy_state::absent) && !b.in_motion(to) &&
         b->life == liveness::live && !c.unknown_users && (b->writers == 0 || (for_host && !c.writer_executes));
}

/// The contents may be forgotten everywhere.
///
/// * Died. Fact: the program said so of the block as a whole, no launch in flight declares it, and none that was issued
///   before it died may touch it all the same.
/// * Requested. Fact: the program asks, and no launch in flight may touch it.
/// * Overwritten. Fact: the launch that overwrites it is the only one in flight that may touch it, and no device has
///   anything of it: every earlier launch has finished, and whatever comes later sees what this one writes.
/// * Uploaded. Fact: the upload has claimed it. Every launch that was submitted before the upload and may touch the
///   block has finished then, and those that were submitted later wait for what it writes.
[[nodiscard]] constexpr bool may_forget(const block_view& b, because why, const circumstances& c) {
  if (b.in_motion()) {
    return false;
  }
  switch (why) {
    case because::died:
      return b->life != liveness::live && b->users == 0 && !c.unknown_before_death;
    case because::requested:
      return b->users == 0 && !c.unknown_users;
    case because::uploaded:
      return b->filling;
    case because::overwritten:
      break;
  }
  return b->users == 1 && !c.unknown_users && !b.on_any_device();
}

/// The host's copy may be given up although it is current. Fact: another place has the contents too and keeps them,
/// nothing moves the block, and no view of the host uses it.
[[nodiscard]] constexpr bool may_release_home(const block_view& b) {
  return b.current(location::host()) && b.current_beside(location::host()) && !b.in_motion() && b->host_views == 0;
}

/// The host's memory for the block may serve another one. Fact: a device has newer contents, or there are none and no
/// launch in flight counts on what was there; nothing moves the block, and no view of the host uses it.
[[nodiscard]] constexpr bool may_reclaim_home(const block_view& b) {
  return !b.current(location::host()) && (!b.nowhere() || b->users == 0) && !b.in_motion() && b->host_views == 0;
}

}  // namespace law
}  // namespace v0
}  // namespace deepum
