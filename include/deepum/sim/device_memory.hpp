#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/sim/device_counters.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/managed_space.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <map>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

struct profile;

/// The memory of one device and its links to the host: how many blocks have room, in which order they were migrated,
/// and how their contents move. Faults and commands decide what moves; both find the rooms here.
///
/// Not synchronised: used under the lock of the event loop.
class device_memory {
 public:
  using action_type = event_loop::action;

  /// @param shared  As `link` has it.
  device_memory(event_loop& loop, const profile& rates, host_bandwidth* shared = nullptr);

  [[nodiscard]] event_loop& loop() { return loop_; }
  [[nodiscard]] const profile& costs() const { return profile_; }
  [[nodiscard]] link& in() { return in_; }
  [[nodiscard]] link& out() { return out_; }
  [[nodiscard]] device_counters& counters() { return counters_; }

  /// @name Rooms: blocks of device memory
  /// @{
  enum class room : std::uint8_t { taken, later, refused };

  [[nodiscard]] std::uint32_t free_rooms() const { return rooms_ > used_ + foreign_ ? rooms_ - used_ - foreign_ : 0; }
  /// Rooms that a fault could have: those that are free, and those of managed blocks.
  [[nodiscard]] std::uint32_t rooms_to_have() const {
    return free_rooms() + static_cast<std::uint32_t>(migrated_.size());
  }
  /// Device memory that others hold: nothing of it can be evicted.
  void set_foreign(bytes size);
  /// Takes one, evicting the block that was migrated least recently where none is free.
  /// @param retry  Called after `room::later`, when it is worth to ask again; the world may have changed by then.
  [[nodiscard]] room take_room(urgency who, const action_type& retry);
  void give_room();
  /// As `take_room`, and then it is the block's.
  [[nodiscard]] room take_room_for(managed_block b, urgency who, const action_type& retry);
  /// These blocks are being served on behalf of a fault: they keep their room until the next call.
  void keep(sequence<managed_block> served) { kept_ = std::move(served); }
  /// @}

  /// @name Motion
  /// @{
  void start(block_record& r, block_record::motion m);
  void stop(block_record& r);
  void make_newest(managed_block b);
  /// The device gives the block up, whatever it holds.
  void release(managed_block b);
  /// Copies to the host what only the device has; the device keeps its copy.
  void copy_out(urgency who, managed_block b, bytes& counter, const action_type& done);
  /// The same, and then the device gives the block up and says so.
  /// @param why, ticket  Of the event.
  void bring_out(urgency who, managed_block b, bytes& counter, reason why, std::uint64_t ticket,
                 const action_type& done);
  /// Pages of a block that has room are on the device now.
  /// @param began  When the copy began; 0 where nothing was copied.
  void settle(managed_block b, std::uint32_t pages, access mode, reason why, std::uint64_t ticket,
              nanoseconds began = {});
  /// The device has the block no more.
  /// @param began  As above.
  static void tell_departed(managed_block b, reason why, std::uint64_t ticket, nanoseconds began = {});
  /// @}

  [[nodiscard]] static bytes size_of(std::uint32_t pages);

 private:
  [[nodiscard]] static std::uint32_t blocks(bytes size);
  [[nodiscard]] bool is_kept(managed_block b) const;
  [[nodiscard]] nanoseconds out_time(bytes n) const;

  event_loop& loop_;
  const profile& profile_;
  link in_;
  link out_;
  device_counters counters_;

  std::uint32_t rooms_;
  std::uint32_t used_ = 0;
  std::uint32_t foreign_ = 0;
  std::uint32_t moving_ = 0;  ///< blocks that move
  std::uint64_t order_ = 0;
  nanoseconds copied_since_{};                       ///< of the copy to the host that ended last
  std::map<std::uint64_t, managed_block> migrated_;  ///< least recently migrated first
  sequence<managed_block> kept_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/device_memory.hpp>  // what it declares
#endif
