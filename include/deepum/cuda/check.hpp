#pragma once

#include <deepum/error.hpp>

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Set-up and launches: throws what the runtime reports, and clears it, so that nobody else finds it as his own.
/// @errors  `status::out_of_device_memory`, `status::device_failure`, with the runtime's number and words.
inline void check(cudaError_t result, const char* api, std::source_location where = std::source_location::current()) {
  if (result == cudaSuccess) [[likely]] {
    return;
  }
  (void)cudaGetLastError();
  throw error(result == cudaErrorMemoryAllocation ? status::out_of_device_memory : status::device_failure,
              std::string(api) + ": " + cudaGetErrorString(result) + " (" + cudaGetErrorName(result) + ")", api,
              static_cast<int>(result), where);
}

/// Hints: whether the call worked. Its error is cleared.
[[nodiscard]] inline bool worked(cudaError_t result) noexcept {
  if (result == cudaSuccess) [[likely]] {
    return true;
  }
  (void)cudaGetLastError();
  return false;
}

/// Whether a stream or event has been reached. A query that fails is made once more: when that fails too, the device
/// does nothing any more, and so it has.
/// @param query  `cudaEventQuery` or `cudaStreamQuery`.
template <class Handle>
[[nodiscard]] bool reached(cudaError_t (*query)(Handle), Handle h) noexcept {
  cudaError_t state = query(h);
  if (state != cudaSuccess && state != cudaErrorNotReady) {
    (void)cudaGetLastError();
    state = query(h);
  }
  if (state != cudaSuccess) {
    (void)cudaGetLastError();
  }
  return state != cudaErrorNotReady;
}
/// Waits for a stream, and asks twice, as `reached` does.
inline void settle(cudaStream_t s) noexcept {
  if (!worked(cudaStreamSynchronize(s))) {
    (void)worked(cudaStreamSynchronize(s));
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
