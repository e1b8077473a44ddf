#include "cuda/fake_gpu.hpp"
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/error.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace gpu_clock_test {

using namespace deepum_test;
using namespace std::chrono_literals;
using deepum::nanoseconds;
using deepum::cuda::gpu_clock;

/// A stream and an event in it.
struct marked_stream {
  marked_stream() {
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDefault) == cudaSuccess);
  }
  ~marked_stream() {
    (void)cudaEventDestroy(event);
    (void)cudaStreamDestroy(stream);
  }
  marked_stream(const marked_stream&) = delete;
  marked_stream& operator=(const marked_stream&) = delete;

  void mark() const {
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
  }

  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
};

/// How far the clock may be off: the anchor is reached some time before the host learns of it.
constexpr nanoseconds slack = 100ms;

TEST_CASE("events are told in host time, whatever the GPU's clock shows") {
  for (const nanoseconds offset : {nanoseconds{0}, nanoseconds{7h}, nanoseconds{-3h}}) {
    const fake_gpu gpu;
    fake_cuda::set_clock_offset(offset);
    gpu_clock clock;
    const marked_stream s;
    const nanoseconds before = gpu_clock::host_now();
    s.mark();
    const nanoseconds after = gpu_clock::host_now();
    const nanoseconds told = clock.time_of(s.event);
    CHECK(told >= before);  // never early: the anchor's own time is rounded up
    CHECK(told <= after + slack);
  }
}

TEST_CASE("where the runtime tells no time, an event happened now") {
  const fake_gpu gpu;
  gpu_clock clock;
  const marked_stream s;
  s.mark();
  fake_cuda::fail_call("cudaEventElapsedTime", 1, cudaErrorInvalidValue);
  const nanoseconds before = gpu_clock::host_now();
  CHECK(clock.time_of(s.event) >= before);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("faults are told in host time as soon as one is known, by the shortest distance to an event") {
  const fake_gpu gpu;
  gpu_clock clock;
  CHECK_FALSE(clock.knows_faults());
  const nanoseconds offset = 9h;
  clock.learn_fault(offset + 1030us, 1000us);
  CHECK(clock.knows_faults());
  CHECK(clock.time_of_fault(offset + 1030us) == 1000us + gpu_clock::lateness);
  clock.learn_fault(offset + 2003us, 2000us);
  clock.learn_fault(offset + 3050us, 3000us);
  CHECK(clock.time_of_fault(offset + 4003us) == 4000us + gpu_clock::lateness);
}

TEST_CASE("an anchor of a second ago is renewed, and faults stay where they are among the events") {
  const fake_gpu gpu;
  fake_cuda::set_clock_offset(2h);
  gpu_clock clock;
  const marked_stream s;
  clock.keep_up();
  const std::uint64_t recorded = fake_cuda::calls("cudaEventRecord");
  clock.keep_up();
  CHECK(fake_cuda::calls("cudaEventRecord") == recorded);  // too early

  s.mark();
  const nanoseconds fault = fake_cuda::device_clock();
  clock.learn_fault(fault, clock.time_of(s.event));
  std::this_thread::sleep_for(1010ms);
  // A second later the GPU's clock has got 400 ms ahead.
  fake_cuda::set_clock_offset(2h + 400ms);
  s.mark();
  CHECK(clock.time_of(s.event) > gpu_clock::host_now() + 200ms);
  fake_cuda::fail_call("cudaEventRecord", 1, cudaErrorInvalidValue);
  clock.keep_up();  // in vain
  CHECK(clock.time_of(s.event) > gpu_clock::host_now() + 200ms);
  clock.keep_up();
  const nanoseconds before = gpu_clock::host_now();
  s.mark();
  const nanoseconds later = fake_cuda::device_clock();
  CHECK(clock.time_of(s.event) >= before - slack);
  CHECK(clock.time_of(s.event) <= gpu_clock::host_now() + slack);
  CHECK(clock.time_of_fault(later) >= clock.time_of(s.event) - slack);
  CHECK(clock.time_of_fault(later) <= gpu_clock::host_now() + slack);
}

TEST_CASE("a clock that cannot be made leaves nothing behind") {
  int failed = 0;
  for (unsigned nth = 1; nth <= 8; ++nth) {
    const fake_gpu gpu;
    fake_cuda::fail_nth_call_of_any(nth, cudaErrorMemoryAllocation);
    try {
      const gpu_clock clock;  // it can do without the mode of captures
    } catch (const deepum::error&) {
      ++failed;
    }
  }
  CHECK(failed >= 5);
}

}  // namespace gpu_clock_test
