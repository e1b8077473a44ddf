#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/completion/launch_log.hpp>
#include <deepum/cuda/completion/launch_watch.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/faults/fault_feed.hpp>
#include <deepum/cuda/faults/fault_intake.hpp>
#include <deepum/cuda/faults/find_fault_feed.hpp>
#include <deepum/cuda/handles.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE fault_intake::fault_intake(const device& of, launch_watch& watch, std::byte* first_byte, bytes extent)
    : gpu_(of),
      watch_(watch),
      base_(first_byte),
      size_(extent) {
  found_feed found =
      find_fault_feed(of, first_byte, extent, [this](cuda::fault_feed& feed) { return calibrate(feed); });
  feed_ = std::move(found.feed);
  name_ = feed_ ? feed_->name() : "none";
  alive_.store(feed_ != nullptr, std::memory_order_relaxed);
  description_ = std::move(found.description);
}

DEEPUM_SEPARATE std::vector<fault_intake::fault> fault_intake::take(bool in_flight, bool launched, nanoseconds looked) {
  std::vector<fault> found;
  if (!feed_) {
    return found;
  }
  if (in_flight) {
    feed_->take(samples_);
  } else if (launched || feed_->late()) {
    feed_->take_all(samples_);  // the last launch has just finished
  }
  lost_.store(feed_->lost(), std::memory_order_relaxed);
  if (!feed_->alive()) {
    alive_.store(false, std::memory_order_relaxed);
  }
  const bool certain = std::none_of(watch_.busy_logs().begin(), watch_.busy_logs().end(),
                                    [](const launch_log* l) { return l->some_unmarked(); });
  const auto later = std::stable_partition(samples_.begin(), samples_.end(), [&](const fault_sample& f) {
    return !in_flight || watch_.clock().time_of_fault(f.at) <= looked;
  });
  for (auto f = samples_.begin(); f != later; ++f) {
    if (!holds(f->address)) {
      continue;
    }
    if (timed_left_.load(std::memory_order_relaxed) <= 0) {  // they recur after longer than that
      timed_ahead_ = std::min(4 * timed_ahead_, most_launches_timed);
    }
    timed_left_.store(timed_ahead_, std::memory_order_relaxed);
    const bytes offset{f->address - reinterpret_cast<std::uintptr_t>(base_)};
    found.push_back({.block = um_grid.blocks_of(offset, bytes{1}).first,
                     .mode = f->mode,
                     .at = watch_.clock().time_of_fault(f->at),
                     .pages = 1U << (offset.count % block_size.count / (64_KiB).count),
                     .certain = certain});
  }
  samples_.erase(samples_.begin(), later);
  return found;
}

DEEPUM_SEPARATE bool fault_intake::calibrate(cuda::fault_feed& feed) {
  const own_calls calls(gpu_.context());
  const unique_stream q = try_make_stream();
  const unique_event before = q ? try_make_event(event_use::time) : unique_event();
  const unique_event after = before ? try_make_event(event_use::time) : unique_event();
  std::vector<fault_sample> faults;
  int prompt = 0;
  for (int i = 0; after && prompt < calibrations && i < most_calibrations; ++i) {
    *static_cast<volatile std::byte*>(base_) = std::byte{0};  // to the host
    faults.clear();
    feed.take_all(faults);
    faults.clear();
    if (!succeeded(cudaEventRecord(before.get(), q.get())) || !succeeded(cudaMemsetAsync(base_, 0, 64, q.get()))) {
      continue;
    }
    const bool ended = succeeded(cudaEventRecord(after.get(), q.get()));
    // Twice where that fails: what is still to be written then would be written into the program's data.
    if (succeeded(cudaStreamSynchronize(q.get())) || succeeded(cudaStreamSynchronize(q.get()))) {
      const nanoseconds deadline = gpu_clock::host_now() + (feed.late() ? longest_lateness : nanoseconds{});
      for (feed.take_all(faults); faults.empty() && gpu_clock::host_now() < deadline; feed.take_all(faults)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      for (const fault_sample& f : faults) {
        if (holds(f.address)) {
          watch_.clock().learn_fault(f.at, watch_.clock().time_of(before.get()));
        }
      }
      if (!watch_.clock().knows_faults()) {
        break;
      }
      prompt += ended && watch_.clock().time_of(after.get()) - watch_.clock().time_of(before.get()) < promptly ? 1 : 0;
    }
  }
  *static_cast<volatile std::byte*>(base_) = std::byte{0};
  faults.clear();
  feed.take_all(faults);
  return watch_.clock().knows_faults();
}

DEEPUM_SEPARATE bool fault_intake::holds(std::uintptr_t address) const {
  const auto first = reinterpret_cast<std::uintptr_t>(base_);
  return address >= first && address - first < size_.count;
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
