#pragma once

#include <deepum/core/plan.hpp>
#include <deepum/cuda/check.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// The calls of the runtime whose signatures differ between CUDA 12.x and 13.x, in one shape.
///
/// 12.0 and 12.1 name places by device number, 12.2 and later by `cudaMemLocation` (as functions with the suffix `_v2`
/// until 13.0). Discard came with 13.0.
namespace api {

/// Where contents are, or should be.
struct place {
  bool on_host = true;
  int device = 0;
};

#if CUDART_VERSION >= 12020
[[nodiscard]] inline cudaMemLocation location_of(place p) {
  cudaMemLocation l{};
  l.type = p.on_host ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  l.id = p.on_host ? 0 : p.device;
  return l;
}
#else
[[nodiscard]] inline int location_of(place p) { return p.on_host ? cudaCpuDeviceId : p.device; }
#endif

/// Moves the blocks of [first, first + size) in stream order. To the host, the caller is blocked for the whole copy.
[[nodiscard]] inline cudaError_t prefetch(void* first, std::size_t size, place to, cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  return cudaMemPrefetchAsync(first, size, location_of(to), 0, stream);
#elif CUDART_VERSION >= 12020
  return cudaMemPrefetchAsync_v2(first, size, location_of(to), 0, stream);
#else
  return cudaMemPrefetchAsync(first, size, location_of(to), stream);
#endif
}

/// Tells the driver how [first, first + size) will be used. Takes effect at once, in no stream.
[[nodiscard]] inline cudaError_t advise(void* first, std::size_t size, cudaMemoryAdvise hint, place where) {
#if CUDART_VERSION >= 12020 && CUDART_VERSION < 13000
  return cudaMemAdvise_v2(first, size, hint, location_of(where));
#else
  return cudaMemAdvise(first, size, hint, location_of(where));
#endif
}

/// Whether the toolkit that the program was built with can give contents up.
inline constexpr bool has_discard = CUDART_VERSION >= 13000;

/// The contents of the ranges are of no value any more, in stream order. Until they are prefetched or written they are
/// undefined. A kernel that writes them without a prefetch faults on every single page of 4 KiB: 5 s for each GiB.
[[nodiscard]] inline cudaError_t discard(std::vector<void*>& firsts, std::vector<std::size_t>& sizes,
                                         cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  return cudaMemDiscardBatchAsync(firsts.data(), sizes.data(), firsts.size(), 0, stream);
#else
  (void)firsts;
  (void)sizes;
  (void)stream;
  return cudaErrorNotSupported;
#endif
}

/// The graph that a stream is being captured into; nullptr where it is not, or where the runtime does not say.
[[nodiscard]] inline cudaGraph_t graph_of_capture(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  const cudaError_t result = cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr);
#else
  const cudaError_t result = cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr);
#endif
  return succeeded(result) && status == cudaStreamCaptureStatusActive ? graph : nullptr;
}

[[nodiscard]] inline cudaMemoryAdvise advice_of(advice hint) {
  switch (hint) {
    case advice::set_read_mostly:
      return cudaMemAdviseSetReadMostly;
    case advice::none:
    case advice::set_in_place:  // these are several
    case advice::unset_in_place:
    case advice::unset_read_mostly:
      return cudaMemAdviseUnsetReadMostly;
    case advice::set_preferred_location:
      return cudaMemAdviseSetPreferredLocation;
    case advice::unset_preferred_location:
      return cudaMemAdviseUnsetPreferredLocation;
    case advice::set_accessed_by:
      return cudaMemAdviseSetAccessedBy;
    case advice::unset_accessed_by:
      return cudaMemAdviseUnsetAccessedBy;
  }
  return cudaMemAdviseUnsetReadMostly;
}

}  // namespace api
}  // namespace cuda
}  // namespace v0
}  // namespace deepum
