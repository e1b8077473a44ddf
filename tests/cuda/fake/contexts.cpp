// The driver's contexts, and the runtime's calls about devices.

#include "cuda/fake/calls.hpp"
#include "cuda/fake/state.hpp"
#include "cuda/fake/streams.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace fake_runtime {

namespace {

CUresult device_get(CUdevice* device, int ordinal) {
  return driver_call("cuDeviceGet",
                     [&](state&) { return is_device(ordinal) ? give(device, ordinal) : cudaErrorInvalidDevice; });
}
CUresult primary_retain(CUcontext* context, CUdevice device) {
  return driver_call("cuDevicePrimaryCtxRetain", [&](state& s) {
    ++s.retained[device];
    s.opened.insert(device);
    return give(context, primary(device));
  });
}
CUresult primary_release(CUdevice device) {
  return driver_call(
      "cuDevicePrimaryCtxRelease",
      [&](state& s) { return s.retained[device]-- > 0 ? cudaSuccess : cudaErrorDeviceUninitialized; }, releases);
}
CUresult context_get_current(CUcontext* context) {
  return driver_call("cuCtxGetCurrent", [&](state&) { return give(context, current_context); });
}
CUresult exchange_capture_mode(CUstreamCaptureMode* mode) {
  return driver_call("cuThreadExchangeStreamCaptureMode", [&](state&) {
    const auto before = static_cast<CUstreamCaptureMode>(capture_mode);
    capture_mode = static_cast<cudaStreamCaptureMode>(std::exchange(*mode, before));
    return cudaSuccess;
  });
}
CUresult context_create(CUcontext* made, unsigned, CUdevice device) {
  return driver_call(
      "cuCtxCreate",
      [&](state& s) {
        if (s.no_contexts) return cudaErrorMemoryAllocation;
        contexts_below.push_back(current_context);
        current_context = new_handle<CUcontext>();
        s.contexts[current_context] = device;
        return give(made, current_context);
      },
      unsafe);
}
CUresult context_pop(CUcontext* was) {
  return driver_call("cuCtxPopCurrent", [&](state&) {
    if (contexts_below.empty()) return cudaErrorDeviceUninitialized;
    const CUcontext top = std::exchange(current_context, contexts_below.back());
    contexts_below.pop_back();
    return give(was, top);
  });
}
CUresult context_set_current(CUcontext context) {
  return driver_call("cuCtxSetCurrent", [&](state& s) {
    if (context != nullptr && !is_primary(context) && !s.contexts.contains(context)) {
      return cudaErrorDeviceUninitialized;
    }
    current_context = context;
    return cudaSuccess;
  });
}
CUresult context_destroy(CUcontext context) {
  const auto destroy = [&](state& s) {
    if (s.contexts.erase(context) == 0) return cudaErrorDeviceUninitialized;
    // Its streams and events end with it; whoever destroys them later is told so.
    for (auto it = s.streams.begin(); it != s.streams.end();) {
      const auto next = std::next(it);
      if (it->second->context == context) end_stream(it);
      it = next;
    }
    std::erase_if(s.events, [&](auto& e) { return e.second.context == context; });
    return cudaSuccess;
  };
  return driver_call("cuCtxDestroy", destroy, releases);
}
CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  return driver_call("cuStreamIsCapturing", [&](state&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (legacy_is_blocked(stream)) return cudaErrorStreamCaptureImplicit;
    return give(status, f->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE);
  });
}

}  // namespace

void* context_function(const char* name) {
  static const std::map<std::string_view, void*> functions{
      {"cuDeviceGet", reinterpret_cast<void*>(&device_get)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&primary_retain)},
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(&primary_release)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(&context_get_current)},
      {"cuThreadExchangeStreamCaptureMode", reinterpret_cast<void*>(&exchange_capture_mode)},
      {"cuCtxCreate", reinterpret_cast<void*>(&context_create)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&context_pop)},
      {"cuCtxSetCurrent", reinterpret_cast<void*>(&context_set_current)},
      {"cuCtxDestroy", reinterpret_cast<void*>(&context_destroy)},
      {"cuStreamIsCapturing", reinterpret_cast<void*>(&is_capturing)}};
  const auto it = functions.find(name);
  return it == functions.end() ? nullptr : it->second;
}

}  // namespace fake_runtime

using namespace fake_runtime;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", deviceless, [&](guard&) {
    const cudaError_t e = give(count, rt().now.device_count);
    return rt().now.device_count == 0 ? cudaErrorNoDevice : e;
  });
}
cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", contextless, [&](guard&) {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    thread_device = device;
    current_context = primary(device);
    rt().now.opened.insert(device);
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", contextless, [&](guard&) { return give(device, device_now()); });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return call("cudaGetDeviceProperties", contextless, [&](guard&) {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    auto& attributes = rt().now.attributes;
    *prop = {};
    std::strcpy(prop->name, "fake GPU");
    prop->totalGlobalMem = rt().now.gpus[static_cast<std::size_t>(device)].total;
    prop->major = attributes[cudaDevAttrComputeCapabilityMajor];
    prop->minor = attributes[cudaDevAttrComputeCapabilityMinor];
    prop->warpSize = attributes[cudaDevAttrWarpSize];
    prop->multiProcessorCount = attributes[cudaDevAttrMultiProcessorCount];
    prop->asyncEngineCount = attributes[cudaDevAttrAsyncEngineCount];
    prop->unifiedAddressing = attributes[cudaDevAttrUnifiedAddressing];
    prop->managedMemory = attributes[cudaDevAttrManagedMemory];
    prop->concurrentManagedAccess = attributes[cudaDevAttrConcurrentManagedAccess];
    prop->pageableMemoryAccess = attributes[cudaDevAttrPageableMemoryAccess];
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return call("cudaDeviceGetAttribute", contextless, [&](guard&) {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    if (attr < cudaDevAttrMaxThreadsPerBlock || attr >= cudaDevAttrMax) return cudaErrorInvalidValue;
    return give(value, rt().now.attributes[attr]);
  });
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call("cudaMemGetInfo", unsafe, [&](guard&) {
    const gpu& g = rt().now.gpus[static_cast<std::size_t>(device_now())];
    *total = g.total;
    *free = *total - std::min(*total, g.used());
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call("cudaDeviceCanAccessPeer", contextless, [&](guard&) {
    if (!is_device(device) || !is_device(peer)) return cudaErrorInvalidDevice;
    return give(can, rt().now.peers && device != peer ? 1 : 0);
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call("cudaDeviceEnablePeerAccess", 0, [&](guard&) {
    if (flags != 0) return cudaErrorInvalidValue;
    if (!is_device(peer) || peer == device_now()) return cudaErrorInvalidDevice;
    if (!rt().now.peers) return cudaErrorPeerAccessUnsupported;
    const bool added = rt().now.gpus[static_cast<std::size_t>(device_now())].peers.insert(peer).second;
    return added ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return call("cudaDeviceDisablePeerAccess", 0, [&](guard&) {
    const bool was = rt().now.gpus[static_cast<std::size_t>(device_now())].peers.erase(peer) != 0;
    return was ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
  });
}
cudaError_t cudaDriverGetVersion(int* version) {
  return call("cudaDriverGetVersion", deviceless, [&](guard&) { return give(version, CUDART_VERSION); });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return call("cudaRuntimeGetVersion", deviceless, [&](guard&) { return give(version, CUDART_VERSION); });
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return call("cudaGetDriverEntryPointByVersion", deviceless, [&](guard&) {
    void* known = context_function(symbol);
    known = known == nullptr ? mapping_function(symbol) : known;
    const bool there = known != nullptr;
    if (found != nullptr) *found = there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return give(function, known);
  });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call("cudaThreadExchangeStreamCaptureMode", 0, [&](guard&) {
    std::swap(*mode, capture_mode);
    return cudaSuccess;
  });
}

}  // extern "C"
