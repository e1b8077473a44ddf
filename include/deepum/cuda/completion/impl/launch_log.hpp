#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/completion/launch_log.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE launch_log::~launch_log() {
  for (const entry& e : waiting_) {
    destroy(e);
  }
  for (const entry& e : added_) {
    destroy(e);
  }
  for (const cudaEvent_t e : timed_) {
    (void)succeeded(cudaEventDestroy(e));
  }
  for (const cudaEvent_t e : untimed_) {
    (void)succeeded(cudaEventDestroy(e));
  }
}

DEEPUM_SEPARATE void launch_log::begin(launch_id id, bool timed, bool begun, bool marked) {
  if (open_.id.valid()) {
    outer_.push_back(open_);
  }
  open_ = {.id = id, .timed = timed, .marked = marked || timed};
  if (timed && begun) {
    open_.began = record(true);
  }
}

DEEPUM_SEPARATE bool launch_log::end() {
  expects(open_.id.valid(), "a launch ends that did not begin");
  entry ended = open_;
  if (outer_.empty()) {
    open_.id = {};
  } else {
    open_ = outer_.back();
    outer_.pop_back();
  }
  ended.ended = ended.marked ? record(ended.timed) : nullptr;
  const std::lock_guard lock(mutex_);
  added_.push_back(ended);
  return !std::exchange(collected_, true);
}

DEEPUM_SEPARATE bool launch_log::collect(gpu_clock& clock, std::vector<device_event>& events) {
  {
    const std::lock_guard lock(mutex_);
    for (const entry& e : added_) {
      waiting_.push_back(e);
      unmarked_ += is_unmarked(e) ? 1 : 0;
    }
    added_.clear();
  }
  const std::size_t finished = finished_now();
  if (finished == 0 && !waiting_.empty()) {
    return true;
  }
  // An untimed launch was over when the next one behind it was, or now. A timed one is not held against the host's
  // present: the clock may be ahead of that, and puts faults there too.
  times_.resize(finished);
  const nanoseconds now = gpu_clock::host_now();
  nanoseconds latest = nanoseconds::max();
  for (std::size_t i = finished; i-- > 0;) {
    latest = is_timed(waiting_[i]) ? std::min(latest, clock.time_of(waiting_[i].ended)) : latest;
    times_[i] = latest == nanoseconds::max() ? now : latest;
  }
  nanoseconds last = last_finish_;
  for (std::size_t i = 0; i < finished; ++i) {
    const entry& e = waiting_[i];
    device_event event{.what = device_event::kind::launch_finished, .timed = is_timed(e), .launch = e.id};
    event.at = std::max(last, times_[i]);
    if (e.began != nullptr) {
      event.began = std::min(std::max(last, clock.time_of(e.began)), event.at);
    }
    last = event.at;
    events.push_back(event);
  }
  last_finish_ = last;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < finished; ++i) {
    unmarked_ -= is_unmarked(waiting_[i]) ? 1 : 0;
    give_back(waiting_[i].began, true);
    give_back(waiting_[i].ended, waiting_[i].timed);
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(finished));
  collected_ = !waiting_.empty() || !added_.empty();
  return collected_;
}

DEEPUM_SEPARATE std::optional<bool> launch_log::captured() const {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t result = cudaStreamIsCapturing(stream_, &capture);
  if (!succeeded(result)) {
    // The legacy stream cannot be used while a stream that is ordered with it is captured.
    return result == cudaErrorStreamCaptureImplicit ? std::optional<bool>(true) : std::nullopt;
  }
  return capture != cudaStreamCaptureStatusNone;
}

DEEPUM_SEPARATE cudaEvent_t launch_log::record(bool timed) {
  if (captured().value_or(true)) {
    return nullptr;
  }
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::vector<cudaEvent_t>& spare = timed ? timed_ : untimed_;
    if (!spare.empty()) {
      event = spare.back();
      spare.pop_back();
    }
  }
  if (event == nullptr &&
      !succeeded(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming))) {
    return nullptr;
  }
  if (!succeeded(cudaEventRecord(event, stream_))) {
    const std::lock_guard lock(mutex_);
    give_back(event, timed);
    return nullptr;
  }
  return event;
}

DEEPUM_SEPARATE std::size_t launch_log::finished_now() const {
  std::size_t known = 0;
  std::size_t without_event = 0;
  for (const entry& e : waiting_) {
    if (e.ended == nullptr) {
      ++without_event;
      continue;
    }
    if (!reached(cudaEventQuery, e.ended)) {
      return known;
    }
    known += without_event + 1;
    without_event = 0;
  }
  if (without_event != 0 && !captured().value_or(false)) {  // to ask a stream would spoil its capture
    known += reached(cudaStreamQuery, stream_) ? without_event : 0;
  }
  return known;
}

DEEPUM_SEPARATE void launch_log::give_back(cudaEvent_t event, bool timed) {
  if (event != nullptr) {
    (timed ? timed_ : untimed_).push_back(event);
  }
}

DEEPUM_SEPARATE void launch_log::destroy(const entry& e) {
  for (const cudaEvent_t event : {e.began, e.ended}) {
    if (event != nullptr) {
      (void)succeeded(cudaEventDestroy(event));
    }
  }
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
