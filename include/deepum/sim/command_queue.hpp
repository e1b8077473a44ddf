#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/sim/active_walks.hpp>
#include <deepum/sim/device_memory.hpp>
#include <deepum/sim/managed_space.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <deque>

namespace deepum {
inline namespace v0 {
namespace sim {

/// A command of the engine that waits for its turn.
struct device_command {
  managed_space* space = nullptr;
  transfer what{};
  advice hint = advice::none;  ///< about `what.to`
  bool is_hint = false;        ///< else it is the transfer
  block_range range{};
  std::uint64_t ticket = 0;
  std::uint32_t stop_at = 0xffffffffU;  ///< the command fails when it comes to this block of its range
  std::uint32_t done = 0;               ///< blocks behind it
  bytes moved{};
};

/// One order of commands for managed memory: carries them out one by one, block by block. A device has two, one for
/// prefetches and advice and one for evictions and discards.
///
/// Not synchronised: used under the lock of the event loop.
class command_queue {
 public:
  command_queue(device_memory& of_device, active_walks& walks) : memory_(of_device), walks_(walks) {}

  void submit(const device_command& c);
  /// Whether a command of this space is queued or executing.
  [[nodiscard]] bool has_any_of(const managed_space& space) const;

 private:
  /// Goes on with the first command, at the block that it has come to.
  void next_command();
  void end_command(bool failed);
  void next_block();

  void prefetch_block(device_command& c, managed_block b);
  void evict_block(const device_command& c, managed_block b);
  void discard_block(managed_block b);
  void advise_block(managed_block b);
  /// The block is where the command wants it.
  void pass_block();
  /// Two copies of a read-mostly block become one: the preferred one stays, else the host's.
  void end_duplication(managed_block b, std::uint64_t ticket);

  device_memory& memory_;
  active_walks& walks_;
  std::deque<device_command> queue_{};
  bool busy_ = false;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/command_queue.hpp>  // what it declares
#endif
