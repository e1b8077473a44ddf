// What the Python package of examples/pytorch calls: memory for PyTorch's tensors in the order of its streams, as its
// CUDAPluggableAllocator asks for it, and what has happened.

#include "driver.hpp"
#include "memory.hpp"
#include "session.hpp"
#include <deepum/metrics.hpp>

#include <dlfcn.h>
#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_set>

using namespace deepum_run;

namespace {

/// Memory that is more than what one stream's order says.
struct marked_memory {
  std::mutex mutex;
  std::unordered_set<CUdeviceptr> on_others;  // streams other than its own use it
  std::unordered_set<CUdeviceptr> of_graphs;  // taken during a capture: the graph uses it whenever it runs
};
marked_memory& marked() {
  static auto* const one = new marked_memory;
  return *one;
}
bool take(std::unordered_set<CUdeviceptr>& from, CUdeviceptr p) {
  const std::lock_guard lock(marked().mutex);
  return from.erase(p) != 0;
}

/// Threads of PyTorch's may come here before the runtime has given them a context.
void have_context(int device) {
  CUcontext now = nullptr;
  if (driver().cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == nullptr &&
      driver().cuDevicePrimaryCtxRetain(&now, device) == CUDA_SUCCESS) {
    (void)driver().cuCtxSetCurrent(now);
  }
}

/// PyTorch takes what it gets for memory. Its own way to fail says so in Python, where there is one.
void refuse(std::size_t size) {
  const std::string why = "deepum: no memory for " + std::to_string(size) +
                          " bytes: all that the program finds is taken; give more by the capacity, or less to DEEPUM_"
                          "MANAGED_LIMIT's other users";
  using fail = void (*)(const char*, const char*, std::uint32_t, const char*);
  void* const torch = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = torch == nullptr ? nullptr : dlsym(torch, "_ZN3c106detail14torchCheckFailEPKcS2_jS2_");
  if (found == nullptr) {
    say(why);
    return;
  }
  // It throws through this frame, so nothing here may need an end of its own.
  static thread_local char text[256];
  std::strncpy(text, why.c_str(), sizeof text - 1);
  reinterpret_cast<fail>(found)("deepum_run_malloc", __FILE__, __LINE__, text);
}

}  // namespace

#define DEEPUM_EXPORT extern "C" __attribute__((visibility("default")))

/// Memory for a tensor. nullptr, or an exception of PyTorch's, where there is none.
DEEPUM_EXPORT void* deepum_run_malloc(ssize_t size, int device, CUstream stream) {
  if (size <= 0 || !driver_ready()) {
    return nullptr;
  }
  have_context(device);
  CUdeviceptr p = 0;
  const bool captured = capturing(stream, default_stream::legacy);
  const ordered_in on{stream, default_stream::legacy};
  if (take_memory(&p, static_cast<std::size_t>(size), false, captured ? nullptr : &on) != CUDA_SUCCESS) {
    refuse(static_cast<std::size_t>(size));
    return nullptr;
  }
  if (captured) {
    const std::lock_guard lock(marked().mutex);
    marked().of_graphs.insert(p);
  }
  return reinterpret_cast<void*>(p);
}
/// A tensor's memory is given back behind what was put into its stream, and into others that were recorded.
DEEPUM_EXPORT void deepum_run_free(void* memory, ssize_t /*size*/, int device, CUstream stream) {
  const auto p = reinterpret_cast<CUdeviceptr>(memory);
  session* const s = p == 0 ? nullptr : session_of(p);
  if (s == nullptr) {
    return;
  }
  if (take(marked().of_graphs, p)) {
    say_once("memory that PyTorch took while a CUDA graph was captured is kept until the process ends");
    return;
  }
  have_context(device);
  const ordered_in on{stream, default_stream::legacy};
  (void)give_back(*s, p, take(marked().on_others, p) || capturing(stream, default_stream::legacy) ? nullptr : &on);
}
/// Another stream than its own uses a tensor's memory: it is given back behind all streams.
DEEPUM_EXPORT void deepum_run_record_stream(void* memory, CUstream /*stream*/) {
  const std::lock_guard lock(marked().mutex);
  marked().on_others.insert(reinterpret_cast<CUdeviceptr>(memory));
}

/// Statistics of a device as JSON, as DEEPUM_STATISTICS writes them.
/// @param text  Gets it, with a zero behind it, as far as `size` bytes hold it.
/// @returns     How many bytes it has; 0 where the process has used no memory of the device.
DEEPUM_EXPORT std::size_t deepum_run_statistics(int device, char* text, std::size_t size) {
  session* const s = session_on(device);
  if (s == nullptr) {
    return 0;
  }
  const std::string all = deepum::to_json(s->arena().statistics());
  if (size != 0) {
    const std::size_t n = std::min(size - 1, all.size());
    std::memcpy(text, all.data(), n);
    text[n] = '\0';
  }
  return all.size();
}
