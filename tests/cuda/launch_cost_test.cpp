// What a launch costs the host where everything is resident, counted: calls of CUDA, and memory taken from the heap.
// bench/micro/launch_bench.cpp has the times.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/counted_heap.hpp"
#include <deepum/cuda.hpp>
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace launch_cost_test {

using namespace deepum_test;
using namespace deepum::literals;

void nothing(float* /*y*/, const float* /*x*/, const float* /*w*/, std::uint64_t /*n*/) {}

constexpr std::uint64_t launches = 320;

struct cost {
  std::map<std::string, std::uint64_t> calls{};  // of CUDA
  std::uint64_t all_calls = 0;
  std::uint64_t allocations = 0;
};

const std::vector<std::string> functions{
    "cuCtxGetCurrent",       "cuCtxSetCurrent",  "cuThreadExchangeStreamCaptureMode",
    "cuStreamIsCapturing",   "cudaGetDevice",    "cudaSetDevice",
    "cudaStreamIsCapturing", "cudaEventRecord",  "cudaEventCreateWithFlags",
    "cudaEventQuery",        "cudaStreamQuery",  "cudaStreamWaitEvent",
    "cudaGetLastError",      "cudaLaunchKernel", "cudaStreamGetCaptureInfo"};

/// What this thread pays for so many calls of `launch`.
template <class Launch>
cost cost_of(Launch&& launch) {
  cost before;
  cost after;
  const auto note = [](cost& c) {
    for (const std::string& f : functions) {
      c.calls[f] = fake_cuda::calls_of_this_thread(f);
    }
    c.all_calls = fake_cuda::calls_of_this_thread();
    c.allocations = heap_calls;
  };
  note(before);
  note(after);  // now both have their memory
  for (std::uint64_t i = 0; i != launches; ++i) {
    launch();
  }
  const std::uint64_t taken = heap_calls;
  note(after);
  after.allocations = taken - before.allocations;
  for (const std::string& f : functions) {
    after.calls[f] -= before.calls[f];
  }
  after.all_calls -= before.all_calls;
  return after;
}

/// The cost of launches in the long run, of which nobody else is in the way.
template <class Memory>
cost cost_of_launches(const char* policy) {
  deepum::cuda::device gpu(0, {.faults = deepum::cuda::fault_source::none, .chunk = 2_MiB});
  deepum::arena<Memory> memory(gpu, {.capacity = 64_MiB, .device_budget = 32_MiB, .policy = policy, .log = {}});
  float* const x = memory.template allocate<float>(1 << 20);
  float* const y = memory.template allocate<float>(1 << 20);
  float* const w = memory.template allocate<float>(1 << 10);
  deepum::stream s{memory};
  const auto launch = [&] { s.launch("nothing", 1, 1, 0, nothing, y, deepum::reads(x, 1 << 20), w, std::uint64_t{1}); };
  Memory& space = memory.memory();
  for (int i = 0; i != 4'000; ++i) {
    launch();
  }
  s.synchronize();
  for (int i = 0; i != 2; ++i) {  // the pump has begun, and ended, since then
    const std::uint64_t seen = space.happened();
    while (space.happened() == seen)
      space.wait(seen, std::chrono::seconds(1));
  }
  space.detach();                     // so nothing moves from now on
  for (int i = 0; i != 1'000; ++i) {  // for a while ends of launches are marked each
    launch();
  }
  s.synchronize();
  const cost found = cost_of(launch);
  s.synchronize();
  return found;
}

template <class Memory>
void check_cost(const char* policy, bool asks_whether_captured) {
  CAPTURE(std::string(policy));
  const fake_gpu fake;
  fake_cuda::register_kernel(nothing);
  cost bare;
  {
    cudaStream_t s = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    float* p = nullptr;
    std::uint64_t n = 1;
    std::vector<void*> arguments{&p, &p, &p, &n};
    bare = cost_of([&] {
      (void)cudaLaunchKernel(reinterpret_cast<const void*>(&nothing), dim3{1, 1, 1}, dim3{1, 1, 1}, arguments.data(), 0,
                             s);
    });
    CHECK(cudaStreamDestroy(s) == cudaSuccess);
  }
  cost found = cost_of_launches<Memory>(policy);

  CHECK(found.calls["cudaLaunchKernel"] == launches);
  CHECK(found.calls["cuCtxGetCurrent"] == launches);
  CHECK(found.calls["cuStreamIsCapturing"] == (asks_whether_captured ? launches : 0));
  const std::uint64_t marks = found.calls["cudaEventRecord"];  // one in sixteen
  CHECK(marks <= launches / 16 + 1);
  CHECK(found.calls["cudaStreamIsCapturing"] == marks);
  CHECK(found.calls["cudaEventCreateWithFlags"] <= marks);
  CHECK(found.all_calls <= (asks_whether_captured ? 3 : 2) * launches + 3 * marks);

  // The blocks that it declares, and now and then a list that has grown.
  CHECK(found.allocations - bare.allocations <= launches + 100);
}

TEST_CASE("a launch calls CUDA for itself and for the context, and takes memory once, on managed memory") {
  check_cost<deepum::cuda::managed_memory>("auto", false);
  check_cost<deepum::cuda::managed_memory>("um", false);
}

TEST_CASE("the same on paged memory, where it asks whether its stream is captured") {
  check_cost<deepum::cuda::paged_memory>("auto", true);
  check_cost<deepum::cuda::paged_memory>("um", true);
}

}  // namespace launch_cost_test
