#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/policy/plan.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

struct profile;

/// What a device has done since it was made.
struct device_counters {
  std::uint64_t launches = 0;  ///< kernels, copies and fills that ended
  std::uint64_t fault_batches = 0;
  std::uint64_t faulted_blocks = 0;    ///< one for each block of each batch
  std::uint64_t late_blocks = 0;       ///< an operation waited for a block that was moving already
  std::uint64_t driver_evictions = 0;  ///< blocks that the driver evicted to make room
  bytes in_by_fault{};                 ///< moved over the links, by cause
  bytes in_by_command{};
  bytes in_remote{};
  bytes out_by_driver{};
  bytes out_by_command{};
  bytes out_by_host{};
  nanoseconds stalled{};  ///< operations waited for blocks
};

/// One block as the driver of managed memory sees it.
struct block_record {
  enum class motion : std::uint8_t { none, arriving, leaving };
  enum class preference : std::uint8_t { none, host, device };

  std::uint32_t on_device =
      0;                      ///< pages with a current copy on the device; in neither mask: never written, or discarded
  std::uint32_t on_host = 0;  ///< in both masks: read-mostly copies
  motion moving = motion::none;
  preference preferred = preference::none;
  bool room = false;  ///< a block of device memory belongs to it
  bool read_mostly = false;
  bool accessed_by = false;    ///< the device has a mapping of what is on the host
  bool mapped = false;         ///< the same, because a fault set it up
  std::uint64_t migrated = 0;  ///< place in the order of migration while it has room

  /// Pages that an access with `mode` cannot use on the device as they are.
  [[nodiscard]] std::uint32_t missing(std::uint32_t pages, access mode) const;
};

/// An address range whose blocks the driver moves.
class managed_space : public address_space {
 public:
  using address_space::address_space;

  [[nodiscard]] block_record& operator[](block_id b) { return blocks_[b.value]; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size()); }
  [[nodiscard]] managed_space* managed() override { return this; }

  [[nodiscard]] touch_result touch(const segment& s) override;

 private:
  std::vector<block_record> blocks_{capacity() / block_size};
};

/// A command of the engine that waits for its turn.
struct device_command {
  managed_space* space = nullptr;
  action what = action::prefetch;
  advice hint = advice::none;
  location to = location::device();
  block_range range{};
  std::uint64_t ticket = 0;
  std::uint32_t stop_at = 0xffffffffU;  ///< the command fails when it comes to this block of its range
  std::uint32_t done = 0;               ///< blocks behind it
  bytes moved{};
};

/// The unified-memory driver of one device, for all managed memory on it: residency, page faults, migration, eviction.
///
/// It follows nvidia-uvm (open-gpu-kernel-modules) and the papers about it: faults are served batch by batch and, in a
/// batch, block by block; a fault brings in the largest part of its block of which more than half is wanted (Allen &
/// Ge, SC'21); when device memory is full the block that was migrated least recently is evicted, on the path of whoever
/// needs the room. Not synchronised: used under the lock of the event loop.
class driver {
 public:
  using action_type = event_loop::action;

  driver(event_loop& loop, const profile& p);

  /// Ends the batch that waits for it: called when a page fault cannot be served.
  using fault_result = std::function<void(bool served)>;

  [[nodiscard]] link& in() { return in_; }
  [[nodiscard]] link& out() { return out_; }
  [[nodiscard]] device_counters& counters() { return counters_; }
  [[nodiscard]] std::uint32_t free_rooms() const { return rooms_ > used_ + foreign_ ? rooms_ - used_ - foreign_ : 0; }
  /// Device memory that others hold: the driver cannot evict it.
  void set_foreign(bytes size);

  /// @name Operations that are executing
  /// @{
  void begin(const walk& w);
  void end(const walk& w);
  [[nodiscard]] const walk* active_with(const address_space& space, block_id b) const;
  /// @}

  // ---- room -------------------------------------------------------------------------------------------------------

  enum class room : std::uint8_t { taken, later, refused };

  /// Takes one block of device memory, evicting what was migrated least recently where there is none.
  /// @param retry  Called after `room::later`, when it is worth to ask again; the world may have changed by then.
  [[nodiscard]] room take_room(urgency who, const action_type& retry);
  void give_room();

  // ---- faults -----------------------------------------------------------------------------------------------------

  /// The operation misses pages at its position. `resume(true)` when they came; `resume(false)` when there is no room.
  void fault(walk& w, fault_result resume);

  // ---- commands ---------------------------------------------------------------------------------------------------

  /// Queues a command. Prefetches and advice are one order, evictions and discards another.
  void submit(const device_command& c);
  /// No command of this space is queued or executing, and none of its blocks moves.
  [[nodiscard]] bool quiet(managed_space& space) const;
  /// The space goes away: what it holds is free.
  void forget(managed_space& space);

  // ---- the host ---------------------------------------------------------------------------------------------------

  /// The host reads or writes pages of a block. Returns when it may: they have moved to the host, if they had to.
  void host_access(event_loop::host_call& call, managed_space& space, block_id b, std::uint32_t pages, access mode);

 private:
  struct resident_block {
    managed_space* space = nullptr;
    block_id block{};
  };
  struct faulted_block {
    resident_block at{};
    std::uint32_t pages = 0;
    access mode = access::read;
  };
  struct fault_request {
    walk* who = nullptr;
    fault_result resume{};
  };
  struct direction {
    std::deque<device_command> queue{};
    bool busy = false;
  };

  [[nodiscard]] static std::uint32_t blocks(bytes size);
  [[nodiscard]] static bytes size_of(std::uint32_t pages);
  /// @param began  When the copy began; 0 where nothing was copied.
  [[nodiscard]] static device_event departed(block_id b, reason why, std::uint64_t ticket, nanoseconds began = {});
  static void finish(const device_command& c, bool failed);

  // ---- motion -----------------------------------------------------------------------------------------------------

  void start(block_record& r, block_record::motion m);
  void stop(block_record& r);
  void make_newest(managed_space& space, block_id b);
  /// The device gives the block up, whatever it holds.
  void release(managed_space& space, block_id b);
  [[nodiscard]] nanoseconds out_time(bytes n) const;

  /// Copies to the host what only the device has; the device keeps its copy.
  void copy_out(urgency who, managed_space* space, block_id b, bytes& counter, const action_type& done);
  /// The same, and then the device gives the block up.
  void bring_out(urgency who, managed_space* space, block_id b, bytes& counter, const action_type& done);
  /// Pages of a block that has room are on the device now.
  /// @param began  When the copy began; 0 where nothing was copied.
  void settle(managed_space& space, block_id b, std::uint32_t pages, access mode, reason why, std::uint64_t ticket,
              nanoseconds began = {});

  // ---- fault service ----------------------------------------------------------------------------------------------

  [[nodiscard]] bool in_batch(const resident_block& x) const;

  /// The largest parts of the block, in powers of two pages, that hold a wanted page and of which more than half is
  /// wanted or there (the driver's density prefetcher).
  [[nodiscard]] static std::uint32_t with_neighbours(std::uint32_t wanted, std::uint32_t there);

  void next_batch();

  /// The pages that the operation misses next, in the order in which it touches them.
  void collect(const walk& w);
  void serve(std::size_t i);

  /// @param served  Blocks of the batch that came; the others will fault again.
  void end_batch(std::size_t served);

  // ---- commands ---------------------------------------------------------------------------------------------------

  void next_command(direction& d);
  void end_command(direction& d, bool failed);
  void next_block(direction& d);
  void prefetch_block(direction& d, device_command& c, block_id b);
  void evict_block(direction& d, device_command& c, block_id b);
  void discard_block(direction& d, block_id b);
  void advise_block(direction& d, block_id b);

 public:
  /// What was discarded under the operation: what it wrote is lost as well.
  void poison_after(const walk& w);

 private:
  event_loop& loop_;
  const profile& profile_;
  link in_;
  link out_;
  device_counters counters_;

  std::uint32_t rooms_;  ///< blocks of device memory
  std::uint32_t used_ = 0;
  std::uint32_t foreign_ = 0;
  std::uint32_t moving_ = 0;  ///< blocks that move
  std::uint64_t order_ = 0;
  nanoseconds copied_since_{};                        ///< of the copy to the host that ended last
  std::map<std::uint64_t, resident_block> migrated_;  ///< least recently migrated first

  bool serving_ = false;
  std::deque<fault_request> requests_;
  std::vector<faulted_block> batch_;
  direction inward_;
  direction outward_;
  std::vector<const walk*> active_;
  std::vector<std::pair<const walk*, resident_block>> poison_later_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/driver.hpp>  // what it declares
#endif
