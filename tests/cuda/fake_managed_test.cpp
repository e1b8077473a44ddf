// Managed memory of the fake CUDA, copies, and what its calls refuse.

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

namespace fake_managed_test {

using namespace fake_bench;
using deepum::access;  // not the one of POSIX

TEST_CASE("each block that a kernel touches off the device faults once, and is there afterwards") {
  const bench b;
  struct fault {
    const void* address;
    access mode;
    deepum::nanoseconds at;
  };
  std::vector<fault> told;  // by the stream's thread; read when it has ended
  fake_cuda::set_fault_sink([&](const void* p, access m, deepum::nanoseconds t) { told.push_back({p, m, t}); });
  fake_cuda::set_fault_delay(std::chrono::microseconds(20));
  fake_cuda::set_clock_offset(std::chrono::hours(1));
  const auto before = fake_cuda::device_clock();
  ok(launch(b.stream, touch, b.at(1) + 100, block_bytes + 1, access::update));
  b.sync();
  REQUIRE(told.size() == 2);
  CHECK(told[0].address == b.at(1) + 100);
  CHECK(told[1].address == b.at(2));
  CHECK(told[0].mode == access::update);
  CHECK(told[0].at >= before);
  CHECK(told[1].at - told[0].at >= std::chrono::microseconds(20));
  CHECK(b.places() == "-dd-----");
  b.touch_blocks(1, 2);
  ok(cudaMemsetAsync(b.at(1), 1, block_bytes, b.stream));
  b.sync();
  CHECK(told.size() == 2);
  ok(cudaMemsetAsync(b.at(4), 1, block_bytes, b.stream));
  ok(cudaMemcpyAsync(b.at(0), b.at(4), block_bytes, cudaMemcpyDefault, b.stream));
  b.sync();
  CHECK(told.size() == 4);
  CHECK(b.at(0)[block_bytes - 1] == std::byte{1});
  CHECK(fake_cuda::stats().faults == 4);
  CHECK(fake_cuda::stats().to_device == 0);  // nothing was on the host

  host_touch(b.at(1), 1, access::update);
  CHECK(b.places() == "dhd-d---");
  CHECK(fake_cuda::stats().to_host == 1);
  b.touch_blocks(1, 1);
  CHECK(fake_cuda::stats().to_device == 1);
}

TEST_CASE("a full device evicts the least recently migrated block, whatever was accessed since") {
  const bench b;
  b.touch_blocks(0, 4, access::update);
  b.touch_blocks(0, 1);   // an access alone changes nothing
  b.prefetch(1, 1, gpu);  // this does
  b.touch_blocks(4, 2);
  CHECK(b.places() == "hdhddd--" /* 0 and 2 are gone */);
  CHECK(fake_cuda::stats().driver_evictions == 2);
  CHECK(fake_cuda::stats().to_host == 2);

  std::size_t free = 1;
  std::size_t total = 0;
  ok(cudaMemGetInfo(&free, &total));
  CHECK(free == 0);
  CHECK(total == 4 * block_bytes);
  fake_cuda::set_foreign_memory(4_MiB);
  CHECK(b.places() == "hhhhdd--");
  ok(cudaFree(nullptr));
  void* plain = nullptr;
  ok(cudaMalloc(&plain, 2 * block_bytes));
  CHECK(b.places() == "hhhhhh--");
  CHECK(cudaMalloc(&plain, 1) == cudaErrorMemoryAllocation);
  b.prefetch(0, 1, gpu);  // no room is left, and the call succeeds as the real one does
  CHECK(b.places() == "hhhhhh--");
  b.touch_blocks(6, 1);
  CHECK(b.places() == "hhhhhhh-");
  ok(cudaFree(plain));
  fake_cuda::set_foreign_memory(0_B);
  ok(cudaMemGetInfo(&free, &total));
  CHECK(free == total);
}

TEST_CASE("a prefetch moves blocks when its stream gets there, and a read-mostly block keeps both copies") {
  const bench b;
  host_touch(b.at(0), 8 * block_bytes, access::update);
  fake_cuda::hold(b.stream);
  ok(cudaMemPrefetchAsync(b.at(0), 3 * block_bytes, gpu, 0, b.stream));
  CHECK(b.places() == "hhhhhhhh");
  fake_cuda::resume(b.stream);
  b.sync();
  CHECK(b.places() == "dddhhhhh");
  CHECK(fake_cuda::stats().to_device == 3);
  CHECK(fake_cuda::stats().faults == 0);

  ok(cudaMemAdvise(b.at(1), 2 * block_bytes, cudaMemAdviseSetReadMostly, gpu));
  b.prefetch(0, 3, host);
  CHECK(b.places() == "hbbhhhhh");
  b.touch_blocks(1, 2);
  CHECK(fake_cuda::stats().faults == 0);
  // Unset, one copy is left, without another move: the host's, unless the device is the preferred location.
  ok(cudaMemAdvise(b.at(2), block_bytes, cudaMemAdviseSetPreferredLocation, gpu));
  ok(cudaMemAdvise(b.at(1), 2 * block_bytes, cudaMemAdviseUnsetReadMostly, gpu));
  CHECK(b.places() == "hhdhhhhh");
  CHECK(fake_cuda::stats().to_host == 3);

  // A write leaves one copy too.
  ok(cudaMemAdvise(b.at(3), block_bytes, cudaMemAdviseSetReadMostly, gpu));
  b.prefetch(3, 1, gpu);
  CHECK(b.places() == "hhdbhhhh");
  b.touch_blocks(3, 1, access::update);
  CHECK(b.places() == "hhddhhhh");
  CHECK(fake_cuda::stats().faults == 1);
}

TEST_CASE("with the host as preferred location a block is read where it is") {
  const bench b;
  host_touch(b.at(0), 2 * block_bytes, access::update);
  ok(cudaMemAdvise(b.at(0), 2 * block_bytes, cudaMemAdviseSetPreferredLocation, host));
  ok(cudaMemAdvise(b.at(1), block_bytes, cudaMemAdviseSetAccessedBy, gpu));
  b.touch_blocks(0, 2);
  b.touch_blocks(0, 2);
  CHECK(b.places() == "hh------");
  CHECK(fake_cuda::stats().faults == 1);  // which mapped block 0
  b.prefetch(0, 2, gpu);
  CHECK(b.places() == "dd------");

  int value = 0;
  ok(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributePreferredLocation, b.at(0), 2 * block_bytes));
  CHECK(value == cudaCpuDeviceId);
  ok(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributePreferredLocationType, b.at(1), 2 * block_bytes));
  CHECK(value == cudaMemLocationTypeInvalid);  // block 2 has none
  ok(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeLastPrefetchLocation, b.at(0), 2 * block_bytes));
  CHECK(value == 0);
  std::array<int, 2> devices{7, 7};
  ok(cudaMemRangeGetAttribute(devices.data(), 8, cudaMemRangeAttributeAccessedBy, b.at(1), block_bytes));
  CHECK(devices == std::array{0, cudaInvalidDeviceId});
  ok(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeReadMostly, b.at(0), block_bytes));
  CHECK(value == 0);
}

TEST_CASE("a discard destroys the contents when its stream gets there, and they never move") {
  const bench b;
  std::memset(b.base, 1, 8 * block_bytes);
  host_touch(b.base, 8 * block_bytes, access::update);
  b.prefetch(0, 4, gpu);
  const auto copied = fake_cuda::stats().to_host;
  std::array<void*, 2> firsts{b.at(0), b.at(2)};
  std::array<std::size_t, 2> sizes{2 * block_bytes, 100};
  fake_cuda::hold(b.stream);
  ok(cudaMemDiscardBatchAsync(firsts.data(), sizes.data(), 2, 0, b.stream));
  CHECK(b.at(0)[0] == std::byte{1});
  fake_cuda::resume(b.stream);
  b.sync();
  for (const std::byte* p : {b.at(0), b.at(2) - 1, b.at(2) + 99}) {
    CHECK(*p == std::byte{fake_cuda::poison});
  }
  CHECK(b.at(2)[100] == std::byte{1});
  CHECK(fake_cuda::block_at(b.at(1)).discarded);
  CHECK(!fake_cuda::block_at(b.at(2)).discarded);  // of which only a part is dead

  ok(cudaMemsetAsync(b.at(1), 2, block_bytes, b.stream));
  b.touch_blocks(4, 2);
  CHECK(!fake_cuda::block_at(b.at(1)).discarded);
  CHECK(b.at(1)[5] == std::byte{2});
  CHECK(b.places() == "-hddddhh");  // block 0 was dropped, block 1 copied
  CHECK(fake_cuda::stats().to_host == copied + 1);

  const auto arrived = fake_cuda::stats().to_device;
  std::array<cudaMemLocation, 2> places{gpu, host};
  std::array<std::size_t, 2> from{0, 1};
  firsts = {b.at(6), b.at(3)};
  sizes = {block_bytes, block_bytes};
  ok(cudaMemDiscardAndPrefetchBatchAsync(firsts.data(), sizes.data(), 2, places.data(), from.data(), 2, 0, b.stream));
  b.sync();
  CHECK(b.at(6)[0] == std::byte{fake_cuda::poison});
  CHECK(fake_cuda::block_at(b.at(6)).on_device);
  CHECK(!fake_cuda::block_at(b.at(6)).discarded);
  CHECK(!fake_cuda::block_at(b.at(3)).on_device);
  CHECK(fake_cuda::stats().to_device == arrived);
  const auto hints = fake_cuda::hints();
  REQUIRE(hints.size() == 5);
  CHECK(hints[1].what == fake_cuda::hint::kind::discard);
  CHECK(hints[2].address == b.at(2));
  CHECK(hints[2].size == 100);
  CHECK(hints[4].location == cudaCpuDeviceId);

  firsts = {b.at(0), b.at(1)};
  ok(cudaMemPrefetchBatchAsync(firsts.data(), sizes.data(), 2, places.data(), from.data(), 2, 0, b.stream));
  b.sync();
  CHECK(b.places().substr(0, 2) == "dh");
}

TEST_CASE("wrong arguments are refused as the runtime refuses them") {
  const bench b;
  int n = 0;
  CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
  CHECK(launch(b.stream, unknown_kernel) == cudaErrorInvalidDeviceFunction);
  CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(&nothing), dim3(0), dim3(1), nullptr, 0, b.stream) ==
        cudaErrorInvalidConfiguration);
  CHECK(cudaMemPrefetchAsync(b.at(7), block_bytes + 1, gpu, 0, b.stream) == cudaErrorInvalidValue);
  CHECK(cudaMemPrefetchAsync(&n, 4, gpu, 0, b.stream) == cudaErrorInvalidValue);
  CHECK(cudaMemPrefetchAsync(b.at(0), 0, gpu, 0, b.stream) == cudaErrorInvalidValue);
  CHECK(cudaMemPrefetchAsync(b.at(0), 1, {cudaMemLocationTypeDevice, 1}, 0, b.stream) == cudaErrorInvalidDevice);
  CHECK(cudaMemsetAsync(&n, 0, 4, b.stream) == cudaErrorInvalidValue);
  CHECK(cudaFree(b.at(1)) == cudaErrorInvalidValue);
  std::array<void*, 2> firsts{b.at(0), b.at(1)};
  std::array<std::size_t, 2> sizes{block_bytes, block_bytes};
  std::array<cudaMemLocation, 2> places{gpu, host};
  std::array<std::size_t, 2> from{0, 2};
  CHECK(cudaMemPrefetchBatchAsync(firsts.data(), sizes.data(), 2, places.data(), from.data(), 2, 0, b.stream) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemDiscardBatchAsync(firsts.data(), sizes.data(), 2, 0, nullptr) == cudaErrorInvalidValue);
  void* p = &n;
  CHECK(cudaMallocManaged(&p, 0, cudaMemAttachGlobal) == cudaErrorInvalidValue);
  ok(cudaMalloc(&p, 0));
  CHECK(p == nullptr);
  CHECK(fake_cuda::hints().empty());

  fake_cuda::set_attribute(cudaDevAttrConcurrentManagedAccess, 0);
  ok(cudaDeviceGetAttribute(&n, cudaDevAttrConcurrentManagedAccess, 0));
  CHECK(n == 0);
  CHECK(cudaMemPrefetchAsync(b.at(0), 1, gpu, 0, b.stream) == cudaErrorInvalidDevice);
  CHECK(cudaMemDiscardBatchAsync(firsts.data(), sizes.data(), 2, 0, b.stream) == cudaErrorNotSupported);
  fake_cuda::set_device_count(0);
  CHECK(cudaGetDeviceCount(&n) == cudaErrorNoDevice);
  CHECK(cudaSetDevice(0) == cudaErrorNoDevice);
  ok(cudaRuntimeGetVersion(&n));
  CHECK(n == CUDART_VERSION);
}

TEST_CASE("copies from and to pageable memory are done when the call returns") {
  const bench b;
  std::vector<int> values(1000, 3);
  ok(cudaMemcpyAsync(b.at(0), values.data(), 4000, cudaMemcpyHostToDevice, b.stream));
  values.assign(1000, 0);
  ok(launch(b.stream, add, b.ints(0), 1000, 1));
  ok(cudaMemcpyAsync(values.data(), b.at(0), 4000, cudaMemcpyDeviceToHost, b.stream));
  CHECK(values == std::vector<int>(1000, 4));

  void* pinned = nullptr;
  ok(cudaMallocHost(&pinned, 4000));
  fake_cuda::hold(b.stream);
  ok(cudaMemcpyAsync(pinned, b.at(0), 4000, cudaMemcpyDeviceToHost, b.stream));
  CHECK(static_cast<int*>(pinned)[0] == 0);
  fake_cuda::resume(b.stream);
  b.sync();
  CHECK(static_cast<int*>(pinned)[999] == 4);
  cudaPointerAttributes a{};
  ok(cudaPointerGetAttributes(&a, pinned));
  CHECK(a.type == cudaMemoryTypeHost);
  ok(cudaPointerGetAttributes(&a, b.at(7) + 5));
  CHECK(a.type == cudaMemoryTypeManaged);
  ok(cudaPointerGetAttributes(&a, values.data()));
  CHECK(a.type == cudaMemoryTypeUnregistered);
  CHECK(cudaFree(pinned) == cudaErrorInvalidValue);
  ok(cudaFreeHost(pinned));
}

TEST_CASE("the call that was named fails, once, and leaves its error to its thread") {
  const bench b;
  fake_cuda::fail_call("cudaMemPrefetchAsync", 2, cudaErrorMemoryAllocation);
  b.prefetch(0, 1, gpu);
  CHECK(cudaMemPrefetchAsync(b.at(1), block_bytes, gpu, 0, b.stream) == cudaErrorMemoryAllocation);
  std::thread([] { CHECK(cudaGetLastError() == cudaSuccess); }).join();
  CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
  b.prefetch(2, 1, gpu);
  CHECK(b.places() == "d-d-----");

  // What frees does so nevertheless; what creates does not.
  fake_cuda::fail_nth_call_of_any(2, cudaErrorMemoryAllocation);
  void* p = nullptr;
  ok(cudaMallocManaged(&p, 3 * block_bytes + 1, cudaMemAttachGlobal));
  CHECK(fake_cuda::stats().managed == 22_MiB + 1_B);
  CHECK(cudaFree(p) == cudaErrorMemoryAllocation);
  CHECK(fake_cuda::stats().managed == 16_MiB);
  CHECK(fake_cuda::stats().managed_peak == 22_MiB + 1_B);
  fake_cuda::fail_nth_call_of_any(1, cudaErrorMemoryAllocation);
  CHECK(cudaMallocManaged(&p, 1, cudaMemAttachGlobal) == cudaErrorMemoryAllocation);
  CHECK(fake_cuda::stats().failures == 3);
}

TEST_CASE("a kernel's illegal access breaks the device: nothing runs any more, everything fails, nothing hangs") {
  const bench b;
  static int outside = 0;
  const cudaEvent_t e = new_event();
  const cudaStream_t other = new_stream();
  fake_cuda::hold(b.stream);
  fake_cuda::hold(other);
  ok(launch(b.stream, touch, &outside, 4, access::read));
  ok(launch(b.stream, add, b.ints(0), 1, 1));
  ok(cudaEventRecord(e, b.stream));
  ok(cudaStreamWaitEvent(other, e, 0));
  fake_cuda::resume(b.stream);
  CHECK(cudaEventSynchronize(e) == cudaErrorIllegalAddress);
  CHECK(cudaStreamSynchronize(b.stream) == cudaErrorIllegalAddress);
  CHECK(*b.ints(0) == 0);
  CHECK(launch(b.stream, nothing) == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaEventDestroy(e) == cudaErrorIllegalAddress);
  CHECK(cudaStreamDestroy(other) == cudaErrorIllegalAddress);
}

TEST_CASE("reset tells what was left behind, and starts anew") {
  CHECK(fake_cuda::reset().empty());
  void* p = nullptr;
  ok(cudaMallocManaged(&p, 100, cudaMemAttachGlobal));
  CHECK(reinterpret_cast<std::uintptr_t>(p) % block_bytes == 0);
  fake_cuda::hold(new_stream());
  (void)new_event();
  CUcontext context = nullptr;
  CHECK(driver("cuCtxCreate", &context, 0U, 0) == CUDA_SUCCESS);
  ok(cudaMemsetAsync(p, 0, 100, nullptr));  // the legacy stream is nobody's
  fake_cuda::fail_nth_call_of_any(9, cudaErrorLaunchFailure);
  CHECK(fake_cuda::reset() == "a stream\nan event\na context\nan allocation of 100 bytes\n");
  CHECK(fake_cuda::reset().empty());
  CHECK(fake_cuda::stats().calls == 0);
  int n = 0;
  for (int i = 0; i < 10; ++i) {
    ok(cudaGetDeviceCount(&n));
  }
  CHECK(n == 1);
  CHECK(fake_cuda::reset().empty());
}

}  // namespace fake_managed_test
