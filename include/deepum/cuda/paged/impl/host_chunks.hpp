#pragma once

#include <deepum/core/block.hpp>
#include <deepum/cuda/paged/host_chunks.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE host_chunks::host_chunks(const surroundings& with, bytes chunk, std::uint32_t block_count, bytes most)
    : with_(with),
      chunk_(chunk),
      limit_(most),
      addresses_(with.memory, chunk, block_count),
      chunks_(block_count, no_memory),
      being_made_(block_count),
      in_place_(std::make_unique<std::atomic<bool>[]>(block_count)),
      closed_(block_count),
      stale_(std::make_unique<std::atomic<bool>[]>(block_count)) {}

DEEPUM_SEPARATE host_chunks::~host_chunks() {
  for (std::uint32_t b = 0; b < chunks_.size(); ++b) {
    if (chunks_[b] != no_memory) {
      addresses_.unmap(b);
      with_.memory.release(chunks_[b]);
    }
  }
}

DEEPUM_SEPARATE bool host_chunks::give(block_id b) {
  std::unique_lock lock(mutex_);
  made_.wait(lock, [&] { return !being_made_[b.value]; });
  stale_[b.value].store(false, std::memory_order_relaxed);
  if (has_locked(b)) {
    return true;
  }
  handle& chunk = chunks_[b.value];
  const bool closed = chunk != no_memory;
  handle got = chunk;
  if (!closed) {
    being_made_[b.value] = true;
    got = create(lock);
    being_made_[b.value] = false;
    made_.notify_all();
  }
  if (got == no_memory) {
    return false;
  }
  const bool mapped = closed || addresses_.map(b.value, got) == CUDA_SUCCESS;
  if (mapped && addresses_.allow(b.value, true) == CUDA_SUCCESS) {
    chunk = got;
    closed_[b.value] = false;
    show_locked(b);
    return true;
  }
  with_.failure.set("a chunk of the host could not be mapped", true);
  closed_[b.value] = mapped && addresses_.unmap(b.value) != CUDA_SUCCESS;
  if (closed_[b.value]) {
    chunk = got;
  } else {
    chunk = no_memory;
    with_.memory.release(got);
    created_.fetch_sub(1, std::memory_order_relaxed);
  }
  return false;
}

DEEPUM_SEPARATE bool host_chunks::has(block_id b) {
  const std::lock_guard lock(mutex_);
  return has_locked(b);
}

DEEPUM_SEPARATE void host_chunks::mark_stale(block_range range) {
  for (const block_id b : range) {
    stale_[b.value].store(true, std::memory_order_relaxed);
  }
}

DEEPUM_SEPARATE void host_chunks::show(block_id b) {
  if (view_of(b) != nullptr) {
    const std::lock_guard lock(mutex_);
    show_locked(b);
  }
}

DEEPUM_SEPARATE bool host_chunks::set_in_place(block_id b, bool on) {
  in_place_[b.value].store(on, std::memory_order_relaxed);
  return !on || give(b);
}

DEEPUM_SEPARATE void host_chunks::show_locked(block_id b) {
  launch_view* const view = view_of(b);
  if (view != nullptr && has_locked(b)) {
    view->map_host(b, chunks_[b.value]);
  }
}

DEEPUM_SEPARATE host_chunks::handle host_chunks::create(std::unique_lock<std::mutex>& lock) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (limit_.count == 0 || held() + chunk_ <= limit_) {
    handle made = no_memory;
    created_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    result = with_.memory.create(true, chunk_, made);
    lock.lock();
    if (result == CUDA_SUCCESS) {
      return made;
    }
    created_.fetch_sub(1, std::memory_order_relaxed);
  }
  const handle taken = take_outdated();
  if (taken == no_memory) {
    with_.failure.set("the host has no chunk left: " + std::to_string(held().count) + " bytes are held" +
                          (limit_.count != 0 ? ", device_options::host_limit is " + std::to_string(limit_.count)
                                             : ", cuMemCreate says " + std::to_string(static_cast<int>(result))),
                      true);
  }
  return taken;
}

DEEPUM_SEPARATE host_chunks::handle host_chunks::take_outdated() {
  if (with_.shown_in != nullptr) {
    return no_memory;  // launches may use it
  }
  const auto count = static_cast<std::uint32_t>(chunks_.size());
  for (std::uint32_t n = 0; n < count; ++n) {
    taken_last_ = taken_last_ + 1 < count ? taken_last_ + 1 : 0;
    handle& c = chunks_[taken_last_];
    if (is_in_place(block_id{taken_last_})) {
      continue;  // the same
    }
    const bool useless = closed_[taken_last_] || (stale_[taken_last_].load(std::memory_order_relaxed) &&
                                                  !with_.copies.under_way(block_id{taken_last_}));
    if (c != no_memory && useless) {
      closed_[taken_last_] = addresses_.unmap(taken_last_) != CUDA_SUCCESS;
      if (!closed_[taken_last_]) {
        return std::exchange(c, no_memory);
      }
    }
  }
  return no_memory;
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
