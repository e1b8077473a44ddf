#pragma once

#include <deepum/cuda/check.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

namespace deepum::gpu_bench {

/// Streams in turn, each of them idle when it is given out. The driver hands a prefetch in a stream that is not idle to
/// a thread of its own, which takes 50 us more. The context of the constructor has to be current in all calls.
class idle_streams {
 public:
  idle_streams() {
    for (cudaStream_t& s : streams_) {
      cuda::check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
  }
  ~idle_streams() {
    for (const cudaStream_t s : streams_) {
      (void)cuda::succeeded(cudaStreamSynchronize(s));
      (void)cuda::succeeded(cudaStreamDestroy(s));
    }
  }
  idle_streams(const idle_streams&) = delete;
  idle_streams& operator=(const idle_streams&) = delete;

  /// Waits until the next one is idle.
  [[nodiscard]] cudaStream_t next() {
    const cudaStream_t s = streams_[next_++ % streams_.size()];
    cuda::check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    return s;
  }
  void synchronize() const {
    for (const cudaStream_t s : streams_) {
      cuda::check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    }
  }

 private:
  std::array<cudaStream_t, 3> streams_{};
  std::size_t next_ = 0;
};

}  // namespace deepum::gpu_bench
