#pragma once

#include <deepum/cuda/check.hpp>

#include <cuda_runtime_api.h>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Asks the driver for one of its functions at run time, so that nothing has to be linked for it.
/// @param version  The CUDA version whose form of the function is wanted: 10020 for 10.2.
/// @returns        Whether there is one.
template <class Function>
[[nodiscard]] bool find_driver_function(const char* name, unsigned version, Function& out) {
  void* address = nullptr;
#if CUDART_VERSION >= 12050
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableLegacyStream, &found);
  const bool there = found == cudaDriverEntryPointSuccess;
#else
  // Without a version the driver gives the function that belongs to this toolkit's cuda.h: the same forms, up to 12.4.
  (void)version;
  const cudaError_t result = cudaGetDriverEntryPoint(name, &address, cudaEnableLegacyStream);
  const bool there = true;
#endif
  if (!succeeded(result) || !there || address == nullptr) {
    return false;
  }
  out = reinterpret_cast<Function>(address);
  return true;
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
