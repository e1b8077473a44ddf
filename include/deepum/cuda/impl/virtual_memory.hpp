#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/driver_function.hpp>
#include <deepum/cuda/relaxed_capture.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <string>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE virtual_memory::virtual_memory(int ordinal) : device_(ordinal) {
#if CUDA_VERSION >= 12020
  if (!find_driver_function("cuMemAddressReserve", 10020, reserve_) ||
      !find_driver_function("cuMemAddressFree", 10020, free_) || !find_driver_function("cuMemCreate", 10020, create_) ||
      !find_driver_function("cuMemMap", 10020, map_) || !find_driver_function("cuMemUnmap", 10020, unmap_) ||
      !find_driver_function("cuMemRelease", 10020, release_) ||
      !find_driver_function("cuMemSetAccess", 10020, set_access_)) {
    throw error(status::unsupported, "this driver has no virtual memory management; managed memory works without");
  }
  if (!succeeded(cudaDeviceGetAttribute(&node_, cudaDevAttrHostNumaId, ordinal)) || node_ < 0) {
    node_ = 0;
  }
#else
  throw error(status::unsupported,
              "paged memory needs CUDA 12.2 or later to be built with; managed memory works without");
#endif
}

DEEPUM_SEPARATE std::byte* virtual_memory::reserve(bytes size, bytes alignment) const {
  const relaxed_capture relaxed;
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

DEEPUM_SEPARATE CUresult virtual_memory::create(bool on_host, bytes size, handle& out) const {
  const CUmemAllocationProp wanted{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .requestedHandleTypes = {},
                                   .location = place(on_host),
                                   .win32HandleMetaData = nullptr,
                                   .allocFlags = {}};
  const relaxed_capture relaxed;
  return create_(&out, size.count, &wanted, 0);
}

DEEPUM_SEPARATE CUresult virtual_memory::map(std::byte* at, bytes size, handle h) const {
  const relaxed_capture relaxed;
  return map_(address(at), size.count, 0, h, 0);
}

DEEPUM_SEPARATE CUresult virtual_memory::allow(std::byte* at, bytes size, bool by_host) const {
  const std::array<CUmemAccessDesc, 2> who{CUmemAccessDesc{place(false), CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                           CUmemAccessDesc{place(true), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  const relaxed_capture relaxed;
  return set_access_(address(at), size.count, who.data(), by_host ? 2 : 1);
}

DEEPUM_SEPARATE CUresult virtual_memory::forbid(std::byte* at, bytes size) const {
  const CUmemAccessDesc no_access{place(false), CU_MEM_ACCESS_FLAGS_PROT_NONE};
  const relaxed_capture relaxed;
  return set_access_(address(at), size.count, &no_access, 1);
}

DEEPUM_SEPARATE void virtual_memory::give_back(std::byte* range, bytes size) const {
  const relaxed_capture relaxed;
  (void)free_(address(range), size.count);
}

DEEPUM_SEPARATE void virtual_memory::release(handle h) const {
  const relaxed_capture relaxed;
  (void)release_(h);
}

DEEPUM_SEPARATE CUresult virtual_memory::unmap(std::byte* at, bytes size) const {
  const relaxed_capture relaxed;
  return unmap_(address(at), size.count);
}

DEEPUM_SEPARATE CUmemLocation virtual_memory::place(bool on_host) const {
  CUmemLocation l{};
#if CUDA_VERSION >= 12020
  l.type = on_host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
#endif
  l.id = on_host ? node_ : device_;
  return l;
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
