#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/cuda/handles.hpp>
#include <deepum/cuda/paged/arrivals.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE arrivals::arrivals(std::uint32_t block_count)
    : number_(std::make_unique<std::atomic<std::uint64_t>[]>(block_count)) {}

DEEPUM_SEPARATE void arrivals::await_all() {
  if (stream_) {
    (void)settle(stream_.get());
  }
}

DEEPUM_SEPARATE void arrivals::close() {
  await_all();
  const std::lock_guard lock(mutex_);
  copies_.clear();
  events_.clear();
  stream_.reset();
}

DEEPUM_SEPARATE std::uint64_t arrivals::begin(block_id b, std::byte* to, const std::byte* from, bytes size) {
  unique_event copied = stream_ ? events_.take() : unique_event();
  if (!copied || !succeeded(cudaMemcpyAsync(to, from, size.count, cudaMemcpyDefault, stream_.get())) ||
      !succeeded(cudaEventRecord(copied.get(), stream_.get()))) {
    if (copied) {
      await_all();  // it may be on its way
    }
    events_.give(std::move(copied));
    return 0;
  }
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = last_.load(std::memory_order_relaxed) + 1;
  copies_.push_back({number, std::move(copied), b, gpu_clock::host_now()});
  number_[b.value].store(number, std::memory_order_release);
  last_.store(number, std::memory_order_release);
  return number;
}

DEEPUM_SEPARATE std::optional<arrivals::ended> arrivals::take_ended(std::uint64_t up_to) {
  const std::lock_guard lock(mutex_);
  if (copies_.empty() || copies_.front().number > up_to || !reached(cudaEventQuery, copies_.front().copied.get())) {
    return std::nullopt;
  }
  copy& first = copies_.front();
  const ended result{first.block, first.began};
  ended_.store(first.number, std::memory_order_release);
  events_.give(std::move(first.copied));
  copies_.pop_front();
  return result;
}

DEEPUM_SEPARATE void arrivals::await(block_id b) {
  if (under_way(b)) {
    await_all();
  }
}

DEEPUM_SEPARATE void arrivals::order_after(cudaStream_t queue, const primary_context& context,
                                           const std::vector<block_access>& blocks, bool complete) {
  std::uint64_t last = complete ? 0 : last_.load(std::memory_order_acquire);
  for (const block_access& a : blocks) {
    for (const block_id b : a.range) {
      last = std::max(last, number_[b.value].load(std::memory_order_acquire));
    }
  }
  if (last <= ended_.load(std::memory_order_acquire)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!copies_.empty() && last >= copies_.front().number) {
    const current_device on(context);
    check(cudaStreamWaitEvent(queue, copies_[last - copies_.front().number].copied.get(), 0), "cudaStreamWaitEvent");
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
