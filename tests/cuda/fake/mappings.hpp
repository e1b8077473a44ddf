#pragma once

#include "cuda/fake/state.hpp"

#include <cuda.h>

#include <cstddef>
#include <map>

/// The driver's virtual memory management: what is reserved and mapped. All of it needs the mutex.
namespace fake_runtime {

/// Whether [p, p + size) lies in one reserved range.
[[nodiscard]] bool in_reserved(const void* p, std::size_t size = 1);
/// The mapping that `p` lies in, or end().
[[nodiscard]] std::map<const std::byte*, view>::iterator find_view(const std::byte* p);

/// Whether [p, p + size) is mapped without a gap and `f` is true of all its mappings.
template <class F>
bool all_views(const void* p, std::size_t size, F f) {
  if (!in_reserved(p, size)) return false;
  const auto* at = static_cast<const std::byte*>(p);
  const auto* end = at + size;
  while (at < end) {
    const auto it = find_view(at);
    if (it == rt().now.views.end() || !f(it->second)) return false;
    at = it->first + it->second.size;
  }
  return true;
}

inline bool allows(CUmemAccess_flags flags, access mode) {
  return mode == access::read ? flags != CU_MEM_ACCESS_FLAGS_PROT_NONE : flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}
/// Whether [p, p + size) touches no reserved range, or the device may access it.
[[nodiscard]] bool device_may(const void* p, std::size_t size, access mode, int device);
/// For operations: breaks the device and ends the operation unless the device may access [p, p + size).
void check_access(const void* p, std::size_t size, access mode, int device);

}  // namespace fake_runtime
