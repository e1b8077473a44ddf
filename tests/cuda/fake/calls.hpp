#pragma once

#include "cuda/fake/state.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

/// The frame of every function of the fake: counts, failures that tests ask for, the current device, captures, errors.
/// All but `call` and `driver_call` need the mutex.
namespace fake_runtime {

enum : unsigned {
  deviceless = 1,    ///< works without a device
  releases = 2,      ///< is done even where an error is injected, but for `refuse_calls`
  unsafe = 4,        ///< a capture may forbid it
  of_driver = 8,     ///< a function of the driver API, which leaves no last error
  contextless = 16,  ///< makes no context
};

/// Calls of this thread, by name.
using call_counts = std::map<std::string, std::uint64_t, std::less<>>;
[[nodiscard]] call_counts& calls_of_this_thread();
/// Counts a call of that name.
void count_call(const char* name);

/// Keeps an error for cudaGetLastError; one that breaks a real context breaks the devices.
cudaError_t noted(cudaError_t e, unsigned flags = 0);
/// The error that a test wants this call to return. @param refused  Set where the call shall do nothing in any case.
[[nodiscard]] cudaError_t injected(const char* name, bool& refused);
/// Whether the stream is captured in a way that forbids unsafe calls to this thread.
[[nodiscard]] bool forbids(const fifo& f);

/// The thread does what captures of these streams forbid. @returns  Whether there are any.
template <class Which>
bool spoils_captures(Which which) {
  bool any = false;
  for (auto& [handle, f] : rt().now.streams) {
    if (which(*f)) {
      f->invalidated = any = true;
    }
  }
  rt().now.counted.capture_violations += any ? 1 : 0;
  return any;
}

/// Counts the call, fails it if it has to, or else does `body(lock)`.
template <class F>
cudaError_t call(const char* name, unsigned flags, F body) {
  guard lock;
  state& s = rt().now;
  ++s.counted.calls;
  count_call(name);
  bool refused = false;
  cudaError_t e = injected(name, refused);
  if (e == cudaSuccess) e = s.broken;
  if (e == cudaSuccess && s.device_count == 0 && (flags & deviceless) == 0) e = cudaErrorNoDevice;
  if (e == cudaSuccess && (flags & (of_driver | deviceless | contextless)) == 0) {
    current_context = context_now();
    if (is_primary(current_context)) s.opened.insert(device_of(current_context));
  }
  if (e == cudaSuccess && (flags & unsafe) != 0 && spoils_captures([](const fifo& f) { return forbids(f); })) {
    return noted(cudaErrorStreamCaptureUnsupported, flags);
  }
  if (e == cudaSuccess || ((flags & releases) != 0 && !refused)) {
    const cudaError_t result = body(lock);
    if (e == cudaSuccess) e = result;
  }
  return noted(e, flags);
}

/// The same for the driver API, as far as it is asked for through the runtime's. Its error codes have the same numbers.
template <class F>
CUresult driver_call(const char* name, F body, unsigned flags = 0) {
  return static_cast<CUresult>(call(name, of_driver | flags, [&](guard&) { return body(rt().now); }));
}

/// An answer through a pointer.
template <class T>
cudaError_t give(T* to, T value) {
  if (to == nullptr) return cudaErrorInvalidValue;
  *to = value;
  return cudaSuccess;
}

template <class T>
T new_handle() {
  return reinterpret_cast<T>(rt().next_handle += 0x10);
}

/// The driver's function of this name; nullptr where the fake has none.
[[nodiscard]] void* context_function(const char* name);
[[nodiscard]] void* mapping_function(const char* name);

}  // namespace fake_runtime
