// A libcuda.so.1 without a GPU: the driver's functions that programs under deepum-run call, on top of the fake runtime
// of tests/cuda/fake, whose functions this library exports too. Both see one device, one set of streams, one memory.
//
// Kernels are known by name: see `kernels`. A CUkernel is not a CUfunction: the driver refuses to tell its parameters,
// as the real one does, until it has been turned into one. Nodes of a captured graph can be looked at.

#include "cuda/fake/calls.hpp"
#include "cuda/fake/state.hpp"
#include "cuda/fake_cuda.hpp"

#define __CUDA_API_VERSION_INTERNAL 1  // all forms of all functions under their own names
#include <dlfcn.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#define DEEPUM_DRIVER extern "C" __attribute__((visibility("default"))) CUresult

using deepum::access;
using deepum_test::device_touch;

namespace {

CUresult as_driver(cudaError_t e) { return static_cast<CUresult>(e); }
cudaStream_t stream_of(CUstream s, bool per_thread) {
  (void)per_thread;  // the fake has one default stream
  return s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD ? nullptr : s;
}

// --- Kernels ---

struct sides {
  float* to;
  const float* from;
  int n;
};

void scale(float* y, const float* x, float a, int n) {
  device_touch(x, sizeof(float) * static_cast<std::size_t>(n), access::read);
  device_touch(y, sizeof(float) * static_cast<std::size_t>(n), access::update);
  for (int i = 0; i < n; ++i)
    y[i] = a * x[i];
}
void add(float* y, float a, int n) {
  device_touch(y, sizeof(float) * static_cast<std::size_t>(n), access::update);
  for (int i = 0; i < n; ++i)
    y[i] += a;
}
void copy_sides(sides s) { scale(s.to, s.from, 1, s.n); }
void through_table(float** table, int n) {
  device_touch(table, 2 * sizeof(float*), access::read);
  scale(table[0], table[1], 1, n);
}

struct kernel {
  const char* symbol = nullptr;
  const void* function = nullptr;
  std::vector<std::pair<std::size_t, std::size_t>> parameters{};  // offset, size
  char as_kernel = 0;                                             // its address is the CUkernel
};

template <class... P>
kernel known(const char* symbol, void (*function)(P...)) {
  deepum_test::fake_cuda::register_kernel(function);
  kernel k{symbol, reinterpret_cast<const void*>(function), {}};
  std::size_t end = 0;
  (
      [&] {
        const std::size_t offset = (end + alignof(P) - 1) / alignof(P) * alignof(P);
        k.parameters.emplace_back(offset, sizeof(P));
        end = offset + sizeof(P);
      }(),
      ...);
  return k;
}
std::array<kernel, 4>& kernels() {
  static std::array<kernel, 4> all{known("_Z5scalePfPKffi", &scale), known("_Z3addPffi", &add),
                                   known("_Z10copy_sides5sides", &copy_sides), known("through_table", &through_table)};
  return all;
}
kernel* of_function(const void* f) {
  for (kernel& k : kernels()) {
    if (&k == f) return &k;
  }
  return nullptr;
}
kernel* of_kernel(const void* f) {
  for (kernel& k : kernels()) {
    if (&k.as_kernel == f) return &k;
  }
  return nullptr;
}

/// Arguments of a launch, in one piece of memory of their own.
struct arguments {
  std::vector<std::byte> bytes{};
  std::vector<void*> places{};

  arguments(const kernel& k, void** parameters, void** extra) {
    const std::byte* packed = nullptr;
    for (void** e = extra; e != nullptr && *e != CU_LAUNCH_PARAM_END; e += 2) {
      if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) packed = static_cast<const std::byte*>(e[1]);
    }
    bytes.resize(k.parameters.back().first + k.parameters.back().second);
    for (std::size_t i = 0; i < k.parameters.size(); ++i) {
      const auto [offset, size] = k.parameters[i];
      std::memcpy(bytes.data() + offset, parameters != nullptr ? parameters[i] : packed + offset, size);
    }
    for (const auto& [offset, size] : k.parameters)
      places.push_back(bytes.data() + offset);
  }
};

// --- Graphs: what was captured, as nodes ---

struct node {
  const kernel* what;
  std::shared_ptr<arguments> with;
};
std::mutex graphs_mutex;
std::map<CUstream, std::vector<node>> captured;
std::map<CUgraph, std::vector<std::unique_ptr<node>>> graphs;

CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                unsigned shared, CUstream stream, void** parameters, void** extra, bool per_thread) {
  const kernel* k = of_function(f);
  k = k == nullptr ? of_kernel(f) : k;
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto with = std::make_shared<arguments>(*k, parameters, extra);
  const CUresult result = as_driver(cudaLaunchKernel(k->function, {gx, gy, gz}, {bx, by, bz}, with->places.data(),
                                                     shared, stream_of(stream, per_thread)));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (result == CUDA_SUCCESS && stream != nullptr && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD &&
      cudaStreamIsCapturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusActive) {
    const std::lock_guard lock(graphs_mutex);
    captured[stream].push_back({k, with});
  }
  return result;
}
CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream stream, bool wait) {
  const cudaError_t e = cudaMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), n,
                                        cudaMemcpyDefault, stream_of(stream, false));
  return as_driver(e == cudaSuccess && wait ? cudaStreamSynchronize(stream_of(stream, false)) : e);
}
CUresult fill(CUdeviceptr to, int value, std::size_t n, CUstream stream) {
  return as_driver(cudaMemsetAsync(reinterpret_cast<void*>(to), value, n, stream_of(stream, false)));
}
template <class Function>
Function driver_call_of(const char* name) {
  return reinterpret_cast<Function>(fake_runtime::context_function(name));
}

}  // namespace

// --- The process, devices, contexts ---

DEEPUM_DRIVER cuInit(unsigned) {
  return std::getenv("FAKE_DRIVER_NO_DEVICE") != nullptr ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
DEEPUM_DRIVER cuDriverGetVersion(int* version) { return as_driver(cudaDriverGetVersion(version)); }
DEEPUM_DRIVER cuDeviceGetCount(int* n) { return as_driver(cudaGetDeviceCount(n)); }
DEEPUM_DRIVER cuDeviceGet(CUdevice* d, int ordinal) {
  return driver_call_of<CUresult (*)(CUdevice*, int)>("cuDeviceGet")(d, ordinal);
}
DEEPUM_DRIVER cuDeviceGetAttribute(int* out, CUdevice_attribute attribute, CUdevice device) {
  if (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) {
    *out = 1;
    return CUDA_SUCCESS;
  }
  return as_driver(cudaDeviceGetAttribute(out, static_cast<cudaDeviceAttr>(attribute), device));
}
DEEPUM_DRIVER cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice d) {
  return driver_call_of<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain")(c, d);
}
DEEPUM_DRIVER cuDevicePrimaryCtxRelease_v2(CUdevice d) {
  return driver_call_of<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxRelease")(d);
}
DEEPUM_DRIVER cuDevicePrimaryCtxReset_v2(CUdevice) { return CUDA_SUCCESS; }
DEEPUM_DRIVER cuCtxGetCurrent(CUcontext* c) { return driver_call_of<CUresult (*)(CUcontext*)>("cuCtxGetCurrent")(c); }
DEEPUM_DRIVER cuCtxSetCurrent(CUcontext c) { return driver_call_of<CUresult (*)(CUcontext)>("cuCtxSetCurrent")(c); }
DEEPUM_DRIVER cuCtxGetDevice(CUdevice* d) {
  CUcontext now = nullptr;
  if (cuCtxGetCurrent(&now) != CUDA_SUCCESS || now == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return as_driver(cudaGetDevice(d));
}
DEEPUM_DRIVER cuCtxSynchronize() { return as_driver(cudaDeviceSynchronize()); }
DEEPUM_DRIVER cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return driver_call_of<CUresult (*)(CUstreamCaptureMode*)>("cuThreadExchangeStreamCaptureMode")(mode);
}

// --- Memory. Programs under deepum-run never get to the first four. ---

DEEPUM_DRIVER cuMemAlloc_v2(CUdeviceptr* p, std::size_t n) {
  return as_driver(cudaMalloc(reinterpret_cast<void**>(p), n));
}
DEEPUM_DRIVER cuMemAllocManaged(CUdeviceptr* p, std::size_t n, unsigned flags) {
  return as_driver(cudaMallocManaged(reinterpret_cast<void**>(p), n, flags));
}
DEEPUM_DRIVER cuMemAllocAsync(CUdeviceptr* p, std::size_t n, CUstream) { return cuMemAlloc_v2(p, n); }
DEEPUM_DRIVER cuMemAllocAsync_ptsz(CUdeviceptr* p, std::size_t n, CUstream) { return cuMemAlloc_v2(p, n); }
DEEPUM_DRIVER cuMemAllocPitch_v2(CUdeviceptr* p, std::size_t* pitch, std::size_t width, std::size_t height, unsigned) {
  *pitch = width;
  return cuMemAlloc_v2(p, width * height);
}
DEEPUM_DRIVER cuMemFree_v2(CUdeviceptr p) { return as_driver(cudaFree(reinterpret_cast<void*>(p))); }
DEEPUM_DRIVER cuMemFreeAsync(CUdeviceptr p, CUstream) { return cuMemFree_v2(p); }
DEEPUM_DRIVER cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream) { return cuMemFree_v2(p); }
DEEPUM_DRIVER cuMemGetInfo_v2(std::size_t* free, std::size_t* total) { return as_driver(cudaMemGetInfo(free, total)); }
DEEPUM_DRIVER cuMemGetAddressRange_v2(CUdeviceptr*, std::size_t*, CUdeviceptr) { return CUDA_ERROR_NOT_FOUND; }
DEEPUM_DRIVER cuPointerGetAttribute(void* out, CUpointer_attribute what, CUdeviceptr p) {
  cudaPointerAttributes found{};
  (void)cudaPointerGetAttributes(&found, reinterpret_cast<const void*>(p));
  if (what != CU_POINTER_ATTRIBUTE_IS_MANAGED) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<unsigned*>(out) = found.type == cudaMemoryTypeManaged ? 1 : 0;
  return CUDA_SUCCESS;
}
DEEPUM_DRIVER cuMemCreate(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*, unsigned long long) {
  return CUDA_SUCCESS;
}
DEEPUM_DRIVER cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t n) {
  return copy(to, reinterpret_cast<CUdeviceptr>(from), n, nullptr, true);
}
DEEPUM_DRIVER cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* from, std::size_t n) {
  return copy(to, reinterpret_cast<CUdeviceptr>(from), n, nullptr, true);
}
DEEPUM_DRIVER cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t n) {
  return copy(reinterpret_cast<CUdeviceptr>(to), from, n, nullptr, true);
}
DEEPUM_DRIVER cuMemcpyDtoH_v2_ptds(void* to, CUdeviceptr from, std::size_t n) {
  return copy(reinterpret_cast<CUdeviceptr>(to), from, n, nullptr, true);
}
DEEPUM_DRIVER cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t n, CUstream s) {
  return copy(to, reinterpret_cast<CUdeviceptr>(from), n, s, false);
}
DEEPUM_DRIVER cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s) {
  return copy(to, from, n, s, false);
}
DEEPUM_DRIVER cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t n) { return fill(to, value, n, nullptr); }
DEEPUM_DRIVER cuMemsetD8_v2_ptds(CUdeviceptr to, unsigned char value, std::size_t n) {
  return fill(to, value, n, nullptr);
}
DEEPUM_DRIVER cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t n, CUstream s) {
  return fill(to, value, n, s);
}

// --- Streams ---

DEEPUM_DRIVER cuStreamCreate(CUstream* s, unsigned flags) { return as_driver(cudaStreamCreateWithFlags(s, flags)); }
DEEPUM_DRIVER cuStreamDestroy_v2(CUstream s) { return as_driver(cudaStreamDestroy(s)); }
DEEPUM_DRIVER cuStreamSynchronize(CUstream s) { return as_driver(cudaStreamSynchronize(stream_of(s, false))); }
DEEPUM_DRIVER cuStreamSynchronize_ptsz(CUstream s) { return as_driver(cudaStreamSynchronize(stream_of(s, true))); }
DEEPUM_DRIVER cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* status) {
  return as_driver(cudaStreamIsCapturing(stream_of(s, false), reinterpret_cast<cudaStreamCaptureStatus*>(status)));
}
DEEPUM_DRIVER cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode) {
  return as_driver(cudaStreamBeginCapture(s, static_cast<cudaStreamCaptureMode>(mode)));
}
DEEPUM_DRIVER cuStreamEndCapture(CUstream s, CUgraph* graph) {
  const CUresult result = as_driver(cudaStreamEndCapture(s, graph));
  const std::lock_guard lock(graphs_mutex);
  for (node& each : captured[s]) {
    if (result == CUDA_SUCCESS) graphs[*graph].push_back(std::make_unique<node>(std::move(each)));
  }
  captured.erase(s);
  return result;
}
DEEPUM_DRIVER cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return as_driver(cudaGraphInstantiate(exec, graph, flags));
}
DEEPUM_DRIVER cuGraphLaunch(CUgraphExec exec, CUstream s) { return as_driver(cudaGraphLaunch(exec, s)); }
DEEPUM_DRIVER cuGraphExecDestroy(CUgraphExec exec) { return as_driver(cudaGraphExecDestroy(exec)); }
DEEPUM_DRIVER cuGraphDestroy(CUgraph graph) {
  const std::lock_guard lock(graphs_mutex);
  graphs.erase(graph);
  return as_driver(cudaGraphDestroy(graph));
}
DEEPUM_DRIVER cuGraphGetNodes(CUgraph graph, CUgraphNode* out, std::size_t* n) {
  const std::lock_guard lock(graphs_mutex);
  const auto& nodes = graphs[graph];
  for (std::size_t i = 0; out != nullptr && i < *n && i < nodes.size(); ++i) {
    out[i] = reinterpret_cast<CUgraphNode>(nodes[i].get());
  }
  *n = nodes.size();
  return CUDA_SUCCESS;
}
DEEPUM_DRIVER cuGraphNodeGetType(CUgraphNode, CUgraphNodeType* type) {
  *type = CU_GRAPH_NODE_TYPE_KERNEL;
  return CUDA_SUCCESS;
}
DEEPUM_DRIVER cuGraphKernelNodeGetParams_v2(CUgraphNode at, CUDA_KERNEL_NODE_PARAMS_v2* p) {
  const auto* const n = reinterpret_cast<const node*>(at);
  *p = {};
  p->func = reinterpret_cast<CUfunction>(const_cast<kernel*>(n->what));
  p->kernelParams = n->with->places.data();
  return CUDA_SUCCESS;
}

// --- Kernels ---

DEEPUM_DRIVER cuModuleLoadData(CUmodule* module, const void*) {
  *module = reinterpret_cast<CUmodule>(std::uintptr_t{1});
  return CUDA_SUCCESS;
}
DEEPUM_DRIVER cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
DEEPUM_DRIVER cuModuleGetFunction(CUfunction* f, CUmodule, const char* name) {
  for (kernel& k : kernels()) {
    if (name == std::string_view(k.symbol)) {
      *f = reinterpret_cast<CUfunction>(&k);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_NOT_FOUND;
}
DEEPUM_DRIVER cuLibraryGetKernel(CUkernel* out, CUlibrary, const char* name) {
  CUfunction f = nullptr;
  const CUresult result = cuModuleGetFunction(&f, nullptr, name);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUkernel>(&reinterpret_cast<kernel*>(f)->as_kernel);
  return result;
}
DEEPUM_DRIVER cuKernelGetFunction(CUfunction* f, CUkernel from) {
  *f = reinterpret_cast<CUfunction>(of_kernel(from));
  return *f == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
DEEPUM_DRIVER cuFuncGetName(const char** name, CUfunction f) {
  const kernel* const k = of_function(f);
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = k->symbol;
  return CUDA_SUCCESS;
}
DEEPUM_DRIVER cuFuncGetParamInfo(CUfunction f, std::size_t i, std::size_t* offset, std::size_t* size) {
  const kernel* const k = of_function(f);
  if (k == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (i >= k->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = k->parameters[i].first;
  *size = k->parameters[i].second;
  return CUDA_SUCCESS;
}
#define GRID \
  unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream
DEEPUM_DRIVER cuLaunchKernel(CUfunction f, GRID, void** parameters, void** extra) {
  return launch(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra, false);
}
DEEPUM_DRIVER cuLaunchKernel_ptsz(CUfunction f, GRID, void** parameters, void** extra) {
  return launch(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra, true);
}
DEEPUM_DRIVER cuLaunchCooperativeKernel(CUfunction f, GRID, void** parameters) {
  return launch(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, nullptr, false);
}
DEEPUM_DRIVER cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** parameters, void** extra) {
  return launch(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes,
                c->hStream, parameters, extra, false);
}
DEEPUM_DRIVER cuLaunchKernelEx_ptsz(const CUlaunchConfig* c, CUfunction f, void** parameters, void** extra) {
  return cuLaunchKernelEx(c, f, parameters, extra);
}
DEEPUM_DRIVER cuGraphLaunch_ptsz(CUgraphExec exec, CUstream s) { return cuGraphLaunch(exec, s); }

// --- How all of them are found ---

DEEPUM_DRIVER cuGetProcAddress_v2(const char* symbol, void** found, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  // The newest form first, and that for the kind of default stream that is asked for.
  (void)version;
  static void* const self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  *found = nullptr;
  for (const char* const form : {"_v2", "", "WithFlags"}) {
    for (const char* const kind : {"_ptsz", "_ptds", ""}) {
      if (*kind != '\0' && !per_thread) continue;
      *found = dlsym(self, (std::string(symbol) + form + kind).c_str());
      if (*found != nullptr) {
        if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SUCCESS;
        return CUDA_SUCCESS;
      }
    }
  }
  if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_ERROR_NOT_FOUND;
}
/// Of the fake alone, for programs that test: see fake_cuda.hpp. None of them is a function of the driver.
extern "C" __attribute__((visibility("default"))) void fake_driver_hold(CUstream s) { deepum_test::fake_cuda::hold(s); }
extern "C" __attribute__((visibility("default"))) void fake_driver_resume(CUstream s) {
  deepum_test::fake_cuda::resume(s);
}
extern "C" __attribute__((visibility("default"))) void fake_driver_fail(const char* name, int error) {
  deepum_test::fake_cuda::fail_call(name, 1, static_cast<cudaError_t>(error));
}
extern "C" __attribute__((visibility("default"))) std::uint64_t fake_driver_calls(const char* name) {
  return deepum_test::fake_cuda::calls(name);
}
extern "C" __attribute__((visibility("default"))) std::uint64_t fake_driver_managed() {
  return deepum_test::fake_cuda::stats().managed_peak.count;
}
