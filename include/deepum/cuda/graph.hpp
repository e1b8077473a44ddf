#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/current_device.hpp>

#include <cuda_runtime_api.h>

#include <memory>
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
  /// @param on        Its device; nullptr: the one that is current, here and in the end.
  /// @errors  `status::device_failure`.
  explicit graph(cudaGraph_t captured, std::shared_ptr<const primary_context> on = nullptr) : on_(std::move(on)) {
    const own_calls calls(on_.get());
    const cudaError_t made = cudaGraphInstantiate(&executable_, captured, 0);
    (void)succeeded(cudaGraphDestroy(captured));
    check(made, "cudaGraphInstantiate");
  }
  graph(graph&& from) noexcept : on_(std::move(from.on_)), executable_(std::exchange(from.executable_, nullptr)) {}
  graph& operator=(graph&& other) noexcept {
    std::swap(on_, other.on_);
    std::swap(executable_, other.executable_);
    return *this;
  }
  ~graph() {
    if (executable_ != nullptr) {
      const own_calls calls(on_.get());
      (void)succeeded(cudaGraphExecDestroy(executable_));
    }
  }

  [[nodiscard]] cudaGraphExec_t native() const { return executable_; }

 private:
  std::shared_ptr<const primary_context> on_{};
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
