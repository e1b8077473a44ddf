#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/host_workers.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// What a memory space can do. It stays as it is for as long as the space lives.
struct memory_capabilities {
  /// Nothing else moves blocks, and a launch that begins where a block is missing breaks the device: the engine holds
  /// launches back (docs/adr/0007). Else the driver brings what is missing.
  bool faults = true;
  /// The host keeps its contents while the device has a copy, so that what was not written need not be copied back.
  bool keeps_home_copy = false;
  /// Launches can touch rows of blocks where they are on the host (`advice::set_in_place`). A shorter row costs the
  /// link as much as one of so many bytes. 0: they cannot.
  bytes shortest_row{};
  std::uint32_t commands_in_flight = 2;             ///< on each link at a time: one moves, one is ready
  bytes bytes_in_flight{std::uint64_t{256} << 20};  ///< the same in bytes
};

/// Memory that an engine manages: what `cuda/` and `sim/` both provide.
///
/// A transfer is only enqueued: it never waits, never runs the program's code, and the migration thread alone starts
/// it. Each link works through its transfers in order, and the links are independent.
///
/// Threads: the migration thread, where nothing else is said. Cost of the abstraction: one indirect call for a transfer
/// of at least a block (docs/adr/0010).
class memory_space {
 public:
  memory_space(const memory_space&) = delete;
  memory_space& operator=(const memory_space&) = delete;
  virtual ~memory_space() = default;

  [[nodiscard]] const memory_capabilities& capabilities() const { return capabilities_; }
  /// Size of a block, a power of two. Threads: any.
  [[nodiscard]] bytes block() const { return block_; }
  /// First byte of the address range, aligned to a block. Threads: any.
  [[nodiscard]] virtual std::byte* base() const = 0;
  /// Length of the address range, whole blocks. Threads: any.
  [[nodiscard]] virtual bytes capacity() const = 0;
  /// The places that it has memory at, and the links between them. Threads: any.
  [[nodiscard]] const topology& places() const { return places_; }
  /// The device where launches run. Threads: any.
  [[nodiscard]] location place() const { return places_.runs_on(); }
  /// Device memory that is free now, of all processes. Threads: any.
  [[nodiscard]] virtual bytes free_memory() const = 0;
  /// Memory of a neighbour that could be taken now beside what is: what is free there, less what its owner is to have.
  /// Threads: any.
  [[nodiscard]] virtual bytes lendable(location /*at*/) const {
    return bytes{std::numeric_limits<std::uint64_t>::max() / 2};
  }

  /// @name Transfers
  /// @{

  /// Starts a transfer between two places (docs/adr/0013 has the table of what there is).
  ///
  /// It ends with completed or failed for its ticket. Before that comes arrived for blocks that a device got or has
  /// now, and departed for those that a device gave up; what is forgotten may be told of or not. Blocks without such an
  /// event stayed where they were. Where the space keeps no home copy, the driver sees to what has to be copied:
  /// `contents` is of no account there, and a copy that leaves the device's one is refused.
  ///
  /// Where it keeps one, blocks move as a whole, also on a fault. The engine may learn of launches late. So a launch
  /// begins only when its blocks are there and no release of them is under way, and none of its blocks leaves while it
  /// runs: a release that comes too late leaves the block where it is, and room that was overtaken by a fault is not
  /// made again. A launch may begin to write a block that is being copied to the host; the engine then does not rely on
  /// the copy. The program has to say what the host touches (docs/adr/0002). Where the space faults, it then awaits the
  /// transfers that move the blocks and gives up those that the host writes: departed, with the reason `host`.
  /// @returns  False where the call failed at once; then no event follows.
  virtual bool start(const transfer& what, std::uint64_t ticket) = 0;
  /// A hint for the driver. @returns  False where the call failed.
  ///
  /// Reports nothing, but for `advice::set_in_place` where the space never faults: `reachable` when launches find the
  /// host's memory of blocks that are not on the device, now and whenever they have left it, until the hint is taken
  /// back. That ends without a word where blocks arrive; the engine sees to it that no launch uses them then.
  /// `unreachable` where the memory cannot do it.
  virtual bool advise(block_range range, advice hint, location where) = 0;
  /// @}

  /// @name Events
  /// @{

  /// The time, on the clock of `device_event::at`. Threads: any.
  [[nodiscard]] virtual nanoseconds now() const = 0;
  /// Appends what happened since the last call, in order of time. Threads: any, one at a time.
  virtual void poll(std::vector<device_event>& events) = 0;
  /// There is work for the pump: have it run soon. Threads: any.
  virtual void notify() = 0;
  /// The same where a launch waits for the pump. Threads: any.
  virtual void hurry() { notify(); }
  /// @}

  /// @name Waiting
  /// How a thread of the program waits for what the pump and the device do (docs/adr/0011): it takes the count, looks
  /// whether it may go on, and waits from that count on. So nothing that happens in between is missed.
  /// @{

  /// Counts what may let a waiting thread go on. Threads: any.
  [[nodiscard]] virtual std::uint64_t happened() const = 0;
  /// Waits until something has happened since the count was `seen`, or `at_most` is over; then the pump looks, too. May
  /// return earlier. Threads: any but the pump's, without a lock.
  virtual void wait(std::uint64_t seen, nanoseconds at_most) = 0;
  /// @}

  /// @name Uploads
  /// @{

  /// Workers of the host that copy for uploads; null: threads will do. Threads: any.
  [[nodiscard]] virtual std::unique_ptr<detail::host_workers> make_workers(
      unsigned /*how_many*/,
      detail::host_workers::next_job /*source*/) {  // NOLINT(performance-unnecessary-value-param): workers keep it
    return nullptr;
  }
  /// Where the host writes bytes of blocks of which no device has anything; nullptr: it has no memory left. Threads:
  /// any but the pump's.
  [[nodiscard]] virtual std::byte* fill_address(bytes offset, bytes size) {
    return capabilities_.faults ? base() + offset.count : host_address(offset, size);
  }
  /// @}

  /// @name Of a space that faults
  /// @{

  /// False where page faults are not reported. Then a launch is taken to have brought all that it declares.
  [[nodiscard]] virtual bool sees_faults() const { return true; }
  /// Faults that happened and were not reported. Threads: any.
  [[nodiscard]] virtual std::uint64_t lost_faults() const { return 0; }
  /// Who reports faults, for statistics. Threads: any.
  [[nodiscard]] virtual std::string fault_source() const { return "device"; }
  /// Discarded blocks are in use again, and may be touched without being prefetched. Threads: any.
  virtual void repopulate(block_range /*range*/) {}
  /// The host touches bytes now: what is elsewhere moves to it first. Blocks. Threads: any but the pump's.
  virtual void host_access(bytes /*offset*/, bytes /*size*/, access /*mode*/) {}
  /// @}

  /// @name Of a space that never faults
  /// The host does not use the device's addresses. `host_address` gives it others, for blocks that the engine has
  /// brought to the host. Arrived means that launches may begin: what they have to wait for on the device is between
  /// the space and its streams.
  /// @{

  /// Where the host finds these bytes; nullptr: the host has no memory left. Stays until the blocks move. Threads: any.
  [[nodiscard]] virtual std::byte* host_address(bytes /*offset*/, bytes /*size*/) { return nullptr; }
  /// Blocks that the space may have room for on the device from now on.
  virtual void set_limit(std::uint64_t /*blocks*/) {}
  /// The host's copy of the blocks is of no use, until `host_address` is asked for it or a copy to the host begins.
  virtual void mark_stale(block_range /*range*/) {}
  /// Why a command failed, for people; empty: none did. Threads: any.
  [[nodiscard]] virtual std::string last_failure() const { return {}; }
  /// The last command failed for want of host memory. Threads: any.
  [[nodiscard]] virtual bool host_is_full() const { return false; }
  /// @}

  /// @name Checked mode, of a space that never faults
  /// Calls of `let_in` and `let_host_in` are counted for each block. Threads: any.
  /// @{

  /// Called before the space holds anything: from now on launches and the host find only the blocks that were let in.
  virtual void guard() {}
  virtual void let_in(const std::vector<block_access>& /*blocks*/) {}
  virtual void keep_out(const std::vector<block_access>& /*blocks*/) {}
  /// At the device's addresses.
  virtual void let_host_in(block_range /*range*/) {}
  virtual void keep_host_out(block_range /*range*/) {}
  /// @}

 protected:
  memory_space(const memory_capabilities& can, bytes block, topology all = {})
      : capabilities_(can),
        block_(block),
        places_(std::move(all)) {}

 private:
  const memory_capabilities capabilities_;
  const bytes block_;
  const topology places_;
};

}  // namespace v0
}  // namespace deepum
