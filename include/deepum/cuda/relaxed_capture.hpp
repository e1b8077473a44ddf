#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/driver_function.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// For as long as it lives, nothing that the calling thread asks the runtime is refused, or spoils a graph, because
/// some stream is being captured: by the program, in a mode that forbids it to all threads or to this one. What is
/// asked of the captured stream itself still does.
///
/// They nest. The driver is asked without the runtime between, which would make a context on the thread's device for
/// it.
class relaxed_capture {
 public:
  relaxed_capture() : entered_(exchange()) {}
  ~relaxed_capture() {
    if (entered_) {
      (void)exchange();
    }
  }
  relaxed_capture(const relaxed_capture&) = delete;
  relaxed_capture& operator=(const relaxed_capture&) = delete;

 private:
  using exchange_fn = CUresult(CUDAAPI*)(CUstreamCaptureMode*);

  bool exchange() {
    static const exchange_fn of_driver = [] {
      exchange_fn found = nullptr;
      return find_driver_function("cuThreadExchangeStreamCaptureMode", 10010, found) ? found : nullptr;
    }();
    if (of_driver != nullptr) {
      return of_driver(&mode_) == CUDA_SUCCESS;
    }
    auto mode = static_cast<cudaStreamCaptureMode>(mode_);
    const bool done = succeeded(cudaThreadExchangeStreamCaptureMode(&mode));
    mode_ = done ? static_cast<CUstreamCaptureMode>(mode) : mode_;
    return done;
  }

  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool entered_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
