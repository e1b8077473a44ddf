#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/block_record.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace deepum {
inline namespace v0 {

/// One record for each block of an arena, one state machine for each block and place, and a ledger for each place.
///
/// The engine alone changes it; all others see a `const block_map&`. Nothing else in the library knows where a block
/// is, whether it moves, or who wants it to stay (docs/adr/0012). Cost of each call: constant for a given number of
/// places. Not synchronised.
class block_ledger : public block_map {
 public:
  /// The places of a topology. The device where launches run has no budget yet.
  block_ledger(std::uint32_t block_count, const topology& all, block_grid units)
      : block_map(block_count, all.runs_on(), all.places(), units) {
    for (unsigned l = 0; l != all.places(); ++l) {
      const location at = location::at(l);
      places_[l].rank = all.rank(at);
      if (at.is_device() && at != all.runs_on()) {
        set_budget(at,
                   static_cast<std::uint32_t>(std::min<std::uint64_t>(all.budget(at) / units.block(), block_count)));
      }
    }
  }
  /// The host, and devices that may hold blocks.
  /// @param block_count  Number of blocks in the arena's address range.
  /// @param runs_on      Where launches run.
  /// @param budgets      Memory of each device that the arena may hold, in blocks, from device 0 on.
  /// @param units        How that range is cut into blocks.
  block_ledger(std::uint32_t block_count, location runs_on, std::span<const std::uint32_t> budgets, block_grid units)
      : block_map(block_count, runs_on, static_cast<unsigned>(budgets.size()) + 1, units) {
    for (unsigned at = 0; at != budgets.size(); ++at) {
      set_budget(location::device(at), budgets[at]);
    }
  }
  /// The same where none but that device may.
  block_ledger(std::uint32_t block_count, location runs_on, std::uint32_t budget, block_grid units)
      : block_map(block_count, runs_on, runs_on.index() + 1, units) {
    set_budget(budget);
  }

  void set_budget(location at, std::uint32_t blocks) { places_[at.index()].budget = blocks; }
  void set_budget(std::uint32_t blocks) { set_budget(device_, blocks); }
  void set_keeps_home_copy(bool keeps) { keeps_home_copy_ = keeps; }
  void set_shortest_row(bytes row) { shortest_row_ = row; }

  /// @name Facts
  /// @{
  void set_liveness(block_id b, liveness life) { record(b).life = life; }
  void set_dead_after(block_id b, launch_id last) { record(b).dead_after = last.value; }
  void set_read_mostly(block_id b, bool is) { record(b).read_mostly = is; }
  void set_in_place(block_id b, bool is) { record(b).in_place = is; }
  void set_reachable(block_id b, bool is) { record(b).reachable = is; }
  void add_user(block_id b, access mode) {
    ++record(b).users;
    record(b).writers += mode != access::read ? 1U : 0U;
  }
  void remove_user(block_id b, access mode) {
    block_record& r = record(b);
    const std::uint32_t writes = mode != access::read ? 1U : 0U;
    expects(r.users > 0 && r.writers >= writes, "a launch finishes with a block that it did not hold");
    --r.users;
    r.writers -= writes;
  }
  /// A launch that may execute, or a hold, keeps the block where it is. @returns  Holds of the block.
  std::uint32_t pin(block_id b, bool hold) {
    ++record(b).pins;
    return record(b).holds += hold ? 1U : 0U;
  }
  std::uint32_t unpin(block_id b, bool hold) {
    --record(b).pins;
    return record(b).holds -= hold ? 1U : 0U;
  }
  /// The launch that is served declares the block. @param serve  Which one, counted.
  void serve(block_id b, std::uint32_t serve) { record(b).served_in = serve; }
  void begin_host_view(block_id b, access mode) {
    ++record(b).host_views;
    record(b).host_writes += mode != access::read ? 1U : 0U;
  }
  void end_host_view(block_id b, access mode) {
    --record(b).host_views;
    record(b).host_writes -= mode != access::read ? 1U : 0U;
  }
  /// @}

  /// @name Contents
  /// @{

  /// Launches or the host wrote the block at a place: every other copy is stale, also those that are on their way.
  void write(block_id b, location at) {
    expects(copy(b, at).holds(), "a block is written where it is not");
    if (!alone_at(b, at)) {
      begin_generation(b);
    }
    copy(b, at).generation = record(b).generation;
  }
  void write(block_id b) { write(b, device_); }
  /// A launch that was submitted may write it from now on: what is being copied from there is not relied on.
  void may_be_written(block_id b) {
    for_each_copy(b, [&](location l, block_copy& c) {
      if (c.is == block_copy::phase::arriving && c.from == device_.index() && l != device_) {
        c.generation = 0;
      }
    });
  }
  /// The host wrote the block in host memory. Devices may have room for it, but no contents.
  void write_on_host(block_id b) {
    expects(!current(b, device_), "the host writes a block that is on the device");
    begin_generation(b);
    set_phase(b, location::host(), block_copy::phase::there);
    copy(b, location::host()).generation = record(b).generation;
  }
  /// An upload is going to write all of the block in host memory: nothing comes to a device until it has. What there is
  /// of old contents is forgotten by `begin_fill`.
  void claim_for_upload(block_id b) { record(b).filling = true; }
  /// It writes now. No device holds anything of the block.
  void begin_fill(block_id b) {
    expects(!present(b) && moving(b) == motion::none, "an upload writes a block that is on the device");
    ++record(b).host_views;
    begin_generation(b);
  }
  /// @param done  The block was written. Else it holds nothing.
  void end_fill(block_id b, bool done) {
    record(b).filling = false;
    --record(b).host_views;
    if (done && !current(b, device_)) {
      write_on_host(b);
    }
  }
  /// The contents are dead, though the block is about to get new ones. No device holds anything of it.
  /// @param overwriter  The launch that writes them: until it runs, the host's contents can be remembered.
  void forget(block_id b, launch_id overwriter = {}) {
    expects(!present(b) && moving(b) == motion::none, "contents are forgotten that are on the device");
    record(b).overwriter = overwriter.valid() && current(b, location::host()) ? mark_of(overwriter.value) : 0;
    begin_generation(b);
  }
  /// The launch will not run that was to overwrite what the host has: that is the block's again. Devices may have room
  /// for it, but no contents. @returns  Whether it was to.
  bool remember(block_id b, launch_id overwriter) {
    if (!take_overwriter(b, overwriter)) {
      return false;
    }
    remember(b);
    return true;
  }
  void remember(block_id b) {
    expects(nowhere(b), "contents are remembered of a block that has others");
    write_on_host(b);
  }
  /// What the host had is older than what another launch writes.
  void settle_overwriter(block_id b) { record(b).overwriter = 0; }
  /// @returns  Whether it was this launch. It is not any more.
  bool take_overwriter(block_id b, launch_id launch) {
    const bool was = record(b).overwriter != 0 && record(b).overwriter == mark_of(launch.value);
    record(b).overwriter = was ? 0 : record(b).overwriter;
    return was;
  }
  /// @}

  /// @name Transfers
  /// @{

  /// Memory is taken at `to` for a copy of what `from` has. Where both are the same: for new contents.
  void start_arriving(block_id b, location to, location from) {
    block_copy& c = copy(b, to);
    expects(c.is == block_copy::phase::absent || (to.is_host() && c.is == block_copy::phase::there),
            "a block starts to arrive that is there already");
    set_phase(b, to, block_copy::phase::arriving);
    c.generation = from == to ? 0 : record(b).generation;
    c.from = static_cast<std::uint8_t>(from.index());
    c.late = false;
  }
  void start_arriving(block_id b) { start_arriving(b, device_, location::host()); }
  /// What a place has is being given up, with a copy elsewhere where no other place has the contents.
  void start_leaving(block_id b, location from) {
    expects(copy(b, from).holds(), "a block starts to leave that is not there");
    set_phase(b, from, block_copy::phase::leaving);
  }
  void start_leaving(block_id b) { start_leaving(b, device_); }
  /// The device's contents are being copied to the host, and stay.
  void start_cleaning(block_id b) { start_arriving(b, location::host(), device_); }
  /// The contents are being given up everywhere.
  void start_forgetting(block_id b) {
    record(b).forgetting = true;
    for_each_copy(b, [&](location l, const block_copy& c) {
      if (!l.is_host() && c.is == block_copy::phase::there) {
        set_phase(b, l, block_copy::phase::leaving);
      }
    });
  }

  /// A place has the block now, by command or through a fault; it becomes the most recently migrated one there. A copy
  /// that was under way has the contents of its generation: what was written meanwhile makes it stale.
  /// @param whole  All of it is there. A block that was whole stays so.
  void arrive_at(block_id b, location at, bool whole = true) {
    block_copy& c = copy(b, at);
    c.partial = !whole && (c.partial || !c.holds());
    if (c.is != block_copy::phase::arriving || c.from == at.index()) {
      if (nowhere(b)) {
        begin_generation(b);
      }
      c.generation = record(b).generation;
    }
    take_room(b, at);
    touch_migrated(b, at);
  }
  /// The same where the memory has contents in one place as a rule. @param host_copy_stays  The host's copy stays as it
  /// was (read-mostly, or home copies stay).
  void arrive(block_id b, location at, bool host_copy_stays, bool whole = true) {
    arrive_at(b, at, whole);
    if (!host_copy_stays && copy(b, location::host()).is == block_copy::phase::there) {
      release(b, location::host());
    }
  }
  void arrive(block_id b, bool host_copy_stays, bool whole = true) { arrive(b, device_, host_copy_stays, whole); }
  /// Room for new contents is there now. They are nowhere until a launch or the host writes them.
  void arrive_empty(block_id b, location at) {
    if (!copy(b, at).holds()) {
      take_room(b, at);
      copy(b, at).generation = 0;
    }
    touch_migrated(b, at);
  }
  void arrive_empty(block_id b) { arrive_empty(b, device_); }
  /// A block that is resident already becomes the most recently migrated one ("keep this").
  void touch_migrated(block_id b, location at) {
    place_ledger& l = places_[at.index()];
    l.by_migration.move_to_back(b.value);
    l.migrated_at[b.value] = ++l.order;
  }
  void touch_migrated(block_id b) { touch_migrated(b, device_); }
  /// A copy to the host has ended. It is current where nothing was written meanwhile, and else of no use.
  /// @returns  Whether it is.
  bool clean(block_id b) {
    const location home = location::host();
    if (copy(b, home).is != block_copy::phase::arriving || copy(b, home).generation != record(b).generation) {
      stop_moving(b, home);
      return false;
    }
    set_phase(b, home, block_copy::phase::there);
    return true;
  }
  /// A place gave its room up, and what it had there.
  void release(block_id b, location at) {
    block_copy& c = copy(b, at);
    if (!at.is_host()) {
      places_[at.index()].by_migration.erase(b.value);
    }
    set_phase(b, at, block_copy::phase::absent);
    c.generation = 0;
    c.partial = false;
    c.late = false;
  }
  /// The device gave the block up without a copy.
  void drop(block_id b) { release(b, device_); }
  /// A device gave the block up for the host, which has its contents (if there are any).
  void depart(block_id b, location from) {
    const location home = location::host();
    if (current(b, from)) {
      set_phase(b, home, block_copy::phase::there);
      copy(b, home).generation = record(b).generation;
    } else if (copy(b, home).is == block_copy::phase::arriving && copy(b, home).from == from.index()) {
      release(b, home);
    }
    release(b, from);
  }
  void depart(block_id b) { depart(b, device_); }
  /// A place gave the block up for another one, which got the contents as they were at the end: nothing that uses the
  /// block runs while it leaves.
  void move_on(block_id b, location from, location to) {
    if (current(b, from) && copy(b, to).is == block_copy::phase::there) {
      copy(b, to).generation = record(b).generation;
    }
    release(b, from);
  }
  /// The contents are gone everywhere; all devices gave the block up.
  void discard(block_id b) {
    for_each_copy(b, [&](location l, const block_copy&) { release(b, l); });
    record(b).forgetting = false;
    begin_generation(b);
  }
  /// The transfer failed or was taken back: room for what was to arrive is free again, what was to leave stays.
  void stop_moving(block_id b, location at) {
    if (copy(b, at).is == block_copy::phase::arriving) {
      release(b, at);
    } else if (copy(b, at).is == block_copy::phase::leaving) {
      set_phase(b, at, block_copy::phase::there);
    }
  }
  void stop_moving(block_id b) {
    record(b).forgetting = false;
    for_each_copy(b, [&](location l, const block_copy&) { stop_moving(b, l); });
  }
  void cancel_arriving(block_id b) {
    expects(here(b).is == block_copy::phase::arriving, "an arrival is cancelled that was not under way");
    stop_moving(b, device_);
  }
  /// @}

  /// @name Tickets and marks of transfers
  /// @{

  /// A transfer changes the block at a place from now on. What an earlier one still has to report does not concern it.
  void give_ticket(block_id b, location at, std::uint64_t ticket) { copy(b, at).ticket = mark_of(ticket); }
  /// The transfer has ended. @returns  The place that it changed, where no later one does.
  std::optional<location> take_ticket(block_id b, std::uint64_t ticket) {
    for (unsigned l = 0; l != places(); ++l) {
      block_copy& c = copy(b, location::at(l));
      if (c.ticket == mark_of(ticket)) {
        c.ticket = 0;
        return location::at(l);
      }
    }
    return std::nullopt;
  }
  /// A launch faulted on a block that is arriving. @returns  Whether it is the first one.
  bool mark_late(block_id b) {
    block_copy& c = copy(b, device_);
    return c.is == block_copy::phase::arriving && !std::exchange(c.late, true);
  }
  [[nodiscard]] bool late(block_id b) const { return here(b).late; }
  /// A prefetch brought the block and no launch has used it, since so long; 0: not so. @returns  What was noted before.
  std::uint32_t note_unused(block_id b, std::uint32_t since) { return std::exchange(copy(b, device_).unused, since); }
  /// @}

 private:
  // Never 0. Numbers that are in flight at the same time are near each other, so that their marks differ.
  [[nodiscard]] static std::uint32_t mark_of(std::uint64_t number) {
    return static_cast<std::uint32_t>(number % 0xffff'ffffU) + 1;
  }

  [[nodiscard]] block_record& record(block_id b) { return blocks_[b.value]; }
  using block_map::copy;
  [[nodiscard]] block_copy& copy(block_id b, location at) {
    return copies_[std::size_t{b.value} * places_.size() + at.index()];
  }
  template <class Visit>
  void for_each_copy(block_id b, Visit&& visit) {
    for (unsigned l = 0; l != places(); ++l) {
      visit(location::at(l), copy(b, location::at(l)));
    }
  }

  /// The place has the contents, and no other has them or is getting them.
  [[nodiscard]] bool alone_at(block_id b, location at) const {
    if (!current(b, at)) {
      return false;
    }
    for (unsigned l = 0; l != places(); ++l) {
      const block_copy& c = copy(b, location::at(l));
      if (l != at.index() && c.takes_room() && c.generation == blocks_[b.value].generation) {
        return false;
      }
    }
    return true;
  }
  /// The contents change: what places have of them is stale.
  void begin_generation(block_id b) {
    block_record& r = record(b);
    if (++r.generation == 0) {  // all numbers have been used: what there is counts as the first one
      for_each_copy(b, [](location, block_copy& c) { c.generation = c.generation == 0 ? 0 : 1; });
      r.generation = 2;
    }
  }
  void set_phase(block_id b, location at, block_copy::phase to) {
    block_copy& c = copy(b, at);
    place_ledger& l = places_[at.index()];
    using phase = block_copy::phase;
    l.occupied += (to != phase::absent ? 1U : 0U) - (c.is != phase::absent ? 1U : 0U);
    l.arriving += (to == phase::arriving ? 1U : 0U) - (c.is == phase::arriving ? 1U : 0U);
    l.leaving += (to == phase::leaving ? 1U : 0U) - (c.is == phase::leaving ? 1U : 0U);
    c.is = to;
  }
  void take_room(block_id b, location at) {
    if (!copy(b, at).holds()) {
      set_phase(b, at, block_copy::phase::there);
    }
  }
};

}  // namespace v0
}  // namespace deepum
