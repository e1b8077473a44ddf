#pragma once

#include <deepum/error.hpp>

#include <cuda_runtime_api.h>

#include <chrono>
#include <source_location>
#include <string>
#include <thread>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Set-up and launches: throws what the runtime reports, and clears it, so that no later call reports it.
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
[[nodiscard]] inline bool succeeded(cudaError_t result) noexcept {
  if (result == cudaSuccess) [[likely]] {
    return true;
  }
  (void)cudaGetLastError();
  return false;
}

/// Whether an error of the runtime means that nothing is executed any more: the device has failed, or its context is
/// gone. Every call fails from then on.
[[nodiscard]] constexpr bool ends_all_work(cudaError_t result) noexcept {
  switch (static_cast<int>(result)) {  // some have names in newer toolkits alone
    case cudaErrorCudartUnloading:
    case cudaErrorDeviceUninitialized:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case 226:                             // cudaErrorContained
    case cudaErrorInvalidResourceHandle:  // what it names was destroyed with its context
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case 721:  // cudaErrorTensorMemoryLeak
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

/// Whether a stream or event has been reached: what was enqueued before is over, done or not. Where the device does
/// nothing any more it has; a query that fails for another reason (a stream is being captured, say) tells nothing, and
/// is to be made again later.
/// @param query  `cudaEventQuery` or `cudaStreamQuery`.
template <class Handle>
[[nodiscard]] bool reached(cudaError_t (*query)(Handle), Handle h) noexcept {
  for (unsigned fatal = 0; fatal < 2; ++fatal) {  // asked again, since so much depends on it
    const cudaError_t state = query(h);
    if (state == cudaSuccess) {
      return true;
    }
    (void)cudaGetLastError();
    if (!ends_all_work(state)) {
      return false;
    }
  }
  return true;
}
/// Waits for a stream of the library's own until it is reached (see `reached`).
/// @returns  Whether all of it was done.
inline bool settle(cudaStream_t s) noexcept {
  if (succeeded(cudaStreamSynchronize(s))) {
    return true;
  }
  while (!succeeded(cudaStreamSynchronize(s)) && !reached(cudaStreamQuery, s)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until the program's capture ends
  }
  return false;
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
