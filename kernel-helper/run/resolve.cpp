// How the program's look-ups of driver functions find those of this library: `dlsym`, `cuGetProcAddress` and the
// symbols that this library exports. Who asks decides: this library, and tools that watch the driver, get the driver's
// own.

#include "driver.hpp"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <span>
#include <string_view>

using deepum::interpose::default_stream;
using deepum::interpose::entry_point;

extern "C" const entry_point __start_deepum_entries[];  // NOLINT: the linker's names
extern "C" const entry_point __stop_deepum_entries[];   // NOLINT

namespace deepum_run {

namespace detail {
std::atomic<bool> driver_loaded{false};
}

namespace {

using dlsym_type = void* (*)(void*,
                             const char*) noexcept;  // else a call of it could not be the last thing of a function

/// The C library's own. `dlsym` itself cannot be asked.
dlsym_type real_dlsym() {
  static std::atomic<dlsym_type> known{nullptr};
  dlsym_type found = known.load(std::memory_order_relaxed);
  if (found == nullptr) {
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.27"}) {
      found = reinterpret_cast<dlsym_type>(dlvsym(RTLD_NEXT, "dlsym", version));
      if (found != nullptr) {
        break;
      }
    }
    known.store(found, std::memory_order_relaxed);
  }
  return found;
}

struct driver_state {
  std::mutex mutex;
  void* handle = nullptr;
  own_driver own;
};
driver_state& state() {
  static auto* const one = new driver_state;  // functions are called until the very end of the process
  return *one;
}

/// Whether an address lies in a loaded file whose callers get the driver's own functions.
bool gets_drivers_own(const void* caller) {
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) {
    return false;
  }
  Dl_info mine{};
  if (dladdr(reinterpret_cast<const void*>(&state), &mine) != 0 && mine.dli_fbase == info.dli_fbase) {
    return true;
  }
  const char* const slash = std::strrchr(info.dli_fname, '/');
  const std::string_view file = slash == nullptr ? info.dli_fname : slash + 1;
  constexpr std::array<std::string_view, 6> watchers{"libcuda.so", "libcupti",          "libnvperf",
                                                     "libnvidia-", "libToolsInjection", "libcuinj"};
  for (const std::string_view name : watchers) {
    if (file.substr(0, name.size()) == name) {
      return true;
    }
  }
  return false;
}

template <class Function>
void find(Function& out, const char* symbol) {
  out = reinterpret_cast<Function>(driver_symbol(symbol));
}

}  // namespace

std::span<const entry_point> entry_points() { return {__start_deepum_entries, __stop_deepum_entries}; }

void* driver_symbol(const char* symbol) {
  void* const handle = state().handle;
  return handle == nullptr ? nullptr : real_dlsym()(handle, symbol);
}

bool load_driver() {
  driver_state& s = state();
  const std::lock_guard lock(s.mutex);
  if (detail::driver_loaded.load(std::memory_order_relaxed)) {
    return true;
  }
  s.handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (s.handle == nullptr || real_dlsym() == nullptr) {
    return false;
  }
  for (const entry_point& e : entry_points()) {
    *e.real = driver_symbol(e.exported);
  }
  own_driver& own = s.own;
  find(own.cuGetProcAddress, "cuGetProcAddress_v2");
  find(own.cuCtxGetCurrent, "cuCtxGetCurrent");
  find(own.cuCtxSetCurrent, "cuCtxSetCurrent");
  find(own.cuCtxGetDevice, "cuCtxGetDevice");
  find(own.cuCtxSynchronize, "cuCtxSynchronize");
  find(own.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  find(own.cuStreamIsCapturing, "cuStreamIsCapturing");
  find(own.cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  find(own.cuFuncGetParamInfo, "cuFuncGetParamInfo");
  find(own.cuFuncGetName, "cuFuncGetName");
  find(own.cuKernelGetFunction, "cuKernelGetFunction");
  find(own.cuGraphGetNodes, "cuGraphGetNodes");
  find(own.cuGraphNodeGetType, "cuGraphNodeGetType");
  find(own.cuGraphKernelNodeGetParams, "cuGraphKernelNodeGetParams_v2");
  find(own.cuGraphMemcpyNodeGetParams, "cuGraphMemcpyNodeGetParams");
  find(own.cuGraphMemsetNodeGetParams, "cuGraphMemsetNodeGetParams");
  find(own.cuGraphChildGraphNodeGetGraph, "cuGraphChildGraphNodeGetGraph");
  detail::driver_loaded.store(true, std::memory_order_release);
  return true;
}

const own_driver& driver() { return state().own; }

void* stand_in(void* found, const char* symbol) {
  const entry_point* const e = deepum::interpose::find_exported(entry_points(), symbol);
  // A library of another kind may have a function of the same name.
  return e != nullptr && load_driver() && found == *e->real ? e->replacement : found;
}

namespace {

/// What `cuGetProcAddress` has found, or what stands in for it.
void replace_found(const char* symbol, void** found, int version, cuuint64_t flags, default_stream otherwise) {
  if (symbol == nullptr || found == nullptr || *found == nullptr) {
    return;
  }
  const default_stream wanted = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0
                                    ? default_stream::per_thread
                                : (flags & CU_GET_PROC_ADDRESS_LEGACY_STREAM) != 0 ? default_stream::legacy
                                                                                   : otherwise;
  if (const entry_point* const e = deepum::interpose::find_by_version(entry_points(), symbol, version, wanted)) {
    *found = *e->real == nullptr ? *found : e->replacement;
  }
}

}  // namespace

}  // namespace deepum_run

// The program asks the driver for a function.
DEEPUM_ENTRY_1(get_proc_address, "cuGetProcAddress_v2", "cuGetProcAddress", 12000,
               (const char* symbol, void** found, int version, cuuint64_t flags,
                CUdriverProcAddressQueryResult* status),
               {
                 const CUresult result = real(symbol, found, version, flags, status);
                 if (result == CUDA_SUCCESS && !deepum_run::gets_drivers_own(__builtin_return_address(0))) {
                   deepum_run::replace_found(symbol, found, version, flags, default_stream::legacy);
                 }
                 return result;
               });
DEEPUM_ENTRY_1(get_proc_address_v1, "cuGetProcAddress", "cuGetProcAddress", 11030,
               (const char* symbol, void** found, int version, cuuint64_t flags), {
                 const CUresult result = real(symbol, found, version, flags);
                 if (result == CUDA_SUCCESS && !deepum_run::gets_drivers_own(__builtin_return_address(0))) {
                   deepum_run::replace_found(symbol, found, version, flags, default_stream::legacy);
                 }
                 return result;
               });

namespace deepum_run {
namespace {

/// What a look-up of one of the driver's functions finds; nullptr where that is the C library's to say.
[[gnu::noinline]] void* answer(void* handle, const char* symbol, const void* caller) {
  if (deepum::interpose::find_exported(entry_points(), symbol) == nullptr || gets_drivers_own(caller)) {
    return nullptr;
  }
  return stand_in(real_dlsym()(handle, symbol), symbol);
}

}  // namespace
}  // namespace deepum_run

// A look-up of the program's. The C library tells RTLD_NEXT by the address that it returns to; so this one must not be
// on the stack then. What it does not answer itself goes on as a jump, which is what a call compiles to that is the
// last thing of a function, with optimisation; tests/interpose/program.c looks.
#ifdef __clang__
#define DEEPUM_OPTIMIZED  // each of its optimisation levels has such jumps
#else
#define DEEPUM_OPTIMIZED __attribute__((optimize("O2")))
#endif
extern "C" __attribute__((visibility("default"))) DEEPUM_OPTIMIZED void* dlsym(void* handle,
                                                                               const char* symbol) noexcept {
  if (symbol[0] == 'c' && symbol[1] == 'u' && handle != RTLD_NEXT) {
    if (void* const found = deepum_run::answer(handle, symbol, __builtin_return_address(0))) {
      return found;
    }
  }
  return deepum_run::real_dlsym()(handle, symbol);
}
