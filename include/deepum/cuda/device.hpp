#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace deepum {
inline namespace v0 {
namespace cuda {

class managed_memory;

/// What a device is.
struct device_properties {
  std::string name{};
  bytes memory{};
  int ordinal = 0;
  int compute_capability = 0;              ///< 90 for 9.0
  bool concurrent_managed_access = false;  ///< pages move while kernels run
  int driver_version = 0;                  ///< newest CUDA that the driver knows: 13000 for 13.0
  int runtime_version = 0;                 ///< of the runtime that the program was linked with
};

/// Which thread of the driver's do migrations disturb.
enum class migration_context : std::uint8_t {
  /// Three contexts beside the program's, one to the device and two to the host. A prefetch call holds a lock of its
  /// context, which launches need too; to the host that is for the whole copy (docs/adr/0006). Costs about 0.5 GiB of
  /// device memory each.
  own,
  /// The program's own: no memory, and launches wait for up to a piece of a migration, some milliseconds.
  shared,
};

/// Where page faults are learned from.
enum class fault_source : std::uint8_t {
  automatic,  ///< the best that works: the driver's events, CUPTI, nothing; DEEPUM_FAULT_FEED in the environment
              ///< overrides it
  driver,     ///< /dev/nvidia-uvm-tools, by kernel-helper/
  cupti,      ///< the unified-memory counters of CUPTI: late, and slower
  none,
};

/// What is at the addresses of contents of paged memory that are not on the device.
enum class evicted_chunks : std::uint8_t {
  unmapped,     ///< nothing: a launch that touches what it did not declare breaks the device
  host_mapped,  ///< the host's copy, through the link: such a launch is slow, and remapping is too
};

class fault_feed;
/// Makes a feed for a range of managed memory.
using fault_feed_maker = std::function<std::unique_ptr<fault_feed>(std::byte*, bytes)>;

/// What a chunk of paged memory may have.
inline constexpr bytes smallest_chunk = 2_MiB;
inline constexpr bytes largest_chunk = 32_MiB;

/// How a device is used.
struct device_options {
  /// @name Managed memory
  /// @{
  migration_context migrations = migration_context::own;
  fault_source faults = fault_source::automatic;
  /// @}

  /// @name Paged memory
  /// @{
  /// Size of its blocks: a power of two, 2 to 32 MiB (docs/adr/0007). DEEPUM_CHUNK in the environment overrides it.
  bytes chunk = 16_MiB;
  evicted_chunks evicted = evicted_chunks::unmapped;
  bytes host_limit{};  ///< host memory to hold at most; 0: what the host gives
  /// @}
};

/// A GPU that the CUDA runtime drives.
///
/// Threads: all members, any thread.
class device {
 public:
  using default_memory = managed_memory;

  /// Makes it the calling thread's current device, as `make_current` does. Nothing else in the library changes a
  /// thread's current device: the bodies of launches find this one current, on every thread.
  /// @param ordinal  As CUDA counts them, after CUDA_VISIBLE_DEVICES.
  /// @errors  `status::unsupported` where there is no such device, `status::device_failure`.
  explicit device(int ordinal = 0, device_options options = {});
  /// The same with another feed than the one of `device_options::faults`, for tools and tests.
  device(int ordinal, device_options options, fault_feed_maker feed);
  device(const device&) = delete;
  device& operator=(const device&) = delete;

  [[nodiscard]] const device_properties& properties() const { return properties_; }
  [[nodiscard]] const device_options& options() const { return options_; }
  /// As CUDA counts devices.
  [[nodiscard]] int ordinal() const { return properties_.ordinal; }

  /// The calling thread's CUDA calls mean this device from now on. Opens its context, the first time.
  void make_current() const { check(cudaSetDevice(properties_.ordinal), "cudaSetDevice"); }

  /// The feed that was given, else none.
  [[nodiscard]] const fault_feed_maker& own_feed() const { return own_feed_; }
  /// For the memory kinds and streams.
  [[nodiscard]] const primary_context& context() const { return *context_; }
  /// For what may outlive the device.
  [[nodiscard]] std::shared_ptr<const primary_context> shared_context() const { return context_; }

  /// Host time, which is what this device's events are told in.
  [[nodiscard]] nanoseconds now() const;

 private:
  device_properties properties_{};
  device_options options_;
  fault_feed_maker own_feed_{};
  std::shared_ptr<const primary_context> context_{};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/impl/device.hpp>  // what it declares
#endif
