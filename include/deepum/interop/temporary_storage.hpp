#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace deepum {
inline namespace v0 {
namespace interop {

/// Serves the temporary memory of one library call out of a buffer that its launch declares, as an allocator.
///
/// Requests that do not fit come from CUDA's pool in the order of the stream, beside the arena: a launch that has been
/// admitted can get no more of the arena, and on memory that never faults it must not. `needed` says how large the
/// buffer should have been.
///
/// Memory is used again once it is given back: the calls of one stream come one after the other.
///
/// Threads: one at a time.
class temporary_storage {
 public:
  using value_type = char;

  static constexpr std::size_t alignment = 256;  // what libraries expect of cudaMalloc

  /// @param buffer, size  Aligned as above.
  temporary_storage(std::byte* buffer, bytes size, cudaStream_t stream)
      : buffer_(reinterpret_cast<char*>(buffer)),
        size_(size.count),
        stream_(stream) {}
  temporary_storage(const temporary_storage&) = delete;
  temporary_storage& operator=(const temporary_storage&) = delete;

  /// @errors  `status::out_of_device_memory`, where the buffer is too small and CUDA's pool has nothing either, and for
  ///          what is too much to count.
  [[nodiscard]] char* allocate(std::ptrdiff_t n) {
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    if (n < 0 || static_cast<std::size_t>(n) > most / 4 || live_ > most / 4) {
      throw error(status::out_of_device_memory,
                  std::to_string(n) + " bytes of temporary storage are asked for; is the count of elements negative?");
    }
    const std::size_t size = rounded(static_cast<std::size_t>(n));
    live_ += size;
    needed_ = std::max(needed_, std::max(live_, used_ + size));
    if (size <= size_ - used_) {
      char* const p = buffer_ + used_;
      used_ += size;
      ++in_buffer_;
      return p;
    }
    void* p = nullptr;
    const cudaError_t result = cudaMallocAsync(&p, std::max(size, alignment), stream_);
    if (result != cudaSuccess) {
      live_ -= size;
    }
    cuda::check(result, "cudaMallocAsync");
    return static_cast<char*>(p);
  }
  /// Gives a piece back. @param n  As it was asked for.
  void deallocate(char* p, std::size_t n) noexcept {
    const std::size_t size = rounded(n);
    live_ -= size;
    const auto offset = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(buffer_);
    if (offset >= size_) {  // wraps for what lies before the buffer
      (void)cuda::succeeded(cudaFreeAsync(p, stream_));
      return;
    }
    if (--in_buffer_ == 0) {
      used_ = 0;
    } else if (offset + size == used_) {
      used_ = offset;
    }
  }

  /// The buffer that would have been enough.
  [[nodiscard]] bytes needed() const { return bytes{needed_}; }

 private:
  static std::size_t rounded(std::size_t n) { return (n + alignment - 1) / alignment * alignment; }

  char* buffer_;
  std::size_t size_;
  cudaStream_t stream_;
  std::size_t used_ = 0;       // of the buffer, from its beginning
  std::size_t in_buffer_ = 0;  // pieces of it that are in use
  std::size_t live_ = 0;
  std::size_t needed_ = 0;
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
