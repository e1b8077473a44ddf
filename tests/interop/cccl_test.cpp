#include "interop/recorded_arena.hpp"
#include <deepum/interop/cccl.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <vector>

namespace cccl_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::bytes;
using resource = deepum::interop::arena_resource<deepum::cuda::managed_memory>;
using mapped_resource = deepum::interop::arena_resource<deepum::cuda::mapped_memory>;

static_assert(cuda::has_property<resource, cuda::mr::host_accessible>);
static_assert(cuda::has_property<mapped_resource, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<mapped_resource, cuda::mr::host_accessible>);

/// A stream that the arena does not know.
struct foreign_stream {
  foreign_stream() { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess); }
  ~foreign_stream() {
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
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

}  // namespace cccl_test
