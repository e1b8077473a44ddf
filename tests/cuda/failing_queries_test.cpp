// What the library takes from queries of the runtime that fail for a reason of their own: nothing.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

namespace failing_queries_test {

using namespace deepum_test;
using namespace deepum::literals;

void touch(std::byte* p, std::size_t n) { device_touch(p, n, deepum::access::update); }

template <class Memory>
struct machine {
  std::byte* block() { return static_cast<std::byte*>(memory.allocate_bytes(2_MiB, 2_MiB)); }

  fake_gpu gpu;
  deepum::cuda::device device{0, {.chunk = 2_MiB}};
  deepum::arena<Memory> memory{device, {.capacity = 64_MiB, .device_budget = 32_MiB, .log = {}}};
  deepum::stream<Memory> stream{memory};
};

TEST_CASE_TEMPLATE("a query that fails finishes no launch, and its memory is not handed out again", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  for (const cudaError_t error :
       {cudaErrorStreamCaptureUnsupported, cudaErrorMemoryAllocation, cudaErrorCapturedEvent}) {
    CAPTURE(static_cast<int>(error));
    machine<Memory> m;
    fake_cuda::register_kernel(touch);
    std::byte* const p = m.block();
    m.stream.memset(p, 0, 2_MiB);
    m.stream.synchronize();
    REQUIRE(comes([&] { return m.memory.statistics().finished == 1; }));
    fake_cuda::hold(m.stream.native().native());
    m.stream.launch("touch", 1, 1, 0, touch, p, (2_MiB).count);
    for (int i = 0; i < 100; ++i) {
      fake_cuda::fail_call("cudaEventQuery", 1, error);
      fake_cuda::fail_call("cudaStreamQuery", 1, error);
    }
    CHECK(m.memory.statistics().finished == 1);
    m.memory.deallocate(p);
    std::byte* const q = m.block();
    CHECK(q != p);
    CHECK(m.memory.statistics().finished == 1);
    fake_cuda::resume(m.stream.native().native());
    CHECK(comes([&] { return m.memory.statistics().finished == 2; }));
    m.memory.deallocate(q);
  }
}

}  // namespace failing_queries_test
