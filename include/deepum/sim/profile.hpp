#pragma once

#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

/// A measured size and the time that one call of that size takes.
struct transfer_point {
  bytes size{};
  nanoseconds time{};
};

/// The part of the link's rate at which rows of a size, or of more, are read in place.
struct row_share {
  bytes row{};
  double share = 1;
};

/// Time to move `n` bytes at `rate` bytes a second.
[[nodiscard]] DEEPUM_SEPARATE nanoseconds time_at(bytes n, double rate);

/// The point at which a call of size `n` reaches `rate` bytes a second.
[[nodiscard]] inline transfer_point measured_at(bytes n, double rate) { return {n, time_at(n, rate)}; }

/// What a simulated GPU, its links and its driver cost. Plain data: copy one and change a field to ask "what if".
///
/// Rates are in bytes (or operations) a second, decimal as data sheets give them.
struct profile {
  std::string name{};
  bytes memory{};  ///< device memory that a program can have

  // Compute. The time of a kernel is launch_latency + max(flops / (peak_flops * efficiency), bytes / memory_bandwidth).
  double peak_flops = 0;            ///< of the type that the kernels compute in (FP32 without tensor cores)
  double flops_efficiency = 0;      ///< share of the peak that a good kernel reaches
  double memory_bandwidth = 0;      ///< of device memory
  double slowdown_beside_copy = 1;  ///< factor on compute while a link moves data
  nanoseconds launch_latency{};     ///< on the device, before each kernel

  // Host.
  nanoseconds host_launch{};          ///< a launch or copy costs the calling thread
  nanoseconds host_record{};          ///< event record
  nanoseconds host_wait{};            ///< stream waits for an event
  nanoseconds host_query{};           ///< asking whether something is done
  nanoseconds worker_wake_up{};       ///< from a notification until the migration thread runs
  std::uint32_t launch_queue = 1024;  ///< operations a stream holds before the launching thread has to wait

  // Links. A call moves its blocks one by one; its total time follows the line through the measured points.
  std::array<transfer_point, 3> prefetch_in{};  ///< one call of prefetch to the device, by size, in rising order
  double link_in = 0;                           ///< one block on its way in, without the costs of a call
  double prefetch_out = 0;                      ///< prefetch to the host and the driver's evictions
  double prefetch_out_beside_in = 0;            ///< the same while the link in is busy
  double pageable = 0;                          ///< copies from and to pageable host memory
  double host_copy = 9.8e9;                     ///< one thread of the host copies from memory into pinned memory
  double host_copies = 51e9;                    ///< all threads of the host together
  double remote = 0;                            ///< reads and writes of host memory by the GPU, in place
  std::array<row_share, 2> managed_rows{};      ///< of rows of managed memory, ascending; below the first it falls
  std::array<row_share, 4> chunk_rows{};        ///< the same of chunks of the host (paged memory)
  double pinned = 0;                            ///< one direction of explicit copies (paged memory)
  double pinned_both = 0;                       ///< each direction, both at once

  // The machine that it is one of. Links between devices have no part in a `device` alone.
  unsigned devices = 1;
  double peer = 0;         ///< what a device sends to the others, and what it gets from them, each way at a time
  double host_memory = 0;  ///< what the links of all devices to the host carry together; 0: as much as they can

  // Page faults of the GPU. A batch costs fault_batch, each block in it fault_block + pages * fault_page + its
  // transfer.
  std::uint32_t fault_entries = 256;   ///< entries of a batch
  std::uint32_t fault_duplicates = 1;  ///< entries that name the same 64 KiB page, on average
  bytes fault_window{};                ///< how far ahead in touch order running threads fault at the same time
  nanoseconds fault_batch{};
  nanoseconds fault_block{};
  nanoseconds fault_page{};

  // Other calls of the driver.
  nanoseconds populate_block{};  ///< room for a block without contents, zeroed
  nanoseconds discard_block{};
  nanoseconds pass_block{};       ///< a call comes to a block that is where it should be
  nanoseconds duplicate_block{};  ///< a block on the host becomes read-mostly: its mappings there change
  nanoseconds drop_block{};       ///< the device's copy of a read-mostly block goes
  nanoseconds advise_call{};
  nanoseconds host_fault{};           ///< page fault of the host on a block that is on the device, without its transfer
  nanoseconds host_populate_block{};  ///< first touch of a block by the host
};

/// Time that one prefetch call to the device takes, which moves `n` bytes: the line through the measured points.
[[nodiscard]] DEEPUM_SEPARATE nanoseconds prefetch_time(const profile& p, bytes n);

/// Useful bytes a second of rows that are read or written in place.
/// @param chunks  In chunks of the host, else in managed memory.
[[nodiscard]] DEEPUM_SEPARATE double row_rate(const profile& p, bytes row, bool chunks);

/// The names that `find_profile` knows; the first one is the default.
[[nodiscard]] DEEPUM_SEPARATE std::vector<std::string> profile_names();

/// The profile of that name.
/// @errors  `status::invalid_argument`, with all names, where there is none.
[[nodiscard]] DEEPUM_SEPARATE const profile& find_profile(std::string_view name);

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/profile.hpp>  // what it declares
#endif
