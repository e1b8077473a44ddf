#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/fabric.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <memory>

namespace deepum {
inline namespace v0 {
namespace sim {

/// A host with several simulated GPUs, as many as the profile has: one virtual clock; each device with memory, engines
/// and a link to the host of its own, all of which share the bandwidth of the host's memory; and a switch between them,
/// over which each sends and gets at the same time.
///
/// A stream waits for events of other devices' streams, and copies from and to arenas of all of them. A kernel finds
/// its own device's arenas alone. Threads: all members, any thread, as those of `device`.
class machine {
 public:
  /// @param chosen  Of each device.
  /// @errors  `status::invalid_argument` for a profile of several devices without a link between them.
  explicit machine(const profile& rates = find_profile("2x_h200_nvlink"), const device_options& chosen = {});

  [[nodiscard]] std::size_t size() const { return devices_.size(); }
  [[nodiscard]] device& operator[](std::size_t ordinal) { return *devices_[ordinal]; }

  /// The virtual clock.
  [[nodiscard]] nanoseconds now() const { return devices_.front()->now(); }
  /// The host works for `time`; the devices go on meanwhile.
  void host_work(nanoseconds time) { event_loop::host_call(fabric_->loop()).spend(time); }

 private:
  std::shared_ptr<fabric> fabric_ = std::make_shared<fabric>();
  sequence<std::unique_ptr<device>> devices_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/machine.hpp>  // what it declares
#endif
