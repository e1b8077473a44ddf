#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/driver_function.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Physical memory of a device or of the host beside it, and addresses to map it at: the driver's virtual memory
/// management, with memory of host NUMA nodes (CUDA 12.2).
///
/// Sizes and addresses are multiples of the `granularity`. Threads: any.
class virtual_memory {
 public:
  using handle = CUmemGenericAllocationHandle;

  static constexpr bytes granularity{std::uint64_t{2} << 20};

  /// @param ordinal  Of the device.
  /// @errors  `status::unsupported` where the driver, the device or the toolkit has no such memory.
  explicit virtual_memory(int ordinal) : device_(ordinal) {
#if CUDA_VERSION >= 12020
    if (!find_driver_function("cuMemAddressReserve", 10020, reserve_) ||
        !find_driver_function("cuMemAddressFree", 10020, free_) ||
        !find_driver_function("cuMemCreate", 10020, create_) || !find_driver_function("cuMemMap", 10020, map_) ||
        !find_driver_function("cuMemUnmap", 10020, unmap_) || !find_driver_function("cuMemRelease", 10020, release_) ||
        !find_driver_function("cuMemSetAccess", 10020, set_access_)) {
      throw error(status::unsupported, "this driver has no virtual memory management; managed memory works without");
    }
    if (!worked(cudaDeviceGetAttribute(&node_, cudaDevAttrHostNumaId, ordinal)) || node_ < 0) {
      node_ = 0;
    }
#else
    throw error(status::unsupported,
                "mapped memory needs CUDA 12.2 or later to be built with; managed memory works without");
#endif
  }

  /// @errors  `status::out_of_arena_space` where the process has no such range of addresses left.
  [[nodiscard]] std::byte* reserve(bytes size, bytes alignment) const {
    CUdeviceptr p = 0;
    const CUresult result = reserve_(&p, size.count, alignment.count, 0, 0);
    if (result != CUDA_SUCCESS) {
      throw error(status::out_of_arena_space,
                  "the driver reserves no range of " + std::to_string(size.count) +
                      " addresses; make arena_options::capacity smaller",
                  "cuMemAddressReserve", static_cast<int>(result));
    }
    return reinterpret_cast<std::byte*>(p);
  }
  void give_back(std::byte* range, bytes size) const { (void)free_(address(range), size.count); }

  /// @param out  Set where that worked.
  [[nodiscard]] CUresult create(bool on_host, bytes size, handle& out) const {
    const CUmemAllocationProp wanted{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .requestedHandleTypes = {},
                                     .location = place(on_host),
                                     .win32HandleMetaData = nullptr,
                                     .allocFlags = {}};
    return create_(&out, size.count, &wanted, 0);
  }
  /// What is mapped of it stays until it is unmapped.
  void release(handle h) const { (void)release_(h); }

  [[nodiscard]] CUresult map(std::byte* at, bytes size, handle h) const {
    return map_(address(at), size.count, 0, h, 0);
  }
  [[nodiscard]] CUresult unmap(std::byte* at, bytes size) const { return unmap_(address(at), size.count); }
  /// The device may use it. @param by_host  The host too: memory of the host alone.
  [[nodiscard]] CUresult allow(std::byte* at, bytes size, bool by_host = false) const {
    const std::array<CUmemAccessDesc, 2> who{CUmemAccessDesc{place(false), CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                             CUmemAccessDesc{place(true), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    return set_access_(address(at), size.count, who.data(), by_host ? 2 : 1);
  }
  /// The device may not use it any more.
  [[nodiscard]] CUresult forbid(std::byte* at, bytes size) const {
    const CUmemAccessDesc nobody{place(false), CU_MEM_ACCESS_FLAGS_PROT_NONE};
    return set_access_(address(at), size.count, &nobody, 1);
  }

 private:
  using reserve_fn = CUresult(CUDAAPI*)(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long);
  using free_fn = CUresult(CUDAAPI*)(CUdeviceptr, std::size_t);
  using create_fn = CUresult(CUDAAPI*)(handle*, std::size_t, const CUmemAllocationProp*, unsigned long long);
  using map_fn = CUresult(CUDAAPI*)(CUdeviceptr, std::size_t, std::size_t, handle, unsigned long long);
  using unmap_fn = CUresult(CUDAAPI*)(CUdeviceptr, std::size_t);
  using release_fn = CUresult(CUDAAPI*)(handle);
  using set_access_fn = CUresult(CUDAAPI*)(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t);

  static CUdeviceptr address(std::byte* p) { return reinterpret_cast<CUdeviceptr>(p); }
  [[nodiscard]] CUmemLocation place(bool on_host) const {
    CUmemLocation l{};
#if CUDA_VERSION >= 12020
    l.type = on_host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
#endif
    l.id = on_host ? node_ : device_;
    return l;
  }

  int device_;
  int node_ = 0;
  reserve_fn reserve_ = nullptr;
  free_fn free_ = nullptr;
  create_fn create_ = nullptr;
  map_fn map_ = nullptr;
  unmap_fn unmap_ = nullptr;
  release_fn release_ = nullptr;
  set_access_fn set_access_ = nullptr;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
