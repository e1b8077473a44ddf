#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Host time of what happened on the GPU: of events, and of faults.
///
/// An event only tells the time since another one. So there is an anchor, an event whose host time is known, and events
/// are told by their distance from it. It is renewed every second, because the two clocks drift apart and the distance
/// is a float. Faults carry the GPU's own clock; `learn_fault` finds what lies between that and the events.
///
/// Not synchronised. The device is current.
class gpu_clock {
 public:
  /// @errors  `status::device_failure`.
  gpu_clock() {
    try {
      check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      check(cudaEventCreateWithFlags(&anchor_, cudaEventDefault), "cudaEventCreateWithFlags");
      check(cudaEventCreateWithFlags(&next_, cudaEventDefault), "cudaEventCreateWithFlags");
      take_anchor();
    } catch (...) {
      close();
      throw;
    }
  }
  ~gpu_clock() { close(); }
  gpu_clock(const gpu_clock&) = delete;
  gpu_clock& operator=(const gpu_clock&) = delete;

  [[nodiscard]] static nanoseconds host_now() {
    return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch());
  }

  /// When an event that has been reached was reached. Now, where the runtime does not tell.
  [[nodiscard]] nanoseconds time_of(cudaEvent_t reached) {
    float milliseconds = 0;
    if (!worked(cudaEventElapsedTime(&milliseconds, anchor_, reached))) {
      return host_now();
    }
    return anchored_at_ + nanoseconds{std::llround(static_cast<double>(milliseconds) * 1e6)};
  }

  /// Takes a new anchor where the old one is a second old. Waits some microseconds for it then.
  void keep_up() {
    const nanoseconds before = host_now();
    if (before - anchored_at_ < std::chrono::seconds(1)) {
      return;
    }
    if (!worked(cudaEventRecord(next_, stream_)) || !worked(cudaEventSynchronize(next_))) {
      return;
    }
    // Where the old anchor puts the new one, unless the host knows better.
    const nanoseconds told = time_of(next_);
    const nanoseconds settled = std::clamp(told, before, host_now());
    fault_offset_ -= settled - told;
    std::swap(anchor_, next_);
    anchored_at_ = settled;
  }

  /// A fault, on its feed's clock, that came at the earliest after an event which was reached at `reached`.
  void learn_fault(nanoseconds fault, nanoseconds reached) {
    const nanoseconds offset = fault - reached;
    fault_offset_ = faults_known_ ? std::min(fault_offset_, offset) : offset;
    faults_known_ = true;
  }
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
  void take_anchor() {
    nanoseconds shortest = nanoseconds::max();
    for (int i = 0; i < anchors_tried; ++i) {
      const nanoseconds before = host_now();
      check(cudaEventRecord(next_, stream_), "cudaEventRecord");
      check(cudaEventSynchronize(next_), "cudaEventSynchronize");
      const nanoseconds after = host_now();
      if (after - before < shortest) {
        shortest = after - before;
        anchored_at_ = after;
        std::swap(anchor_, next_);
      }
    }
  }
  static constexpr int anchors_tried = 4;

  void close() {
    for (const cudaEvent_t e : {next_, anchor_}) {
      if (e != nullptr) {
        (void)worked(cudaEventDestroy(e));
      }
    }
    if (stream_ != nullptr) {
      (void)worked(cudaStreamDestroy(stream_));
    }
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t anchor_ = nullptr;
  cudaEvent_t next_ = nullptr;
  nanoseconds anchored_at_{};
  nanoseconds fault_offset_{};
  bool faults_known_ = false;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
