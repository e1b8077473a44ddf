#pragma once

#include "cuda/fake/state.hpp"
#include <deepum/core/launch.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

/// Allocations of the fake, and where the blocks of managed memory are. All but `touch` needs the mutex.
namespace fake_runtime {

/// The allocation that [p, p + size) lies in.
[[nodiscard]] allocation* find(const void* p, std::size_t size = 1);
[[nodiscard]] allocation* find_managed(const void* p, std::size_t size);

/// Calls f(block, first byte of [p, p + size) in it) for managed memory, nothing for other memory.
template <class F>
void for_each_block(const void* p, std::size_t size, F f) {
  allocation* a = find_managed(p, size);
  if (a == nullptr) return;
  const auto begin = static_cast<std::size_t>(static_cast<const std::byte*>(p) - a->base);
  for (std::size_t i = begin / block_bytes; i <= (begin + size - 1) / block_bytes; ++i) {
    f(a->blocks[i], a->base + std::max(begin, i * block_bytes));
  }
}

cudaError_t allocate(void** p, std::size_t size, cudaMemoryType type);
cudaError_t release(guard& lock, void* p, bool host);
/// Gives the addresses back.
void unmap(const allocation& a);

/// Evicts managed blocks of the device until `size` more bytes fit.
bool make_room(int device, std::size_t size);
void leave_device(block& b);
void to_device(block& b, int device, bool writes);
void to_host(block& b);
void advise(block& b, cudaMemoryAdvise advice, int place);

/// Whether kernels of the device may use what cudaMalloc has given on another one.
[[nodiscard]] bool reaches(int device, const allocation& a);
/// What a device does when it touches managed memory. Without the mutex.
void touch(const void* p, std::size_t size, access mode, int device);

}  // namespace fake_runtime
