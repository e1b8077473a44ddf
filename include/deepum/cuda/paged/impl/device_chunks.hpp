#pragma once

#include <deepum/cuda/paged/device_chunks.hpp>
#include <deepum/cuda/paged/failure_note.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE device_chunks::device_chunks(const virtual_memory& calls, bytes chunk, std::uint32_t most,
                                             failure_note& failure)
    : memory_(calls),
      chunk_(chunk),
      addresses_(calls, chunk, most),
      failure_(failure),
      limit_(most) {}

DEEPUM_SEPARATE device_chunks::~device_chunks() {
  for (std::uint32_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s] != no_memory) {
      (void)addresses_.unmap(s);
      memory_.release(slots_[s]);
    }
  }
}

DEEPUM_SEPARATE void device_chunks::set_limit(std::uint64_t chunks) {
  limit_.store(static_cast<std::uint32_t>(std::min<std::uint64_t>(chunks, addresses_.count())),
               std::memory_order_relaxed);
}

DEEPUM_SEPARATE std::uint32_t device_chunks::take() {
  if (empty_.empty()) {
    return create();
  }
  const std::uint32_t s = empty_.back();
  empty_.pop_back();
  empty_count_.fetch_sub(1, std::memory_order_relaxed);
  return s;
}

DEEPUM_SEPARATE void device_chunks::give(std::uint32_t slot) {
  empty_.push_back(slot);
  empty_count_.fetch_add(1, std::memory_order_relaxed);
}

DEEPUM_SEPARATE void device_chunks::trim() {
  for (const std::uint32_t s : std::exchange(closed_, {})) {
    destroy(s);
  }
  while (!empty_.empty() && created() - closed_.size() > limit_.load(std::memory_order_relaxed)) {
    destroy(take());
  }
}

DEEPUM_SEPARATE std::uint32_t device_chunks::create() {
  if (created() - closed_.size() >= limit_.load(std::memory_order_relaxed)) {
    failure_.set("all " + std::to_string(created()) + " chunks of the budget are in use");
    return none;
  }
  if (!closed_.empty()) {
    const std::uint32_t s = closed_.back();
    closed_.pop_back();
    return open(s);
  }
  const std::uint32_t s = unused_.empty() ? static_cast<std::uint32_t>(slots_.size()) : unused_.back();
  virtual_memory::handle made = no_memory;
  if (const CUresult result = memory_.create(false, chunk_, made); result != CUDA_SUCCESS) {
    failure_.set("the device has no memory for another chunk of " + std::to_string(chunk_.count) +
                 " bytes beside the " + std::to_string(created()) + " that are there; the driver says " +
                 std::to_string(static_cast<int>(result)));
    return none;
  }
  if (addresses_.map(s, made) != CUDA_SUCCESS) {
    memory_.release(made);
    failure_.set("a chunk of the device could not be mapped");
    return none;
  }
  if (unused_.empty()) {
    slots_.push_back(made);
  } else {
    unused_.pop_back();
    slots_[s] = made;
  }
  created_.fetch_add(1, std::memory_order_relaxed);
  return open(s);
}

DEEPUM_SEPARATE std::uint32_t device_chunks::open(std::uint32_t slot) {
  if (addresses_.allow(slot) == CUDA_SUCCESS) {
    return slot;
  }
  failure_.set("a chunk of the device could not be made accessible");
  destroy(slot);
  return none;
}

DEEPUM_SEPARATE void device_chunks::destroy(std::uint32_t slot) {
  if (addresses_.unmap(slot) != CUDA_SUCCESS) {
    closed_.push_back(slot);
    return;
  }
  memory_.release(slots_[slot]);
  slots_[slot] = no_memory;
  unused_.push_back(slot);
  created_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
