// Streams, events, contexts and captures of the fake CUDA.

#include "cuda/fake_bench.hpp"
#include "cuda/fake_cuda.hpp"
#include <deepum/core/block.hpp>

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fake_streams_test {

using namespace fake_bench;
using deepum::access;  // not the one of POSIX

TEST_CASE("a stream does its work in order, with arguments as they were at the launch") {
  const bench b;
  fake_cuda::set_delays(7, std::chrono::microseconds(50));
  fake_cuda::hold(b.stream);
  int* p = b.ints(0);
  ok(cudaMemsetAsync(p, 0, block_bytes, b.stream));
  for (int i = 0; i < 20; ++i) {
    ok(launch(b.stream, add, p, 1, 1));
    ok(launch(b.stream, copy, p + 1 + i, p));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(10));  // in which it would begin, were it not held
  CHECK(cudaStreamQuery(b.stream) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(p[0] == 0);
  fake_cuda::resume(b.stream);
  b.sync();
  ok(cudaStreamQuery(b.stream));
  for (int i = 0; i < 20; ++i) {
    CHECK(p[1 + i] == i + 1);
  }
  CHECK(fake_cuda::launches().size() == 40);
  CHECK(fake_cuda::calls("cudaLaunchKernel") == 40);
}

TEST_CASE("a stream waits for an event as it was last recorded before, and not for one never recorded") {
  const bench b;
  const cudaStream_t other = new_stream();
  const cudaEvent_t e = new_event();
  ok(cudaStreamWaitEvent(other, e, 0));
  ok(cudaStreamSynchronize(other));

  fake_cuda::hold(b.stream);
  ok(launch(b.stream, add, b.ints(0), 1, 5));
  ok(cudaEventRecord(e, b.stream));
  ok(cudaStreamWaitEvent(other, e, 0));
  ok(launch(other, copy, b.ints(1), b.ints(0)));
  CHECK(cudaEventQuery(e) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(other) == cudaErrorNotReady);
  std::thread later([&] { fake_cuda::resume(b.stream); });
  ok(cudaStreamSynchronize(other));
  later.join();
  CHECK(*b.ints(1) == 5);

  // Recorded again behind held work, it is not ready again; what waited for the first time has gone on.
  fake_cuda::hold(b.stream);
  ok(cudaEventRecord(e, b.stream));
  CHECK(cudaEventQuery(e) == cudaErrorNotReady);
  fake_cuda::resume(b.stream);
  ok(cudaEventSynchronize(e));
  ok(cudaEventQuery(e));
  ok(cudaEventDestroy(e));
  CHECK(cudaEventQuery(e) == cudaErrorInvalidResourceHandle);
  ok(cudaStreamDestroy(other));
  CHECK(cudaStreamQuery(other) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("a destroyed stream ends its work") {
  const bench b;
  const cudaStream_t s = new_stream();
  fake_cuda::set_delays(1, std::chrono::microseconds(500));
  for (int i = 0; i < 10; ++i) {
    ok(launch(s, add, b.ints(0), 1, 1));
  }
  ok(cudaStreamDestroy(s));
  ok(cudaDeviceSynchronize());
  CHECK(*b.ints(0) == 10);
}

TEST_CASE("memory is freed when the device has done what it was given") {
  const bench b;
  void* p = nullptr;
  ok(cudaMalloc(&p, 100));
  fake_cuda::set_delays(1, std::chrono::microseconds(500));
  for (int i = 0; i < 10; ++i) {
    ok(launch(b.stream, add, b.ints(0), 1, 1));
  }
  ok(cudaFree(p));
  CHECK(*b.ints(0) == 10);
}

TEST_CASE("events take the device's time when the stream gets to them") {
  const bench b;
  const cudaEvent_t first = new_event();
  const cudaEvent_t second = new_event();
  const cudaEvent_t untimed = new_event(cudaEventDisableTiming);
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, first, second) == cudaErrorInvalidResourceHandle);

  ok(cudaEventRecord(first, b.stream));
  ok(cudaEventSynchronize(first));
  fake_cuda::hold(b.stream);
  ok(cudaEventRecord(second, b.stream));
  ok(cudaEventRecord(untimed, b.stream));
  CHECK(cudaEventElapsedTime(&ms, first, second) == cudaErrorNotReady);
  fake_cuda::set_clock_offset(std::chrono::hours(1));
  const auto before = fake_cuda::device_clock();
  fake_cuda::resume(b.stream);
  b.sync();
  const auto after = fake_cuda::device_clock();
  CHECK(before - std::chrono::steady_clock::now().time_since_epoch() > std::chrono::minutes(50));
  ok(cudaEventElapsedTime(&ms, first, second));
  CHECK(ms >= 3600e3F);
  CHECK(after >= before);
  CHECK(cudaEventElapsedTime(&ms, first, untimed) == cudaErrorInvalidResourceHandle);
  for (const cudaEvent_t e : {first, second, untimed}) {
    ok(cudaEventDestroy(e));
  }
}

TEST_CASE("a captured stream executes nothing, and forbids unsafe calls but to threads in relaxed mode") {
  const bench b;
  fake_cuda::set_capturing(b.stream, true);
  cudaStreamCaptureStatus status{};
  ok(cudaStreamIsCapturing(b.stream, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  ok(launch(b.stream, add, b.ints(0), 1, 1));
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 1) == cudaErrorStreamCaptureUnsupported);
  std::thread([] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    ok(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == cudaStreamCaptureModeGlobal);
    void* q = nullptr;
    ok(cudaMalloc(&q, 1));
    ok(cudaFree(q));
  }).join();
  fake_cuda::set_capturing(b.stream, false);
  b.sync();
  CHECK(*b.ints(0) == 0);
  CHECK(fake_cuda::stats().captured == 1);
  CHECK(fake_cuda::stats().capture_violations == 1);
}

TEST_CASE("streams and events belong to a context and end with it") {
  const bench b;
  void* f = &f;
  cudaDriverEntryPointQueryResult found{};
  ok(cudaGetDriverEntryPointByVersion("cuUnheardOf", &f, 4000, cudaEnableDefault, &found));
  CHECK(found == cudaDriverEntryPointSymbolNotFound);
  CHECK(f == nullptr);

  CUdevice device = 7;
  CHECK(driver("cuDeviceGet", &device, 0) == CUDA_SUCCESS);
  CHECK(device == 0);
  CUcontext context = nullptr;
  fake_cuda::set_refuse_contexts(true);
  CHECK(driver("cuCtxCreate", &context, 0U, device) == CUDA_ERROR_OUT_OF_MEMORY);
  fake_cuda::set_refuse_contexts(false);
  CHECK(driver("cuCtxCreate", &context, 0U, device) == CUDA_SUCCESS);
  const cudaStream_t s = new_stream();
  const cudaEvent_t e = new_event();
  ok(launch(s, add, b.ints(0), 1, 1));
  CHECK(launch(b.stream, add, b.ints(0), 1, 1) == cudaErrorInvalidResourceHandle);
  ok(cudaEventRecord(e, s));
  CHECK(cudaEventRecord(e, b.stream) == cudaErrorInvalidResourceHandle);
  ok(cudaStreamWaitEvent(b.stream, e, 0));
  CUcontext top = nullptr;
  CHECK(driver("cuCtxPopCurrent", &top) == CUDA_SUCCESS);
  CHECK(top == context);
  ok(launch(b.stream, add, b.ints(0), 1, 1));
  CHECK(launch(s, add, b.ints(0), 1, 1) == cudaErrorInvalidResourceHandle);
  std::thread([&] {
    CHECK(driver("cuCtxSetCurrent", context) == CUDA_SUCCESS);
    ok(launch(s, nothing));
    ok(cudaSetDevice(0));  // the primary one again
    ok(launch(b.stream, nothing));
  }).join();
  b.sync();
  CHECK(*b.ints(0) == 2);

  (void)cudaGetLastError();
  fake_cuda::fail_call("cuCtxSetCurrent", 1, cudaErrorMemoryAllocation);
  CHECK(driver("cuCtxSetCurrent", context) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(driver("cuCtxDestroy", context) == CUDA_SUCCESS);
  CHECK(driver("cuCtxSetCurrent", context) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cudaStreamQuery(s) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventQuery(e) == cudaErrorInvalidResourceHandle);
  CHECK(driver("cuCtxCreate", &context, 0U, device) == CUDA_SUCCESS);
  CHECK(driver("cuCtxPopCurrent", &top) == CUDA_SUCCESS);
  CHECK(driver("cuCtxDestroy", context) == CUDA_SUCCESS);
}

TEST_CASE("many threads may use many streams at once") {
  const bench b;
  fake_cuda::set_delays(3, std::chrono::microseconds(20));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&b, t] {
      const cudaStream_t s = new_stream();
      const cudaEvent_t e = new_event();
      for (int i = 0; i < 25; ++i) {
        ok(cudaMemPrefetchAsync(b.at(2 * t), 2 * block_bytes, i % 2 == 0 ? gpu : host, 0, s));
        ok(launch(s, add, b.ints(2 * t), 600'000, 1));
        ok(cudaEventRecord(e, s));
        (void)cudaEventQuery(e);
      }
      ok(cudaEventSynchronize(e));
      CHECK(b.ints(2 * t)[599'999] == 25);
      ok(cudaEventDestroy(e));
      ok(cudaStreamDestroy(s));
    });
  }
  for (auto& t : threads) {
    t.join();
  }
  CHECK(fake_cuda::stats().driver_evictions > 0);
  CHECK(fake_cuda::stats().device_blocks <= 4);
}

}  // namespace fake_streams_test
