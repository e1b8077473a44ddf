#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/driver_function.hpp>

#include <cuda.h>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// A context beside the primary one, for calls that would keep the program's launches waiting (docs/adr/0006).
///
/// Managed memory belongs to the process, not to a context, so that it can be moved from any. The driver's functions
/// are asked for at run time: nothing has to be linked for them. Where they are missing or refuse, there is no context,
/// and calls go through the primary one.
///
/// Threads: made, used and ended by any one at a time.
class driver_context {
 public:
  driver_context() = default;
  /// @param ordinal  Of the device.
  explicit driver_context(int ordinal) {
    create_fn create = nullptr;
    device_fn device_of = nullptr;
    pop_fn pop = nullptr;
    if (!find("cuDeviceGet", device_of) || !find("cuCtxCreate", create) || !find("cuCtxPopCurrent", pop) ||
        !find("cuCtxSetCurrent", set_current_) || !find("cuCtxDestroy", destroy_)) {
      return;
    }
    CUdevice device = 0;
    if (device_of(&device, ordinal) != CUDA_SUCCESS) {
      return;
    }
    CUcontext made = nullptr;
    if (create(&made, CU_CTX_SCHED_BLOCKING_SYNC, device) != CUDA_SUCCESS) {
      return;
    }
    CUcontext before = nullptr;
    (void)pop(&before);  // creation had made it current
    context_ = made;
  }
  ~driver_context() {
    if (context_ != nullptr) {
      (void)destroy_(context_);
    }
  }
  driver_context(const driver_context&) = delete;
  driver_context& operator=(const driver_context&) = delete;

  [[nodiscard]] bool exists() const { return context_ != nullptr; }
  /// The calling thread's CUDA calls go through this context from now on. @returns  Whether that worked.
  [[nodiscard]] bool make_current() const { return context_ != nullptr && set_current_(context_) == CUDA_SUCCESS; }

 private:
  // As of CUDA 3.2, 2.0 and 4.0: the oldest forms, which every driver has.
  using device_fn = CUresult(CUDAAPI*)(CUdevice*, int);
  using create_fn = CUresult(CUDAAPI*)(CUcontext*, unsigned, CUdevice);
  using pop_fn = CUresult(CUDAAPI*)(CUcontext*);
  using set_current_fn = CUresult(CUDAAPI*)(CUcontext);
  using destroy_fn = CUresult(CUDAAPI*)(CUcontext);

  template <class Function>
  static bool find(const char* name, Function& out) {
    return find_driver_function(name, 4000, out);
  }

  CUcontext context_ = nullptr;
  set_current_fn set_current_ = nullptr;
  destroy_fn destroy_ = nullptr;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
