#include "kernels.hpp"
#include "update_loop.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using namespace deepum::literals;
using word = std::uint32_t;

constexpr std::uint64_t n = (16_MiB).count / sizeof(word);

/// Launches as the program does it that has not ported this kernel.
template <class... Parameters, class... Args>
void launch_raw(cudaStream_t q, void (*kernel)(Parameters...), Args... args) {
  void* pointers[] = {&args...};
  REQUIRE(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(64), dim3(256), pointers, 0, q) == cudaSuccess);
}

/// Ported and unported launches in turn, each of which needs what the one before it wrote. @returns  A word of it.
template <class Memory>
word in_turns(deepum::arena<Memory>& arena, deepum::stream<Memory>& s, cudaStream_t q) {
  word* const x = arena.template allocate<word>(n);
  word* const y = arena.template allocate<word>(n);
  s.launch("fill", 64, 256, 0, gpu_kernels::fill, deepum::overwrites(x, n), word{1}, word{0}, n);
  s.launch("fill", 64, 256, 0, gpu_kernels::fill, deepum::overwrites(y, n), word{1}, word{0}, n);
  for (int i = 0; i < 4; ++i) {
    s.call("raw", {deepum::updates(y, n), deepum::reads(x, n)}, [&](cudaStream_t) {
      launch_raw(q, gpu_kernels::spin, std::uint64_t{2'000'000});
      launch_raw(q, gpu_kernels::mix, y, static_cast<const word*>(x), n);
    });
    s.launch("mix", 64, 256, 0, gpu_kernels::mix, x, static_cast<const word*>(y), n);
  }
  word last = 0;
  s.memcpy_and_wait(&last, x + n - 1, deepum::bytes{sizeof last});
  arena.deallocate(x);
  arena.deallocate(y);
  return last;
}
word expected() {
  word x = 1;
  word y = 1;
  for (int i = 0; i < 4; ++i) {
    y = 3 * y + x;
    x = 3 * x + y;
  }
  return x;
}

TEST_CASE_TEMPLATE("streams of the program and the default stream keep their order with ported launches", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  deepum::cuda::device gpu{0, {.chunk = 2_MiB}};
  deepum::arena<Memory> arena(gpu, {.capacity = 64_MiB, .device_budget = 48_MiB, .log = gpu_loop::silent});
  {
    deepum::stream s{arena, cudaStreamLegacy};
    CHECK(in_turns(arena, s, cudaStreamLegacy) == expected());
  }
  {
    deepum::stream s{arena, nullptr};
    CHECK(in_turns(arena, s, nullptr) == expected());
  }
  {
    deepum::stream s{arena, {.blocking = true}};
    // Within `call`, what the default stream does is ordered with the stream that the call is on.
    CHECK(in_turns(arena, s, cudaStreamLegacy) == expected());
  }
  cudaStream_t q = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&q, cudaStreamNonBlocking) == cudaSuccess);
  {
    deepum::stream s{arena, q};
    CHECK(in_turns(arena, s, q) == expected());
  }
  CHECK(cudaStreamDestroy(q) == cudaSuccess);
}

}  // namespace
