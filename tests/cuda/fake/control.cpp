// What tests ask the fake for, and the runtime's calls about errors.

#include "cuda/fake/calls.hpp"
#include "cuda/fake/mappings.hpp"
#include "cuda/fake/memory.hpp"
#include "cuda/fake/state.hpp"
#include "cuda/fake/streams.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace deepum_test {

using namespace fake_runtime;

void device_touch(const void* p, std::size_t size, deepum::access mode) {
  if (size == 0) return;
  {
    const guard lock;
    if (in_reserved(p)) {
      check_access(p, size, mode, executing_device());
      if (executing != nullptr) {
        executing->uses.push_back({static_cast<const std::byte*>(p), size, mode != access::read});
      }
    } else if (const allocation* a = find(p, size); a == nullptr || !reaches(executing_device(), *a)) {
      noted(cudaErrorIllegalAddress);
      throw illegal_access{};
    }
  }
  touch(p, size, mode, executing_device());
}

namespace fake_cuda {

std::string reset() {
  guard lock;
  state& s = rt().now;
  std::string left;
  std::vector<std::shared_ptr<fifo>> all = s.destroyed;
  for (auto& [handle, f] : s.streams) {
    if (!f->legacy) left += "a stream\n";
    all.push_back(f);
  }
  for (std::size_t i = 0; i < s.events.size(); ++i) {
    left += "an event\n";
  }
  for (auto& [device, count] : s.retained) {
    if (count != 0) left += "a primary context that is kept\n";
  }
  for (std::size_t i = 0; i < s.contexts.size(); ++i) {
    left += "a context\n";
  }
  for (auto& [base, a] : s.allocations) {
    left += "an allocation of " + std::to_string(a.size) + " bytes\n";
  }
  for (auto& [base, size] : s.reserved) {
    left += "a reserved range of " + std::to_string(size) + " bytes\n";
  }
  for (auto& [handle, m] : s.handles) {
    if (!m.released) left += "a memory handle of " + std::to_string(m.size) + " bytes\n";
  }
  for (auto& [first, v] : s.views) {
    left += "a mapping of " + std::to_string(v.size) + " bytes\n";
  }
  for (std::size_t i = 0; i < s.graphs.size(); ++i) {
    left += "a graph\n";
  }
  for (auto& f : all) {
    f->held = false;
    f->closing = true;
  }
  rt().changed.notify_all();
  lock.unlock();
  for (auto& f : all) {
    f->worker.join();
  }
  lock.lock();
  for (auto& [base, a] : s.allocations) {
    unmap(a);
  }
  for (auto& [base, size] : s.reserved) {
    ::munmap(const_cast<std::byte*>(base), size);
  }
  for (auto& [base, size] : s.abandoned) {
    ::munmap(base, size);
  }
  if (s.file_size > 0 && ::ftruncate(rt().file, 0) != 0) std::abort();
  s = state{};
  last_error = cudaSuccess;
  capture_mode = cudaStreamCaptureModeGlobal;
  contexts_below.clear();
  current_context = nullptr;
  thread_device = 0;
  return left;
}

void set_device_count(int n) {
  locked([&](state& s) { s.device_count = n; });
}
void set_refuse_contexts(bool refuse) {
  locked([&](state& s) { s.no_contexts = refuse; });
}
void set_attribute(cudaDeviceAttr attribute, int value) {
  locked([&](state& s) { s.attributes[attribute] = value; });
}
void set_peer_access(bool possible) {
  locked([&](state& s) { s.peers = possible; });
}
void set_device_memory(deepum::bytes total) {
  for (int d = 0; d < most_devices; ++d) {
    set_device_memory(d, total);
  }
}
void set_device_memory(int device, deepum::bytes total) {
  locked([&](state& s) {
    s.gpus[static_cast<std::size_t>(device)].total = total.count;
    make_room(device, 0);
  });
}
void set_foreign_memory(deepum::bytes held, int device) {
  locked([&](state& s) {
    s.gpus[static_cast<std::size_t>(device)].foreign = held.count;
    make_room(device, 0);
  });
}
void set_host_memory(deepum::bytes total) {
  locked([&](state& s) { s.host_total = total.count; });
}
void set_address_space(deepum::bytes total) {
  locked([&](state& s) { s.address_space = total.count; });
}
void set_clock_offset(nanoseconds offset) {
  locked([&](state& s) { s.clock_offset = offset; });
}
nanoseconds device_clock() {
  return locked([](state&) { return clock_now(); });
}
void set_delays(std::uint64_t seed, std::chrono::microseconds longest) {
  locked([&](state& s) {
    s.random.seed(seed);
    s.longest_delay = longest;
  });
}
void set_leaving_time(nanoseconds time) {
  locked([&](state& s) { s.leaving_time = time; });
}
void set_fault_sink(fault_sink sink) {
  locked([&](state& s) { s.sink = std::move(sink); });
}
void set_fault_delay(nanoseconds delay) {
  locked([&](state& s) { s.fault_delay = delay; });
}
void register_kernel(const void* function, std::function<bound_kernel(void** args)> bind) {
  locked([&](state&) { rt().kernels[function] = std::move(bind); });
}
void set_held(cudaStream_t stream, bool held) {
  locked([&](state&) {
    const auto f = find_stream(stream);
    if (f == nullptr) return;
    release_order(f.get());  // tests look at the memory while the stream is held
    f->held = held;
    rt().changed.notify_all();
  });
}
void hold(cudaStream_t stream) { set_held(stream, true); }
void resume(cudaStream_t stream) { set_held(stream, false); }
void set_capturing(cudaStream_t stream, bool capturing) {
  locked([&](state&) {
    if (const auto f = find_stream(stream)) {
      f->capturing = capturing;
      f->capture_mode = cudaStreamCaptureModeGlobal;
      f->capturer = {};
      f->invalidated = false;
    }
  });
}
void fail_call(std::string_view name, unsigned nth, cudaError_t error) {
  locked([&](state& s) { s.injections.push_back({std::string(name), nth, error}); });
}
void refuse_calls(std::string_view name, unsigned nth, unsigned times, cudaError_t error) {
  locked([&](state& s) { s.injections.push_back({std::string(name), nth, error, false, times, true}); });
}
void forget_failures() {
  locked([](state& s) { s.injections.clear(); });
}
void fail_all_calls(std::string_view name, cudaError_t error) {
  locked([&](state& s) { s.injections.push_back({std::string(name), 0, error, true}); });
}
void fail_nth_call_of_any(unsigned nth, cudaError_t error) { fail_call({}, nth, error); }
void break_device(cudaError_t error) {
  locked([&](state& s) {
    s.broken = error;
    rt().changed.notify_all();
  });
}
statistics stats() {
  return locked([](state& s) { return s.counted; });
}
deepum::bytes used_memory(int device) {
  return locked([&](state& s) { return deepum::bytes{s.gpus[static_cast<std::size_t>(device)].used()}; });
}
deepum::bytes most_used_memory(int device) {
  return locked([&](state& s) { return deepum::bytes{s.gpus[static_cast<std::size_t>(device)].most_used}; });
}
std::uint64_t calls(std::string_view name) {
  return locked([&](state& s) {
    const auto it = s.calls.find(name);
    return it == s.calls.end() ? 0 : it->second;
  });
}
std::uint64_t calls_of_this_thread(std::string_view name) {
  const fake_runtime::call_counts& counts = fake_runtime::calls_of_this_thread();
  const auto it = counts.find(name);
  return it == counts.end() ? 0 : it->second;
}
std::uint64_t calls_of_this_thread() {
  std::uint64_t all = 0;
  for (const auto& [name, count] : fake_runtime::calls_of_this_thread())
    all += count;
  return all;
}
std::vector<int> opened_devices() {
  return locked([](state& s) { return std::vector<int>(s.opened.begin(), s.opened.end()); });
}
std::vector<std::string> failed_calls() {
  return locked([](state& s) { return s.failed; });
}
bool host_may_access(const void* p, std::size_t size, deepum::access mode) {
  return locked([&](state&) {
    if (in_reserved(p)) return all_views(p, size, [&](const view& v) { return allows(v.host, mode); });
    const allocation* a = find(p);
    return a == nullptr || a->type != cudaMemoryTypeDevice;
  });
}
std::vector<hint> hints() {
  return locked([](state& s) { return s.hints; });
}
std::vector<launch> launches() {
  return locked([](state& s) { return s.launches; });
}
block block_at(const void* p) {
  const guard lock;
  block found;
  for_each_block(p, 1, [&](block& b, const std::byte*) { found = b; });
  return found;
}

}  // namespace fake_cuda
}  // namespace deepum_test

using namespace fake_runtime;

extern "C" {

cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", 0, [&](guard& lock) {
    return spoils_captures([](const fifo& f) { return f.capturing; }) ? cudaErrorStreamCaptureUnsupported
                                                                      : drain_all(lock, device_now());
  });
}

cudaError_t cudaPeekAtLastError() {
  const guard lock;
  count_call("cudaPeekAtLastError");
  return rt().now.broken != cudaSuccess ? rt().now.broken : last_error;
}
cudaError_t cudaGetLastError() {
  const guard lock;
  count_call("cudaGetLastError");
  const cudaError_t e = std::exchange(last_error, cudaSuccess);
  return rt().now.broken != cudaSuccess ? rt().now.broken : e;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    default:
      return "unrecognized error code";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : cudaGetErrorName(error);
}

}  // extern "C"
