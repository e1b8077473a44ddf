#pragma once

#include <deepum/core/block_map.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {

/// What may become of contents. Nothing else in the library decides whether contents may go.
///
/// Pure functions over what is known of one block. Each names the fact that admits it: a fact is what the program has
/// stated, or what the device has reported, and never a prediction.
namespace law {

/// What is known of one block, at the moment of the question.
struct block_facts {
  liveness life = liveness::live;
  bool on_device = false;             ///< it has contents or room there
  bool arriving = false;              ///< it is on its way there
  bool moving = false;                ///< a command moves it, or its contents are being given up
  bool written = false;               ///< the device's copy may be newer than the host's
  bool current_on_device = false;     ///< the device's copy is current
  bool current_at_home = false;       ///< the host's copy is current
  bool home_stays = false;            ///< of the memory: the host's copy stays while the device has one
  bool in_use = false;                ///< a launch that executes, or that waits for its turn, needs it where it is
  std::uint32_t users = 0;            ///< launches in flight that declare it
  std::uint32_t writers = 0;          ///< those of them that declare to write it
  bool writer_executes = true;        ///< one of those may be executing
  bool unknown_users = false;         ///< a launch in flight may touch blocks that it does not declare
  bool unknown_before_death = false;  ///< such a launch was issued before the block died
  std::uint32_t host_views = 0;       ///< through which the host reads or writes it
  std::uint32_t host_writes = 0;      ///< those through which it writes

  /// The contents are current in no place: they are new, were given up, or are about to be overwritten.
  [[nodiscard]] constexpr bool nowhere() const { return !current_on_device && !current_at_home; }
};

/// Why contents are of no value.
enum class because : std::uint8_t {
  died,         ///< the program freed the memory, or marked it inactive
  requested,    ///< the program asks for these contents to be given up now
  overwritten,  ///< a launch that was submitted writes every byte before it reads any
};

/// Contents may come to the device, or room for new ones. Fact: something in the block is allocated, the device has
/// nothing of it, nothing moves it, and no view of the host writes it.
[[nodiscard]] constexpr bool may_arrive(const block_facts& f) {
  return f.life != liveness::unallocated && !f.on_device && !f.arriving && !f.moving && f.host_writes == 0;
}

/// The block may leave the device, with or without a copy. Fact: it is there, nothing moves it, and no launch that
/// executes or is about to needs it there.
[[nodiscard]] constexpr bool may_leave(const block_facts& f) { return f.on_device && !f.moving && !f.in_use; }

/// The device's room may be given up without a copy, where the block may leave. Fact: no launch wrote it since the host
/// had the same, or there are no contents; where home copies stay, also no launch in flight that touches blocks which
/// it does not declare, because that may be writing it now.
[[nodiscard]] constexpr bool may_release(const block_facts& f) {
  return !f.written && (f.current_at_home || f.nowhere()) && !(f.home_stays && f.unknown_users);
}

/// The device's contents may be copied to the host and count as current there. Fact: it is there and stays, and no
/// launch that was submitted may write it meanwhile. One that is submitted later is noticed.
/// @param for_host  The host waits for the copy. Launches that are held back may be waiting for the host in turn, so
///                  that only those count which may be executing.
[[nodiscard]] constexpr bool may_copy_out(const block_facts& f, bool for_host) {
  return f.home_stays && f.on_device && !f.moving && f.written && f.life == liveness::live && !f.unknown_users &&
         (f.writers == 0 || (for_host && !f.writer_executes));
}

/// The contents may be forgotten everywhere.
///
/// * Died. Fact: the program said so of the block as a whole, no launch in flight declares it, and none that was issued
///   before it died may touch it all the same.
/// * Requested. Fact: the program asks, and no launch in flight may touch it.
/// * Overwritten. Fact: the launch that overwrites it is the only one in flight that may touch it, and the device has
///   none of it: every earlier launch has finished, and whatever comes later sees what this one writes.
[[nodiscard]] constexpr bool may_forget(const block_facts& f, because why) {
  switch (why) {
    case because::died:
      return f.life != liveness::live && f.users == 0 && !f.moving && !f.unknown_before_death;
    case because::requested:
      return f.users == 0 && !f.moving && !f.unknown_users;
    case because::overwritten:
      break;
  }
  return f.users == 1 && !f.unknown_users && !f.on_device && !f.arriving && !f.moving;
}

/// The host's copy may be given up although it is current. Fact: the device's copy is current too, nothing moves the
/// block, and no view of the host uses it.
[[nodiscard]] constexpr bool may_release_home(const block_facts& f) {
  return f.current_on_device && f.current_at_home && !f.moving && f.host_views == 0;
}

/// The host's memory for the block may serve another one. Fact: the device has newer contents, or there are none and no
/// launch in flight counts on what was there; nothing moves the block, and no view of the host uses it.
[[nodiscard]] constexpr bool may_reclaim_home(const block_facts& f) {
  return (f.written || (f.nowhere() && f.users == 0)) && !f.moving && f.host_views == 0;
}

}  // namespace law
}  // namespace v0
}  // namespace deepum
