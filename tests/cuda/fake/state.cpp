#include "cuda/fake/state.hpp"

#include <sys/mman.h>

#include <chrono>

#ifdef __SANITIZE_THREAD__
// The run-time library of ThreadSanitizer has these; there is no header for all of them.
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace fake_runtime {

runtime& rt() {
  static auto* const r = [] {
    auto* made = new runtime;
    made->file = ::memfd_create("fake device memory", MFD_CLOEXEC);
    return made;
  }();
  return *r;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
thread_local std::vector<CUcontext> contexts_below;
thread_local int thread_device = 0;
thread_local CUcontext current_context = nullptr;
thread_local fifo* executing = nullptr;

void ignore([[maybe_unused]] bool on) {
#ifdef __SANITIZE_THREAD__
  (on ? AnnotateIgnoreSyncBegin : AnnotateIgnoreSyncEnd)(__FILE__, __LINE__);
  (on ? AnnotateIgnoreReadsBegin : AnnotateIgnoreReadsEnd)(__FILE__, __LINE__);
  (on ? AnnotateIgnoreWritesBegin : AnnotateIgnoreWritesEnd)(__FILE__, __LINE__);
#endif
}

void release_order([[maybe_unused]] void* what) {
#ifdef __SANITIZE_THREAD__
  ignore(false);
  __tsan_release(what);
  ignore(true);
#endif
}

void acquire_order([[maybe_unused]] void* what) {
#ifdef __SANITIZE_THREAD__
  ignore(false);
  __tsan_acquire(what);
  ignore(true);
#endif
}

nanoseconds clock_now() { return std::chrono::steady_clock::now().time_since_epoch() + rt().now.clock_offset; }

}  // namespace fake_runtime
