#include "cuda/fake_cuda.hpp"

#include <deepum/core/block.hpp>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

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

namespace fake_cuda_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX

constexpr std::size_t block_bytes = deepum::block_size.count;
constexpr cudaMemLocation gpu{cudaMemLocationTypeDevice, 0};
constexpr cudaMemLocation host{cudaMemLocationTypeHost, 0};

/// The tests of this file expect success of the calls that are not under test.
void ok(cudaError_t e) { CHECK(std::string(cudaGetErrorName(e)) == "cudaSuccess"); }

cudaStream_t new_stream() {
  cudaStream_t s = nullptr;
  ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}
cudaEvent_t new_event(unsigned flags = cudaEventDefault) {
  cudaEvent_t e = nullptr;
  ok(cudaEventCreateWithFlags(&e, flags));
  return e;
}

void add(int* p, int n, int what) {
  device_touch(p, static_cast<std::size_t>(n) * sizeof(int), access::update);
  for (int i = 0; i < n; ++i) {
    p[i] += what;
  }
}
void copy(int* to, const int* from) {
  device_touch(from, sizeof(int), access::read);
  device_touch(to, sizeof(int), access::update);
  *to = *from;
}
void touch(const void* p, std::size_t size, access mode) { device_touch(p, size, mode); }
void nothing() {}
void unknown_kernel() {}

template <class... P>
cudaError_t launch(cudaStream_t s, void (*f)(P...), std::type_identity_t<P>... values) {
  std::array<void*, sizeof...(P) + 1> args{&values..., nullptr};
  return cudaLaunchKernel(reinterpret_cast<const void*>(f), dim3(1), dim3(1), args.data(), 0, s);
}

/// A device of four blocks, a stream, and eight blocks of managed memory. Ends with the leak check.
struct bench {
  bench() {
    CHECK(fake_cuda::reset().empty());
    fake_cuda::register_kernel(add);
    fake_cuda::register_kernel(copy);
    fake_cuda::register_kernel(touch);
    fake_cuda::register_kernel(nothing);
    fake_cuda::set_device_memory(8_MiB);
    ok(cudaMallocManaged(reinterpret_cast<void**>(&base), 8 * block_bytes, cudaMemAttachGlobal));
    stream = new_stream();
  }
  ~bench() {
    (void)cudaStreamDestroy(stream);
    (void)cudaFree(base);
    CHECK(fake_cuda::reset() == "");
  }
  bench(const bench&) = delete;
  bench& operator=(const bench&) = delete;

  [[nodiscard]] std::byte* at(std::size_t block) const { return base + block * block_bytes; }
  [[nodiscard]] int* ints(std::size_t block) const { return reinterpret_cast<int*>(at(block)); }
  void touch_blocks(std::size_t first, std::size_t count, access mode = access::read) const {
    ok(launch(stream, touch, at(first), count * block_bytes, mode));
    sync();
  }
  void prefetch(std::size_t first, std::size_t count, cudaMemLocation to) const {
    ok(cudaMemPrefetchAsync(at(first), count * block_bytes, to, 0, stream));
    sync();
  }
  void sync() const { ok(cudaStreamSynchronize(stream)); }
  /// Which of the eight blocks are where: d, h, b (both) or -.
  [[nodiscard]] std::string places() const {
    std::string s;
    for (std::size_t i = 0; i < 8; ++i) {
      const auto b = fake_cuda::block_at(at(i));
      s += b.on_device ? (b.on_host ? 'b' : 'd') : (b.on_host ? 'h' : '-');
    }
    return s;
  }

  std::byte* base = nullptr;
  cudaStream_t stream = nullptr;
};

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

/// Calls a function of the driver, which is looked up.
template <class... P>
CUresult driver(const char* name, P... arguments) {
  thread_local std::map<std::string, void*> known;  // a broken device answers no more
  void*& f = known[name];
  if (f == nullptr) {
    cudaDriverEntryPointQueryResult found{};
    ok(cudaGetDriverEntryPointByVersion(name, &f, 4000, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess);
  }
  return reinterpret_cast<CUresult (*)(P...)>(f)(arguments...);
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

// --- Virtual memory management. ---

constexpr CUmemLocation on_gpu{CU_MEM_LOCATION_TYPE_DEVICE, 0};
constexpr CUmemLocation on_host{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
constexpr CUmemAccess_flags no_access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
constexpr CUmemAccess_flags to_read = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr CUmemAccess_flags to_write = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

CUdeviceptr number(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
CUmemAllocationProp properties(CUmemLocation where) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = where;
  return prop;
}
CUresult granularity_of(const CUmemAllocationProp& prop, std::size_t* answer,
                        CUmemAllocationGranularity_flags option = CU_MEM_ALLOC_GRANULARITY_MINIMUM) {
  return driver("cuMemGetAllocationGranularity", answer, &prop, option);
}
CUresult reserve(CUdeviceptr* p, std::size_t size, std::size_t alignment = 0, CUdeviceptr hint = 0,
                 unsigned long long flags = 0) {
  return driver("cuMemAddressReserve", p, size, alignment, hint, flags);
}
CUresult free_addresses(CUdeviceptr p, std::size_t size) { return driver("cuMemAddressFree", p, size); }
CUresult create(CUmemGenericAllocationHandle* handle, std::size_t size, const CUmemAllocationProp& prop,
                unsigned long long flags = 0) {
  return driver("cuMemCreate", handle, size, &prop, flags);
}
CUresult release(CUmemGenericAllocationHandle handle) { return driver("cuMemRelease", handle); }
CUresult map(const void* p, std::size_t size, CUmemGenericAllocationHandle handle, std::size_t offset = 0,
             unsigned long long flags = 0) {
  return driver("cuMemMap", number(p), size, offset, handle, flags);
}
CUresult unmap(const void* p, std::size_t size) { return driver("cuMemUnmap", number(p), size); }
CUresult set_access(const void* p, std::size_t size, CUmemLocation where, CUmemAccess_flags flags) {
  const CUmemAccessDesc desc{where, flags};
  return driver("cuMemSetAccess", number(p), size, &desc, std::size_t{1});
}

/// Whether the page that `p` lies in lets anybody read it. The kernel answers, so that nothing crashes.
bool page_open(const void* p) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const bool open = ::write(ends[1], p, 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return open;
}

std::atomic<bool> began{false};
std::atomic<bool> may_end{false};
/// Touches *p, and uses it again after `may_end`.
void linger(int* p, access mode) {
  device_touch(p, sizeof(int), mode);
  began = true;
  while (!may_end) {
    std::this_thread::yield();
  }
  if (mode != access::read) *p = 7;
}
/// Whether a kernel's body goes on after it has touched *p.
void reach(const void* p, std::size_t size, access mode, bool* reached) {
  device_touch(p, size, mode);
  *reached = true;
}
void fill(int* p, int n, int value) {
  device_touch(p, static_cast<std::size_t>(n) * sizeof(int), access::overwrite);
  for (int i = 0; i < n; ++i) {
    p[i] = value;
  }
}

/// A device of four blocks, a stream, and eight blocks of reserved addresses. Ends with the leak check.
struct address_bench {
  explicit address_bench(std::size_t device_blocks = 4) {
    CHECK(fake_cuda::reset().empty());
    fake_cuda::register_kernel(add);
    fake_cuda::register_kernel(linger);
    fake_cuda::register_kernel(reach);
    fake_cuda::register_kernel(fill);
    fake_cuda::set_device_memory(deepum::bytes{device_blocks * block_bytes});
    CUdeviceptr p = 0;
    CHECK(reserve(&p, 8 * block_bytes) == CUDA_SUCCESS);
    base = reinterpret_cast<std::byte*>(p);
    stream = new_stream();
    began = may_end = false;
  }
  ~address_bench() {
    may_end = true;
    (void)cudaStreamDestroy(stream);
    (void)cudaDeviceSynchronize();
    for (std::size_t blocks = 1; blocks <= 2; ++blocks) {
      for (std::size_t i = 0; i + blocks <= 8; ++i) {
        (void)unmap(at(i), blocks * block_bytes);
      }
    }
    for (const auto handle : handles) {
      (void)release(handle);
    }
    (void)free_addresses(number(base), 8 * block_bytes);
    CHECK(fake_cuda::stats().device_handles == 0_B);
    CHECK(fake_cuda::stats().host_handles == 0_B);
    CHECK(fake_cuda::reset() == "");
  }
  address_bench(const address_bench&) = delete;
  address_bench& operator=(const address_bench&) = delete;

  [[nodiscard]] std::byte* at(std::size_t block) const { return base + block * block_bytes; }
  [[nodiscard]] int* ints(std::size_t block) const { return reinterpret_cast<int*>(at(block)); }
  CUmemGenericAllocationHandle make(CUmemLocation where = on_gpu, std::size_t blocks = 1) {
    CUmemGenericAllocationHandle handle = 0;
    CHECK(create(&handle, blocks * block_bytes, properties(where)) == CUDA_SUCCESS);
    handles.push_back(handle);
    return handle;
  }
  /// Maps one block, with all the device's access.
  void place(std::size_t block, CUmemGenericAllocationHandle handle) const {
    CHECK(map(at(block), block_bytes, handle) == CUDA_SUCCESS);
    CHECK(set_access(at(block), block_bytes, on_gpu, to_write) == CUDA_SUCCESS);
  }
  void sync() const { ok(cudaStreamSynchronize(stream)); }
  /// Waits until `linger` has begun.
  void await_kernel() const {
    while (!began) {
      std::this_thread::yield();
    }
  }

  std::byte* base = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<CUmemGenericAllocationHandle> handles{};
};

TEST_CASE("a mapping shows the bytes of its handle, wherever that is mapped and whatever was mapped there before") {
  address_bench b;
  const auto first = b.make();
  const auto second = b.make(on_host);
  b.place(0, first);
  CHECK(b.at(0)[0] == std::byte{fake_cuda::poison});
  CHECK(b.at(0)[block_bytes - 1] == std::byte{fake_cuda::poison});
  ok(launch(b.stream, fill, b.ints(0), 10, 1));
  b.sync();

  b.place(5, first);
  CHECK(b.ints(5)[9] == 1);
  ok(launch(b.stream, add, b.ints(5), 10, 1));
  b.sync();
  CHECK(b.ints(0)[9] == 2);

  CHECK(unmap(b.at(0), block_bytes) == CUDA_SUCCESS);
  b.place(0, second);
  CHECK(b.at(0)[0] == std::byte{fake_cuda::poison});
  ok(launch(b.stream, fill, b.ints(0), 10, 3));
  b.sync();
  CHECK(b.ints(5)[9] == 2);
  CHECK(unmap(b.at(0), block_bytes) == CUDA_SUCCESS);
  b.place(0, first);
  CHECK(b.ints(0)[9] == 2);
  b.place(1, second);
  CHECK(b.ints(1)[9] == 3);

  // A handle of two blocks, of which the first may be mapped alone.
  const auto both = b.make(on_gpu, 2);
  CHECK(map(b.at(6), 2 * block_bytes, both) == CUDA_SUCCESS);
  CHECK(set_access(b.at(6), 2 * block_bytes, on_gpu, to_write) == CUDA_SUCCESS);
  ok(cudaMemsetAsync(b.at(6), 4, block_bytes, b.stream));
  ok(cudaMemsetAsync(b.at(7), 5, block_bytes, b.stream));
  b.place(2, both);
  b.sync();
  CHECK(b.at(2)[block_bytes - 1] == std::byte{4});
  CHECK(b.at(7)[0] == std::byte{5});
  CHECK(fake_cuda::stats().maps == 7);
  CHECK(fake_cuda::stats().unmaps == 2);
  CHECK(fake_cuda::stats().access_changes == 7);
  CHECK(fake_cuda::stats().taken_in_use == 0);
  CHECK(fake_cuda::calls("cuMemMap") == 7);
}

TEST_CASE("memory is mapped into reserved space alone, once, from the handle's beginning, and in whole multiples") {
  address_bench b;
  const auto handle = b.make();
  const auto large = b.make(on_gpu, 2);
  constexpr std::size_t page = 4096;
  CHECK(map(b.at(0), page, handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(0), 0, handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(0) + page, block_bytes, handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(0), block_bytes, large, block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(0), 2 * block_bytes, handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(0), block_bytes, handle, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(0), block_bytes, handle + 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(8), block_bytes, handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(7), 2 * block_bytes, large) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.base - block_bytes, block_bytes, handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(fake_cuda::stats().maps == 0);

  CHECK(map(b.at(2), 2 * block_bytes, large) == CUDA_SUCCESS);
  CHECK(map(b.at(1), 2 * block_bytes, large) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(2), block_bytes, handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(3), block_bytes, handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(4), block_bytes, handle) == CUDA_SUCCESS);
  CHECK(map(b.at(1), block_bytes, handle) == CUDA_SUCCESS);
}

TEST_CASE("whole mappings are unmapped, one or several, and nothing else") {
  address_bench b;
  const auto handle = b.make();
  const auto large = b.make(on_gpu, 2);
  CHECK(map(b.at(0), block_bytes, handle) == CUDA_SUCCESS);
  CHECK(map(b.at(1), 2 * block_bytes, large) == CUDA_SUCCESS);
  CHECK(map(b.at(4), block_bytes, handle) == CUDA_SUCCESS);
  for (const auto& [first, blocks] : {std::pair<std::size_t, std::size_t>{1, 1},
                                      {2, 1},
                                      {0, 2},
                                      {2, 2},
                                      {3, 1},
                                      {0, 5},
                                      {3, 2},
                                      {4, 2},
                                      {7, 2},
                                      {0, 0}}) {
    CAPTURE(first);
    CAPTURE(blocks);
    CHECK(unmap(b.at(first), blocks * block_bytes) == CUDA_ERROR_INVALID_VALUE);
    CHECK(set_access(b.at(first), blocks * block_bytes, on_gpu, to_write) == CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(unmap(b.at(0) + 1, block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(unmap(b.at(0), block_bytes - 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(unmap(nullptr, block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(fake_cuda::stats().unmaps == 0);
  CHECK(fake_cuda::stats().access_changes == 0);

  CHECK(set_access(b.at(0), 3 * block_bytes, on_gpu, to_write) == CUDA_SUCCESS);
  CHECK(unmap(b.at(0), 3 * block_bytes) == CUDA_SUCCESS);
  CHECK(unmap(b.at(0), block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(unmap(b.at(4), block_bytes) == CUDA_SUCCESS);
  CHECK(map(b.at(2), block_bytes, handle) == CUDA_SUCCESS);  // where the rest of a mapping was
  CHECK(fake_cuda::stats().unmaps == 2);
}

TEST_CASE("addresses are reserved in whole multiples, aligned as asked, up to the limit, and freed as a whole") {
  address_bench b;
  CUdeviceptr p = 0;
  CHECK(reserve(&p, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(&p, block_bytes + 4096) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(&p, block_bytes, 3 * block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(&p, block_bytes, 0, 4096) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(&p, block_bytes, 0, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(nullptr, block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(&p, std::size_t{1} << 60) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(reserve(&p, ~std::size_t{0} / block_bytes * block_bytes) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(number(b.base) % block_bytes == 0);

  CHECK(reserve(&p, 3 * block_bytes, 16 * block_bytes) == CUDA_SUCCESS);
  CHECK(p % (16 * block_bytes) == 0);
  CHECK(free_addresses(p, 2 * block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(free_addresses(p + block_bytes, 2 * block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(free_addresses(p, 3 * block_bytes) == CUDA_SUCCESS);
  CHECK(free_addresses(p, 3 * block_bytes) == CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr before = p;
  CHECK(reserve(&p, 3 * block_bytes, 0, before) == CUDA_SUCCESS);
  CHECK(p == before);  // nothing is there, so the hint is followed
  CHECK(free_addresses(p, 3 * block_bytes) == CUDA_SUCCESS);

  const auto handle = b.make();
  CHECK(map(b.at(7), block_bytes, handle) == CUDA_SUCCESS);
  CHECK(free_addresses(number(b.base), 8 * block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(unmap(b.at(7), block_bytes) == CUDA_SUCCESS);

  fake_cuda::set_address_space(deepum::bytes{10 * block_bytes});  // of which eight are taken
  CHECK(reserve(&p, 3 * block_bytes) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(reserve(&p, 2 * block_bytes) == CUDA_SUCCESS);
  fake_cuda::set_address_space(1_MiB);
  CUdeviceptr q = 0;
  CHECK(reserve(&q, block_bytes) == CUDA_ERROR_OUT_OF_MEMORY);
  fake_cuda::set_address_space(deepum::bytes{10 * block_bytes});
  CHECK(free_addresses(p, 2 * block_bytes) == CUDA_SUCCESS);
  CHECK(reserve(&p, 2 * block_bytes) == CUDA_SUCCESS);
  CHECK(free_addresses(p, 2 * block_bytes) == CUDA_SUCCESS);
}

TEST_CASE("handles are of the device's or the host's memory, in whole multiples") {
  address_bench b;
  std::size_t answer = 0;
  for (const auto where : {on_gpu, on_host, CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, 5}}) {
    answer = 0;
    CHECK(granularity_of(properties(where), &answer) == CUDA_SUCCESS);
    CHECK(answer == block_bytes);
    answer = 0;
    CHECK(granularity_of(properties(where), &answer, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS);
    CHECK(answer == block_bytes);
    CUmemGenericAllocationHandle handle = 0;
    CHECK(create(&handle, block_bytes, properties(where)) == CUDA_SUCCESS);
    CHECK(release(handle) == CUDA_SUCCESS);
    CHECK(release(handle) == CUDA_ERROR_INVALID_VALUE);
  }
  const auto refused = [&](CUmemAllocationProp prop, CUresult why) {
    CUmemGenericAllocationHandle handle = 0;
    CHECK(granularity_of(prop, &answer) == why);
    CHECK(create(&handle, block_bytes, prop) == why);
  };
  refused(properties({CU_MEM_LOCATION_TYPE_DEVICE, 1}), CUDA_ERROR_INVALID_DEVICE);
  refused(properties({CU_MEM_LOCATION_TYPE_HOST_NUMA, 1}), CUDA_ERROR_INVALID_DEVICE);
  refused(properties({CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0}), CUDA_ERROR_INVALID_VALUE);
  refused(properties({}), CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp prop = properties(on_gpu);
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  refused(prop, CUDA_ERROR_NOT_SUPPORTED);
  prop = properties(on_gpu);
  prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  refused(prop, CUDA_ERROR_INVALID_VALUE);
  CUmemGenericAllocationHandle handle = 0;
  CHECK(create(&handle, block_bytes + 4096, properties(on_gpu)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(create(&handle, 0, properties(on_gpu)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(create(&handle, block_bytes, properties(on_gpu), 1) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("handles count against the memory they are of until they are released and no longer mapped") {
  const auto free_blocks = [] {
    std::size_t free = 0;
    std::size_t total = 0;
    ok(cudaMemGetInfo(&free, &total));
    return free / block_bytes;
  };
  address_bench b;
  const auto first = b.make();
  b.place(0, first);
  b.place(1, first);
  ok(cudaMemsetAsync(b.at(0), 9, block_bytes, b.stream));
  b.sync();
  CHECK(free_blocks() == 3);
  CHECK(release(first) == CUDA_SUCCESS);
  CHECK(release(first) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(b.at(2), block_bytes, first) == CUDA_ERROR_INVALID_VALUE);
  CHECK(unmap(b.at(0), block_bytes) == CUDA_SUCCESS);
  CHECK(free_blocks() == 3);
  CHECK(b.at(1)[block_bytes - 1] == std::byte{9});
  CHECK(fake_cuda::stats().device_handles == 2_MiB);
  CHECK(unmap(b.at(1), block_bytes) == CUDA_SUCCESS);
  CHECK(free_blocks() == 4);
  CHECK(fake_cuda::stats().device_handles == 0_B);

  // Managed blocks make room, and are evicted no further than needed.
  void* managed = nullptr;
  ok(cudaMallocManaged(&managed, 4 * block_bytes, cudaMemAttachGlobal));
  ok(cudaMemPrefetchAsync(managed, 4 * block_bytes, gpu, 0, b.stream));
  b.sync();
  CHECK(free_blocks() == 0);
  (void)b.make(on_gpu, 3);
  CHECK(fake_cuda::stats().driver_evictions == 3);
  CHECK(fake_cuda::stats().device_blocks == 1);
  CUmemGenericAllocationHandle handle = 0;
  CHECK(create(&handle, 2 * block_bytes, properties(on_gpu)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(create(&handle, ~std::size_t{0} / block_bytes * block_bytes, properties(on_gpu)) == CUDA_ERROR_OUT_OF_MEMORY);
  (void)b.make();
  CHECK(fake_cuda::stats().device_blocks == 0);
  void* plain = nullptr;
  CHECK(cudaMalloc(&plain, 1) == cudaErrorMemoryAllocation);
  ok(cudaFree(managed));

  (void)b.make(on_host, 2);
  fake_cuda::set_host_memory(deepum::bytes{3 * block_bytes});
  CHECK(create(&handle, 2 * block_bytes, properties(on_host)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(create(&handle, ~std::size_t{0} / block_bytes * block_bytes, properties(on_host)) == CUDA_ERROR_OUT_OF_MEMORY);
  (void)b.make(on_host);
  CHECK(create(&handle, block_bytes, properties(on_host)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(release(b.handles[3]) == CUDA_SUCCESS);
  (void)b.make(on_host, 2);
  fake_cuda::set_host_memory(1_MiB);
  CHECK(create(&handle, block_bytes, properties(on_host)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(fake_cuda::stats().device_handles == 8_MiB);
  CHECK(fake_cuda::stats().device_handles_peak == 8_MiB);
  CHECK(fake_cuda::stats().host_handles == 6_MiB);
  CHECK(fake_cuda::stats().host_handles_peak == 6_MiB);
  fake_cuda::set_host_memory(6_MiB);
  CHECK(release(b.handles.back()) == CUDA_SUCCESS);
  (void)b.make(on_host);
  CHECK(fake_cuda::stats().host_handles == 4_MiB);
  CHECK(fake_cuda::stats().host_handles_peak == 6_MiB);
}

TEST_CASE("the device and the host may access what was granted to each, until it is unmapped") {
  address_bench b;
  const auto device = b.make();
  const auto ram = b.make(on_host);
  CHECK(map(b.at(0), block_bytes, device) == CUDA_SUCCESS);
  CHECK(map(b.at(1), block_bytes, ram) == CUDA_SUCCESS);
  const auto host_may = [&](std::size_t block) {
    const bool reads = fake_cuda::host_may_access(b.at(block), block_bytes, access::read);
    const bool writes = fake_cuda::host_may_access(b.at(block), block_bytes, access::update);
    return std::string(reads ? "r" : "") + (writes ? "w" : "");
  };
  CHECK(host_may(0) + host_may(1) == "");
  CHECK(!page_open(b.at(0)));
  CHECK(set_access(b.at(0), 2 * block_bytes, on_gpu, to_write) == CUDA_SUCCESS);
  CHECK(host_may(0) + host_may(1) == "");
  CHECK(page_open(b.at(0)));
  CHECK(set_access(b.at(1), block_bytes, on_host, to_read) == CUDA_SUCCESS);
  CHECK(host_may(1) == "r");
  CHECK(set_access(b.at(1), block_bytes, {CU_MEM_LOCATION_TYPE_HOST, 0}, to_write) == CUDA_SUCCESS);
  CHECK(host_may(1) == "rw");
  CHECK(!fake_cuda::host_may_access(b.at(1), block_bytes + 1, access::read));
  CHECK(!fake_cuda::host_may_access(b.at(0), 2 * block_bytes, access::read));

  // Over PCIe, memory of the device is never the host's. Nothing is done where a part is refused.
  CHECK(set_access(b.at(0), block_bytes, on_host, to_write) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(set_access(b.at(0), 2 * block_bytes, {CU_MEM_LOCATION_TYPE_HOST, 0}, no_access) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(host_may(1) == "rw");
  CHECK(set_access(b.at(0), block_bytes, {CU_MEM_LOCATION_TYPE_DEVICE, 1}, to_write) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(set_access(b.at(0), block_bytes, {CU_MEM_LOCATION_TYPE_INVALID, 0}, to_write) == CUDA_ERROR_INVALID_VALUE);
  CHECK(set_access(b.at(0), block_bytes, on_gpu, static_cast<CUmemAccess_flags>(2)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver("cuMemSetAccess", number(b.at(0)), block_bytes, static_cast<const CUmemAccessDesc*>(nullptr),
               std::size_t{1}) == CUDA_ERROR_INVALID_VALUE);

  // Both at once; the device loses its own, the host's stays.
  b.ints(1)[0] = 5;
  ok(launch(b.stream, add, b.ints(1), 1, 1));
  b.sync();
  const std::array<CUmemAccessDesc, 2> both{CUmemAccessDesc{on_gpu, no_access}, CUmemAccessDesc{on_host, to_read}};
  CHECK(driver("cuMemSetAccess", number(b.at(1)), block_bytes, both.data(), both.size()) == CUDA_SUCCESS);
  CHECK(host_may(1) == "r");
  CHECK(b.ints(1)[0] == 6);
  CHECK(unmap(b.at(1), block_bytes) == CUDA_SUCCESS);
  CHECK(!page_open(b.at(1)));
  CHECK(map(b.at(1), block_bytes, ram) == CUDA_SUCCESS);
  CHECK(host_may(1) == "");
  CHECK(set_access(b.at(1), block_bytes, on_gpu, to_write) == CUDA_SUCCESS);
  CHECK(set_access(b.at(1), block_bytes, on_gpu, no_access) == CUDA_SUCCESS);
  CHECK(!page_open(b.at(1)));

  // What is in no reserved range.
  int n = 0;
  void* plain = nullptr;
  ok(cudaMalloc(&plain, 4));
  CHECK(fake_cuda::host_may_access(&n, 4, access::update));
  CHECK(!fake_cuda::host_may_access(plain, 4, access::read));
  ok(cudaFree(plain));
}

TEST_CASE("a kernel that touches what the device may not access breaks it, and its body ends there") {
  struct wrong {
    std::string what;
    CUmemAccess_flags flags;
    std::size_t offset;
    std::size_t size;
    access mode;
  };
  for (const wrong& w : {wrong{"without access", no_access, 0, 4, access::read},
                         wrong{"written, but to be read", to_read, 0, 4, access::update},
                         wrong{"over the end", to_write, block_bytes - 4, 8, access::read},
                         wrong{"not mapped", to_write, 3 * block_bytes, 4, access::read}}) {
    CAPTURE(w.what);
    address_bench b;
    const auto handle = b.make();
    CHECK(map(b.at(0), block_bytes, handle) == CUDA_SUCCESS);
    CHECK(set_access(b.at(0), block_bytes, on_gpu, w.flags) == CUDA_SUCCESS);
    bool reached = false;
    if (w.flags != no_access) {
      ok(launch(b.stream, reach, b.at(0), block_bytes, w.flags == to_read ? access::read : access::update, &reached));
      b.sync();
      CHECK(reached);
      reached = false;
    }
    ok(launch(b.stream, reach, b.at(0) + w.offset, w.size, w.mode, &reached));
    CHECK(cudaStreamSynchronize(b.stream) == cudaErrorIllegalAddress);
    CHECK(!reached);
    CHECK(fake_cuda::stats().taken_in_use == 0);
  }
  // Access that was taken, or unmapped, before the kernel got there is missed as well: a launch alone uses nothing.
  for (const bool unmapped : {true, false}) {
    address_bench b;
    b.place(0, b.make());
    fake_cuda::hold(b.stream);
    ok(launch(b.stream, fill, b.ints(0), 10, 1));
    if (unmapped) {
      CHECK(unmap(b.at(0), block_bytes) == CUDA_SUCCESS);
    } else {
      CHECK(set_access(b.at(0), block_bytes, on_gpu, no_access) == CUDA_SUCCESS);
    }
    fake_cuda::resume(b.stream);
    CHECK(cudaStreamSynchronize(b.stream) == cudaErrorIllegalAddress);
  }
}

TEST_CASE("copies and memsets take mapped addresses, over several mappings, if the device may access them") {
  address_bench b;
  const auto first = b.make();
  b.place(0, first);
  b.place(1, b.make());
  b.place(2, b.make(on_host, 2));
  b.place(4, b.handles[2]);
  fake_cuda::hold(b.stream);
  ok(cudaMemsetAsync(b.at(0), 1, 2 * block_bytes, b.stream));
  ok(cudaMemcpyAsync(b.at(2), b.at(1), block_bytes, cudaMemcpyDefault, b.stream));  // not pageable: it does not wait
  CHECK(b.at(2)[0] == std::byte{fake_cuda::poison});
  fake_cuda::resume(b.stream);
  b.sync();
  CHECK(b.at(2)[0] == std::byte{1});
  CHECK(b.at(4)[block_bytes - 1] == std::byte{1});
  std::vector<int> values(1000, 3);
  ok(cudaMemcpyAsync(b.at(1) - 2000, values.data(), 4000, cudaMemcpyDefault, b.stream));
  values.assign(1000, 0);
  ok(cudaMemcpyAsync(values.data(), b.at(1) - 2000, 4000, cudaMemcpyDefault, b.stream));
  CHECK(values == std::vector<int>(1000, 3));

  CHECK(cudaMemsetAsync(b.at(2), 0, block_bytes + 1, b.stream) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(values.data(), b.at(3) - 1, 2, cudaMemcpyDefault, b.stream) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(b.at(3), values.data(), 2, cudaMemcpyDefault, b.stream) == cudaErrorInvalidValue);
  CHECK(set_access(b.at(1), block_bytes, on_gpu, to_read) == CUDA_SUCCESS);
  CHECK(cudaMemcpyAsync(b.at(0), b.at(1), 2, cudaMemcpyDefault, b.stream) == cudaSuccess);
  CHECK(cudaMemcpyAsync(b.at(1), b.at(0), 2, cudaMemcpyDefault, b.stream) == cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(b.at(1), 0, 1, b.stream) == cudaErrorInvalidValue);
  b.sync();

  cudaPointerAttributes a{};
  ok(cudaPointerGetAttributes(&a, b.at(1) - 1));
  CHECK(a.type == cudaMemoryTypeDevice);
  CHECK(a.hostPointer == nullptr);
  ok(cudaPointerGetAttributes(&a, b.at(2)));
  CHECK(a.type == cudaMemoryTypeHost);
  CHECK(a.devicePointer == b.at(2));
  ok(cudaPointerGetAttributes(&a, b.at(3)));
  CHECK(a.type == cudaMemoryTypeUnregistered);
  CHECK(a.devicePointer == nullptr);
}

TEST_CASE("what a kernel in flight has touched must not be unmapped nor lose its access") {
  enum class taken { unmapped, closed, read_only };
  for (const taken how : {taken::unmapped, taken::closed, taken::read_only}) {
    address_bench b;
    b.place(0, b.make());
    b.place(1, b.make());
    ok(launch(b.stream, linger, b.ints(0), access::update));
    b.await_kernel();
    CHECK(unmap(b.at(1), block_bytes) == CUDA_SUCCESS);  // which it does not use
    CHECK(set_access(b.at(0), block_bytes, on_gpu, to_write) == CUDA_SUCCESS);
    ok(cudaPeekAtLastError());
    CHECK(fake_cuda::stats().taken_in_use == 0);
    if (how == taken::unmapped) {
      CHECK(unmap(b.at(0), block_bytes) == CUDA_ERROR_ILLEGAL_ADDRESS);
    } else {
      CHECK(set_access(b.at(0), block_bytes, on_gpu, how == taken::closed ? no_access : to_read) ==
            CUDA_ERROR_ILLEGAL_ADDRESS);
      CHECK(unmap(b.at(0), block_bytes) == CUDA_ERROR_ILLEGAL_ADDRESS);  // from now on all calls
    }
    CHECK(fake_cuda::stats().taken_in_use == 1);
    // All is given back while the kernel still runs, and its body does not crash.
    for (const auto handle : b.handles) {
      CHECK(release(handle) == CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    CHECK(free_addresses(number(b.base), 8 * block_bytes) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(fake_cuda::stats().device_handles == 0_B);
    may_end = true;
    CHECK(cudaStreamSynchronize(b.stream) == cudaErrorIllegalAddress);
  }
  {  // A reader needs no more than to read; and when its kernel has ended, nothing.
    address_bench b;
    b.place(0, b.make());
    ok(launch(b.stream, linger, b.ints(0), access::read));
    b.await_kernel();
    CHECK(set_access(b.at(0), block_bytes, on_gpu, to_read) == CUDA_SUCCESS);
    may_end = true;
    b.sync();
    CHECK(unmap(b.at(0), block_bytes) == CUDA_SUCCESS);
    CHECK(fake_cuda::stats().taken_in_use == 0);
  }
  {  // In a stream that has been destroyed it is in flight still. Other mappings of the handle are not in use.
    address_bench b;
    const auto handle = b.make();
    b.place(0, handle);
    b.place(1, handle);
    const cudaStream_t other = new_stream();
    ok(launch(other, linger, b.ints(0), access::read));
    b.await_kernel();
    ok(cudaStreamDestroy(other));
    CHECK(unmap(b.at(1), block_bytes) == CUDA_SUCCESS);
    CHECK(unmap(b.at(0), block_bytes) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_CASE("what a copy or memset in flight uses must not be unmapped nor lose its access") {
  enum class operation { copy_from, copy_to, set };
  for (const operation what : {operation::copy_from, operation::copy_to, operation::set}) {
    for (const bool unmapped : {true, false}) {
      address_bench b;
      b.place(0, b.make());
      b.place(1, b.make());
      fake_cuda::hold(b.stream);
      ok(launch(b.stream, add, b.ints(1), 1, 1));  // a launch alone uses nothing
      if (what == operation::set) {
        ok(cudaMemsetAsync(b.at(0), 1, 4, b.stream));
      } else {
        ok(cudaMemcpyAsync(b.at(what == operation::copy_to ? 0 : 1) + 8, b.at(what == operation::copy_to ? 1 : 0), 8,
                           cudaMemcpyDefault, b.stream));
      }
      if (what == operation::copy_from) CHECK(set_access(b.at(0), block_bytes, on_gpu, to_read) == CUDA_SUCCESS);
      ok(cudaPeekAtLastError());
      CHECK((unmapped ? unmap(b.at(0), block_bytes) : set_access(b.at(0), block_bytes, on_gpu, no_access)) ==
            CUDA_ERROR_ILLEGAL_ADDRESS);
      CHECK(cudaStreamSynchronize(b.stream) == cudaErrorIllegalAddress);
      CHECK(fake_cuda::stats().taken_in_use == 1);
    }
  }
  {  // One that is executed: it faults on the managed memory that it reads.
    address_bench b;
    b.place(0, b.make());
    void* managed = nullptr;
    ok(cudaMallocManaged(&managed, block_bytes, cudaMemAttachGlobal));
    std::atomic<CUresult> result{CUDA_SUCCESS};
    fake_cuda::set_fault_sink([&](const void*, access, deepum::nanoseconds) { result = unmap(b.at(0), block_bytes); });
    ok(cudaMemcpyAsync(b.at(0), managed, block_bytes, cudaMemcpyDefault, b.stream));
    CHECK(cudaStreamSynchronize(b.stream) == cudaErrorIllegalAddress);  // at once, while `unmap` returns
    for (int i = 0; i < 300'000 && result == CUDA_SUCCESS; ++i)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    CHECK(result.load() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cudaFree(managed) == cudaErrorIllegalAddress);
  }
  // One that is done, as an event tells, uses nothing any more.
  address_bench b;
  b.place(0, b.make());
  const cudaEvent_t e = new_event();
  ok(cudaMemsetAsync(b.at(0), 1, block_bytes, b.stream));
  ok(cudaEventRecord(e, b.stream));
  ok(cudaEventSynchronize(e));
  CHECK(unmap(b.at(0), block_bytes) == CUDA_SUCCESS);
  ok(cudaEventDestroy(e));
}

TEST_CASE("calls of the virtual memory management fail when they shall; what gives back does so nevertheless") {
  address_bench b;
  const auto handle = b.make();
  CUdeviceptr p = 0;
  CUmemGenericAllocationHandle other = 0;
  std::size_t answer = 0;
  for (const char* name : {"cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                           "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree"}) {
    fake_cuda::fail_call(name, 1, cudaErrorUnknown);
  }
  CHECK(granularity_of(properties(on_gpu), &answer) == CUDA_ERROR_UNKNOWN);
  CHECK(reserve(&p, block_bytes) == CUDA_ERROR_UNKNOWN);
  CHECK(p == 0);
  CHECK(create(&other, block_bytes, properties(on_gpu)) == CUDA_ERROR_UNKNOWN);
  CHECK(fake_cuda::stats().device_handles == 2_MiB);
  CHECK(map(b.at(0), block_bytes, handle) == CUDA_ERROR_UNKNOWN);
  CHECK(fake_cuda::stats().maps == 0);
  CHECK(map(b.at(0), block_bytes, handle) == CUDA_SUCCESS);
  CHECK(set_access(b.at(0), block_bytes, on_gpu, to_write) == CUDA_ERROR_UNKNOWN);
  CHECK(cudaMemsetAsync(b.at(0), 0, 1, b.stream) == cudaErrorInvalidValue);
  CHECK(unmap(b.at(0), block_bytes) == CUDA_ERROR_UNKNOWN);
  CHECK(unmap(b.at(0), block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(release(handle) == CUDA_ERROR_UNKNOWN);
  CHECK(fake_cuda::stats().device_handles == 0_B);
  CHECK(reserve(&p, block_bytes) == CUDA_SUCCESS);
  CHECK(free_addresses(p, block_bytes) == CUDA_ERROR_UNKNOWN);
  CHECK(free_addresses(p, block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(fake_cuda::failed_calls().size() == 8);

  // They count with all the others.
  fake_cuda::fail_nth_call_of_any(1, cudaErrorMemoryAllocation);
  CHECK(create(&other, block_bytes, properties(on_gpu)) == CUDA_ERROR_OUT_OF_MEMORY);
  (void)cudaGetLastError();
  fake_cuda::fail_all_calls("cuMemCreate", cudaErrorNotSupported);
  CHECK(create(&other, block_bytes, properties(on_gpu)) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(create(&other, block_bytes, properties(on_gpu)) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cudaGetLastError() == cudaSuccess);  // these calls leave no last error

  fake_cuda::set_capturing(b.stream, true);
  CHECK(reserve(&p, block_bytes) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cudaGetLastError() == cudaSuccess);
  fake_cuda::set_capturing(b.stream, false);
  CHECK(fake_cuda::stats().capture_violations == 1);
}

TEST_CASE("reset tells what is left of the virtual memory management, and gives it back") {
  for (int round = 0; round < 2; ++round) {
    CHECK(fake_cuda::reset().empty());
    CUdeviceptr p = 0;
    CUmemGenericAllocationHandle kept = 0;
    CUmemGenericAllocationHandle released = 0;
    CHECK(reserve(&p, 4 * block_bytes) == CUDA_SUCCESS);
    CHECK(create(&kept, 2 * block_bytes, properties(on_gpu)) == CUDA_SUCCESS);
    CHECK(create(&released, block_bytes, properties(on_host)) == CUDA_SUCCESS);
    CHECK(map(reinterpret_cast<void*>(p), block_bytes, released) == CUDA_SUCCESS);
    CHECK(release(released) == CUDA_SUCCESS);
    fake_cuda::set_host_memory(1_MiB);
    fake_cuda::set_address_space(1_MiB);
    CHECK(fake_cuda::reset() ==
          "a reserved range of 8388608 bytes\na memory handle of 4194304 bytes\na mapping of 2097152 bytes\n");
    CHECK(fake_cuda::stats().device_handles == 0_B);
    CHECK(fake_cuda::reset().empty());
    std::array<unsigned char, 1> there{};
    CHECK(::mincore(reinterpret_cast<void*>(p), 4096, there.data()) == -1);  // no page is mapped there any more
    // Its handles are unknown, and new ones do not show what was in them.
    CHECK(release(kept) == CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(fake_cuda::reset().empty());
}

TEST_CASE("many threads may page at once, each between its own handles") {
  address_bench b(8);
  fake_cuda::set_delays(5, std::chrono::microseconds(20));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&b, t] {
      const cudaStream_t s = new_stream();
      const auto page_in = [&](CUmemGenericAllocationHandle handle) { b.place(t, handle); };
      std::array<CUmemGenericAllocationHandle, 2> handles{};
      for (auto& handle : handles) {
        CHECK(create(&handle, block_bytes, properties(&handle == handles.data() ? on_gpu : on_host)) == CUDA_SUCCESS);
        page_in(handle);
        ok(launch(s, fill, b.ints(t), 1000, 0));
        ok(cudaStreamSynchronize(s));
        CHECK(unmap(b.at(t), block_bytes) == CUDA_SUCCESS);
      }
      for (std::size_t i = 0; i < 20; ++i) {
        page_in(handles[i % 2]);
        ok(launch(s, add, b.ints(t), 1000, i % 2 == 0 ? 1 : 100));
        ok(cudaStreamSynchronize(s));
        CHECK(b.ints(t)[999] == static_cast<int>(i / 2 + 1) * (i % 2 == 0 ? 1 : 100));
        CHECK(unmap(b.at(t), block_bytes) == CUDA_SUCCESS);
      }
      for (const auto handle : handles) {
        CHECK(release(handle) == CUDA_SUCCESS);
      }
      ok(cudaStreamDestroy(s));
    });
  }
  for (auto& t : threads) {
    t.join();
  }
  CHECK(fake_cuda::stats().maps == 4 * 22);
  CHECK(fake_cuda::stats().taken_in_use == 0);
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

}  // namespace fake_cuda_test
