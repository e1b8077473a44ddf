#pragma once

#include <deepum/units.hpp>

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Physical memory of a device or of the host beside it, and addresses to map it at: the driver's virtual memory
/// management, with memory of host NUMA nodes (CUDA 12.2).
///
/// Sizes and addresses are multiples of the `granularity`. No call spoils a capture. Threads: any.
class virtual_memory {
 public:
  using handle = CUmemGenericAllocationHandle;

  static constexpr bytes granularity = 2_MiB;

  /// @param ordinal  Of the device.
  /// @errors  `status::unsupported` where the driver, the device or the toolkit has no such memory.
  explicit virtual_memory(int ordinal);

  /// @errors  `status::out_of_arena_space` where the process has no such range of addresses left.
  [[nodiscard]] std::byte* reserve(bytes size, bytes alignment) const;
  void give_back(std::byte* range, bytes size) const;

  /// @param out  Set where that worked.
  [[nodiscard]] CUresult create(bool on_host, bytes size, handle& out) const;
  /// Its mappings stay until they are unmapped.
  void release(handle h) const;

  [[nodiscard]] CUresult map(std::byte* at, bytes size, handle h) const;
  [[nodiscard]] CUresult unmap(std::byte* at, bytes size) const;
  /// The device may use it. @param by_host  The host too: memory of the host alone.
  [[nodiscard]] CUresult allow(std::byte* at, bytes size, bool by_host = false) const;
  /// The device may not use it any more.
  [[nodiscard]] CUresult forbid(std::byte* at, bytes size) const;

 private:
  using reserve_fn = CUresult(CUDAAPI*)(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long);
  using free_fn = CUresult(CUDAAPI*)(CUdeviceptr, std::size_t);
  using create_fn = CUresult(CUDAAPI*)(handle*, std::size_t, const CUmemAllocationProp*, unsigned long long);
  using map_fn = CUresult(CUDAAPI*)(CUdeviceptr, std::size_t, std::size_t, handle, unsigned long long);
  using unmap_fn = CUresult(CUDAAPI*)(CUdeviceptr, std::size_t);
  using release_fn = CUresult(CUDAAPI*)(handle);
  using set_access_fn = CUresult(CUDAAPI*)(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t);

  static CUdeviceptr address(std::byte* p) { return reinterpret_cast<CUdeviceptr>(p); }
  [[nodiscard]] CUmemLocation place(bool on_host) const;

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

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/impl/virtual_memory.hpp>  // what it declares
#endif
