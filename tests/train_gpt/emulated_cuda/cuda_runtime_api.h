#pragma once

#include <ucontext.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

// As much of CUDA as the kernels of train_gpt need, on the host: the threads of a block are fibers that take turns at
// barriers and warp operations, in an order that is different each time, so that a missing barrier shows. Blocks run
// one after the other. One host thread.

#define __global__
#define __device__
#define __host__
#define __shared__ static  // of one block, as no two run at once

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
using cudaStream_t = void*;

inline const char* cudaGetErrorString(cudaError_t /*e*/) { return "an error of the emulation"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
template <class T>
cudaError_t cudaMalloc(T** p, std::size_t n) {
  *p = static_cast<T*>(std::malloc(n));
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* p) {
  std::free(p);
  return cudaSuccess;
}

inline dim3 threadIdx;
inline dim3 blockIdx;
inline dim3 blockDim;

namespace emulated {

struct fiber {
  ucontext_t first{};
  std::jmp_buf place{};
  std::unique_ptr<char[]> stack{};
  bool started = false;
  bool running = false;
  bool at_barrier = false;
  dim3 index{};
};

inline constexpr unsigned most_threads = 1024;
inline fiber fibers[most_threads];
inline fiber* current = nullptr;
inline ucontext_t scheduler_context;
inline std::jmp_buf scheduler_place;
inline std::function<void()> body;
inline float exchanged[most_threads];
inline bool votes[most_threads];
inline std::uint32_t random_state = 1;

inline void to_scheduler() {
  if (_setjmp(current->place) == 0) _longjmp(scheduler_place, 1);
  threadIdx = current->index;
}

inline void run_threads() {
  for (;;) {
    body();
    current->running = false;
    to_scheduler();
  }
}

inline void resume(fiber& f) {
  current = &f;
  threadIdx = f.index;
  if (_setjmp(scheduler_place) != 0) return;
  if (f.started) _longjmp(f.place, 1);
  f.started = true;
  constexpr std::size_t size = 64 << 10;
  f.stack = std::make_unique<char[]>(size);
  getcontext(&f.first);
  f.first.uc_stack.ss_sp = f.stack.get();
  f.first.uc_stack.ss_size = size;
  f.first.uc_link = nullptr;
  makecontext(&f.first, run_threads, 0);
  setcontext(&f.first);
}

inline void run_block() {
  const unsigned n = blockDim.x * blockDim.y;
  for (unsigned i = 0; i < n; ++i) {
    fibers[i].running = true;
    fibers[i].index = dim3(i % blockDim.x, i / blockDim.x);
  }
  const unsigned warps = (n + 31) / 32;
  for (unsigned left = n; left != 0;) {
    random_state = random_state * 1664525U + 1013904223U;
    const unsigned first = (random_state >> 8) % warps;
    const unsigned most_steps = 1U << (random_state >> 24) % 8;
    bool progress = false;
    for (unsigned w = 0; w < warps && !progress; ++w) {
      const unsigned begin = (first + w) % warps * 32;
      bool able = true;
      for (unsigned step = 0; step < most_steps && able; ++step) {
        able = false;
        for (unsigned i = begin; i < begin + 32 && i < n; ++i) {
          if (!fibers[i].running || fibers[i].at_barrier) continue;
          resume(fibers[i]);
          able = progress = true;
          if (!fibers[i].running) --left;
        }
      }
    }
    if (progress) continue;
    for (unsigned i = 0; i < n; ++i)  // all that are left wait
      fibers[i].at_barrier = false;
  }
}

inline unsigned thread_number() { return threadIdx.x + blockDim.x * threadIdx.y; }

using invoker = std::function<void(void**)>;
inline std::map<const void*, invoker> kernels;

template <class... P, std::size_t... I>
void invoke(void (*kernel)(P...), void** arguments, std::index_sequence<I...> /*numbers*/) {
  kernel(*static_cast<std::remove_cv_t<P>*>(arguments[I])...);
}

/// A kernel has to be known before it is launched.
template <class... P>
void add(void (*kernel)(P...)) {
  kernels[reinterpret_cast<const void*>(kernel)] = [kernel](void** arguments) {
    invoke(kernel, arguments, std::index_sequence_for<P...>{});
  };
}

}  // namespace emulated

inline void __syncthreads() {
  emulated::current->at_barrier = true;
  emulated::to_scheduler();
}

inline float __shfl_xor_sync(unsigned /*lanes*/, float x, int mask) {
  const unsigned me = emulated::thread_number();
  emulated::exchanged[me] = x;
  emulated::to_scheduler();
  const float other = emulated::exchanged[me ^ static_cast<unsigned>(mask)];
  emulated::to_scheduler();
  return other;
}

inline unsigned __ballot_sync(unsigned /*lanes*/, bool vote) {
  const unsigned me = emulated::thread_number();
  emulated::votes[me] = vote;
  emulated::to_scheduler();
  unsigned all = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    all |= (emulated::votes[me / 32 * 32 + lane] ? 1U : 0U) << lane;
  emulated::to_scheduler();
  return all;
}

inline int __ffs(int x) { return __builtin_ffs(x); }

inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t /*shared*/,
                                    cudaStream_t /*stream*/) {
  const auto found = emulated::kernels.find(kernel);
  const unsigned threads = block.x * block.y * block.z;
  if (found == emulated::kernels.end() || threads == 0 || threads > emulated::most_threads || block.z != 1 ||
      grid.x == 0 || grid.y == 0 || grid.y > 65535 || grid.z != 1) {
    return cudaErrorInvalidValue;
  }
  emulated::body = [&] { found->second(arguments); };
  blockDim = block;
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = dim3(x, y);
      emulated::run_block();
    }
  }
  return cudaSuccess;
}
