// The fake CUDA's virtual memory management beside work in flight, and calls that fail.

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

namespace fake_mappings_in_use_test {

using namespace fake_bench;
using deepum::access;  // not the one of POSIX

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
  CHECK(fake_cuda::stats().unmaps == 1);
  CHECK(release(handle) == CUDA_ERROR_UNKNOWN);
  CHECK(fake_cuda::stats().device_handles == 0_B);
  CHECK(reserve(&p, block_bytes) == CUDA_SUCCESS);
  CHECK(free_addresses(p, block_bytes) == CUDA_ERROR_UNKNOWN);
  CHECK(free_addresses(p, block_bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(fake_cuda::failed_calls().size() == 8);

  // Those that are refused give nothing back, either.
  const auto again = b.make();
  CHECK(map(b.at(0), block_bytes, again) == CUDA_SUCCESS);
  fake_cuda::refuse_calls("cuMemUnmap", 2, 2, cudaErrorUnknown);
  CHECK(unmap(b.at(1), block_bytes) == CUDA_SUCCESS);  // of nothing
  CHECK(unmap(b.at(0), block_bytes) == CUDA_ERROR_UNKNOWN);
  CHECK(unmap(b.at(0), block_bytes) == CUDA_ERROR_UNKNOWN);
  CHECK(map(b.at(1), block_bytes, again) == CUDA_SUCCESS);
  CHECK(fake_cuda::stats().most_mappings == 2);
  CHECK(unmap(b.at(0), block_bytes) == CUDA_SUCCESS);
  CHECK(unmap(b.at(1), block_bytes) == CUDA_SUCCESS);
  CHECK(release(again) == CUDA_SUCCESS);

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

}  // namespace fake_mappings_in_use_test
