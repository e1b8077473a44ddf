#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/gpu_clock.hpp>
#include <deepum/cuda/launch_log.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Lets the calling thread sleep for microseconds: else 20 of them are 70.
inline void sleep_precisely() {
#ifdef __linux__
  (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
#endif
}

/// The launches of a memory kind's streams, and the thread that runs the engine's pump.
///
/// While launches or commands are in flight the thread looks for their ends every 20 us; else it sleeps.
class launch_watch {
 public:
  /// @param ordinal  Of the device.
  explicit launch_watch(int ordinal) : ordinal_(ordinal) {}
  ~launch_watch() { detach(); }
  launch_watch(const launch_watch&) = delete;
  launch_watch& operator=(const launch_watch&) = delete;

  /// @name The pump
  /// @{

  /// Wakes it. Costs an atomic while launches are in flight, because it looks then anyway. Threads: any.
  void notify() {
    wanted_.store(true, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst)) {
      {
        const std::lock_guard lock(pump_mutex_);
      }
      changed_.notify_one();
    }
  }
  /// As `notify`, but it runs again at once: somebody waits for it. Threads: any.
  void hurry() {
    urgent_.store(true, std::memory_order_relaxed);
    notify();
  }
  /// Runs it from now on. Threads: any but the pump's.
  void attach(std::function<void()> pump) {
    detach();
    stopping_ = false;
    pump_ = std::move(pump);
    thread_ = std::thread([this] { run(); });
  }
  /// Returns when it has returned for the last time. Threads: any but the pump's.
  void detach() {
    {
      const std::lock_guard lock(pump_mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  /// @}

  /// @name For streams
  /// @{
  void add(launch_log& log) {
    const std::lock_guard lock(mutex_);
    logs_.push_back(&log);
    streams_.store(static_cast<int>(logs_.size()), std::memory_order_relaxed);
  }
  /// All its launches have finished. @param events  Their ends are appended.
  void remove(launch_log& log, std::vector<device_event>& events) {
    const std::lock_guard lock(mutex_);
    (void)log.collect(clock_, events);
    std::erase(logs_, &log);
    streams_.store(static_cast<int>(logs_.size()), std::memory_order_relaxed);
  }
  /// A launch has been given to the device.
  void issued() {
    launched_.store(true, std::memory_order_relaxed);
    in_flight_.store(true, std::memory_order_relaxed);
    notify();
  }
  /// Whether the next launch should be marked: while anything moves, and otherwise now and then.
  [[nodiscard]] bool mark_launches() {
    return count_down(marked_left_) || unmarked_.fetch_add(1, std::memory_order_relaxed) % launches_a_mark == 0;
  }
  [[nodiscard]] bool several_streams() const { return streams_.load(std::memory_order_relaxed) > 2; }
  /// @}

  /// @name For the memory kind
  /// @{
  void command_submitted(std::uint64_t ticket) {
    outstanding_.fetch_add(ticket != 0 ? 1 : 0, std::memory_order_relaxed);
    marked_left_.store(launches_marked, std::memory_order_relaxed);
  }
  void command_ended() { outstanding_.fetch_sub(1, std::memory_order_relaxed); }

  static bool count_down(std::atomic<std::int64_t>& left) {
    const std::int64_t now = left.load(std::memory_order_relaxed);
    if (now <= 0) {
      return false;
    }
    left.store(now - 1, std::memory_order_relaxed);
    return true;
  }

  /// Of `logs`, `clock` and `note_in_flight`.
  [[nodiscard]] std::mutex& mutex() { return mutex_; }
  [[nodiscard]] const std::vector<launch_log*>& logs() const { return logs_; }
  [[nodiscard]] gpu_clock& clock() { return clock_; }
  /// Whether launches were issued since the last time, or had not finished then.
  [[nodiscard]] bool take_launched() { return launched_.exchange(false, std::memory_order_relaxed); }
  void note_in_flight(bool in_flight) {
    in_flight_.store(in_flight, std::memory_order_relaxed);
    if (in_flight) {
      launched_.store(true, std::memory_order_relaxed);
    }
  }
  /// @}

 private:
  static constexpr std::int64_t launches_marked = 512;  // after the last command
  static constexpr std::uint32_t launches_a_mark = 16;  // after those
  static constexpr auto look_every = std::chrono::microseconds(20);
  static constexpr auto look_at_least = std::chrono::milliseconds(50);

  void run() {
    (void)worked(cudaSetDevice(ordinal_));
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    (void)worked(cudaThreadExchangeStreamCaptureMode(&mode));
    sleep_precisely();
    for (;;) {
      wanted_.store(false, std::memory_order_relaxed);
      pump_();
      if (urgent_.exchange(false, std::memory_order_relaxed)) {
        if (stopping_.load(std::memory_order_relaxed)) {
          return;
        }
        continue;
      }
      // Launches come one by one: to take each of them in by itself would be in the way of the next.
      if (wanted_.load(std::memory_order_acquire) || busy()) {
        std::this_thread::sleep_for(look_every);
        if (stopping_.load(std::memory_order_relaxed)) {
          return;
        }
        continue;
      }
      std::unique_lock lock(pump_mutex_);
      asleep_.store(true, std::memory_order_seq_cst);
      changed_.wait_for(lock, look_at_least,
                        [this] { return stopping_.load() || wanted_.load(std::memory_order_seq_cst); });
      asleep_.store(false, std::memory_order_relaxed);
      if (stopping_) {
        return;
      }
    }
  }
  [[nodiscard]] bool busy() const {
    return in_flight_.load(std::memory_order_relaxed) || outstanding_.load(std::memory_order_relaxed) != 0;
  }

  int ordinal_;

  std::mutex mutex_;
  gpu_clock clock_{};
  std::vector<launch_log*> logs_{};

  std::atomic<std::int64_t> marked_left_{launches_marked};
  std::atomic<std::uint32_t> unmarked_{0};
  std::atomic<int> streams_{0};
  std::atomic<bool> in_flight_{false};         // launches, when last looked
  std::atomic<bool> launched_{false};          // since last asked, or before and not finished by then
  std::atomic<std::uint64_t> outstanding_{0};  // commands

  std::mutex pump_mutex_;
  std::condition_variable changed_;
  std::function<void()> pump_{};
  std::atomic<bool> wanted_{false};
  std::atomic<bool> urgent_{false};
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
