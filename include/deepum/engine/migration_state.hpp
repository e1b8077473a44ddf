#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/launch_tracker.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// A command that the device has.
struct outstanding {
  std::uint64_t ticket = 0;
  command what{};
};

/// The commands of one direction: those that wait, and those that the device has.
struct lane {
  std::deque<command> demanded{};  // by the oldest launch that is held back; made anew whenever something happened
  std::deque<command> requested{};
  std::deque<command> planned{};
  std::vector<outstanding> issued{};
  std::uint64_t blocks = 0;  // in `issued`

  /// What is worked on, first things first.
  [[nodiscard]] std::deque<command>& next() {
    return !demanded.empty() ? demanded : !requested.empty() ? requested : planned;
  }
  [[nodiscard]] bool idle() const { return demanded.empty() && requested.empty() && planned.empty() && issued.empty(); }
};

/// What is noted of a block beside its state in the map.
struct block_note {
  std::uint64_t ticket = 0;         // of the command that moves it
  std::uint64_t dead_after = 0;     // the last launch that may use it, where it is dead
  std::uint64_t prefetched_at = 0;  // on the engine's clock; 0: not by a prefetch, or used since
  std::uint64_t planned_in = 0;     // the last superseding plan that prefetches it
  std::uint64_t forgotten_by = 0;   // launch that overwrites it, while the host has what it held before
  bool room_only = false;           // is on its way in without contents
  bool late = false;                // faulted while its prefetch was under way
  bool discarding = false;          // a discard is on its way
  bool spoiled = false;             // while it is cleaned: a launch may write it, so that it stays dirty
  bool read_mostly = false;         // advised so
};

/// A launch that is not given to the device yet.
struct held_launch {
  launch_id id{};
  nanoseconds since{};
  stream_id stream{};
  bool hold = false;      // an `arena::hold`
  std::size_t outer = 0;  // launches that it is made within: they do not finish before it has begun
  bool let_go = false;    // whatever it misses; faultless memory: whatever the policy is about to bring
  bool faulted = false;   // faultless memory: the policy knows what it misses
  bool hopeless = false;  // faultless memory: it will never begin
};

/// Failures of what a thread of the program waits for. They end the wait: after some in a row while nothing that could
/// have helped was under way, and after some time whatever else happens.
class failing_wait {
 public:
  static constexpr std::uint32_t most = 64;
  static constexpr nanoseconds longest = std::chrono::seconds(10);  // of the device's clock

  /// @param alone  Nothing executed and nothing moved that could have helped.
  void failed(nanoseconds now, bool alone) {
    since_ = failures_++ == 0 ? now : since_;
    alone_ += alone ? 1 : 0;
    hopeless_ = alone_ >= most || (failures_ >= most && now - since_ >= longest);
  }
  /// Something else moved, so that it may work now.
  void something_moved() {
    alone_ = 0;
    hopeless_ = false;
  }
  void succeeded() { *this = {}; }
  [[nodiscard]] bool failing() const { return failures_ != 0; }
  [[nodiscard]] bool hopeless() const { return hopeless_; }

 private:
  std::uint64_t failures_ = 0;  // since the last success
  std::uint32_t alone_ = 0;     // of them, in a row
  bool hopeless_ = false;
  nanoseconds since_{};
};

/// The most that a number has been while the last launches ran: at least `window` of them, at most twice as many.
class recent_peak {
 public:
  static constexpr std::uint64_t window = 8192;  // more than a step has, as a rule

  /// @param finished  Launches so far. Called for each of them, and whenever the number has changed.
  void see(std::uint64_t number, std::uint64_t finished) {
    if (finished - began_ >= window) {
      before_ = std::exchange(latest_, 0);
      began_ = finished;
    }
    latest_ = std::max(latest_, number);
  }
  [[nodiscard]] std::uint64_t value() const { return std::max(before_, latest_); }

 private:
  std::uint64_t latest_ = 0;  // since `began_`
  std::uint64_t before_ = 0;  // in the window before
  std::uint64_t began_ = 0;
};

/// What an engine knows of its blocks and launches, and what has been ordered for them: that which its parts share.
///
/// Not synchronised: used under the engine's state lock.
struct migration_state {
  migration_state(std::uint32_t blocks, location device, bytes unit)
      : map(blocks, device, 0, block_grid{unit}),
        notes(map.size()) {}

  block_map map;
  launch_tracker launches{};
  std::vector<block_note> notes;
  lane inward{};
  lane outward{};
  lane discards{};
  std::vector<held_launch> held{};  // in the order in which they asked
  std::size_t holds = 0;            // `arena::hold`s that were not held back: they are in flight until the program says
  std::size_t waiting_outer = 0;    // launches whose bodies are making one that is held back
  deepum::statistics statistics{};
  std::uint64_t live = 0;  // blocks with contents that matter
  recent_peak live_of_late{};
  std::uint64_t paused_until = 0;  // finished launches before which the policy's prefetches are left out
  bool stirred = false;            // something happened that the policy has not been asked about

  /// The block is leaving the device, or its contents are being given up: it can come back when that is over.
  [[nodiscard]] bool going(block_id b) const { return map[b].moving == motion::leaving || notes[b.value].discarding; }
  /// No command is moving the block.
  [[nodiscard]] bool still(block_id b) const { return map[b].moving == motion::none && !notes[b.value].discarding; }
  /// What is alive does not fit, or did not a short while ago: between two steps all activations are dead, and then
  /// everything fits that will not in the middle of the next one.
  [[nodiscard]] bool oversubscribed() const { return live_of_late.value() > map.budget(); }
  /// `live` may have changed, or a launch finished.
  void note_live() { live_of_late.see(live, statistics.finished); }
  /// So much failed that nothing is prefetched for a while.
  [[nodiscard]] bool paused() const { return statistics.finished < paused_until; }
  /// Whatever is in flight has not been given to the device, or executes nothing there.
  [[nodiscard]] bool nothing_executes() const { return launches.in_flight() == held.size() + holds + waiting_outer; }
  /// The device has no command.
  [[nodiscard]] bool nothing_moves() const {
    return inward.issued.empty() && outward.issued.empty() && discards.issued.empty();
  }

  [[nodiscard]] std::vector<held_launch>::iterator find_held(launch_id id) {
    return std::find_if(held.begin(), held.end(), [id](const held_launch& h) { return h.id == id; });
  }
  /// A launch will not be given to the device now.
  void hold_back(const launch_record& record, nanoseconds now, std::size_t outer) {
    held.push_back({.id = record.id, .since = now, .stream = record.stream, .hold = record.hold, .outer = outer});
    holds -= record.hold ? 1 : 0;
    waiting_outer += outer;
    stirred = true;
  }
  /// It will not be given to the device at all.
  void take_back(std::vector<held_launch>::iterator it) {
    waiting_outer -= it->outer;
    held.erase(it);
  }
  /// It is now.
  void let_go(std::vector<held_launch>::iterator it) {
    holds += it->hold ? 1 : 0;
    waiting_outer -= it->outer;
    held.erase(it);
  }
};

/// Calls `visit(block_range)` for the blocks that a launch declares, each once.
template <class Visit>
void for_each_distinct_run(const launch_record& record, Visit&& visit) {
  std::vector<block_range> ranges;
  ranges.reserve(record.accesses.size());
  for (const block_access& a : record.accesses) {
    ranges.push_back(a.range);
  }
  std::sort(ranges.begin(), ranges.end(), [](block_range a, block_range b) { return a.first < b.first; });
  std::uint32_t end = 0;
  for (const block_range& r : ranges) {
    const std::uint32_t from = std::max(end, r.begin_value());
    end = std::max(end, r.end_value());
    if (from < end) {
      visit(block_range{block_id{from}, end - from});
    }
  }
}
/// Blocks that a launch declares, each counted once.
[[nodiscard]] inline std::uint64_t distinct_blocks(const launch_record& record) {
  std::uint64_t count = 0;
  for_each_distinct_run(record, [&](block_range run) { count += run.count; });
  return count;
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
