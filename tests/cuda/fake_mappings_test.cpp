// The fake CUDA's virtual memory management: what is mapped where, and who may access it.

#include "cuda/fake_address_bench.hpp"
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

namespace fake_mappings_test {

using namespace fake_bench;
using deepum::access;  // not the one of POSIX

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
  for (const auto& [first, blocks] :
       {std::pair<std::size_t, std::size_t>{1, 1}, {2, 1}, {0, 2}, {2, 2}, {0, 5}, {3, 2}, {4, 2}, {7, 2}, {0, 0}}) {
    CAPTURE(first);
    CAPTURE(blocks);
    CHECK(unmap(b.at(first), blocks * block_bytes) == CUDA_ERROR_INVALID_VALUE);
    CHECK(set_access(b.at(first), blocks * block_bytes, on_gpu, to_write) == CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(unmap(b.at(3), block_bytes) == CUDA_SUCCESS);  // of nothing
  CHECK(set_access(b.at(3), block_bytes, on_gpu, to_write) == CUDA_ERROR_INVALID_VALUE);
  CHECK(unmap(b.at(0) + 1, block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(unmap(b.at(0), block_bytes - 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(unmap(nullptr, block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(fake_cuda::stats().unmaps == 0);
  CHECK(fake_cuda::stats().access_changes == 0);

  CHECK(set_access(b.at(0), 3 * block_bytes, on_gpu, to_write) == CUDA_SUCCESS);
  CHECK(unmap(b.at(0), 3 * block_bytes) == CUDA_SUCCESS);
  CHECK(unmap(b.at(0), block_bytes) == CUDA_SUCCESS);
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

}  // namespace fake_mappings_test
