#pragma once

#include <deepum/core/block.hpp>
#include <deepum/cuda/paged/device_chunks.hpp>
#include <deepum/cuda/paged/launch_view.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE launch_view::launch_view(const virtual_memory& calls, bytes chunk, std::uint32_t block_count)
    : addresses_(calls, chunk, block_count),
      exclusive_(addresses_),
      host_(block_count),
      slot_of_(std::make_unique<std::atomic<std::uint32_t>[]>(block_count)) {
  for (std::uint32_t b = 0; b < block_count; ++b) {
    slot_of_[b].store(device_chunks::none, std::memory_order_relaxed);
  }
}

DEEPUM_SEPARATE launch_view::~launch_view() {
  for (std::uint32_t b = 0; b < addresses_.count(); ++b) {
    if (host_[b] || slot_of(block_id{b}) != device_chunks::none) {
      addresses_.unmap(b);
    }
  }
  (void)take_kept();
}

DEEPUM_SEPARATE CUresult launch_view::map_device(block_id b, std::uint32_t slot, virtual_memory::handle chunk) {
  const std::lock_guard lock(mutex_);
  if (const CUresult kept = why_kept_at(b); kept != CUDA_SUCCESS) {
    return kept;
  }
  if (host_[b.value]) {
    if (const CUresult left = addresses_.unmap(b.value); left != CUDA_SUCCESS) {
      return left;
    }
    host_[b.value] = false;
  }
  CUresult result = addresses_.map(b.value, chunk);
  if (result == CUDA_SUCCESS && !exclusive_.is_on()) {
    result = addresses_.allow(b.value);
    if (result != CUDA_SUCCESS) {
      unmap(b, slot);
    }
  }
  if (result == CUDA_SUCCESS) {
    slot_of_[b.value].store(slot, std::memory_order_relaxed);
  }
  return result;
}

DEEPUM_SEPARATE bool launch_view::keeps(std::uint32_t slot) const {
  return std::any_of(kept_.begin(), kept_.end(), [slot](const kept_chunk& k) { return k.slot == slot; });
}

DEEPUM_SEPARATE CUresult launch_view::why_kept_at(block_id b) const {
  const auto at = std::find_if(kept_.begin(), kept_.end(), [b](const kept_chunk& k) { return k.block == b; });
  return at == kept_.end() ? CUDA_SUCCESS : at->why;
}

DEEPUM_SEPARATE std::vector<launch_view::kept_chunk> launch_view::take_kept() {
  std::vector<kept_chunk> gone;
  const std::lock_guard lock(mutex_);
  for (const kept_chunk& k : std::exchange(kept_, {})) {
    unmap(k.block, k.slot);
    if (!keeps(k.slot)) {
      gone.push_back(k);
    }
  }
  return gone;
}

DEEPUM_SEPARATE void launch_view::unmap_device(block_id b) {
  const std::lock_guard lock(mutex_);
  unmap(b, slot_of_[b.value].exchange(device_chunks::none, std::memory_order_relaxed));
}

DEEPUM_SEPARATE void launch_view::unmap(block_id b, std::uint32_t slot) {
  if (const CUresult result = addresses_.unmap(b.value); result != CUDA_SUCCESS) {
    kept_.push_back({b, slot, result});
  }
}

DEEPUM_SEPARATE void launch_view::map_host(block_id b, virtual_memory::handle chunk) {
  const std::lock_guard lock(mutex_);
  const bool nothing_there = !host_[b.value] && slot_of(b) == device_chunks::none && why_kept_at(b) == CUDA_SUCCESS;
  if (nothing_there && addresses_.map(b.value, chunk) == CUDA_SUCCESS) {
    host_[b.value] =
        exclusive_.is_on() || addresses_.allow(b.value) == CUDA_SUCCESS || addresses_.unmap(b.value) != CUDA_SUCCESS;
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
