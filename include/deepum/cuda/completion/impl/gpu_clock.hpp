#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE gpu_clock::gpu_clock(const primary_context* on) {
  const own_calls calls(on);
  stream_ = make_stream(on);
  anchor_ = make_event(event_use::time, on);
  next_ = make_event(event_use::time, on);
  take_anchor();
}

DEEPUM_SEPARATE nanoseconds gpu_clock::host_now() {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch());
}

DEEPUM_SEPARATE nanoseconds gpu_clock::time_of(cudaEvent_t reached) {
  float milliseconds = 0;
  if (!succeeded(cudaEventElapsedTime(&milliseconds, anchor_.get(), reached))) {
    return host_now();
  }
  return anchored_at_ + nanoseconds{std::llround(static_cast<double>(milliseconds) * 1e6)};
}

DEEPUM_SEPARATE void gpu_clock::keep_up() {
  const nanoseconds before = host_now();
  if (before - anchored_at_ < std::chrono::seconds(1)) {
    return;
  }
  if (!succeeded(cudaEventRecord(next_.get(), stream_.get())) || !succeeded(cudaEventSynchronize(next_.get()))) {
    return;
  }
  // Where the old anchor puts the new one, unless the host knows better.
  const nanoseconds measured = time_of(next_.get());
  const nanoseconds settled = std::clamp(measured, before, host_now());
  fault_offset_ -= settled - measured;
  std::swap(anchor_, next_);
  anchored_at_ = settled;
}

DEEPUM_SEPARATE void gpu_clock::learn_fault(nanoseconds fault, nanoseconds reached) {
  const nanoseconds offset = fault - reached;
  fault_offset_ = faults_known_ ? std::min(fault_offset_, offset) : offset;
  faults_known_ = true;
}

DEEPUM_SEPARATE void gpu_clock::take_anchor() {
  nanoseconds shortest = nanoseconds::max();
  for (int i = 0; i < anchors_tried; ++i) {
    const nanoseconds before = host_now();
    check(cudaEventRecord(next_.get(), stream_.get()), "cudaEventRecord");
    check(cudaEventSynchronize(next_.get()), "cudaEventSynchronize");
    const nanoseconds after = host_now();
    if (after - before < shortest) {
      shortest = after - before;
      anchored_at_ = after;
      std::swap(anchor_, next_);
    }
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
