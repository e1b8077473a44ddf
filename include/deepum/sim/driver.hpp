#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/sim/active_walks.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/command_queue.hpp>
#include <deepum/sim/device_counters.hpp>
#include <deepum/sim/device_memory.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/fault_service.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/managed_space.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

struct profile;

/// The unified-memory driver of one device, for all managed memory on it: residency, page faults, migration, eviction.
///
/// It follows nvidia-uvm (open-gpu-kernel-modules) and the papers about it: faults are served batch by batch and, in a
/// batch, block by block; a fault brings in the largest part of its block of which more than half is wanted (Allen &
/// Ge, SC'21); when device memory is full the block that was migrated least recently is evicted, on the path of what
/// needs the room. Not synchronised: used under the lock of the event loop.
class driver {
 public:
  using action_type = event_loop::action;
  using room = device_memory::room;

  /// @param shared  As `link` has it.
  driver(event_loop& loop, const profile& rates, host_bandwidth* shared = nullptr) : memory_(loop, rates, shared) {}

  [[nodiscard]] link& in() { return memory_.in(); }
  [[nodiscard]] link& out() { return memory_.out(); }
  [[nodiscard]] device_counters& counters() { return memory_.counters(); }

  /// @name Device memory
  /// See `device_memory`.
  /// @{
  [[nodiscard]] std::uint32_t free_rooms() const { return memory_.free_rooms(); }
  void set_foreign(bytes size) { memory_.set_foreign(size); }
  [[nodiscard]] room take_room(urgency who, const action_type& retry) { return memory_.take_room(who, retry); }
  void give_room() { memory_.give_room(); }
  /// @}

  /// @name Operations that are executing
  /// See `active_walks`.
  /// @{
  void begin(const walk& w) { walks_.begin(w); }
  void end(const walk& w) { walks_.end(w); }
  [[nodiscard]] const walk* active_with(const address_space& space, block_id b) const { return walks_.with(space, b); }
  /// The operation misses pages at its position.
  void fault(walk& w, fault_service::result resume) { faults_.fault(w, std::move(resume)); }
  /// @}

  /// Queues a command. Prefetches and advice are one order, evictions and discards another.
  void submit(const device_command& c);
  /// No command of this space is queued or executing, and none of its blocks moves.
  [[nodiscard]] bool quiet(managed_space& space) const;
  /// The space goes away: what it holds is free.
  void forget(managed_space& space);

  /// The host reads or writes pages of a block. Returns when it may: they have moved to the host, if they had to.
  void host_access(event_loop::host_call& call, managed_space& space, block_id b, std::uint32_t pages, access mode);

 private:
  device_memory memory_;
  active_walks walks_;
  fault_service faults_{memory_};
  command_queue inward_{memory_, walks_};
  command_queue outward_{memory_, walks_};
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/driver.hpp>  // what it declares
#endif
