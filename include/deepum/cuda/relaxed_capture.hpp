#pragma once

#include <deepum/cuda/check.hpp>

#include <cuda_runtime_api.h>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// For as long as it lives, nothing that the calling thread asks the runtime is refused, or spoils a graph, because
/// some stream is being captured: by the program, in the mode that forbids it to everybody.
class relaxed_capture {
 public:
  relaxed_capture() { exchange(); }
  ~relaxed_capture() { exchange(); }
  relaxed_capture(const relaxed_capture&) = delete;
  relaxed_capture& operator=(const relaxed_capture&) = delete;

 private:
  void exchange() { (void)worked(cudaThreadExchangeStreamCaptureMode(&mode_)); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
