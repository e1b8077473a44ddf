#pragma once

#include "cuda/fake_bench.hpp"
#include "cuda/fake_cuda.hpp"
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

/// For the tests of the fake CUDA's virtual memory management.
namespace fake_bench {

inline constexpr CUmemLocation on_gpu{CU_MEM_LOCATION_TYPE_DEVICE, 0};
inline constexpr CUmemLocation on_host{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
inline constexpr CUmemAccess_flags no_access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
inline constexpr CUmemAccess_flags to_read = CU_MEM_ACCESS_FLAGS_PROT_READ;
inline constexpr CUmemAccess_flags to_write = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

inline CUdeviceptr number(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
inline CUmemAllocationProp properties(CUmemLocation where) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = where;
  return prop;
}
inline CUresult granularity_of(const CUmemAllocationProp& prop, std::size_t* answer,
                               CUmemAllocationGranularity_flags option = CU_MEM_ALLOC_GRANULARITY_MINIMUM) {
  return driver("cuMemGetAllocationGranularity", answer, &prop, option);
}
inline CUresult reserve(CUdeviceptr* p, std::size_t size, std::size_t alignment = 0, CUdeviceptr hint = 0,
                        unsigned long long flags = 0) {
  return driver("cuMemAddressReserve", p, size, alignment, hint, flags);
}
inline CUresult free_addresses(CUdeviceptr p, std::size_t size) { return driver("cuMemAddressFree", p, size); }
inline CUresult create(CUmemGenericAllocationHandle* handle, std::size_t size, const CUmemAllocationProp& prop,
                       unsigned long long flags = 0) {
  return driver("cuMemCreate", handle, size, &prop, flags);
}
inline CUresult release(CUmemGenericAllocationHandle handle) { return driver("cuMemRelease", handle); }
inline CUresult map(const void* p, std::size_t size, CUmemGenericAllocationHandle handle, std::size_t offset = 0,
                    unsigned long long flags = 0) {
  return driver("cuMemMap", number(p), size, offset, handle, flags);
}
inline CUresult unmap(const void* p, std::size_t size) { return driver("cuMemUnmap", number(p), size); }
inline CUresult set_access(const void* p, std::size_t size, CUmemLocation where, CUmemAccess_flags flags) {
  const CUmemAccessDesc desc{where, flags};
  return driver("cuMemSetAccess", number(p), size, &desc, std::size_t{1});
}

/// Whether the page that `p` lies in lets anybody read it. The kernel answers, so that nothing crashes.
inline bool page_open(const void* p) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const bool open = ::write(ends[1], p, 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return open;
}

inline std::atomic<bool> began{false};
inline std::atomic<bool> may_end{false};
/// Touches *p, and uses it again after `may_end`.
inline void linger(int* p, access mode) {
  device_touch(p, sizeof(int), mode);
  began = true;
  while (!may_end) {
    std::this_thread::yield();
  }
  if (mode != access::read) *p = 7;
}
/// Whether a kernel's body goes on after it has touched *p.
inline void reach(const void* p, std::size_t size, access mode, bool* reached) {
  device_touch(p, size, mode);
  *reached = true;
}
inline void fill(int* p, int n, int value) {
  device_touch(p, static_cast<std::size_t>(n) * sizeof(int), access::overwrite);
  for (int i = 0; i < n; ++i) {
    p[i] = value;
  }
}

/// A device of four blocks, a stream, and eight blocks of reserved addresses. Ends with the leak check.
struct address_bench {
  explicit address_bench(std::size_t device_blocks = 4) {
    CHECK(fake_cuda::reset().empty());
    for (const char* name : {"cuMemUnmap", "cuMemRelease", "cuMemAddressFree"}) {
      (void)driver_function(name);  // what the end needs, whatever becomes of the device
    }
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

}  // namespace fake_bench
