#include "null_cuda.hpp"

#include <sys/mman.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

namespace {

constexpr std::size_t device_memory = std::size_t{4} << 30;
constexpr std::size_t block = std::size_t{2} << 20;

// Those that may be called for each launch are counted.
enum class counted : std::uint8_t {
  current_context,
  set_context,
  capture_mode,
  is_capturing,
  stream_is_capturing,
  event_create,
  event_record,
  event_query,
  stream_query,
  stream_wait_event,
  launch_kernel,
  last
};
constexpr std::array<const char*, static_cast<std::size_t>(counted::last)> names{
    "cuCtxGetCurrent",     "cuCtxSetCurrent",       "cuThreadExchangeStreamCaptureMode",
    "cuStreamIsCapturing", "cudaStreamIsCapturing", "cudaEventCreateWithFlags",
    "cudaEventRecord",     "cudaEventQuery",        "cudaStreamQuery",
    "cudaStreamWaitEvent", "cudaLaunchKernel"};
thread_local std::array<std::uint64_t, names.size()> made{};

void count(counted which) { ++made[static_cast<std::size_t>(which)]; }

template <class Handle>
cudaError_t give_handle(Handle* to) {
  *to = reinterpret_cast<Handle>(new char);  // NOLINT(cppcoreguidelines-owning-memory): freed by `end_handle`
  return cudaSuccess;
}
template <class Handle>
cudaError_t end_handle(Handle h) {
  delete reinterpret_cast<char*>(h);  // NOLINT(cppcoreguidelines-owning-memory): made by `give_handle`
  return cudaSuccess;
}
// Address space whose pages are there when somebody touches them. It is never given back.
void* reserve(std::size_t size, std::size_t alignment) {
  void* const p =
      ::mmap(nullptr, size + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr
                         : static_cast<std::byte*>(p) + (alignment - reinterpret_cast<std::uintptr_t>(p) % alignment);
}

// --- the driver's ---

thread_local CUcontext context = nullptr;

CUresult device_get(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult primary_retain(CUcontext* made_context, CUdevice) {
  static char primary = 0;
  *made_context = reinterpret_cast<CUcontext>(&primary);
  return CUDA_SUCCESS;
}
CUresult primary_release(CUdevice) { return CUDA_SUCCESS; }
CUresult context_current(CUcontext* now) {
  count(counted::current_context);
  *now = context;
  return CUDA_SUCCESS;
}
CUresult context_set(CUcontext wanted) {
  count(counted::set_context);
  context = wanted;
  return CUDA_SUCCESS;
}
CUresult exchange_capture_mode(CUstreamCaptureMode* mode) {
  count(counted::capture_mode);
  thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const CUstreamCaptureMode before = current;
  current = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
CUresult is_capturing(CUstream, CUstreamCaptureStatus* state) {
  count(counted::is_capturing);
  *state = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult granularity(std::size_t* answer, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *answer = block;
  return CUDA_SUCCESS;
}
CUresult address_reserve(CUdeviceptr* p, std::size_t size, std::size_t alignment, CUdeviceptr, unsigned long long) {
  *p = reinterpret_cast<CUdeviceptr>(reserve(size, std::max(alignment, block)));
  return *p == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult address_free(CUdeviceptr, std::size_t) { return CUDA_SUCCESS; }  // the pages were never touched
CUresult create(CUmemGenericAllocationHandle* handle, std::size_t, const CUmemAllocationProp*, unsigned long long) {
  *handle = 1;
  return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
CUresult map(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr, std::size_t) { return CUDA_SUCCESS; }
CUresult set_access(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) { return CUDA_SUCCESS; }

template <class Function>
void* address_of(Function* f) {
  return reinterpret_cast<void*>(f);
}

}  // namespace

std::map<std::string, std::uint64_t> deepum_bench::null_cuda::calls() {
  std::map<std::string, std::uint64_t> found;
  for (std::size_t i = 0; i != names.size(); ++i) {
    found.emplace(names[i], made[i]);
  }
  return found;
}

// NOLINTBEGIN(readability-identifier-naming): CUDA's
extern "C" {

cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  CUcontext primary = nullptr;
  (void)primary_retain(&primary, 0);
  context = primary;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "no GPU");
  p->totalGlobalMem = device_memory;
  p->major = 9;
  p->concurrentManagedAccess = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = device_memory;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  static const std::map<std::string_view, void*> functions{
      {"cuDeviceGet", address_of(device_get)},
      {"cuDevicePrimaryCtxRetain", address_of(primary_retain)},
      {"cuDevicePrimaryCtxRelease", address_of(primary_release)},
      {"cuCtxGetCurrent", address_of(context_current)},
      {"cuCtxSetCurrent", address_of(context_set)},
      {"cuThreadExchangeStreamCaptureMode", address_of(exchange_capture_mode)},
      {"cuStreamIsCapturing", address_of(is_capturing)},
      {"cuMemGetAllocationGranularity", address_of(granularity)},
      {"cuMemAddressReserve", address_of(address_reserve)},
      {"cuMemAddressFree", address_of(address_free)},
      {"cuMemCreate", address_of(create)},
      {"cuMemRelease", address_of(release)},
      {"cuMemMap", address_of(map)},
      {"cuMemUnmap", address_of(unmap)},
      {"cuMemSetAccess", address_of(set_access)}};
  const auto it = functions.find(symbol);
  *found = it != functions.end() ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  *function = it != functions.end() ? it->second : nullptr;
  return cudaSuccess;
}
cudaError_t cudaMallocManaged(void** p, std::size_t size, unsigned) {
  *p = reserve(size, block);
  return *p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void*) { return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return give_handle(s); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { return end_handle(s); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) {
  count(counted::stream_query);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  count(counted::stream_wait_event);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* state) {
  count(counted::stream_is_capturing);
  *state = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaErrorNotSupported; }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorNotSupported; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) { return cudaErrorNotSupported; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  count(counted::event_create);
  return give_handle(e);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) { return end_handle(e); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  count(counted::event_record);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  count(counted::event_query);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 0;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
  count(counted::launch_kernel);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemPrefetchBatchAsync(void**, std::size_t*, std::size_t, cudaMemLocation*, std::size_t*, std::size_t,
                                      unsigned long long, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemDiscardBatchAsync(void**, std::size_t*, std::size_t, unsigned long long, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemDiscardAndPrefetchBatchAsync(void**, std::size_t*, std::size_t, cudaMemLocation*, std::size_t*,
                                                std::size_t, unsigned long long, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, cudaMemLocation) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
