#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/block_ledger.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/engine/held_launches.hpp>
#include <deepum/engine/launch_tracker.hpp>
#include <deepum/engine/recent_peak.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/engine/transfer_queues.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What an engine knows of its blocks and launches, and what has been ordered for them: that which its rooms share.
///
/// Not synchronised: used under the engine's state lock.
struct records {
  records(std::uint32_t block_count, const topology& places, bytes unit)
      : ledger(block_count, places, block_grid{unit}),
        queues(places) {
    statistics.runs_on = places.runs_on();
    for (const place_link& l : places.links()) {
      (void)statistics.on(l.from, l.to);
    }
  }

  block_ledger ledger;
  launch_tracker launches{};
  held_launches held{};
  transfer_queues queues;
  deepum::statistics statistics{};
  std::uint64_t live = 0;  // blocks with contents that matter
  recent_peak live_of_late{};
  std::uint64_t paused_until = 0;  // finished launches before which the policy's prefetches are left out
  std::uint32_t fitted = 0;        // blocks, when the device had no memory for more because others hold it
  std::uint64_t short_until = 0;   // finished launches before which no more is tried for
  std::vector<std::pair<launch_id, stream_id>> kept{};  // launches whose blocks stay until they are let go
  nanoseconds last_finish{};                            // of a launch
  std::size_t failed_uploads = 0;                       // blocks that uploads could not bring
  bool all_there = false;   // memory that never faults: every block that is alive can be used, and stays
  bool policy_due = false;  // something happened that the policy has not been asked about

  /// The block is leaving a place, or its contents are being given up: it can come back when that is over.
  [[nodiscard]] bool going(block_id b, location at) const {
    return ledger.of(b).at(at).is == block_copy::phase::leaving || ledger.of(b)->forgetting;
  }
  [[nodiscard]] bool going(block_id b) const { return going(b, ledger.device()); }
  /// No command is moving the block.
  [[nodiscard]] bool still(block_id b) const { return !ledger.of(b).in_motion(); }
  /// The live blocks do not fit, or did not a short while ago: between two steps all activations are dead, and then
  /// everything fits that will not in the middle of the next one.
  [[nodiscard]] bool oversubscribed() const { return live_of_late.value() > ledger.budget(); }
  /// `live` may have changed, or a launch finished.
  void note_live() { live_of_late.see(live, statistics.finished); }
  /// So much failed that nothing is prefetched for a while.
  [[nodiscard]] bool paused() const { return statistics.finished < paused_until; }
  /// Whatever is in flight has not been given to the device, or executes nothing there; and nothing is kept for a
  /// launch that has finished, which ends as soon.
  [[nodiscard]] bool nothing_executes() const {
    return launches.in_flight() == held.not_executing() + launches.uploads() &&
           std::all_of(kept.begin(), kept.end(),
                       [this](const auto& k) { return launches.find(k.first, k.second) != nullptr; });
  }
  /// The device has no command.
  [[nodiscard]] bool nothing_moves() const { return queues.links_free() && queues.forgotten.moving() == 0; }
  /// Blocks that the device takes: the budget, or what fitted when it had no memory for more. That is forgotten after
  /// a while, and when nothing else helps: others may have given memory back.
  [[nodiscard]] std::uint32_t most_on_device() const {
    return statistics.finished < short_until ? std::min(fitted, ledger.budget()) : ledger.budget();
  }
  /// Blocks that could arrive without any leaving.
  [[nodiscard]] std::uint32_t room() const {
    const std::uint32_t most = most_on_device();
    return most - std::min(most, ledger.occupied());
  }
  [[nodiscard]] std::uint32_t room(location at) const { return at == ledger.device() ? room() : ledger.room(at); }
  /// Where what is asked for waits.
  [[nodiscard]] transfer_queue& queue_of(const transfer& t) { return queues.of(ledger, t); }
  [[nodiscard]] transfer_queue& queue_of(const driver_hint& h) { return queues.of(ledger, h); }
  /// A discard of one of the blocks was asked for by the program, or is on its way.
  [[nodiscard]] bool discarding(block_range range) const {
    return std::any_of(queues.forgotten.issued.begin(), queues.forgotten.issued.end(),
                       [range](const outstanding& o) { return o.what.blocks.overlaps(range); }) ||
           std::any_of(queues.forgotten.requested.begin(), queues.forgotten.requested.end(),
                       [range](const queue_entry& o) { return std::get<transfer>(o).blocks.overlaps(range); });
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
