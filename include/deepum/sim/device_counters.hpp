#pragma once

#include <deepum/units.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace sim {

/// What a device has done since it was made.
struct device_counters {
  std::uint64_t launches = 0;  ///< kernels, copies and fills that ended
  std::uint64_t fault_batches = 0;
  std::uint64_t faulted_blocks = 0;    ///< one for each block of each batch
  std::uint64_t late_blocks = 0;       ///< an operation waited for a block that was moving already
  std::uint64_t driver_evictions = 0;  ///< blocks that the driver evicted to make room
  bytes in_by_fault{};                 ///< moved over the links, by cause
  bytes in_by_command{};
  bytes in_remote{};   ///< read in place
  bytes out_remote{};  ///< written in place
  bytes out_by_driver{};
  bytes out_by_command{};
  bytes out_by_host{};
  bytes to_peers{};       ///< copied from one device to another, by streams of this one
  nanoseconds stalled{};  ///< operations waited for blocks
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
