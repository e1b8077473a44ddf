#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/dead_blocks.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/planning/step_departures.hpp>
#include <deepum/planning/step_schedule.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/planning/unplanned_blocks.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace deepum {
inline namespace v0 {

/// Carries out the plan of a step that recurs: blocks leave when the schedule says, and come in the order of need.
///
/// First writes get room a few launches ahead. Room comes from dead blocks, then from blocks that the plan does not
/// know. Where the host keeps a copy and the outward link is idle, blocks that will leave are copied out ahead. If a
/// launch that could begin next finds no room all the same, and will find none where contents die before it, the block
/// that is needed last leaves.
///
/// Not synchronised. Cost of a plan: linear in the blocks it moves; a step looks at each block of a launch about once.
class step_follower {
 public:
  /// @param places      As it is when the plan begins to be followed.
  /// @param write_back  Blocks may be copied out ahead.
  step_follower(const step_description& planned, const step_limits& limits, std::uint32_t position,
                const block_map& places, bool write_back = true)
      : step_follower(step_schedule(planned, limits, position), places, write_back) {}
  /// The same with a schedule that was made before.
  /// Cost: linear in the blocks of the step and in those on the device.
  step_follower(step_schedule&& made, const block_map& places, bool write_back = true)
      : schedule_(std::move(made)),
        write_back_(write_back),
        departures_(places),
        blocks_each_way_(places.blocks_in(detail::step_departures::each_way)),
        saturating_blocks_(places.blocks_in(saturating)),
        segment_of_(places.size(), none) {
    const step_segments& segments = schedule_.step();
    std::uint64_t all = 0;
    for (std::uint32_t s = 0; s != segments.segments().size(); ++s) {
      const block_range blocks = segments.segments()[s].blocks;
      all += blocks.count;
      for (const block_id b : blocks) {
        if (b.value < places.size()) {
          segment_of_[b.value] = s;
        }
      }
    }
    fits_ = nothing_leaves() && all <= places.budget();
    places.for_each_least_recently_migrated([&](block_id b) {
      if (!known(b)) {
        unplanned_.arrived(b);
      }
      return true;
    });
  }

  /// All blocks of the step fit side by side.
  [[nodiscard]] bool idle() const { return fits_; }
  /// The plan keeps everything, also where that fits only because contents die in time: then it is followed, because
  /// who does not know it would make room by copies.
  [[nodiscard]] bool nothing_leaves() const { return schedule_.idle(); }

  /// The launch of the step that is executing, or will next.
  [[nodiscard]] std::uint32_t position() const { return schedule_.position(); }

  /// The executing launch finished.
  void advance() {
    schedule_.advance();
    ++now_;
    looked_ = std::max(looked_, now_);
  }
  /// A launch was issued, so many launches after the executing one.
  void issued(std::size_t distance) { look_again(distance); }
  /// Blocks left the device, or hold contents again.
  void look_again(block_range blocks) {
    for_each_next_use(blocks, [&](std::uint64_t distance) { look_again(distance); });
  }
  /// Something happened of which the plan does not know.
  void surprised() { changed_ = true; }
  /// Blocks left the device; `look_again` is called for them too.
  void left(block_range blocks) {
    left_ += blocks.count;
    for_each_next_use(blocks, [&](std::uint64_t distance) { changed_ = changed_ || now_ + distance < looked_; });
  }
  /// Blocks arrived on the device.
  void arrived(block_range blocks) {
    arrived_ += blocks.count;
    for (const block_id b : blocks) {
      if (!known(b)) {
        unplanned_.arrived(b);
      }
    }
  }

  /// Whether another plan would be of use: not while there is enough to do in both directions of what the last one
  /// asked for, and nothing has turned up that is needed sooner. Commands may fail, so it would be after a few
  /// launches.
  [[nodiscard]] bool wants_to_write(const block_map& map, std::size_t issued) {
    correct_missing(map, issued);
    const bool saturated_inward = all_placed_ && arrived_ < saturating_blocks_;
    const bool saturated_outward = all_leave_ ? left_ < saturating_blocks_ : schedule_.gaps_opened() == opened_;
    return changed_ || !saturated_inward || !saturated_outward || now_ - written_at_ >= launches_per_plan ||
           map.budget() != budget_;
  }

  /// @param issued  Launches that are issued and not finished, the executing one among them.
  /// @param heads   Of those, in the order of issue, the first ones until all streams' oldest are among them.
  /// @param dead    Gives room before anything that has contents does.
  void write(const block_map& map, std::size_t issued, std::size_t heads, detail::dead_blocks& dead, plan& out) {
    const std::uint64_t near = std::max<std::uint64_t>(heads, std::uint64_t{schedule_.reach().launches} + 1);
    collect_missing(map, issued, near);
    std::int64_t room = detail::room_to_come(map);
    // For what is wanted now and for the next plan, so that nothing waits for it then.
    const std::int64_t room_at_hand = static_cast<std::int64_t>(wanted_.size()) + blocks_each_way_;
    if (room < room_at_hand) {
      room += static_cast<std::int64_t>(dead.give_room(map, static_cast<std::size_t>(room_at_hand - room), out));
    }
    // Nothing leaves that is needed as soon as what has been fetched.
    const std::uint64_t keep = fetched_ < now_ ? 0 : fetched_ + 1 - now_;
    room += departures_.write(map, schedule_, segment_of_, keep, out);
    if (write_back_ && departures_.copies() == 0 && map.leaving() == 0 && map.keeps_home_copy()) {
      departures_.write_back(map, schedule_, out);
    }
    if (room < static_cast<std::int64_t>(wanted_.size())) {
      room += unplanned_.give_room(map, static_cast<std::int64_t>(wanted_.size()) - room, out);
    }
    if (room < static_cast<std::int64_t>(urgent_)) {
      room += departures_.write_farthest(map, schedule_, near, static_cast<std::int64_t>(urgent_) - room, out);
    }
    write_prefetches(map, static_cast<std::size_t>(std::max<std::int64_t>(0, room)), out);
    all_placed_ = wanted_.size() == blocks_each_way_ && room >= blocks_each_way_;
    all_leave_ = departures_.is_full();
    opened_ = schedule_.gaps_opened();
    budget_ = map.budget();
    written_at_ = now_;
    arrived_ = 0;
    left_ = 0;
    changed_ = false;
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return schedule_.memory() +
           bytes{segment_of_.capacity() * sizeof(std::uint32_t) + wanted_.capacity() * sizeof(block_id) +
                 missing_.capacity() * sizeof(missing_block) + recheck_.capacity() * sizeof(std::uint64_t)} +
           unplanned_.memory() + departures_.memory();
  }

 private:
  static constexpr std::uint32_t none = 0xffffffffU;
  static constexpr std::uint64_t nowhere = std::numeric_limits<std::uint64_t>::max();
  static constexpr bytes saturating = 64_MiB;            // may move until it is asked again, where all did fit
  static constexpr std::uint64_t launches_per_plan = 8;  // at most
  // Launches whose first writes get room already: of those that are issued so many, because the plan has no room for
  // what a whole step writes; and a few behind them, so that it is there for a host that waits before each.
  static constexpr std::uint64_t issued_writes = 16;
  static constexpr std::uint64_t writes_ahead = 4;

  [[nodiscard]] bool known(block_id b) const { return b.value < segment_of_.size() && segment_of_[b.value] != none; }
  // Calls `visit(launches)` with the launches until blocks are used, once for blocks that lie together.
  template <class Visit>
  void for_each_next_use(block_range blocks, Visit&& visit) const {
    std::uint32_t last = none;
    for (const block_id b : blocks) {
      if (known(b) && segment_of_[b.value] != last) {
        last = segment_of_[b.value];
        visit(schedule_.launches_until_use(last));
      }
    }
  }
  void look_again(std::uint64_t distance) {
    const std::uint64_t at = now_ + distance;
    if (at < looked_ && (recheck_.empty() || recheck_.back() != at)) {
      recheck_.push_back(at);
    }
    all_back_of_ = all_back_of_ == at ? nowhere : all_back_of_;
  }

  // --- what comes ---

  // The first writes of some launches more get room.
  void admit_writes(std::size_t issued) {
    if (issued == 0) {
      return;
    }
    const std::uint64_t end = now_ + std::min<std::uint64_t>(issued, issued_writes) + writes_ahead;
    for (writes_end_ = std::max(writes_end_, now_); writes_end_ < end; ++writes_end_) {
      look_again(writes_end_ - now_);
    }
  }
  // A block and the launch for which it is missing.
  struct missing_block {
    block_id block{};
    std::uint64_t at = 0;  // as `now_`
  };

  // The first blocks that are not there and can come, in the order of need.
  void collect_missing(const block_map& map, std::size_t issued, std::uint64_t near) {
    const fetch_reach reach = schedule_.reach();
    const std::uint64_t end = now_ + std::max<std::uint64_t>(issued, near);
    correct_missing(map, issued);
    wanted_.clear();
    for_issued_ = 0;
    urgent_ = 0;
    std::uint64_t before = now_;  // launches up to here have been looked at for what dies after them
    std::size_t dying = 0;
    std::size_t next = done_;
    for (;;) {
      for (; next != missing_.size() && wanted_.size() != blocks_each_way_; ++next) {
        const missing_block m = missing_[next];
        const bool missing = is_missing(map, m.block, m.at);
        if (missing && m.at >= now_) {
          want(m);
          for_issued_ += m.at < now_ + issued ? 1 : 0;
          if (m.at < now_ + std::min<std::uint64_t>(issued, near)) {
            for (; before != m.at; ++before) {
              dying += dying_after(before);
            }
            urgent_ = std::max(urgent_, wanted_.size() - std::min(wanted_.size(), dying));
          }
          continue;
        }
        if (missing) {  // the launch did without it, and another one may want it
          look_again(schedule_.launches_until_use(segment_of_[m.block.value]));
        }
        done_ += next == done_ ? 1 : 0;  // what comes in order is never looked at again
      }
      if (wanted_.size() == blocks_each_way_ || looked_ >= end) {
        break;
      }
      append_missing_of(map, looked_, missing_);
      ++looked_;
    }
    if (reach.blocks != 0 && wanted_.empty()) {
      want_part_of(map, end, reach.blocks);
    }
    if (done_ > missing_.size() / 2) {
      missing_.erase(missing_.begin(), missing_.begin() + static_cast<std::ptrdiff_t>(done_));
      done_ = 0;
    }
  }
  // Blocks whose contents die with a launch: the room of those is there for the next one without a copy.
  [[nodiscard]] std::size_t dying_after(std::uint64_t at) const {
    const step_segments& step = schedule_.step();
    std::size_t blocks = 0;
    for (const std::uint32_t gap : step.gaps_after(schedule_.launch_at(at - now_))) {
      const step_gap& g = step.gaps()[gap];
      blocks += g.returns || g.held != 0 ? 0 : step.blocks_of(g).count;
    }
    return blocks;
  }
  void want(const missing_block& m) {
    wanted_.push_back(m.block);
    fetched_ = std::max(fetched_, m.at);
  }
  // Something has changed for some of the launches that have been looked at.
  void correct_missing(const block_map& map, std::size_t issued) {
    admit_writes(issued);
    if (recheck_.empty()) {
      return;
    }
    std::sort(recheck_.begin(), recheck_.end());
    recheck_.erase(std::unique(recheck_.begin(), recheck_.end()), recheck_.end());
    for (const std::uint64_t at : recheck_) {
      if (at < now_) {
        continue;
      }
      found_.clear();
      append_missing_of(map, at, found_);
      const auto before = [](const missing_block& m, std::uint64_t launch) { return m.at < launch; };
      const auto begin = missing_.begin() + static_cast<std::ptrdiff_t>(done_);
      const auto from = std::lower_bound(begin, missing_.end(), at, before);
      const auto to = std::lower_bound(from, missing_.end(), at + 1, before);
      if (!std::includes(from, to, found_.begin(), found_.end(),
                         [](const missing_block& a, const missing_block& b) { return a.block < b.block; })) {
        changed_ = true;
      }
      missing_.insert(missing_.erase(from, to), found_.begin(), found_.end());
    }
    recheck_.clear();
  }
  // Appends the blocks that the launch is the next to use and that are not there. Those that are dead, or on their way
  // out, are looked at again when that is over.
  void append_missing_of(const block_map& map, std::uint64_t at, sequence<missing_block>& out) const {
    const step_segments& step = schedule_.step();
    for (const std::uint32_t gap : step.gaps_after(schedule_.launch_at(at - now_))) {
      const bool returns = step.gaps()[step.gap_before(gap)].returns;
      if ((at >= writes_end_ && !returns) || !next_used_by(gap, at)) {
        continue;  // it takes room shortly before it is written
      }
      const block_range blocks = step.blocks_of(step.gaps()[gap]);
      for (const block_id b : blocks) {
        if (is_missing(map, b, at)) {
          out.push_back({b, at});
        }
      }
    }
  }
  // Dead blocks may get room shortly before they are written: the program says that it is in use again only then.
  [[nodiscard]] bool is_missing(const block_map& map, block_id b, std::uint64_t at) const {
    const liveness life = map[b].life;
    return !map.present(b) && (life == liveness::live || (life == liveness::inactive && at < writes_end_));
  }
  [[nodiscard]] bool next_used_by(std::uint32_t gap, std::uint64_t at) const {
    return schedule_.launches_until_use(schedule_.step().gaps()[gap].segment) == at - now_;
  }
  // Of what comes back for a launch, so many blocks that there is room for now, those that have come among them.
  void want_part_of(const block_map& map, std::uint64_t at, std::uint32_t most) {
    if (all_back_of_ == at && all_back_ >= most) {
      return;
    }
    const step_segments& step = schedule_.step();
    std::uint32_t back = 0;
    for (const std::uint32_t gap : step.gaps_after(schedule_.launch_at(at - now_))) {
      const std::uint32_t before = step.gap_before(gap);
      if (!step.gaps()[before].returns) {
        continue;
      }
      const std::uint32_t first = step.blocks_of(step.gaps()[gap]).begin_value();
      const std::uint32_t count = std::min(schedule_.leaves(before), most - back);
      back += count;
      for (std::uint32_t b = first; b != first + count && next_used_by(gap, at); ++b) {
        if (wanted_.size() == blocks_each_way_) {
          return;
        }
        if (is_missing(map, block_id{b}, at)) {
          want({block_id{b}, at});
        }
      }
    }
    if (wanted_.empty()) {
      all_back_of_ = at;
      all_back_ = most;
    }
  }
  void write_prefetches(const block_map& map, std::size_t room, plan& out) {
    const std::size_t from = out.transfers.size();
    for (std::size_t i = 0; i != std::min(room, wanted_.size()); ++i) {
      detail::append(out, transfer::prefetch(map.device(), i < for_issued_ ? reason::issued : reason::predicted),
                     wanted_[i], blocks_each_way_, from);
    }
  }

  step_schedule schedule_;
  bool fits_ = false;  // all of the step, side by side
  bool write_back_;
  detail::step_departures departures_;
  std::uint32_t blocks_each_way_;
  std::uint32_t saturating_blocks_;
  sequence<std::uint32_t> segment_of_;    // by block; none: the step does not use it
  detail::unplanned_blocks unplanned_{};  // on the device, and not used by the step
  std::uint64_t now_ = 0;                 // launches that have finished since
  std::uint64_t writes_end_ = 0;          // the first launch whose first writes get no room yet, as `now_`
  std::uint64_t fetched_ = 0;             // the farthest launch that anything has been fetched for, as `now_`

  // The missing blocks, found little by little.
  sequence<missing_block> missing_{};    // for launches before `looked_`, in the order of need; not all still is
  std::size_t done_ = 0;                 // of those: the first ones, which are over
  std::uint64_t looked_ = 0;             // the first launch that has not been looked at, as `now_`
  sequence<std::uint64_t> recheck_{};    // launches before it that have to be looked at again
  std::uint64_t all_back_of_ = nowhere;  // a launch for which so many blocks as can come back have, as `now_`
  std::uint32_t all_back_ = 0;

  // Since the last plan.
  std::uint64_t written_at_ = 0;  // that was, as `now_`
  bool changed_ = true;           // something that it did not know of is missing
  bool all_placed_ = false;       // it asked for as many blocks as it may
  bool all_leave_ = false;        // the same, of those that leave
  std::uint64_t opened_ = 0;      // as the schedule says
  std::uint32_t budget_ = 0;
  std::uint64_t arrived_ = 0;  // blocks
  std::uint64_t left_ = 0;     // blocks

  // Of the plan being made; kept for their memory.
  sequence<missing_block> found_{};
  sequence<block_id> wanted_{};
  std::size_t for_issued_ = 0;  // of those: for launches that are issued
  // Of those: for launches that could begin next, or that the plan has room for by now, less what dies before them.
  std::size_t urgent_ = 0;
};

}  // namespace v0
}  // namespace deepum
