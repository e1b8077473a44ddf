// The runtime's calls about streams, graphs, events and launches.

#include "cuda/fake/calls.hpp"
#include "cuda/fake/memory.hpp"
#include "cuda/fake/state.hpp"
#include "cuda/fake/streams.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

using namespace fake_runtime;

namespace {

/// Of a graph or what was made of it. What they have of the program's ends with the last of them, without the mutex.
cudaError_t destroy_graph(const char* name, const void* graph) {
  std::shared_ptr<recorded_graph> last;
  return call(name, releases, [&](guard&) {
    auto& all = rt().now.graphs;
    const auto it = all.find(graph);
    if (it == all.end()) return cudaErrorInvalidValue;
    last = std::move(it->second);
    all.erase(it);
    return cudaSuccess;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call("cudaStreamCreateWithFlags", unsafe, [&](guard&) {
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = new_handle<cudaStream_t>();
    start_stream(*stream, flags == cudaStreamDefault);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", releases | unsafe, [&](guard&) {
    const auto it = rt().now.streams.find(stream);
    if (it == rt().now.streams.end() || it->second->legacy) return cudaErrorInvalidResourceHandle;
    end_stream(it);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", unsafe, [&](guard& lock) {
    const auto f = find_stream(stream);
    if (f != nullptr && f->capturing) return spoiled_capture(*f);
    if (legacy_is_blocked(stream)) return spoiled_by_legacy();
    return f == nullptr ? cudaErrorInvalidResourceHandle : drain(lock, f);
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", unsafe, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (f->capturing) return spoiled_capture(*f);
    if (legacy_is_blocked(stream)) return spoiled_by_legacy();
    if (f->finished != f->issued) return cudaErrorNotReady;
    acquire_order(f.get());
    return cudaSuccess;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call("cudaStreamWaitEvent", 0, [&](guard&) {
    const auto f = find_stream(stream);
    const auto e = rt().now.events.find(event);
    if (f == nullptr || e == rt().now.events.end()) return cudaErrorInvalidResourceHandle;
    if (e->second.latest == nullptr) return cudaSuccess;
    put(*f, [latest = e->second.latest] {
      guard lock;
      (void)wait(lock, latest);
    });
    return cudaSuccess;
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", 0, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (legacy_is_blocked(stream)) return cudaErrorStreamCaptureImplicit;
    return give(status, f->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone);
  });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", 0, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (f->capturing) return cudaErrorIllegalState;
    f->capturing = true;
    f->capture_mode = mode;
    f->capturer = std::this_thread::get_id();
    f->invalidated = false;
    f->recording = std::make_shared<recorded_graph>();
    f->graph = new_handle<cudaGraph_t>();
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", releases, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (!f->capturing || f->recording == nullptr) return cudaErrorIllegalState;
    if (f->capture_mode != cudaStreamCaptureModeRelaxed && f->capturer != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    f->capturing = false;
    if (f->invalidated) {
      f->recording = nullptr;
      f->graph = nullptr;
      (void)give(graph, cudaGraph_t{});
      return cudaErrorStreamCaptureInvalidated;
    }
    rt().now.graphs[f->graph] = std::exchange(f->recording, nullptr);
    return give(graph, std::exchange(f->graph, nullptr));
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return call("cudaGraphInstantiate", unsafe, [&](guard&) {
    const auto it = rt().now.graphs.find(graph);
    if (it == rt().now.graphs.end()) return cudaErrorInvalidValue;
    const auto handle = new_handle<cudaGraphExec_t>();
    rt().now.graphs[handle] = it->second;
    return give(made, handle);
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return call("cudaGraphLaunch", 0, [&](guard&) {
    const auto it = rt().now.graphs.find(graph);
    const auto f = find_stream(stream);
    if (it == rt().now.graphs.end() || f == nullptr) return cudaErrorInvalidValue;
    for (const std::function<void()>& work : it->second->operations) {
      put(*f, [work, alive = it->second] { work(); });
    }
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return destroy_graph("cudaGraphDestroy", graph); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return destroy_graph("cudaGraphExecDestroy", graph); }
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t* graph, const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                     std::size_t*) {
  return call("cudaStreamGetCaptureInfo", 0, [&](guard&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return cudaErrorInvalidResourceHandle;
    if (graph != nullptr) *graph = f->graph;
    if (legacy_is_blocked(stream)) return cudaErrorStreamCaptureImplicit;
    return give(status, f->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone);
  });
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t* made, void* p, cudaHostFn_t destroy, unsigned count, unsigned) {
  return call("cudaUserObjectCreate", 0, [&](guard&) {
    if (count != 1) return cudaErrorInvalidValue;  // all that is used here
    *made = new_handle<cudaUserObject_t>();
    rt().now.user_objects[*made] = std::shared_ptr<void>(p, destroy);
    return cudaSuccess;
  });
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned) {
  std::shared_ptr<void> last;  // ends without the mutex
  return call("cudaUserObjectRelease", releases, [&](guard&) {
    auto& all = rt().now.user_objects;
    const auto it = all.find(object);
    if (it == all.end()) return cudaErrorInvalidValue;
    last = std::move(it->second);
    all.erase(it);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
  return call("cudaGraphRetainUserObject", 0, [&](guard&) {
    state& s = rt().now;
    const auto it = s.user_objects.find(object);
    if (it == s.user_objects.end() || count != 1 || flags != cudaGraphUserObjectMove) return cudaErrorInvalidValue;
    std::shared_ptr<recorded_graph> into = s.graphs.contains(graph) ? s.graphs.at(graph) : nullptr;
    for (auto& [handle, f] : s.streams) {
      if (f->graph == graph && graph != nullptr) into = f->recording;
    }
    if (into == nullptr) return cudaErrorInvalidValue;
    into->objects.push_back(std::move(it->second));
    s.user_objects.erase(it);
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", 0, [&](guard&) {
    *event = new_handle<cudaEvent_t>();
    rt().now.events[*event] = {(flags & cudaEventDisableTiming) == 0, nullptr, context_now()};
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", releases,
              [&](guard&) { return rt().now.events.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", 0, [&](guard&) {
    const auto f = find_stream(stream);
    const auto e = rt().now.events.find(event);
    if (f == nullptr || e == rt().now.events.end()) return cudaErrorInvalidResourceHandle;
    // The default stream is that of the device, whichever of its contexts the event is of.
    const bool same = is_legacy(stream) ? f->device == device_of(e->second.context) : f->context == e->second.context;
    if (!same) return cudaErrorInvalidResourceHandle;
    if (legacy_is_blocked(stream)) return spoiled_by_legacy();
    auto latest = std::make_shared<recording>();
    e->second.captured = f->capturing;
    if (!f->capturing) e->second.latest = latest;
    put(*f, [latest] {
      const guard lock;
      release_order(latest.get());
      latest->done = true;
      latest->at = clock_now();
    });
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", unsafe, [&](guard&) {
    const auto e = rt().now.events.find(event);
    if (e == rt().now.events.end()) return cudaErrorInvalidResourceHandle;
    if (e->second.captured) return cudaErrorCapturedEvent;
    return done(e->second.latest) ? cudaSuccess : cudaErrorNotReady;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", unsafe, [&](guard& lock) {
    const auto e = rt().now.events.find(event);
    if (e == rt().now.events.end()) return cudaErrorInvalidResourceHandle;
    if (e->second.captured) return cudaErrorCapturedEvent;
    return wait(lock, std::shared_ptr<recording>(e->second.latest));  // which may be recorded anew meanwhile
  });
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call("cudaEventElapsedTime", 0, [&](guard&) {
    const auto a = rt().now.events.find(start);
    const auto b = rt().now.events.find(end);
    for (const auto& e : {a, b}) {
      if (e == rt().now.events.end() || !e->second.timing || e->second.latest == nullptr) {
        return cudaErrorInvalidResourceHandle;
      }
    }
    if (device_of(a->second.context) != device_of(b->second.context)) return cudaErrorInvalidResourceHandle;
    if (!done(a->second.latest) || !done(b->second.latest)) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(b->second.latest->at - a->second.latest->at).count();
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchKernel(const void* func, dim3 grid, dim3 block, void** args, std::size_t shared,
                             cudaStream_t stream) {
  return call("cudaLaunchKernel", 0, [&](guard&) {
    const auto kernel = rt().kernels.find(func);
    if (kernel == rt().kernels.end()) return cudaErrorInvalidDeviceFunction;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0 ||
        std::uint64_t{block.x} * block.y * block.z > 1024) {
      return cudaErrorInvalidConfiguration;
    }
    const auto f = find_stream(stream);
    if (f == nullptr || (!is_legacy(stream) && f->context != context_now())) {
      return cudaErrorInvalidResourceHandle;
    }
    rt().now.launches.push_back({func, grid, block, shared, stream});
    put(*f, kernel->second(args));
    return cudaSuccess;
  });
}
}  // extern "C"
