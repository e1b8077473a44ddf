#pragma once

#include <deepum/cuda/handles.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <chrono>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Host time of what happened on the GPU: of events, and of faults.
///
/// An event only tells the time since another one. So there is an anchor, an event whose host time is known, and events
/// are told by their distance from it. It is renewed every second, because the two clocks drift apart and the distance
/// is a float. Faults carry the GPU's own clock; `learn_fault` finds what lies between that and the events.
///
/// Not synchronised. Else than in the beginning and the end, the device is current.
class gpu_clock {
 public:
  /// @param on  The device; nullptr: the one that is current.
  /// @errors    `status::device_failure`.
  explicit gpu_clock(const primary_context* on = nullptr);
  ~gpu_clock() = default;
  gpu_clock(const gpu_clock&) = delete;
  gpu_clock& operator=(const gpu_clock&) = delete;

  [[nodiscard]] static nanoseconds host_now();

  /// When an event that has been reached was reached. Now, where the runtime does not tell.
  [[nodiscard]] nanoseconds time_of(cudaEvent_t reached);

  /// Takes a new anchor where the old one is a second old. Waits some microseconds for it then.
  void keep_up();

  /// A fault, on its feed's clock, that came at the earliest after an event which was reached at `reached`.
  void learn_fault(nanoseconds fault, nanoseconds reached);
  /// Whether faults can be told in host time.
  [[nodiscard]] bool knows_faults() const { return faults_known_; }
  /// When a fault happened.
  ///
  /// It is told a little late on purpose. The calibration is good to some microseconds, and the first fault of a launch
  /// comes that soon after the end of the launch before it, whose own faults are all older than that: serving one takes
  /// the driver 100 us (docs/adr/0006).
  [[nodiscard]] nanoseconds time_of_fault(nanoseconds fault) const { return fault - fault_offset_ + lateness; }

  static constexpr nanoseconds lateness = std::chrono::microseconds(8);

 private:
  /// The anchor is as exact as this thread is prompt to see it reached: the best of some.
  void take_anchor();
  static constexpr int anchors_tried = 4;

  unique_stream stream_{};
  unique_event anchor_{};
  unique_event next_{};
  nanoseconds anchored_at_{};
  nanoseconds fault_offset_{};
  bool faults_known_ = false;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/completion/impl/gpu_clock.hpp>  // what it declares
#endif
