#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/planning/dead_blocks.hpp>
#include <deepum/planning/harvest_parts.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// memHarvester as published (Choi, Kim, Huh: *Memory Harvesting in Multi-GPU Systems with Hierarchical Unified Virtual
/// Memory*, ATC'22): to be compared with.
///
/// * Eviction (4.2): the least recently migrated block goes to the neighbour with the fewest blocks that the host has
///   not got yet, else to the host. A neighbour's room is free, or that of blocks that the host has, too (removable),
///   the least recently migrated first. Whatever a neighbour got is copied to the host.
/// * Pre-eviction (4.2.1): where fewer than 50 blocks are free, until 50 are.
/// * Fetch (4.3.1): what the executing launch misses comes to the device by faults, from its beginning; from its end on
///   to a neighbour, if it was evicted before.
/// * Prefetch (4.3.2): the next 16 blocks at a stride of two, in the direction of the last two faults; what a neighbour
///   has to the device, what the host has to a neighbour (4.3.3: while no neighbour is short of room, else to the
///   device).
/// * Priorities: each plan takes back what the one before asked for and has not begun, evictions come first.
///
/// Three things differ. Freed contents are given up, as the driver does it with freed memory. What a launch misses is
/// what it declares, where the published system has the addresses of a batch of faults. The switch to the device is
/// taken back when a neighbour has room again. Where memory never faults, what launches had to wait for stands for
/// faults.
class harvest_policy final : public policy {
 public:
  explicit harvest_policy(const policy_options& chosen = {}) : parts_(chosen.harvest) {
    parts_.pre_evict = parts_.pre_evict && chosen.pre_evict;
    parts_.prefetch = chosen.prefetch ? parts_.prefetch : harvest_parts::prefetcher::none;
  }

  [[nodiscard]] std::string_view name() const override { return "harvest"; }

  void on_launch(const launch_record& record, const block_map&) override {
    ++launches_;
    gate_.mark_dirty();
    in_flight_.push_back(record);
  }
  void on_finish(launch_id launch, stream_id, const block_map&) override {
    gate_.mark_dirty();
    std::erase_if(in_flight_, [&](const launch_record& r) { return r.id == launch; });
  }
  void on_fault(const fault_record& fault, const block_map&) override {
    gate_.mark_dirty();
    if (last_fault_ != fault.block) {
      ascending_ = !last_fault_ || fault.block > *last_fault_;
      last_fault_ = fault.block;
      new_fault_ = true;
    }
  }
  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.mark_dirty();
    mark_.resize(map.size());
    for (const block_id b : range) {
      if (!to.is_host()) {
        std::erase(ahead_, b);  // once after a fault
      }
      if (to == map.device()) {
        if (detail::is_dead(map[b])) {
          dead_.note({b, 1});
        }
        returned_.push_back(b);
      } else {
        mark_[b.value].evicted = true;
        if (!to.is_host()) {
          to_write_back_.push_back({b, to});
        }
      }
    }
  }
  void on_live(block_range, const block_map&) override { gate_.mark_dirty(); }
  void on_dead(block_range range, launch_id, const block_map&) override {
    gate_.mark_dirty();
    dead_.note(range);
  }
  void on_host_access(block_range, access, const block_map&) override { gate_.mark_dirty(); }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map)) {
      return;
    }
    out.supersedes = true;
    mark_.resize(map.size());
    ++plans_;
    left_.resize(map.places());
    for (unsigned l = 1; l != map.places(); ++l) {
      left_[l] = map.room(location::at(l));
    }
    dead_.list_on_device(map);
    give_back_returned(map, out);
    make_room(map, out);
    dead_.keep_room_for_faults(map, out);
    bring(map, out);
    write_back(map, out);
  }

  [[nodiscard]] bool places_blocks() const override { return true; }

  [[nodiscard]] policy_statistics statistics() const override {
    return {.launches = launches_, .unpredicted = launches_, .table_bytes = mark_.capacity() * sizeof(block_mark)};
  }

 private:
  struct block_mark {
    bool evicted = false;          ///< it has left the device before
    std::uint32_t dropped_in = 0;  ///< the plan that gave up what a neighbour has of it
  };
  struct held_block {
    block_id block{};
    location at = location::host();
  };

  [[nodiscard]] bool uses_neighbours(const block_map& map) const { return parts_.neighbours && map.places() > 2; }
  [[nodiscard]] static bool holds(const block_map& map, block_id b, location at) { return map.of(b).at(at).holds(); }
  [[nodiscard]] bool executing_uses(block_id b) const {
    return !in_flight_.empty() && std::any_of(in_flight_.front().accesses.begin(), in_flight_.front().accesses.end(),
                                              [b](const block_access& a) { return a.range.contains(b); });
  }

  /// A block that is on the device again leaves its room at the neighbour.
  void give_back_returned(const block_map& map, plan& out) {
    std::erase_if(returned_, [&](block_id b) {
      bool waits = false;
      for (unsigned l = 1; l != map.places(); ++l) {
        const location at = location::at(l);
        if (at == map.device() || !holds(map, b, at)) {
          continue;
        }
        if (map.current(b, map.device()) && !map.of(b).in_motion(at) && mark_[b.value].dropped_in != plans_) {
          mark_[b.value].dropped_in = plans_;
          transfer gone = transfer::drop(reason::make_room);
          gone.from = at;
          detail::append(out, gone, b, detail::blocks_per_transfer(map));
        }
        waits = waits || map.resident(b);
      }
      return !waits;
    });
  }

  /// Room for what waits, and for the reserve.
  void make_room(const block_map& map, plan& out) {
    const std::int64_t kept = parts_.pre_evict ? std::min(parts_.reserve, std::max(1U, map.budget() / 8)) : 0;
    const std::int64_t waits = !parts_.pre_evict && last_fault_ && !map.present(*last_fault_) ? 1 : 0;
    std::int64_t needed = std::max(kept, waits) - detail::room_to_come(map);
    if (needed > 0) {
      needed -= static_cast<std::int64_t>(dead_.give_room(map, static_cast<std::size_t>(needed), out));
    }
    map.for_each_least_recently_migrated([&](block_id b) {
      if (needed <= 0) {
        return false;
      }
      if (map.moving(b) == motion::none && map.users(b) == 0 && !detail::is_dead(map[b]) && !executing_uses(b)) {
        evict(map, b, out);
        --needed;
      }
      return true;
    });
  }
  void evict(const block_map& map, block_id b, plan& out) {
    const location to = destination(map, b, out);
    transfer leaving = transfer::evict(to, reason::make_room);
    leaving.from = map.device();
    detail::append(out, leaving, b, detail::blocks_per_transfer(map));
  }
  /// A neighbour that has room or makes some; else the host.
  [[nodiscard]] location destination(const block_map& map, block_id b, plan& out) {
    if (!uses_neighbours(map)) {
      return location::host();
    }
    location best = location::host();
    std::size_t fewest = 0;
    for (unsigned l = 1; l != map.places(); ++l) {
      const location at = location::at(l);
      if (at == map.device() || map.present(b, at) || map.budget(at) == 0) {
        continue;
      }
      const auto waiting = static_cast<std::size_t>(std::count_if(to_write_back_.begin(), to_write_back_.end(),
                                                                  [at](const held_block& h) { return h.at == at; }));
      if ((best.is_host() || waiting < fewest) && (left_[l] != 0 || make_room_at(map, at, out))) {
        best = at;
        fewest = waiting;
      }
    }
    if (!best.is_host()) {
      --left_[best.index()];
    }
    return best;
  }
  /// Takes the room of a block that another place has, too.
  bool make_room_at(const block_map& map, location at, plan& out) {
    bool found = false;
    map.for_each_least_recently_migrated(at, [&](block_id b) {
      const block_view block = map.of(b);
      if (block.in_motion() || (block.current(at) && !block.current_beside(at)) || block->life != liveness::live ||
          executing_uses(b) || mark_[b.value].dropped_in == plans_) {
        return true;
      }
      mark_[b.value].dropped_in = plans_;
      transfer gone = transfer::drop(reason::make_room);
      gone.from = at;
      detail::append(out, gone, b, 1);
      ++left_[at.index()];
      found = true;
      return false;
    });
    return found;
  }

  /// Prefetches, and the end of what the executing launch misses.
  void bring(const block_map& map, plan& out) {
    if (!last_fault_) {
      return;
    }
    if (parts_.parallel_faults && uses_neighbours(map)) {
      stage_end_of_misses(map, out);
    }
    if (std::exchange(new_fault_, false)) {
      look_ahead(map);
    }
    std::erase_if(ahead_, [&](block_id b) { return map.present(b) || detail::is_dead(map[b]) || map.nowhere(b); });
    for (const block_id b : ahead_) {
      mark_[b.value].dropped_in = plans_;  // what a neighbour has of them stays
    }
    std::int64_t room = detail::room_to_come(map);
    for (const block_id b : ahead_) {
      if (beside(map, b).is_host() && stages(map) && stage(map, b, out)) {
        continue;
      }
      if (room > 0) {
        --room;
        detail::append(out, transfer::prefetch(map.device(), reason::predicted), b, detail::blocks_per_transfer(map));
      }
    }
  }
  /// The blocks that the last fault makes expect.
  void look_ahead(const block_map& map) {
    ahead_.clear();
    for (std::uint32_t i = 1; i <= parts_.ahead && parts_.prefetch != harvest_parts::prefetcher::none; ++i) {
      const std::uint64_t distance = std::uint64_t{i} * parts_.stride;
      const std::uint32_t from = last_fault_->value;
      if (ascending_ ? from + distance >= map.size() : distance > from) {
        break;
      }
      ahead_.emplace_back(static_cast<std::uint32_t>(ascending_ ? from + distance : from - distance));
    }
  }
  /// Else the links of the neighbours are crowded (4.3.3).
  [[nodiscard]] bool stages(const block_map& map) const {
    std::uint32_t yielders = 0;
    for (unsigned l = 1; l != map.places(); ++l) {
      yielders += location::at(l) != map.device() && map.budget(location::at(l)) != 0 ? 1 : 0;
    }
    return parts_.prefetch == harvest_parts::prefetcher::multi_path && parts_.harvesters <= yielders;
  }
  void stage_end_of_misses(const block_map& map, plan& out) {
    if (in_flight_.empty()) {
      return;
    }
    missing_.clear();
    for (const block_access& a : in_flight_.front().accesses) {
      for (const block_id b : a.range) {
        if (!map.present(b) && !detail::is_dead(map[b])) {
          missing_.push_back(b);
        }
      }
    }
    std::size_t staged = 0;
    for (std::size_t i = missing_.size(); i > missing_.size() / 2 && staged != most_staged; --i) {
      const block_id b = missing_[i - 1];
      if (mark_[b.value].evicted && !map.nowhere(b) && beside(map, b).is_host() && stage(map, b, out)) {
        ++staged;
      }
    }
  }
  /// The neighbour that has the block, or is about to; the host: none.
  [[nodiscard]] static location beside(const block_map& map, block_id b) {
    for (unsigned l = 1; l != map.places(); ++l) {
      if (location::at(l) != map.device() && map.present(b, location::at(l))) {
        return location::at(l);
      }
    }
    return location::host();
  }
  /// From the host to a neighbour that has room.
  [[nodiscard]] bool stage(const block_map& map, block_id b, plan& out) {
    if (!map.current(b, location::host())) {
      return false;
    }
    const location to = destination(map, b, out);
    if (to.is_host()) {
      return false;
    }
    transfer t = transfer::prefetch(to, reason::predicted);
    t.from = location::host();
    detail::append(out, t, b, detail::blocks_per_transfer(map));
    return true;
  }

  void write_back(const block_map& map, plan& out) {
    std::size_t kept = 0;
    for (const held_block h : to_write_back_) {
      if (!map.present(h.block, h.at) || map.current(h.block, location::host()) || map.present(h.block)) {
        continue;
      }
      if (kept < most_staged && map.current(h.block, h.at) && !map.of(h.block).in_motion()) {
        transfer copy = transfer::clean(reason::write_back);
        copy.from = h.at;
        detail::append(out, copy, h.block, detail::blocks_per_transfer(map));
      }
      to_write_back_[kept++] = h;
    }
    to_write_back_.resize(kept);
  }

  static constexpr std::size_t most_staged = 64;  // blocks, in one plan

  harvest_parts parts_;
  std::deque<launch_record> in_flight_{};
  detail::dead_blocks dead_{};
  detail::plan_gate gate_{};
  std::uint64_t launches_ = 0;
  std::uint32_t plans_ = 0;
  std::optional<block_id> last_fault_{};
  bool new_fault_ = false;  // nothing was planned for it yet
  bool ascending_ = true;
  std::vector<block_id> ahead_{};            // that are prefetched, and have not come
  sequence<block_mark> mark_{};              // by block
  std::vector<held_block> to_write_back_{};  // at neighbours, in the order in which they came there
  std::vector<block_id> returned_{};         // that are on the device again, and may take room at a neighbour
  sequence<block_id> missing_{};             // of the executing launch; kept for its memory
  sequence<std::uint32_t> left_{};           // by place: room that nothing is planned for
};

}  // namespace v0
}  // namespace deepum
