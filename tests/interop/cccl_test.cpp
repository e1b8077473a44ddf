#include "interop/recorded_arena.hpp"
#include <deepum/interop/cccl.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace cccl_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::bytes;
using resource = deepum::interop::arena_resource<deepum::cuda::managed_memory>;
using paged_resource = deepum::interop::arena_resource<deepum::cuda::paged_memory>;

static_assert(cuda::has_property<resource, cuda::mr::host_accessible>);
static_assert(cuda::has_property<paged_resource, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<paged_resource, cuda::mr::host_accessible>);

/// A stream that the arena does not know.
struct foreign_stream {
  foreign_stream() { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess); }
  ~foreign_stream() {
    const cudaError_t state = cudaStreamSynchronize(stream);
    CHECK((state == cudaSuccess || state == cudaErrorIllegalAddress));  // where a test breaks the device
    CHECK(cudaStreamDestroy(stream) == state);
  }
  foreign_stream(const foreign_stream&) = delete;
  foreign_stream& operator=(const foreign_stream&) = delete;
  cudaStream_t stream = nullptr;
};

struct machine : recorded_arena<deepum::cuda::managed_memory> {
  foreign_stream foreign;
  std::optional<resource> r{std::in_place, memory};

  bytes allocated() { return memory.footprint().allocated; }
};

TEST_CASE("memory comes from the arena and goes back there, under the names of every CCCL") {
  machine m;
  const cuda::stream_ref q{m.foreign.stream};
  std::vector<void*> all{
      m.r->allocate(1000),          m.r->allocate(1000, 4096),          m.r->allocate_sync(1000),
      m.r->allocate(q, 1000, 4096), m.r->allocate_async(1000, 4096, q), m.r->allocate_async(1000, q)};
  for (void* p : all) {
    CHECK(m.memory.contains(p));
  }
  m.r->deallocate(all[0], 1000);
  m.r->deallocate(all[1], 1000, 4096);
  m.r->deallocate_sync(all[2], 1000);
  m.r->deallocate(q, all[3], 1000, 4096);
  m.r->deallocate_async(all[4], 1000, 4096, q);
  m.r->deallocate_async(all[5], 1000, q);
  m.r->deallocate(q, nullptr, 0);
  CHECK(cudaStreamSynchronize(m.foreign.stream) == cudaSuccess);
  m.r->deallocate(m.r->allocate(1), 1);  // looks for what has become free
  CHECK(m.allocated() == bytes{});
}

TEST_CASE("what is given back in a stream is used again when the stream has come there") {
  machine m;
  void* const p = m.r->allocate(1000);
  void* const q = m.r->allocate(1000);
  fake_cuda::hold(m.foreign.stream);
  m.r->deallocate(m.foreign.stream, p, 1000);
  m.r->deallocate(m.stream.native().native(), q, 1000);  // another stream does not wait for it
  CHECK(cudaStreamSynchronize(m.stream.native().native()) == cudaSuccess);
  void* const other = m.r->allocate(1000);
  CHECK(other != p);
  const bytes with_p = m.allocated();
  fake_cuda::resume(m.foreign.stream);
  CHECK(cudaStreamSynchronize(m.foreign.stream) == cudaSuccess);
  void* const another = m.r->allocate(1000);
  CHECK(m.allocated() == with_p);  // p has gone, this one has come
  m.r->deallocate(other, 1000);
  m.r->deallocate(another, 1000);
}

TEST_CASE("an arena that is full waits for what streams still use") {
  machine m;
  void* const p = m.r->allocate((200_MiB).count);
  fake_cuda::hold(m.foreign.stream);
  m.r->deallocate(m.foreign.stream, p, (200_MiB).count);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fake_cuda::resume(m.foreign.stream);
  });
  void* const q = m.r->allocate((200_MiB).count);
  later.join();
  CHECK(q == p);
  CHECK_THROWS_AS((void)m.r->allocate((200_MiB).count), deepum::error);
  m.r->deallocate(q, 1000);
}

TEST_CASE("where no event can be had, giving back waits for the stream") {
  machine m;
  for (const char* call : {"cudaEventCreateWithFlags", "cudaEventRecord"}) {
    CAPTURE(call);
    void* const p = m.r->allocate(1000);
    fake_cuda::fail_call(call, 1, cudaErrorMemoryAllocation);
    m.r->deallocate(m.foreign.stream, p, 1000);
    CHECK(m.allocated() == bytes{});
    CHECK(cudaGetLastError() == cudaSuccess);
  }
}

TEST_CASE("copies share what waits, and the last one gives it back") {
  machine m;
  std::optional<resource> copy{*m.r};
  CHECK(*copy == *m.r);
  const resource same{m.memory};
  CHECK(same == *copy);
  void* const p = m.r->allocate(1000);
  fake_cuda::hold(m.foreign.stream);
  m.r->deallocate(m.foreign.stream, p, 1000);
  m.r.reset();
  CHECK(m.allocated() != bytes{});
  fake_cuda::resume(m.foreign.stream);
  copy.reset();
  CHECK(m.allocated() == bytes{});
}

/// Writes what a graph was given.
void fill(std::byte* p, std::size_t n) {
  device_touch(p, n, deepum::access::overwrite);
  std::fill_n(p, n, std::byte{0xEE});
}

/// Captures a kernel that writes memory of the resource, which is given back inside the capture.
struct captured_writer : machine {
  captured_writer() {
    REQUIRE(cudaStreamBeginCapture(foreign.stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    p = static_cast<std::byte*>(r->allocate_async((2_MiB).count, foreign.stream));
    enqueue(foreign.stream, fill, p, (2_MiB).count);
  }
  void give_back() { r->deallocate_async(p, (2_MiB).count, foreign.stream); }
  deepum::cuda::graph end_capture() {
    cudaGraph_t captured = nullptr;
    REQUIRE(cudaStreamEndCapture(foreign.stream, &captured) == cudaSuccess);
    return deepum::cuda::graph(captured);
  }
  /// Takes memory as others do, launches the graph, and sees whether it has written there.
  bool disturbs_others(const deepum::cuda::graph& graph) {
    auto* const other = static_cast<std::byte*>(r->allocate((2_MiB).count));
    std::fill_n(other, (2_MiB).count, std::byte{1});
    CHECK(cudaGraphLaunch(graph.native(), foreign.stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(foreign.stream) == cudaSuccess);
    const bool disturbed = std::any_of(other, other + (2_MiB).count, [](std::byte b) { return b != std::byte{1}; });
    r->deallocate(other, (2_MiB).count);
    return disturbed;
  }
  std::byte* p = nullptr;
};

TEST_CASE("what is given back inside a capture is the graph's until that ends") {
  captured_writer m;
  m.give_back();
  {
    const deepum::cuda::graph graph = m.end_capture();
    CHECK(!m.disturbs_others(graph));
    CHECK(m.allocated() == 2_MiB);
    fake_cuda::hold(m.foreign.stream);
    CHECK(cudaGraphLaunch(graph.native(), m.foreign.stream) == cudaSuccess);
  }
  m.r->deallocate(m.r->allocate(1), 1);
  CHECK(m.allocated() == 2_MiB);  // its last launch is on its way
  fake_cuda::resume(m.foreign.stream);
  CHECK(cudaStreamSynchronize(m.foreign.stream) == cudaSuccess);
  m.r->deallocate(m.r->allocate(1), 1);
  CHECK(m.allocated() == bytes{});
  CHECK(fake_cuda::stats().capture_violations == 0);
}

TEST_CASE("where the runtime does not give the graph memory to keep, the arena keeps it") {
  for (const char* call :
       {"cudaStreamGetCaptureInfo", "cudaUserObjectCreate", "cudaGraphRetainUserObject", "cudaStreamIsCapturing"}) {
    CAPTURE(std::string(call));
    captured_writer m;
    fake_cuda::fail_call(call, 1, cudaErrorMemoryAllocation);
    m.give_back();
    const deepum::cuda::graph graph = m.end_capture();
    CHECK(!m.disturbs_others(graph));
    m.r.reset();
    CHECK(m.allocated() == 2_MiB);
  }
}

TEST_CASE("a graph may end after the resource that it has memory of, and after the arena") {
  deepum::cuda::graph graph;
  {
    captured_writer m;
    m.give_back();
    graph = m.end_capture();
    m.r.reset();
    CHECK(m.allocated() == 2_MiB);
    graph = {};
  }
}

TEST_CASE("a query that fails does not give memory back that a stream still uses") {
  for (const cudaError_t error :
       {cudaErrorStreamCaptureUnsupported, cudaErrorMemoryAllocation, cudaErrorInvalidValue}) {
    CAPTURE(static_cast<int>(error));
    machine m;
    void* const p = m.r->allocate(1000);
    fake_cuda::hold(m.foreign.stream);
    enqueue(m.foreign.stream, fill, static_cast<std::byte*>(p), std::size_t{1000});
    fake_cuda::fail_call("cudaEventQuery", 1, error);
    fake_cuda::fail_call("cudaEventQuery", 1, error);  // and when it is asked again
    m.r->deallocate(m.foreign.stream, p, 1000);
    CHECK(m.allocated() != bytes{});
    fake_cuda::resume(m.foreign.stream);
    CHECK(cudaStreamSynchronize(m.foreign.stream) == cudaSuccess);
    m.r.reset();
    CHECK(m.allocated() == bytes{});
  }
}

TEST_CASE("a wait that fails does not give memory back that a stream still uses") {
  machine m;
  void* const p = m.r->allocate((200_MiB).count);
  fake_cuda::hold(m.foreign.stream);
  m.r->deallocate(m.foreign.stream, p, (200_MiB).count);
  fake_cuda::fail_call("cudaEventSynchronize", 1, cudaErrorStreamCaptureUnsupported);
  CHECK_THROWS_AS((void)m.r->allocate((200_MiB).count), deepum::error);
  for (const char* call : {"cudaStreamSynchronize", "cudaEventRecord"}) {
    fake_cuda::fail_call(call, 1, cudaErrorStreamCaptureUnsupported);
  }
  void* const q = m.r->allocate(1000);
  m.r->deallocate(m.foreign.stream, q, 1000);
  fake_cuda::resume(m.foreign.stream);
  m.r.reset();
  CHECK(m.allocated() == bytes{1000});  // of which nobody could tell: it stays the arena's
}

TEST_CASE("a device that fails has done with all memory that was given back") {
  machine m;
  void* const p = m.r->allocate(1000);
  fake_cuda::hold(m.foreign.stream);
  m.r->deallocate(m.foreign.stream, p, 1000);
  fake_cuda::break_device(cudaErrorIllegalAddress);
  m.r->deallocate(m.foreign.stream, m.r->allocate(1000), 1000);
  m.r.reset();
  CHECK(m.allocated() == bytes{});
}

TEST_CASE("looking for what has become free does not spoil a capture of the program's") {
  machine m;
  void* const p = m.r->allocate(1000);
  fake_cuda::hold(m.foreign.stream);
  m.r->deallocate(m.foreign.stream, p, 1000);
  foreign_stream other;
  REQUIRE(cudaStreamBeginCapture(other.stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  const std::uint64_t before = fake_cuda::stats().capture_violations;
  void* const q = m.r->allocate(1000);
  m.r->deallocate(m.foreign.stream, q, 1000);
  CHECK(fake_cuda::stats().capture_violations == before);
  cudaGraph_t captured = nullptr;
  REQUIRE(cudaStreamEndCapture(other.stream, &captured) == cudaSuccess);
  CHECK(cudaGraphDestroy(captured) == cudaSuccess);
  fake_cuda::resume(m.foreign.stream);
}

}  // namespace cccl_test
