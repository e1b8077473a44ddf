#pragma once

#include <deepum/cuda/completion/launch_log.hpp>
#include <deepum/cuda/completion/launch_watch.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/device_thread.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE launch_watch::launch_watch(const device& of, const intervals& looks)
    : gpu_(of),
      looks_(looks),
      clock_(&of.context()) {}

DEEPUM_SEPARATE launch_watch::~launch_watch() { detach(); }

DEEPUM_SEPARATE void launch_watch::notify() {
  wanted_.store(true, std::memory_order_seq_cst);
  if (resting_.load(std::memory_order_seq_cst) == rest::sleep) {
    wake();
  }
}

DEEPUM_SEPARATE void launch_watch::hurry() {
  wanted_.store(true, std::memory_order_relaxed);
  urgent_.store(true, std::memory_order_seq_cst);
  if (resting_.load(std::memory_order_seq_cst) != rest::none) {
    wake();
  }
}

DEEPUM_SEPARATE void launch_watch::wake() {
  { const std::lock_guard lock(pump_mutex_); }
  changed_.notify_one();
}

DEEPUM_SEPARATE void launch_watch::attach(std::function<void()> pump) {
  detach();
  stopping_ = false;
  pump_ = std::move(pump);
  thread_ = start_device_thread(gpu_.properties().ordinal, nullptr, [this] { run(); });
}

DEEPUM_SEPARATE void launch_watch::detach() {
  {
    const std::lock_guard lock(pump_mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
}

DEEPUM_SEPARATE void launch_watch::wait(std::uint64_t seen, nanoseconds at_most) {
  const auto began = std::chrono::steady_clock::now();
  const auto sleeps = began + std::min(awake, at_most);
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  if (resting_.load(std::memory_order_seq_cst) == rest::nap) {
    wake();
  }
  bool ran = false;
  do {
    ran = runs() != seen;
    if (!ran) {
      std::this_thread::yield();
    }
  } while (!ran && std::chrono::steady_clock::now() < sleeps);
  if (!ran) {
    ran = sleep_until(seen, began + at_most);
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  if (!ran) {
    notify();
  }
}

DEEPUM_SEPARATE bool launch_watch::sleep_until(std::uint64_t seen, std::chrono::steady_clock::time_point end) {
  bool ran = false;
  sleeping_.fetch_add(1, std::memory_order_seq_cst);
  {
    std::unique_lock lock(sleepers_mutex_);
    ran = ran_.wait_until(lock, end, [&] { return runs() != seen; });
  }
  sleeping_.fetch_sub(1, std::memory_order_relaxed);
  return ran;
}

DEEPUM_SEPARATE void launch_watch::remove(launch_log& log, std::vector<device_event>& events) {
  const std::lock_guard lock(mutex_);
  (void)log.collect(clock_, events);
  std::erase(busy_, &log);
  streams_.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard newly(newly_busy_mutex_);
  std::erase(newly_busy_, &log);
}

DEEPUM_SEPARATE void launch_watch::issued(launch_log& log, bool first) {
  if (first) {
    const std::lock_guard lock(newly_busy_mutex_);
    newly_busy_.push_back(&log);
  }
  launched_.store(true, std::memory_order_relaxed);
  in_flight_.store(true, std::memory_order_relaxed);
  notify();
}

DEEPUM_SEPARATE bool launch_watch::mark_launches() {
  return count_down(marked_left_) || unmarked_.fetch_add(1, std::memory_order_relaxed) % launches_a_mark == 0;
}

DEEPUM_SEPARATE void launch_watch::command_submitted(std::uint64_t ticket) {
  outstanding_.fetch_add(ticket != 0 ? 1 : 0, std::memory_order_relaxed);
  marked_left_.store(launches_marked, std::memory_order_relaxed);
}

DEEPUM_SEPARATE bool launch_watch::count_down(std::atomic<std::int64_t>& left) {
  const std::int64_t now = left.load(std::memory_order_relaxed);
  if (now <= 0) {
    return false;
  }
  left.store(now - 1, std::memory_order_relaxed);
  return true;
}

DEEPUM_SEPARATE void launch_watch::note_in_flight(bool in_flight) {
  in_flight_.store(in_flight, std::memory_order_relaxed);
  if (in_flight) {
    launched_.store(true, std::memory_order_relaxed);
  }
}

DEEPUM_SEPARATE void launch_watch::note_run() {
  runs_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) != 0) {
    {
      const std::lock_guard lock(sleepers_mutex_);
    }
    ran_.notify_all();
  }
}

DEEPUM_SEPARATE void launch_watch::run() {
  for (;;) {
    wanted_.store(false, std::memory_order_relaxed);
    urgent_.store(false, std::memory_order_relaxed);
    pump_();
    note_run();
    if (urgent_.load(std::memory_order_relaxed)) {
      if (stopping_.load(std::memory_order_relaxed)) {
        return;
      }
      continue;
    }
    if (!rest_between_runs()) {
      return;
    }
  }
}

DEEPUM_SEPARATE bool launch_watch::rest_between_runs() {
  // Launches come one by one: to take each of them in by itself would be in the way of the next.
  const bool in_between = wanted_.load(std::memory_order_acquire) || busy();
  if (in_between && !calm()) {
    std::this_thread::sleep_for(looks_.busy);
    return !stopping_.load(std::memory_order_relaxed);
  }
  std::unique_lock lock(pump_mutex_);
  resting_.store(in_between ? rest::nap : rest::sleep, std::memory_order_seq_cst);
  changed_.wait_for(lock, in_between ? looks_.calm : looks_.idle, [&] {
    const bool called =
        in_between ? urgent_.load(std::memory_order_seq_cst) || !calm() : wanted_.load(std::memory_order_seq_cst);
    return called || stopping_.load(std::memory_order_relaxed);
  });
  resting_.store(rest::none, std::memory_order_relaxed);
  return !stopping_.load(std::memory_order_relaxed);
}

DEEPUM_SEPARATE bool launch_watch::busy() const {
  return in_flight_.load(std::memory_order_relaxed) || outstanding_.load(std::memory_order_relaxed) != 0;
}

DEEPUM_SEPARATE bool launch_watch::calm() const {
  return outstanding_.load(std::memory_order_relaxed) == 0 && marked_left_.load(std::memory_order_relaxed) <= 0 &&
         waiting_.load(std::memory_order_seq_cst) == 0;
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
