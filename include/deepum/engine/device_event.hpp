#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/units.hpp>

#include <cstdint>

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
    reachable,        ///< launches find the host's memory of `range`, which is in place
    unreachable,      ///< the memory cannot do that: `range` is not in place any more
    launch_issued,    ///< of the engine, for observers: `record` was submitted
    launch_released,  ///< of the engine, for observers: `launch` was held back from `began` on, while nothing executed
    launch_refused,   ///< of the engine, for observers: `launch`, which was issued, will never begin
    copied,  ///< for observers: `range`, which had arrived before, was copied to the device from `began` to `at`
    died,    ///< of the engine, for observers: the contents of `range` are dead; `launch` is the last to use them
  };
  kind what = kind::completed;
  access mode = access::read;
  std::uint32_t pages = 0;       ///< fault: which 64 KiB of the block, as bits; 0: not known
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
  std::uint64_t ticket = 0;  ///< as given with the command
  bytes read_in_place{};     ///< for observers, launch_finished: rows that it read on the host, as far as it said
  bytes written_in_place{};  ///< the same, written
  transfer did{};  ///< for observers, with a ticket: the transfer; `range` are the blocks of it that the event is about
  const launch_record* record = nullptr;  ///< launch_issued: of the launch, during the call
  bytes block{};                          ///< for observers: size of a block of the arena
  std::uint32_t period = 0;  ///< launch_issued: launches of the step that the policy had recognised by then; 0: none
};

}  // namespace v0
}  // namespace deepum
