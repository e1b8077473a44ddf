// What the fake CUDA makes of several devices.

#include "cuda/fake_address_bench.hpp"
#include "cuda/fake_bench.hpp"
#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

namespace fake_devices_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX

void touch(std::byte* p, std::size_t n) {
  device_touch(p, n, access::update);
  *p = std::byte{1};
}

/// Two devices of 64 MiB, with a stream and an event each; the first one is current.
struct two_devices {
  two_devices() : gpu(64_MiB) {
    fake_cuda::set_device_count(2);
    fake_cuda::register_kernel(touch);
    for (const int d : {1, 0}) {
      use(d);
      REQUIRE(cudaStreamCreateWithFlags(&stream[d], cudaStreamNonBlocking) == cudaSuccess);
      REQUIRE(cudaEventCreateWithFlags(&event[d], cudaEventDefault) == cudaSuccess);
    }
  }
  ~two_devices() {
    for (const int d : {0, 1}) {
      (void)cudaEventDestroy(event[d]);
      (void)cudaStreamDestroy(stream[d]);
    }
  }
  two_devices(const two_devices&) = delete;
  two_devices& operator=(const two_devices&) = delete;

  static void use(int device) { REQUIRE(cudaSetDevice(device) == cudaSuccess); }
  static cudaError_t launch(cudaStream_t s, void* p, std::size_t n = 1) {
    void* args[] = {&p, &n};
    const cudaError_t e = cudaLaunchKernel(reinterpret_cast<const void*>(touch), dim3(1), dim3(1), args, 0, s);
    (void)cudaGetLastError();
    return e;
  }

  fake_gpu gpu;
  cudaStream_t stream[2]{};
  cudaEvent_t event[2]{};
};

TEST_CASE("a launch or a recording needs the stream's device to be current; copies, waits and queries do not") {
  const two_devices m;
  void* p = nullptr;
  REQUIRE(cudaMalloc(&p, 1024) == cudaSuccess);
  CHECK(two_devices::launch(m.stream[1], p) == cudaErrorInvalidResourceHandle);
  CHECK(two_devices::launch(m.stream[0], p) == cudaSuccess);
  CHECK(cudaEventRecord(m.event[0], m.stream[1]) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(m.event[0], m.stream[0]) == cudaSuccess);
  CHECK(cudaEventRecord(m.event[1], m.stream[1]) == cudaSuccess);  // both of one device, whichever is current
  CHECK(cudaEventRecord(m.event[1], nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamWaitEvent(m.stream[1], m.event[0], 0) == cudaSuccess);
  CHECK(cudaEventSynchronize(m.event[1]) == cudaSuccess);
  CHECK(cudaStreamSynchronize(m.stream[1]) == cudaSuccess);
  CHECK(cudaEventQuery(m.event[1]) == cudaSuccess);
  CHECK(cudaMemsetAsync(p, 0, 1024, m.stream[1]) == cudaSuccess);
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, m.event[0], m.event[1]) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventElapsedTime(&ms, m.event[1], m.event[1]) == cudaSuccess);
  (void)cudaGetLastError();
  CHECK(cudaFree(p) == cudaSuccess);
}

TEST_CASE("each device has a default stream, which is ordered with its own blocking streams alone") {
  const two_devices m;
  cudaStream_t blocking = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault) == cudaSuccess);
  fake_cuda::hold(blocking);
  void* p = nullptr;
  REQUIRE(cudaMallocManaged(&p, 1024, cudaMemAttachGlobal) == cudaSuccess);
  CHECK(two_devices::launch(blocking, p) == cudaSuccess);
  CHECK(two_devices::launch(nullptr, p) == cudaSuccess);  // behind it
  two_devices::use(1);
  CHECK(two_devices::launch(nullptr, static_cast<std::byte*>(p) + 512) == cudaSuccess);
  CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  two_devices::use(0);
  CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  fake_cuda::resume(blocking);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaStreamQuery(nullptr) == cudaSuccess);
  (void)cudaGetLastError();
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
  CHECK(cudaFree(p) == cudaSuccess);
}

TEST_CASE("each device has memory of its own") {
  const two_devices m;
  fake_cuda::set_device_memory(1, 32_MiB);
  void* p[2]{};
  REQUIRE(cudaMalloc(&p[0], (48_MiB).count) == cudaSuccess);
  CHECK(cudaMalloc(&p[1], (32_MiB).count) == cudaErrorMemoryAllocation);
  two_devices::use(1);
  REQUIRE(cudaMalloc(&p[1], (32_MiB).count) == cudaSuccess);
  std::size_t free = 0;
  std::size_t total = 0;
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == 0);
  CHECK(total == (32_MiB).count);
  two_devices::use(0);
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == (16_MiB).count);
  CHECK(total == (64_MiB).count);
  CHECK(fake_cuda::used_memory(1) == 32_MiB);
  cudaPointerAttributes a{};
  CHECK(cudaPointerGetAttributes(&a, p[1]) == cudaSuccess);
  CHECK(a.device == 1);
  (void)cudaGetLastError();
  for (void* q : p) {
    CHECK(cudaFree(q) == cudaSuccess);
  }
  CHECK(fake_cuda::used_memory(1).count == 0);
}

TEST_CASE("a managed block moves between the devices that touch it, and each evicts its own") {
  const two_devices m;
  fake_cuda::set_device_memory(1, 2_MiB);
  void* p = nullptr;
  REQUIRE(cudaMallocManaged(&p, (4_MiB).count, cudaMemAttachGlobal) == cudaSuccess);
  CHECK(two_devices::launch(m.stream[0], p) == cudaSuccess);
  CHECK(cudaStreamSynchronize(m.stream[0]) == cudaSuccess);
  CHECK(fake_cuda::block_at(p).device == 0);
  two_devices::use(1);
  CHECK(two_devices::launch(m.stream[1], p) == cudaSuccess);
  CHECK(cudaStreamSynchronize(m.stream[1]) == cudaSuccess);
  CHECK(fake_cuda::block_at(p).device == 1);
  CHECK(fake_cuda::stats().between_devices == 1);
  CHECK(fake_cuda::used_memory(0).count == 0);
  CHECK(fake_cuda::used_memory(1) == 2_MiB);
  std::byte* const second = static_cast<std::byte*>(p) + (2_MiB).count;
  CHECK(cudaMemPrefetchAsync(second, 1, {cudaMemLocationTypeDevice, 1}, 0, m.stream[1]) == cudaSuccess);
  CHECK(cudaStreamSynchronize(m.stream[1]) == cudaSuccess);
  CHECK(fake_cuda::block_at(second).device == 1);
  CHECK_FALSE(fake_cuda::block_at(p).on_device);
  CHECK(fake_cuda::stats().driver_evictions == 1);
  CHECK(cudaFree(p) == cudaSuccess);
}

TEST_CASE("a kernel finds what cudaMalloc gave on another device where peer access is on, else it breaks the device") {
  for (const bool peers : {true, false}) {
    CAPTURE(peers);
    const two_devices m;
    void* p = nullptr;
    REQUIRE(cudaMalloc(&p, 1024) == cudaSuccess);
    two_devices::use(1);
    int can = -1;
    CHECK(cudaDeviceCanAccessPeer(&can, 1, 0) == cudaSuccess);
    CHECK(can == 1);
    if (peers) {
      CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
      CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
    }
    CHECK(two_devices::launch(m.stream[1], p) == cudaSuccess);
    CHECK(cudaStreamSynchronize(m.stream[1]) == (peers ? cudaSuccess : cudaErrorIllegalAddress));
    (void)cudaGetLastError();
    (void)cudaFree(p);
  }
  const two_devices m;
  fake_cuda::set_peer_access(false);
  int can = -1;
  CHECK(cudaDeviceCanAccessPeer(&can, 1, 0) == cudaSuccess);
  CHECK(can == 0);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessUnsupported);
  CHECK(cudaDeviceDisablePeerAccess(1) == cudaErrorPeerAccessNotEnabled);
  (void)cudaGetLastError();
}

TEST_CASE("paged memory is of one device, and others use it where they were let in") {
  for (const bool let_in : {true, false}) {
    CAPTURE(let_in);
    const two_devices m;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    const CUmemLocation second{CU_MEM_LOCATION_TYPE_DEVICE, 1};
    REQUIRE(fake_bench::create(&handle, (2_MiB).count, fake_bench::properties(second)) == CUDA_SUCCESS);
    CHECK(fake_cuda::used_memory(0).count == 0);
    CHECK(fake_cuda::used_memory(1) == 2_MiB);
    REQUIRE(fake_bench::reserve(&at, (2_MiB).count) == CUDA_SUCCESS);
    auto* const p = reinterpret_cast<std::byte*>(at);
    REQUIRE(fake_bench::map(p, (2_MiB).count, handle) == CUDA_SUCCESS);
    CHECK(fake_bench::set_access(p, (2_MiB).count, second, fake_bench::to_write) == CUDA_SUCCESS);
    if (let_in) {
      CHECK(fake_bench::set_access(p, (2_MiB).count, fake_bench::on_gpu, fake_bench::to_write) == CUDA_SUCCESS);
    } else {
      CHECK(cudaMemsetAsync(p, 0, 1, m.stream[0]) == cudaErrorInvalidValue);
    }
    CHECK(cudaMemsetAsync(p, 0, 1, m.stream[1]) == cudaSuccess);
    CHECK(cudaStreamSynchronize(m.stream[1]) == cudaSuccess);
    CHECK(two_devices::launch(m.stream[0], p) == cudaSuccess);
    CHECK(cudaStreamSynchronize(m.stream[0]) == (let_in ? cudaSuccess : cudaErrorIllegalAddress));
    (void)cudaGetLastError();
    (void)fake_bench::unmap(p, (2_MiB).count);
    (void)fake_bench::release(handle);
    (void)fake_bench::free_addresses(at, (2_MiB).count);
  }
}

TEST_CASE("devices that cannot share memory get none of each other's") {
  const two_devices m;
  fake_cuda::set_peer_access(false);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr at = 0;
  const CUmemLocation second{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  REQUIRE(fake_bench::create(&handle, (2_MiB).count, fake_bench::properties(second)) == CUDA_SUCCESS);
  REQUIRE(fake_bench::reserve(&at, (2_MiB).count) == CUDA_SUCCESS);
  auto* const p = reinterpret_cast<std::byte*>(at);
  REQUIRE(fake_bench::map(p, (2_MiB).count, handle) == CUDA_SUCCESS);
  CHECK(fake_bench::set_access(p, (2_MiB).count, fake_bench::on_gpu, fake_bench::to_read) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(fake_bench::set_access(p, (2_MiB).count, second, fake_bench::to_read) == CUDA_SUCCESS);
  CHECK(fake_bench::unmap(p, (2_MiB).count) == CUDA_SUCCESS);
  CHECK(fake_bench::release(handle) == CUDA_SUCCESS);
  CHECK(fake_bench::free_addresses(at, (2_MiB).count) == CUDA_SUCCESS);
}

TEST_CASE("a copy between peers needs no access, and arrives") {
  const two_devices m;
  void* p[2]{};
  for (const int d : {0, 1}) {
    two_devices::use(d);
    REQUIRE(cudaMalloc(&p[d], 1024) == cudaSuccess);
  }
  CHECK(cudaMemsetAsync(p[1], 7, 1024, m.stream[1]) == cudaSuccess);
  CHECK(cudaMemcpyPeerAsync(p[0], 0, p[1], 1, 1024, m.stream[1]) == cudaSuccess);
  CHECK(cudaStreamSynchronize(m.stream[1]) == cudaSuccess);
  CHECK(static_cast<std::byte*>(p[0])[1023] == std::byte{7});
  CHECK(fake_cuda::stats().peer_copies == 1_KiB);
  CHECK(cudaMemcpyPeer(p[0], 0, p[1], 2, 1024) == cudaErrorInvalidDevice);
  (void)cudaGetLastError();
  for (void* q : p) {
    CHECK(cudaFree(q) == cudaSuccess);
  }
}

}  // namespace fake_devices_test
