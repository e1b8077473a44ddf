#include "cuda/fake_cuda.hpp"

#include <deepum/core/block.hpp>

#include <doctest/doctest.h>

#include <cuda.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
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

/// A function of the driver, which is looked up.
template <class... P>
CUresult driver(const char* name, P... arguments) {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult found{};
  ok(cudaGetDriverEntryPointByVersion(name, &f, 4000, cudaEnableDefault, &found));
  REQUIRE(found == cudaDriverEntryPointSuccess);
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
