#pragma once

#include <deepum/error.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/executor.hpp>
#include <deepum/sim/fabric.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/sim/worker.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <memory>

namespace deepum {
inline namespace v0 {
namespace sim {

class managed_memory;

/// How a simulated GPU differs from its profile.
struct device_options {
  bytes memory{};  ///< device memory; 0: the profile's
  worker_mode worker = worker_mode::virtual_time;
  std::uint64_t delay_seed = 0;  ///< not 0: random delays of the migration thread
  bytes host_limit{};            ///< host memory that an arena on paged memory holds at most; 0: no limit
};

/// A simulated GPU: a virtual clock, device memory, one link in each direction, a compute engine and the driver.
///
/// Host calls drive the clock, each by what it costs; nothing happens between them. All host threads share the one
/// clock. The same program on one thread gives the same virtual times in each run. Threads: all members, any thread,
/// but not from within a kernel body, a description or the pump where a call takes host time.
class device {
 public:
  using default_memory = managed_memory;

  /// @param rates  Copied. See `find_profile`.
  explicit device(const profile& rates = find_profile("h200_pcie5"), const device_options& chosen = {});
  /// One of a `machine`.
  device(std::shared_ptr<fabric> shared, int ordinal, const profile& rates, const device_options& chosen);
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  ~device();

  /// The profile, with the memory that this device has.
  [[nodiscard]] const profile& properties() const { return profile_; }
  [[nodiscard]] const device_options& options() const { return options_; }
  /// Its number in its `machine`; alone it is 0.
  [[nodiscard]] int ordinal() const { return executor_.ordinal(); }

  /// The virtual clock.
  [[nodiscard]] nanoseconds now() const;
  /// The host works for `time`; the device goes on meanwhile.
  void host_work(nanoseconds time) { event_loop::host_call(loop()).spend(time); }
  [[nodiscard]] device_counters counters() const;
  /// Others (processes, explicit allocations) hold `size` bytes of device memory, which the driver cannot evict.
  void set_foreign_memory(bytes size);

  /// @name For the memory kinds and streams of the simulator
  /// @{
  [[nodiscard]] event_loop& loop() const { return fabric_->loop(); }
  [[nodiscard]] fabric& connections() { return *fabric_; }
  [[nodiscard]] driver& memory_driver() { return driver_; }
  [[nodiscard]] executor& operations() { return executor_; }
  /// @}

 private:
  [[nodiscard]] static profile with(profile p, const device_options& options);

  std::shared_ptr<fabric> fabric_;
  profile profile_;
  device_options options_;
  mutable driver driver_;
  executor executor_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/device.hpp>  // what it declares
#endif
