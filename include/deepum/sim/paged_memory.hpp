#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/fifo.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/neighbour.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/error.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/copy_way.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/device_space.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/lent_memory.hpp>
#include <deepum/sim/paged_contents.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

/// Memory whose blocks are mapped and copied by command, as with CUDA's virtual memory management: nothing faults, and
/// nothing moves by itself.
///
/// A block with room and no contents reads as poison on the device. One that is dropped or discarded without a copy out
/// loses what the device wrote: the host's older contents come back. An operation on an unmapped block fails the device
/// (`stream::synchronize` throws). Where `device_options::host_limit` is reached, stale host copies become poison.
class paged_memory final : public device_space<address_space> {
 public:
  static constexpr memory_capabilities traits{.faults = false,
                                              .keeps_home_copy = true,
                                              .shortest_row = bytes{512},
                                              .commands_in_flight = 16,
                                              .bytes_in_flight = 128_MiB};

  /// @param capacity  Length of the address range, whole blocks.
  /// @param beside    Other devices of its machine, whose links to the host and whose memory it may use.
  /// @errors  `status::invalid_argument`, `status::out_of_host_memory`.
  paged_memory(device& owner, bytes capacity, const std::vector<neighbour>& beside = {});
  ~paged_memory() override;

  /// @name Commands of an engine
  /// See `memory_space`. Only queued, also when they are called from the pump.
  /// @{
  /// A block that is not on the device has nothing to forget: the host's memory costs nothing here.
  bool start(const transfer& what, std::uint64_t ticket) override;
  /// No driver takes advice here. Blocks that are in place and not on the device are found on the host.
  bool advise(block_range range, advice hint, location where) override;
  void mark_stale(block_range range) override;
  [[nodiscard]] std::byte* host_address(bytes offset, bytes size) override;
  [[nodiscard]] std::string last_failure() const override;
  [[nodiscard]] bool host_is_full() const override;
  [[nodiscard]] bytes lendable(location at) const override;
  /// @}

  /// @name Checked mode
  /// See `memory_space`.
  /// @{
  void guard() override;
  void let_in(const std::vector<block_access>& blocks) override;
  void keep_out(const std::vector<block_access>& blocks) override;
  void let_host_in(block_range range) override;
  void keep_host_out(block_range range) override;
  /// @}

 private:
  struct one_block {
    bool mapped = false;
    std::uint32_t copies = 0;       ///< from or to the device that are queued or under way
    std::uint32_t host_copies = 0;  ///< the same between the host and neighbours
    std::uint64_t writes = 0;       ///< by the device
    std::uint32_t let_in = 0;       ///< launches that may touch it, in checked mode
    bool on_host = false;           ///< it has memory of the host; counted where there is a limit
    bool stale = false;             ///< which may serve another block
    bool in_place = false;          ///< launches find it there whenever it is not mapped
    bool shown = false;             ///< they do now, also where it is to be brought next time
  };
  struct queued_copy {
    block_range range{};
    std::uint64_t ticket = 0;
    std::uint32_t begun = 0;  ///< blocks
    std::uint32_t done = 0;
    bool leaves = false;  ///< where they come from gives the blocks up when they have been copied
    bool part = false;    ///< of a command: the host has no memory for the rest, so that it fails
    nanoseconds began{};  ///< the first block
  };
  /// The copies of one route.
  struct queue {
    copy_way way;
    location from = location::host();
    location to = location::device();
    fifo<queued_copy> copies{};
    bool sending = false;  ///< a block is on the first line of the way, or waits for it
  };

  [[nodiscard]] one_block& at(block_id b);
  [[nodiscard]] std::string unmapped(block_id b) const { return "block " + std::to_string(b.value) + " is not mapped"; }
  [[nodiscard]] bool admits(block_id b) { return !guarded_ || at(b).let_in != 0; }

  // ---- what operations find ---------------------------------------------------------------------------------------

  [[nodiscard]] touch_result touch(const segment& s) override;
  [[nodiscard]] std::string refusal(const segment& s) const override;
  void before_body(const segment& s) override;
  void after_body(const segment& s) override;
  // ---- copies -----------------------------------------------------------------------------------------------------

  void queue_copy(queue& q, block_range range, std::uint64_t ticket, bool leaves, bool part = false);
  /// As many of the blocks as the host has memory for; if there are none the command fails.
  void queue_copy_out(const transfer& what, std::uint64_t ticket);
  /// A copy of the block is queued, or has ended.
  void count_copy(const queue& q, block_id b, std::int32_t one);
  /// The next block goes.
  void next(queue& q);
  [[nodiscard]] queued_copy* to_begin(queue& q);
  void finish(queue& q, block_id b, std::uint64_t writes_at_start, nanoseconds began);
  /// The bytes, and what the device has copied so far.
  void copy_bytes(const queue& q, block_id b, bool written_meanwhile);
  /// Where the engine said none, the usual one.
  [[nodiscard]] std::uint8_t route_of(const transfer& what) const;
  void tell_arrived(block_id b, std::uint64_t ticket, nanoseconds began);
  void end_block(queue& q);

  // ---- transfers of an engine -------------------------------------------------------------------------------------

  void forget(block_range range, std::uint64_t ticket);
  void drop(block_range range, location from, std::uint64_t ticket);
  void bring(const transfer& what, std::uint64_t ticket);
  void report(device_event::kind what, block_range range, std::uint64_t ticket, nanoseconds began = {});
  /// @returns  Whether the block has memory of the host.
  bool give_host_memory(block_id b);
  /// The memory that a block of no use has there is another one's now: what it held is lost.
  bool take_stale_memory();
  /// All of it or nothing; then the command has failed.
  bool give_memory(block_range range, location at, std::uint64_t ticket);
  void take_memory(block_range range, location at);
  /// Tells the engine which blocks launches find on the host now.
  void tell_reached(block_range range);
  void take_memory(block_range range);
  /// That of a place beside the device and the host; null: it lends none.
  [[nodiscard]] lent_memory* lent_at(location l) const {
    return l.index() >= location::device(1).index() && !lent_.empty()
               ? lent_[l.index() - location::device(1).index()].get()
               : nullptr;
  }

  sequence<one_block> blocks_;
  paged_contents held_;
  std::vector<std::unique_ptr<lent_memory>> lent_{};  // by neighbour
  bool guarded_ = false;
  std::uint32_t copies_ = 0;
  std::string last_failure_{};
  bool host_is_full_ = false;
  std::uint64_t host_blocks_ = 0;  // that have memory of the host
  std::uint32_t taken_last_ = 0;   // block that lost its memory
  sequence<queue> queues_;         // by route
};

/// The old name, for one version.
using mapped_memory [[deprecated("sim::paged_memory")]] = paged_memory;

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/paged_memory.hpp>  // what it declares
#endif
