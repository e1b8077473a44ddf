#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/block_record.hpp>
#include <deepum/core/index_list.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace deepum {
inline namespace v0 {

/// What is happening to a block on the links right now, as seen from the device where launches run.
enum class motion : std::uint8_t { none, arriving, leaving, cleaning };

/// What a policy is told of one block. It is worked out from the block's record at the moment of the question.
struct block_state {
  copy_set copies{};     ///< where the contents are current; empty: nowhere (new, discarded or about to be overwritten)
  bool partial = false;  ///< on the device, but a fault may have brought in only some of its pages
  bool dirty = false;    ///< the device has the contents and the host has not
  liveness life = liveness::unallocated;
  motion moving = motion::none;
  std::uint32_t users = 0;        ///< launches in flight that declare the block
  std::uint32_t writers = 0;      ///< those of them that declare to write it
  std::uint64_t migrated_at = 0;  ///< number of its last arrival on the device; 0: never
};

/// Where all blocks of an arena are, read only: what policies and tools see of a `block_ledger`.
///
/// Launches run on one of its devices, `device()`. Where a call names no place, that one is meant. The other places
/// hold blocks for it. Not synchronised.
class block_map {
 public:
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size()); }
  /// Places that can hold a block: the host and devices, by `location::index`.
  [[nodiscard]] unsigned places() const { return static_cast<unsigned>(places_.size()); }
  /// Where launches run.
  [[nodiscard]] location device() const { return device_; }
  [[nodiscard]] block_grid grid() const { return grid_; }
  /// Blocks that make up so much memory, rounded down; one at least.
  [[nodiscard]] std::uint32_t blocks_in(bytes n) const { return grid_.blocks_in(n); }

  /// Blocks the arena may hold at a place.
  [[nodiscard]] std::uint32_t budget(location at) const { return ledger(at).budget; }
  [[nodiscard]] std::uint32_t budget() const { return budget(device_); }
  /// Blocks that take room there: resident, arriving, or not yet gone.
  [[nodiscard]] std::uint32_t occupied(location at) const { return ledger(at).occupied; }
  [[nodiscard]] std::uint32_t occupied() const { return occupied(device_); }
  /// Blocks that it may hold at neighbours, all together.
  [[nodiscard]] std::uint32_t budget_beside() const {
    std::uint32_t all = 0;
    for (unsigned l = 1; l != places(); ++l) {
      all += location::at(l) != device_ ? budget(location::at(l)) : 0;
    }
    return all;
  }
  /// How far a place is from where launches run: 0 there, and the farther the more (`topology::rank`).
  [[nodiscard]] std::uint32_t rank(location at) const { return ledger(at).rank; }
  /// Blocks that could arrive without any leaving.
  [[nodiscard]] std::uint32_t room(location at) const {
    const place_ledger& l = ledger(at);
    return l.occupied < l.budget ? l.budget - l.occupied : 0;
  }
  [[nodiscard]] std::uint32_t room() const { return room(device_); }
  /// Blocks on their way in, which hold room, and perhaps no memory yet.
  [[nodiscard]] std::uint32_t arriving(location at) const { return ledger(at).arriving; }
  [[nodiscard]] std::uint32_t arriving() const { return arriving(device_); }
  /// Blocks on their way out, whose room will be free.
  [[nodiscard]] std::uint32_t leaving(location at) const { return ledger(at).leaving; }
  [[nodiscard]] std::uint32_t leaving() const { return leaving(device_); }
  /// Counts what arrives at a place, or becomes the most recently migrated block there.
  [[nodiscard]] std::uint64_t migrations(location at) const { return ledger(at).order; }

  /// Host copies stay current while the device has a copy: blocks can be cleaned and dropped.
  [[nodiscard]] bool keeps_home_copy() const { return keeps_home_copy_; }
  /// Launches can touch rows of blocks in place, on the host. A shorter row costs the link as much as one of so many
  /// bytes. 0: they cannot.
  [[nodiscard]] bytes shortest_row() const { return shortest_row_; }

  /// All that is known of a block.
  [[nodiscard]] block_view of(block_id b) const { return {blocks_[b.value], {first_copy(b), places_.size()}}; }
  [[nodiscard]] copy_state state(block_id b, location at) const { return of(b).state(at); }
  [[nodiscard]] block_state operator[](block_id b) const {
    const block_record& r = blocks_[b.value];
    block_state s{.partial = here(b).partial,
                  .dirty = dirty(b),
                  .life = r.life,
                  .moving = moving(b),
                  .users = r.users,
                  .writers = r.writers,
                  .migrated_at = ledger(device_).migrated_at[b.value]};
    for (unsigned l = 0; l != places_.size(); ++l) {
      if (of(b).current(location::at(l))) {
        s.copies.add(location::at(l));
      }
    }
    return s;
  }
  [[nodiscard]] liveness life(block_id b) const { return blocks_[b.value].life; }
  [[nodiscard]] std::uint32_t users(block_id b) const { return blocks_[b.value].users; }
  [[nodiscard]] bool nowhere(block_id b) const { return of(b).nowhere(); }
  [[nodiscard]] bool current(block_id b, location at) const { return of(b).current(at); }

  /// The block has a copy on the device that launches can use, or room for one (it may be on its way out).
  [[nodiscard]] bool resident(block_id b) const { return here(b).holds(); }
  /// The block takes room on the device: resident or arriving.
  [[nodiscard]] bool present(block_id b) const { return here(b).takes_room(); }
  [[nodiscard]] bool present(block_id b, location at) const { return copy(b, at).takes_room(); }
  /// The device has room for the block, and its contents are elsewhere.
  [[nodiscard]] bool hollow(block_id b) const { return resident(b) && !current(b, device_) && !nowhere(b); }
  /// A launch that begins now finds the whole block on the device, and it is not on its way out.
  [[nodiscard]] bool ready(block_id b) const {
    const block_copy& c = here(b);
    return c.is == block_copy::phase::there && !c.partial && (current(b, device_) || nowhere(b));
  }
  /// Launches that touch rows of the block do so where it is, while it is not on the device.
  [[nodiscard]] bool in_place(block_id b) const { return blocks_[b.value].in_place; }
  /// The same, and they can do so now: launches find the host's memory, with the contents, and none is on its way to
  /// take its place. For memory that never faults.
  [[nodiscard]] bool reached_in_place(block_id b) const {
    const block_record& r = blocks_[b.value];
    return r.in_place && r.reachable && here(b).is == block_copy::phase::absent && !r.forgetting &&
           (current(b, location::host()) || nowhere(b));
  }
  /// The device has the contents, and the host has not.
  [[nodiscard]] bool dirty(block_id b) const { return current(b, device_) && !current(b, location::host()); }
  [[nodiscard]] motion moving(block_id b) const {
    switch (here(b).is) {
      case block_copy::phase::arriving:
        return motion::arriving;
      case block_copy::phase::leaving:
        return motion::leaving;
      case block_copy::phase::absent:
      case block_copy::phase::there:
        break;
    }
    return of(b).read_at(device_) ? motion::cleaning : motion::none;
  }
  [[nodiscard]] std::uint64_t migrated_at(block_id b) const { return ledger(device_).migrated_at[b.value]; }

  /// Calls `visit(block_id)` for the blocks of a device, least recently migrated first, until it returns false.
  template <class Visit>
  void for_each_least_recently_migrated(Visit&& visit) const {
    for_each_least_recently_migrated(device_, visit);
  }
  template <class Visit>
  void for_each_least_recently_migrated(location at, Visit&& visit) const {
    const detail::index_list& order = ledger(at).by_migration;
    for (std::uint32_t b = order.front(); b != detail::index_list::none;) {
      const std::uint32_t next = order.after(b);
      if (!visit(block_id{b})) {
        return;
      }
      b = next;
    }
  }

  /// Memory of the host that the ledger takes.
  [[nodiscard]] bytes memory() const {
    std::uint64_t total = blocks_.capacity() * sizeof(block_record) + copies_.capacity() * sizeof(block_copy);
    for (const place_ledger& l : places_) {
      total += l.by_migration.memory().count + l.migrated_at.capacity() * sizeof(std::uint64_t);
    }
    return bytes{total};
  }

 protected:
  /// What is known of one place. The host has neither a budget nor an order.
  struct place_ledger {
    std::uint32_t rank = 0;
    std::uint32_t budget = 0;
    std::uint32_t occupied = 0;
    std::uint32_t arriving = 0;
    std::uint32_t leaving = 0;
    detail::index_list by_migration{};      // resident blocks, least recently migrated first
    sequence<std::uint64_t> migrated_at{};  // of each block
    std::uint64_t order = 0;
  };

  block_map(std::uint32_t block_count, location runs_on, unsigned place_count, block_grid units)
      : blocks_(block_count),
        copies_(std::size_t{block_count} * place_count),
        places_(place_count),
        device_(runs_on),
        grid_(units) {
    expects(!runs_on.is_host() && runs_on.index() < place_count, "the device where launches run is one of the places");
    for (unsigned at = 1; at != place_count; ++at) {
      places_[at].by_migration = detail::index_list{block_count};
      places_[at].migrated_at.resize(block_count);
    }
  }
  ~block_map() = default;
  block_map(const block_map&) = default;
  block_map& operator=(const block_map&) = default;

  [[nodiscard]] const block_copy* first_copy(block_id b) const {
    return copies_.data() + std::size_t{b.value} * places_.size();
  }
  [[nodiscard]] const block_copy& copy(block_id b, location at) const { return first_copy(b)[at.index()]; }
  [[nodiscard]] const block_copy& here(block_id b) const { return copy(b, device_); }
  [[nodiscard]] const place_ledger& ledger(location at) const { return places_[at.index()]; }

  sequence<block_record> blocks_;
  sequence<block_copy> copies_;  // of each block at each place
  sequence<place_ledger> places_;
  location device_;
  block_grid grid_;
  bool keeps_home_copy_ = false;
  bytes shortest_row_{};
};

}  // namespace v0
}  // namespace deepum
