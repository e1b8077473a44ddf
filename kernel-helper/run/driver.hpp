#pragma once

#include <deepum/interpose/entry_points.hpp>

#include <cuda.h>

#include <atomic>
#include <span>
#include <string>

// The driver's own functions, and the entry points in whose place this library's stand.
namespace deepum_run {

/// All entry points, of all files of this library.
[[nodiscard]] std::span<const deepum::interpose::entry_point> entry_points();

/// Finds the driver and its functions, the first time. Threads: any.
/// @returns  Whether there is one.
bool load_driver();

namespace detail {
extern std::atomic<bool> driver_loaded;
}
/// The same for the way of every call.
inline bool driver_ready() { return detail::driver_loaded.load(std::memory_order_acquire) || load_driver(); }

/// Functions that the library calls by itself, of the driver's own: none of them is interposed. Null where the driver
/// has none. Valid after `load_driver`.
struct own_driver {
  CUresult (*cuGetProcAddress)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*) = nullptr;
  CUresult (*cuCtxGetCurrent)(CUcontext*) = nullptr;
  CUresult (*cuCtxSetCurrent)(CUcontext) = nullptr;
  CUresult (*cuCtxGetDevice)(CUdevice*) = nullptr;
  CUresult (*cuCtxSynchronize)() = nullptr;
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*cuStreamIsCapturing)(CUstream, CUstreamCaptureStatus*) = nullptr;
  CUresult (*cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode*) = nullptr;
  CUresult (*cuFuncGetParamInfo)(CUfunction, size_t, size_t*, size_t*) = nullptr;
  CUresult (*cuFuncGetName)(const char**, CUfunction) = nullptr;
  CUresult (*cuKernelGetFunction)(CUfunction*, CUkernel) = nullptr;
  CUresult (*cuGraphGetNodes)(CUgraph, CUgraphNode*, size_t*) = nullptr;
  CUresult (*cuGraphNodeGetType)(CUgraphNode, CUgraphNodeType*) = nullptr;
  CUresult (*cuGraphKernelNodeGetParams)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*) = nullptr;
  CUresult (*cuGraphMemcpyNodeGetParams)(CUgraphNode, CUDA_MEMCPY3D*) = nullptr;
  CUresult (*cuGraphMemsetNodeGetParams)(CUgraphNode, CUDA_MEMSET_NODE_PARAMS*) = nullptr;
  CUresult (*cuGraphChildGraphNodeGetGraph)(CUgraphNode, CUgraph*) = nullptr;
};
[[nodiscard]] const own_driver& driver();

/// The driver's symbol of this name; nullptr where it has none.
[[nodiscard]] void* driver_symbol(const char* symbol);
/// What the program's own look-up of a symbol of the driver should find: the function that stands in, or `found`.
[[nodiscard]] void* stand_in(void* found, const char* symbol);

}  // namespace deepum_run

/// Defines a function that stands in for one of the driver's. In its body `real` is the driver's own, and `stream_kind`
/// the default stream that it means. What is known of it lies in a section of its own, so that all files together are
/// the table: as constants, since other libraries look functions up before this one's constructors would have run.
#define DEEPUM_ENTRY(id, symbol, base, since, kind, only, parameters, ...)                                           \
  namespace {                                                                                                        \
  CUresult(*real_##id) parameters = nullptr;                                                                         \
  }                                                                                                                  \
  extern "C" __attribute__((visibility("default"))) CUresult deepum_entry_##id parameters __asm__(symbol);           \
  extern "C" CUresult deepum_entry_##id parameters {                                                                 \
    if (!deepum_run::driver_ready() || real_##id == nullptr) {                                                       \
      return CUDA_ERROR_NOT_FOUND;                                                                                   \
    }                                                                                                                \
    [[maybe_unused]] constexpr auto stream_kind = deepum::interpose::default_stream::kind;                           \
    [[maybe_unused]] auto* const real = real_##id;                                                                   \
    __VA_ARGS__                                                                                                      \
  }                                                                                                                  \
  __attribute__((section("deepum_entries"), used, aligned(8))) const deepum::interpose::entry_point entry_of_##id {  \
    symbol, base, since, deepum::interpose::default_stream::kind, only, reinterpret_cast<void*>(&deepum_entry_##id), \
        reinterpret_cast<void**>(&real_##id)                                                                         \
  }

/// One that has a single form whatever the default stream is.
#define DEEPUM_ENTRY_1(id, symbol, base, since, parameters, ...) \
  DEEPUM_ENTRY(id, symbol, base, since, legacy, true, parameters, __VA_ARGS__)
/// One that has a form for each kind of default stream.
#define DEEPUM_ENTRY_2(id, symbol, suffix, base, since, parameters, ...)         \
  DEEPUM_ENTRY(id, symbol, base, since, legacy, false, parameters, __VA_ARGS__); \
  DEEPUM_ENTRY(id##_per_thread, symbol suffix, base, since, per_thread, false, parameters, __VA_ARGS__)
/// Another base name of the same function.
#define DEEPUM_ALIAS(id, of, base, since)                                                                           \
  __attribute__((section("deepum_entries"), used, aligned(8))) const deepum::interpose::entry_point entry_of_##id { \
    entry_of_##of.exported, base, since, deepum::interpose::default_stream::legacy, true,                           \
        reinterpret_cast<void*>(&deepum_entry_##of), reinterpret_cast<void**>(&real_##of)                           \
  }
