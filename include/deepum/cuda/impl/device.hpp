#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/environment.hpp>
#include <deepum/error.hpp>
#include <deepum/log.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE device::device(int ordinal, device_options options) : options_(std::move(options)) {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess) {
    (void)cudaGetLastError();
    throw error(status::unsupported,
                std::string("there is no CUDA device that can be used: ") + cudaGetErrorString(found) +
                    "; programs run on deepum::sim::device without one",
                "cudaGetDeviceCount", static_cast<int>(found));
  }
  if (ordinal < 0 || ordinal >= count) {
    throw error(status::unsupported,
                "there is no CUDA device " + std::to_string(ordinal) + ": there are " + std::to_string(count));
  }
  if (const std::optional<bytes> chunk = detail::environment::chunk(smallest_chunk, largest_chunk, default_log())) {
    options_.chunk = *chunk;
  }
  properties_.ordinal = ordinal;
  make_current();
  context_ = std::make_shared<const primary_context>(ordinal);
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, ordinal), "cudaGetDeviceProperties");
  properties_.name = p.name;
  properties_.memory = bytes{p.totalGlobalMem};
  properties_.compute_capability = p.major * 10 + p.minor;
  properties_.concurrent_managed_access = p.concurrentManagedAccess != 0;
  check(cudaDriverGetVersion(&properties_.driver_version), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&properties_.runtime_version), "cudaRuntimeGetVersion");
}

DEEPUM_SEPARATE device::device(int ordinal, device_options options, fault_feed_maker feed)
    : device(ordinal, std::move(options)) {
  own_feed_ = std::move(feed);
}

DEEPUM_SEPARATE nanoseconds device::now() const {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
