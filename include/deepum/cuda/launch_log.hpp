#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/gpu_clock.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// The launches of one stream that have not been seen to finish, each with the event behind it.
///
/// An event that tells the time costs the host a microsecond more than one that does not, and each event costs the
/// device 1.6 us between two launches (docs/adr/0006). So launches are timed and marked only where that may be of use.
///
/// Threads: `begin` and `end` by the stream's, `collect` by any one at a time.
class launch_log {
 public:
  explicit launch_log(cudaStream_t stream) : stream_(stream) {}
  ~launch_log() {
    for (const entry& e : waiting_) {
      destroy(e);
    }
    for (const entry& e : added_) {
      destroy(e);
    }
    for (const cudaEvent_t e : timed_) {
      (void)worked(cudaEventDestroy(e));
    }
    for (const cudaEvent_t e : untimed_) {
      (void)worked(cudaEventDestroy(e));
    }
  }
  launch_log(const launch_log&) = delete;
  launch_log& operator=(const launch_log&) = delete;

  /// What is enqueued from now on until `end` belongs to this launch.
  /// @param timed   Its end is timed.
  /// @param begun   Its beginning too: of use where several streams execute at a time.
  /// @param marked  Its end is marked at all. Else it has finished when a later one has, or all of the stream.
  void begin(launch_id id, bool timed, bool begun, bool marked = true) {
    current_ = {.id = id, .timed = timed};
    marked_ = marked || timed;
    if (timed && begun) {
      current_.began = record(true);
    }
  }
  void end() {
    current_.ended = marked_ ? record(current_.timed) : nullptr;
    const std::lock_guard lock(mutex_);
    added_.push_back(current_);
  }

  /// Whether one of the launches that were not reported yet may have finished all the same. Of the thread of `collect`.
  [[nodiscard]] bool some_unmarked() const { return unmarked_ != 0; }
  /// Reports the launches that have finished, in order. Never waits for the device.
  /// @returns  Whether some are in flight yet.
  bool collect(gpu_clock& clock, std::vector<device_event>& events) {
    {
      const std::lock_guard lock(mutex_);
      for (const entry& e : added_) {
        waiting_.push_back(e);
        unmarked_ += is_unmarked(e) ? 1 : 0;
      }
      added_.clear();
    }
    const std::size_t finished = finished_now();
    if (finished == 0) {
      return !waiting_.empty();
    }
    // What is not timed was over when the next one behind it was, or now. What is timed is not held against the host's
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
    return !waiting_.empty();
  }

 private:
  struct entry {
    launch_id id{};
    cudaEvent_t began = nullptr;
    cudaEvent_t ended = nullptr;  // none: the event could not be recorded; it has finished when the next one has
    bool timed = false;
  };
  [[nodiscard]] static bool is_timed(const entry& e) { return e.timed && e.ended != nullptr; }

  /// Whether the stream is being captured; nothing where the runtime does not say.
  [[nodiscard]] std::optional<bool> captured() const {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (!worked(cudaStreamIsCapturing(stream_, &capture))) {
      return std::nullopt;
    }
    return capture != cudaStreamCaptureStatusNone;
  }
  static bool is_unmarked(const entry& e) { return e.ended == nullptr; }

  /// An event in the stream; none where that fails, or where a capture would take it into its graph.
  cudaEvent_t record(bool timed) {
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
        !worked(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming))) {
      return nullptr;
    }
    if (!worked(cudaEventRecord(event, stream_))) {
      const std::lock_guard lock(mutex_);
      give_back(event, timed);
      return nullptr;
    }
    return event;
  }

  /// How many launches at the front have finished. A device that fails finishes all.
  [[nodiscard]] std::size_t finished_now() const {
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

  void give_back(cudaEvent_t event, bool timed) {
    if (event != nullptr) {
      (timed ? timed_ : untimed_).push_back(event);
    }
  }
  static void destroy(const entry& e) {
    for (const cudaEvent_t event : {e.began, e.ended}) {
      if (event != nullptr) {
        (void)worked(cudaEventDestroy(event));
      }
    }
  }

  cudaStream_t stream_;
  entry current_{};
  bool marked_ = true;
  std::mutex mutex_;
  std::vector<entry> added_{};
  std::vector<cudaEvent_t> timed_{};
  std::vector<cudaEvent_t> untimed_{};
  std::deque<entry> waiting_{};  // of `collect`, like what follows
  std::size_t unmarked_ = 0;     // of those
  std::vector<nanoseconds> times_{};
  nanoseconds last_finish_{};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
