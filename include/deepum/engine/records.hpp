#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/held_launches.hpp>
#include <deepum/engine/launch_tracker.hpp>
#include <deepum/engine/recent_peak.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/engine/transfer_queue.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What is noted of a block beside its state in the map.
struct block_note {
  std::uint64_t ticket = 0;                // of the command that moves it
  std::uint64_t dead_after = 0;            // the last launch that may use it, where it is dead
  std::uint64_t prefetched_at = 0;         // on the engine's clock; 0: not by a prefetch, or used since
  std::uint64_t planned_in = 0;            // the last superseding plan that prefetches it
  std::uint64_t forgotten_by = 0;          // launch that overwrites it, while the host has what it held before
  bool room_only = false;                  // is on its way in without contents
  bool late = false;                       // faulted while its prefetch was under way
  bool discarding = false;                 // a discard is on its way
  bool written_during_write_back = false;  // while it is cleaned: a launch may write it, so that it stays dirty
  bool read_mostly = false;                // advised so
};

/// What an engine knows of its blocks and launches, and what has been ordered for them: that which its rooms share.
///
/// Not synchronised: used under the engine's state lock.
struct records {
  records(std::uint32_t block_count, location place, bytes unit)
      : map(block_count, place, 0, block_grid{unit}),
        notes(map.size()) {}

  block_map map;
  launch_tracker launches{};
  held_launches held{};
  std::vector<block_note> notes;
  transfer_queue inward{};
  transfer_queue outward{};
  transfer_queue discards{};
  deepum::statistics statistics{};
  std::uint64_t live = 0;  // blocks with contents that matter
  recent_peak live_of_late{};
  std::uint64_t paused_until = 0;  // finished launches before which the policy's prefetches are left out
  std::uint32_t fitted = 0;        // blocks, when the device had no memory for more because others hold it
  std::uint64_t short_until = 0;   // finished launches before which no more is tried for
  nanoseconds last_finish{};       // of a launch
  bool all_there = false;          // memory that never faults: every block that is alive can be used, and stays
  bool policy_due = false;         // something happened that the policy has not been asked about

  [[nodiscard]] block_note& note(block_id b) { return notes[b.value]; }
  [[nodiscard]] const block_note& note(block_id b) const { return notes[b.value]; }
  /// The block is leaving the device, or its contents are being given up: it can come back when that is over.
  [[nodiscard]] bool going(block_id b) const { return map[b].moving == motion::leaving || note(b).discarding; }
  /// No command is moving the block.
  [[nodiscard]] bool still(block_id b) const { return map[b].moving == motion::none && !note(b).discarding; }
  /// The live blocks do not fit, or did not a short while ago: between two steps all activations are dead, and then
  /// everything fits that will not in the middle of the next one.
  [[nodiscard]] bool oversubscribed() const { return live_of_late.value() > map.budget(); }
  /// `live` may have changed, or a launch finished.
  void note_live() { live_of_late.see(live, statistics.finished); }
  /// So much failed that nothing is prefetched for a while.
  [[nodiscard]] bool paused() const { return statistics.finished < paused_until; }
  /// Whatever is in flight has not been given to the device, or executes nothing there.
  [[nodiscard]] bool nothing_executes() const { return launches.in_flight() == held.not_executing(); }
  /// The device has no command.
  [[nodiscard]] bool nothing_moves() const {
    return inward.issued.empty() && outward.issued.empty() && discards.issued.empty();
  }
  /// Blocks that the device takes: the budget, or what fitted when it had no memory for more. That is forgotten after
  /// a while, and when nothing else helps: others may have given memory back.
  [[nodiscard]] std::uint32_t most_on_device() const {
    return statistics.finished < short_until ? std::min(fitted, map.budget()) : map.budget();
  }
  /// Blocks that could arrive without any leaving.
  [[nodiscard]] std::uint32_t room() const {
    const std::uint32_t most = most_on_device();
    return most - std::min(most, map.occupied());
  }
  [[nodiscard]] transfer_queue& queue_of(action what) {
    switch (what) {
      case action::discard:
        return discards;
      case action::prefetch:
      case action::advise:
        return inward;
      case action::evict:
      case action::drop:
      case action::clean:
        break;
    }
    return outward;
  }
  /// The command that the device has under a ticket; nullptr where it has none.
  [[nodiscard]] const outstanding* find(std::uint64_t ticket) const {
    if (ticket != 0) {
      for (const transfer_queue* q : {&inward, &outward, &discards}) {
        for (const outstanding& o : q->issued) {
          if (o.ticket == ticket) {
            return &o;
          }
        }
      }
    }
    return nullptr;
  }
  /// A discard of one of the blocks was asked for by the program, or is on its way.
  [[nodiscard]] bool discarding(block_range range) const {
    return std::any_of(discards.issued.begin(), discards.issued.end(),
                       [range](const outstanding& o) { return o.what.range.overlaps(range); }) ||
           std::any_of(discards.requested.begin(), discards.requested.end(),
                       [range](const command& c) { return c.range.overlaps(range); });
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
