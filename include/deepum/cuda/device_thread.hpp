#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/driver_context.hpp>
#include <deepum/cuda/relaxed_capture.hpp>
#include <deepum/library_thread.hpp>

#include <cuda_runtime_api.h>

#include <thread>
#include <utility>

#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace deepum {
inline namespace v0 {
namespace cuda {

/// The calling thread's CUDA calls mean this device from now on, through the context beside its primary one where there
/// is one that works.
inline void enter_device(int ordinal, const driver_context* beside = nullptr) {
  if (beside == nullptr || !beside->make_current()) {
    (void)succeeded(cudaSetDevice(ordinal));
  }
}

/// Starts a thread of the library's that works for one device: the device is current there, no signal of the program's
/// is handled there, no capture is invalidated by what it asks, and it can sleep for microseconds: else 20 of them
/// are 70.
/// @param ordinal  The device's.
/// @param beside   See `enter_device`. Outlives the thread.
/// @errors  Those of `std::thread`.
template <class Run>
[[nodiscard]] std::thread start_device_thread(int ordinal, const driver_context* beside, Run run) {
  return deepum::detail::start_thread([ordinal, beside, run = std::move(run)]() mutable {
    enter_device(ordinal, beside);
    const relaxed_capture relaxed;
#ifdef __linux__
    (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
#endif
    run();
  });
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
