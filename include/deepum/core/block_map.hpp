#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/index_list.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Whether a block's contents matter. These are facts that the program stated, never predictions.
enum class liveness : std::uint8_t {
  unallocated,  ///< no live allocation has a byte in the block
  live,         ///< contents matter
  inactive,     ///< allocated, but the program marked the whole block as holding nothing of value
};

/// What is happening to a block on the links right now.
enum class motion : std::uint8_t { none, arriving, leaving, cleaning };

/// What is known about one block.
struct block_state {
  copy_set copies{};     ///< where the contents are current; empty: nowhere (new, discarded or about to be overwritten)
  bool partial = false;  ///< on the device, but a fault may have brought in only some of its pages
  bool dirty = false;    ///< the device copy may be newer than the host's
  liveness life = liveness::unallocated;
  motion moving = motion::none;
  std::uint32_t users = 0;        ///< launches in flight that declare the block
  std::uint32_t writers = 0;      ///< those of them that declare to write it
  std::uint64_t migrated_at = 0;  ///< number of its last arrival on the device; 0: never
};

/// The state of all blocks of an arena with respect to one device, and the order of their migration.
///
/// The engine alone changes it; a policy sees it as const. Not synchronised.
class block_map {
 public:
  /// @param block_count  Number of blocks in the arena's address range.
  /// @param device       The device whose memory is being managed.
  /// @param budget       Device memory that the arena may hold, in blocks.
  /// @param grid         How that range is cut into blocks.
  block_map(std::uint32_t block_count, location device, std::uint32_t budget, block_grid grid)
      : states_(block_count),
        by_migration_(block_count),
        device_(device),
        grid_(grid),
        budget_(budget) {}

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(states_.size()); }
  [[nodiscard]] location device() const { return device_; }
  [[nodiscard]] block_grid grid() const { return grid_; }
  /// Blocks that make up so much memory, rounded down; one at least.
  [[nodiscard]] std::uint32_t blocks_in(bytes n) const { return grid_.blocks_in(n); }
  [[nodiscard]] const block_state& operator[](block_id b) const { return states_[b.value]; }

  /// Blocks the arena may hold on the device.
  [[nodiscard]] std::uint32_t budget() const { return budget_; }
  /// Blocks that take room on the device: resident, arriving, or not yet gone.
  [[nodiscard]] std::uint32_t occupied() const { return occupied_; }
  /// Blocks that could arrive without any leaving.
  [[nodiscard]] std::uint32_t room() const { return occupied_ < budget_ ? budget_ - occupied_ : 0; }

  /// Blocks on their way in, which hold room, and perhaps no memory yet.
  [[nodiscard]] std::uint32_t arriving() const { return arriving_; }
  /// Blocks on their way out, whose room will be free.
  [[nodiscard]] std::uint32_t leaving() const { return leaving_; }

  /// Host copies stay current while the device has a copy: blocks can be cleaned and dropped.
  [[nodiscard]] bool keeps_home_copy() const { return keeps_home_copy_; }

  /// The block has a copy on the device that launches can use, or room for one (it may be on its way out).
  [[nodiscard]] bool resident(block_id b) const { return states_[b.value].copies.at(device_) || linked(b.value); }
  /// The block takes room on the device: resident or arriving.
  [[nodiscard]] bool present(block_id b) const { return resident(b) || states_[b.value].moving == motion::arriving; }

  /// The device has room for the block, and its contents are elsewhere.
  [[nodiscard]] bool hollow(block_id b) const {
    const block_state& s = states_[b.value];
    return linked(b.value) && !s.copies.at(device_) && !s.copies.empty();
  }
  /// A launch that begins now finds the whole block on the device, and it is not on its way out.
  [[nodiscard]] bool ready(block_id b) const {
    return resident(b) && states_[b.value].moving != motion::leaving && !states_[b.value].partial && !hollow(b);
  }

  /// Calls `visit(block_id)` for resident blocks, least recently migrated first, until it returns false.
  template <class Visit>
  void for_each_least_recently_migrated(Visit&& visit) const {
    for (std::uint32_t b = by_migration_.front(); b != detail::index_list::none;) {
      const std::uint32_t next = by_migration_.after(b);
      if (!visit(block_id{b})) {
        return;
      }
      b = next;
    }
  }

  /// @name Changes. The engine alone calls these.
  /// @{
  void set_budget(std::uint32_t blocks) { budget_ = blocks; }
  void set_keeps_home_copy(bool keeps) { keeps_home_copy_ = keeps; }
  void set_liveness(block_id b, liveness life) { states_[b.value].life = life; }
  void add_user(block_id b, access mode) {
    ++states_[b.value].users;
    states_[b.value].writers += mode != access::read ? 1U : 0U;
  }
  void remove_user(block_id b, access mode) {
    block_state& s = states_[b.value];
    const std::uint32_t writes = mode != access::read ? 1U : 0U;
    expects(s.users > 0 && s.writers >= writes, "a launch finishes with a block that it did not hold");
    --s.users;
    s.writers -= writes;
  }

  /// A copy to the device, or room for new contents there, was commanded.
  void start_arriving(block_id b) {
    expects(!present(b), "a block starts to arrive that is on the device already");
    set_motion(states_[b.value], motion::arriving);
    ++occupied_;
  }
  /// The command failed or was taken back; the room is free again.
  void cancel_arriving(block_id b) {
    expects(states_[b.value].moving == motion::arriving, "an arrival is cancelled that was not under way");
    set_motion(states_[b.value], motion::none);
    --occupied_;
  }
  /// The block is on the device now, by command or through a fault; it becomes the most recently migrated one.
  /// @param host_copy_stays  The host's copy stays current (read-mostly, or memory with host backing).
  /// @param whole            All of it is there. A block that was whole stays so.
  void arrive(block_id b, bool host_copy_stays, bool whole = true) {
    block_state& s = states_[b.value];
    s.partial = !whole && (s.partial || !resident(b));
    take_room(b);
    s.copies.add(device_);
    if (!host_copy_stays) {
      s.copies.remove(location::host());
    }
    s.dirty = !host_copy_stays;
    touch_migrated(b);
  }
  /// Room for new contents is on the device now. They are nowhere until a launch or the host writes them.
  void arrive_empty(block_id b) {
    take_room(b);
    touch_migrated(b);
  }
  /// A block that is resident already becomes the most recently migrated one ("keep this").
  void touch_migrated(block_id b) {
    by_migration_.move_to_back(b.value);
    states_[b.value].migrated_at = ++order_;
  }
  /// A launch wrote the block: every other copy is stale.
  void write(block_id b) {
    states_[b.value].copies = copy_set{device_};
    states_[b.value].dirty = true;
  }
  /// A copy to the host was commanded, after which the device gives the block up (leaving) or keeps it (cleaning).
  void start_leaving(block_id b) { set_motion(states_[b.value], motion::leaving); }
  void start_cleaning(block_id b) { set_motion(states_[b.value], motion::cleaning); }
  void stop_moving(block_id b) { set_motion(states_[b.value], motion::none); }
  /// The host has a current copy, and so has the device.
  void clean(block_id b) {
    states_[b.value].copies.add(location::host());
    states_[b.value].dirty = false;
    set_motion(states_[b.value], motion::none);
  }
  /// The device gave the block up; the host has its contents (if there are any).
  void depart(block_id b) {
    block_state& s = states_[b.value];
    if (s.copies.at(device_)) {
      s.copies.add(location::host());
    }
    release_room(b);
  }
  /// The device gave the block up without a copy, because the host's copy is current.
  void drop(block_id b) { release_room(b); }
  /// The contents are gone everywhere; the device gave the block up.
  void discard(block_id b) {
    release_room(b);
    states_[b.value].copies = {};
  }
  /// The contents are dead, though the block is about to get new ones. The device holds nothing of it.
  void forget(block_id b) {
    expects(!present(b) && states_[b.value].moving == motion::none, "contents are forgotten that are on the device");
    states_[b.value].copies = {};
  }
  /// The host's contents, which were forgotten, are the block's again. The device may have room for it, but no
  /// contents.
  void remember(block_id b) {
    expects(states_[b.value].copies.empty(), "contents are remembered of a block that has others");
    states_[b.value].copies = copy_set{location::host()};
  }
  /// The host wrote the block in host memory. The device may have room for it, but no contents.
  void write_on_host(block_id b) {
    expects(!states_[b.value].copies.at(device_), "the host writes a block that is on the device");
    states_[b.value].copies = copy_set{location::host()};
  }
  /// @}

 private:
  [[nodiscard]] bool linked(std::uint32_t b) const { return by_migration_.contains(b); }

  void set_motion(block_state& s, motion to) {
    arriving_ += to == motion::arriving ? 1U : 0U;
    arriving_ -= s.moving == motion::arriving ? 1U : 0U;
    leaving_ += to == motion::leaving ? 1U : 0U;
    leaving_ -= s.moving == motion::leaving ? 1U : 0U;
    s.moving = to;
  }
  void take_room(block_id b) {
    block_state& s = states_[b.value];
    if (s.moving == motion::arriving) {
      set_motion(s, motion::none);
    } else if (!linked(b.value)) {
      ++occupied_;
    }
  }
  void release_room(block_id b) {
    block_state& s = states_[b.value];
    if (linked(b.value) || s.moving == motion::arriving) {
      --occupied_;
    }
    by_migration_.erase(b.value);
    s.copies.remove(device_);
    s.partial = false;
    s.dirty = false;
    set_motion(s, motion::none);
  }
  std::vector<block_state> states_;
  detail::index_list by_migration_;  // resident blocks, least recently migrated first
  location device_;
  block_grid grid_;
  std::uint32_t budget_;
  std::uint32_t occupied_ = 0;
  std::uint32_t arriving_ = 0;
  std::uint32_t leaving_ = 0;
  bool keeps_home_copy_ = false;
  std::uint64_t order_ = 0;
};

}  // namespace v0
}  // namespace deepum
