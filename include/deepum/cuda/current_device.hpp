#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/driver_function.hpp>
#include <deepum/cuda/relaxed_capture.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <optional>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// The context of a device that the runtime uses, kept for as long as this lives.
///
/// A thread enters and leaves it by the driver's functions: the runtime's `cudaSetDevice` would make a context on the
/// device that it goes back to, which the program may not use at all. Where the driver does not have them, that has to
/// do.
class primary_context {
 public:
  explicit primary_context(int ordinal) : ordinal_(ordinal) {
    retain_fn retain = nullptr;
    device_fn device_of = nullptr;
    if (find_driver_function("cuDeviceGet", 4000, device_of) &&
        find_driver_function("cuDevicePrimaryCtxRetain", 7000, retain) &&
        find_driver_function("cuDevicePrimaryCtxRelease", 11000, release_) &&
        find_driver_function("cuCtxGetCurrent", 4000, get_) && find_driver_function("cuCtxSetCurrent", 4000, set_) &&
        device_of(&device_, ordinal) == CUDA_SUCCESS && retain(&context_, device_) == CUDA_SUCCESS) {
      return;
    }
    context_ = nullptr;
  }
  ~primary_context() {
    if (context_ != nullptr) {
      (void)release_(device_);
    }
  }
  primary_context(const primary_context&) = delete;
  primary_context& operator=(const primary_context&) = delete;

  /// The calling thread's CUDA calls mean this device from now on.
  void enter() const {
    if (context_ != nullptr) {
      (void)set_(context_);
    } else {
      (void)succeeded(cudaSetDevice(ordinal_));
    }
  }

 private:
  friend class current_device;
  using device_fn = CUresult(CUDAAPI*)(CUdevice*, int);
  using retain_fn = CUresult(CUDAAPI*)(CUcontext*, CUdevice);
  using release_fn = CUresult(CUDAAPI*)(CUdevice);
  using get_fn = CUresult(CUDAAPI*)(CUcontext*);
  using set_fn = CUresult(CUDAAPI*)(CUcontext);

  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;  // none: by the runtime
  release_fn release_ = nullptr;
  get_fn get_ = nullptr;
  set_fn set_ = nullptr;
};

/// For as long as it lives, the calling thread's CUDA calls mean this device; then again what they meant before. They
/// nest. Cost: some tens of nanoseconds.
class current_device {
 public:
  explicit current_device(const primary_context& wanted) : wanted_(wanted) {
    if (wanted.context_ != nullptr) {
      changed_ = wanted.get_(&before_) == CUDA_SUCCESS && before_ != wanted.context_ &&
                 wanted.set_(wanted.context_) == CUDA_SUCCESS;
    } else {
      changed_ = succeeded(cudaGetDevice(&device_before_)) && device_before_ != wanted.ordinal_ &&
                 succeeded(cudaSetDevice(wanted.ordinal_));
    }
  }
  ~current_device() {
    if (changed_ && wanted_.context_ != nullptr) {
      (void)wanted_.set_(before_);
    } else if (changed_) {
      (void)succeeded(cudaSetDevice(device_before_));
    }
  }
  current_device(const current_device&) = delete;
  current_device& operator=(const current_device&) = delete;

 private:
  const primary_context& wanted_;
  CUcontext before_ = nullptr;
  int device_before_ = 0;
  bool changed_ = false;
};

/// Around what the library asks the runtime by itself on a thread of the program's: the device is current, and no
/// capture is invalidated by it.
class own_calls {
 public:
  explicit own_calls(const primary_context& wanted) : on_(std::in_place, wanted) {}
  /// @param wanted  nullptr: the device that is current.
  explicit own_calls(const primary_context* wanted) {
    if (wanted != nullptr) {
      on_.emplace(*wanted);
    }
  }

 private:
  std::optional<current_device> on_{};
  relaxed_capture relaxed_{};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
