#pragma once

#include <deepum/cuda/check.hpp>

#include <cuda_runtime_api.h>

#include <utility>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Work of a stream that was captured and can be launched again and again. Made by `basic_stream::end_capture`.
///
/// Threads: one at a time.
class graph {
 public:
  graph() = default;
  /// @param captured  Is given up.
  /// @errors  `status::device_failure`.
  explicit graph(cudaGraph_t captured) {
    const cudaError_t made = cudaGraphInstantiate(&executable_, captured, 0);
    (void)worked(cudaGraphDestroy(captured));
    check(made, "cudaGraphInstantiate");
  }
  graph(graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
  graph& operator=(graph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
  }
  ~graph() {
    if (executable_ != nullptr) {
      (void)worked(cudaGraphExecDestroy(executable_));
    }
  }

  [[nodiscard]] cudaGraphExec_t native() const { return executable_; }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
