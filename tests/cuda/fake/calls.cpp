#include "cuda/fake/calls.hpp"

#include <string_view>
#include <thread>
#include <utility>

namespace fake_runtime {

namespace {

bool sticks(cudaError_t e) {
  return e == cudaErrorECCUncorrectable || e == cudaErrorLaunchTimeout || e == cudaErrorIllegalAddress ||
         e == cudaErrorAssert || (e >= cudaErrorHardwareStackError && e <= cudaErrorLaunchFailure);
}

}  // namespace

call_counts& calls_of_this_thread() {
  // Handlers of `exit` call too, when what belongs to the first thread has ended.
  struct ending {
    call_counts** of;
    ~ending() { delete std::exchange(*of, nullptr); }
  };
  thread_local call_counts* counts = nullptr;
  thread_local const ending ends{&counts};
  if (counts == nullptr) {
    (void)ends;
    counts = new call_counts;
  }
  return *counts;
}

void count_call(const char* name) {
  for (call_counts* counts : {&rt().now.calls, &calls_of_this_thread()}) {
    const auto counted = counts->find(std::string_view(name));
    ++(counted != counts->end() ? counted->second : (*counts)[name]);  // a name that is known costs no memory
  }
}

cudaError_t noted(cudaError_t e, unsigned flags) {
  if (e != cudaSuccess && (flags & of_driver) == 0) last_error = e;
  if (sticks(e) && rt().now.broken == cudaSuccess) {
    rt().now.broken = e;
    rt().changed.notify_all();
  }
  return e;
}

cudaError_t injected(const char* name, bool& refused) {
  state& s = rt().now;
  for (auto it = s.injections.begin(); it != s.injections.end(); ++it) {
    if (!it->name.empty() && it->name != name) continue;
    if (it->always || it->left == 1 || --it->left == 0) {
      const cudaError_t e = it->error;
      refused = it->refused;
      it->left = 1;
      if (!it->always && --it->times == 0) s.injections.erase(it);
      ++s.counted.failures;
      s.failed.emplace_back(name);
      return e;
    }
  }
  return cudaSuccess;
}

bool forbids(const fifo& f) {
  const bool own = f.capturer == std::this_thread::get_id() && f.capture_mode != cudaStreamCaptureModeRelaxed;
  const bool global = f.capture_mode == cudaStreamCaptureModeGlobal && capture_mode == cudaStreamCaptureModeGlobal;
  return f.capturing && capture_mode != cudaStreamCaptureModeRelaxed && (own || global);
}

}  // namespace fake_runtime
