#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/policy/plan.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Something that happened on the device, as the engine learns it.
struct device_event {
  enum class kind : std::uint8_t {
    launch_finished,  ///< `launch`
    fault,            ///< `range.first` faulted with `mode`, at `at`. No launch: hardware does not tell which.
    arrived,          ///< `range` is on the device; by command (`ticket`) or by the driver on a fault (ticket 0)
    departed,         ///< `range` left the device; by command (`ticket`) or by the driver (ticket 0)
    completed,        ///< the command `ticket` is done as a whole
    failed,           ///< the command `ticket` failed; blocks without an arrived/departed event stayed where they were
    launch_issued,    ///< of the engine, for observers: `record` was submitted
    launch_released,  ///< of the engine, for observers: `launch` was held back from `began` on, while nothing executed
    launch_refused,   ///< of the engine, for observers: `launch`, which was issued, will never begin
    copied,  ///< for observers: `range`, which had arrived before, was copied to the device from `began` to `at`
  };
  kind what = kind::completed;
  access mode = access::read;
  reason why = reason::fault;    ///< arrived/departed without a ticket: fault, make_room (driver's eviction), host
  bool host_copy_stays = false;  ///< arrived: the host's copy stays current
  bool timed = true;             ///< launch_finished: `at` is when it finished, not only when that was noticed; fault:
                                 ///< the launches that have not finished by then are known
  launch_id launch{};
  block_range range{};
  nanoseconds at{};       ///< device clock
  nanoseconds began{};    ///< launch_finished: when it began to execute; arrived, departed, and completed for a clean:
                          ///< when the copy began (0 where unknown, or where nothing was copied)
  nanoseconds stalled{};  ///< launch_finished: how long it waited for blocks (0 where unknown)
  std::uint64_t ticket = 0;       ///< as given with the command
  action did = action::prefetch;  ///< for observers, with a ticket: what the command was to do; `why` is its reason
  const launch_record* record = nullptr;  ///< launch_issued: of the launch, during the call
};

/// Memory that an engine can manage: what `cuda/` and `sim/` both provide.
///
/// Commands are only enqueued: they never wait, never run the program's code, and may be called from the migration
/// thread alone. They return false where the call failed at once (then no event follows). Each direction works through
/// its commands in order; the two directions are independent.
template <class M>
concept memory_kind = requires(M m, const M& c, block_range r, location l, std::uint64_t ticket, advice hint,
                               std::vector<device_event>& events) {
  { c.base() } -> std::same_as<std::byte*>;         // first byte, aligned to a block
  { c.capacity() } -> std::same_as<bytes>;          // length of the address range, whole blocks
  { c.place() } -> std::same_as<location>;          // the device
  { c.free_memory() } -> std::same_as<bytes>;       // device memory that is free now (of all processes)
  { m.prefetch(r, ticket) } -> std::same_as<bool>;  // to the device
  { m.evict(r, ticket) } -> std::same_as<bool>;     // to the host
  { m.discard(r, ticket) } -> std::same_as<bool>;   // contents are dead; room is given up
  { m.advise(r, hint, l) } -> std::same_as<bool>;
  { c.now() } -> std::same_as<nanoseconds>;  // the time, on the clock of `device_event::at`
  { m.poll(events) } -> std::same_as<void>;  // appends what happened since, in order of time
  { m.notify() } -> std::same_as<void>;      // there is work for the pump: have it run soon. From any thread
};

/// What a memory kind may have beside that, and what the engine does then:
///
/// * `commands_in_flight`, `bytes_in_flight`: what it wants to be given on each link at a time.
/// * `sees_faults() -> bool`: false where nobody tells of page faults. Then a launch is taken to have brought what it
///   declares, all of it.
/// * `lost_faults() -> std::uint64_t`, `fault_feed() -> std::string`: for statistics.
/// * `hurry()`: as `notify`, for when a launch waits for the pump.
/// * `renew(block_range)`: discarded blocks are in use again, and may be touched without being prefetched.
/// * `block() -> bytes`: size of its blocks, a power of two; else `block_size`.
/// * `guard()`, before it holds anything: from then on (checked mode) a launch finds only the blocks that were let in
///   with `let_in(accesses)`, until `keep_out(accesses)`, and the host, at the device's addresses, only those of
///   `let_host_in(block_range)`, until `keep_host_out(block_range)`. Calls of both are counted for each block.
/// * `capture_guard`: a type; while one lives, what its thread does is part of no capture of the program's.
namespace detail {
template <class M>
concept chooses_its_depth = requires {
  { M::commands_in_flight } -> std::convertible_to<std::uint32_t>;
  { M::bytes_in_flight } -> std::convertible_to<bytes>;
};
template <class M>
concept may_miss_faults = requires(const M& c) {
  { c.sees_faults() } -> std::same_as<bool>;
  { c.lost_faults() } -> std::same_as<std::uint64_t>;
  { c.fault_feed() } -> std::convertible_to<std::string>;
};
template <class M>
concept can_hurry = requires(M m) { m.hurry(); };
template <class M>
concept renews_blocks = requires(M m, block_range r) { m.renew(r); };
template <class M>
concept chooses_its_block = requires(const M& c) {
  { c.block() } -> std::same_as<bytes>;
};
template <class M>
concept guards_addresses = requires(M m, block_range r, const std::vector<block_access>& blocks) {
  m.guard();
  m.let_in(blocks);
  m.keep_out(blocks);
  m.let_host_in(r);
  m.keep_host_out(r);
};
/// Size of the memory's blocks.
template <memory_kind M>
[[nodiscard]] bytes block_of(const M& memory) {
  if constexpr (chooses_its_block<M>) {
    return memory.block();
  } else {
    return block_size;
  }
}
}  // namespace detail

/// Memory whose contents on the host stay where they are while the device has a copy, so that what was not written need
/// not be copied back.
///
/// `populate` copies nothing. It and `drop` end like `prefetch` and `evict`: with arrived or departed for their blocks,
/// and completed. `clean` ends with completed or failed alone. Blocks move as a whole, also on a fault.
///
/// What the engine knows of launches may be late. So a launch begins only when its blocks are there and no drop of them
/// is under way, and none of its blocks leaves while it runs: a command that comes too late leaves the block where it
/// is, and one that was overtaken by a fault does not populate the block again. A launch may begin to write a block
/// that is being cleaned; the engine then does not rely on the copy.
///
/// What the host touches, the program has to say (docs/adr/0002). The memory then awaits the commands that move the
/// blocks and gives up those that the host writes, as managed memory does: departed, with the reason `host`.
template <class M>
concept backed_memory_kind = memory_kind<M> && requires(M m, block_range r, std::uint64_t ticket) {
  { m.populate(r, ticket) } -> std::same_as<bool>;  // room on the device for contents that are yet to be written
  { m.clean(r, ticket) } -> std::same_as<bool>;     // copy to the host, the device keeps its copy
  { m.drop(r, ticket) } -> std::same_as<bool>;      // give the room up without a copy
};

/// Backed memory that nobody moves but the engine: a launch that begins where a block is missing breaks the device. So
/// the engine does itself what a driver does on a page fault, and holds every launch back until all that it declares is
/// there (docs/adr/0007). Arrived means that launches may begin: what `order_after_arrival` makes them wait for is the
/// memory's business, and the stream's.
///
/// The host does not use the arena's addresses. It is given others by `host_address`, for blocks that the engine has
/// brought to the host.
template <class M>
concept faultless_memory_kind =
    backed_memory_kind<M> && requires(M m, const M& c, block_range r, bytes offset, std::uint64_t blocks) {
      { M::faultless } -> std::convertible_to<bool>;
      // Where the host finds these bytes; nullptr: the host has no memory left. Stays until the blocks move.
      { m.host_address(offset, offset) } -> std::same_as<std::byte*>;
      { m.set_limit(blocks) } -> std::same_as<void>;  // blocks that it may have room for on the device from now on
      // The host's copy of the blocks is of no use, until `host_address` is asked for it or a copy to the host begins.
      { m.outdated(r) } -> std::same_as<void>;
      { c.last_failure() } -> std::convertible_to<std::string>;  // of a command, for people; empty: none
      { c.host_is_full() } -> std::same_as<bool>;                // the last command failed for want of host memory
    };

}  // namespace v0
}  // namespace deepum
