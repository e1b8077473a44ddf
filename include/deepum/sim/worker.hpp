#pragma once

#include <deepum/core/hash.hpp>
#include <deepum/error.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/units.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

/// What runs the engine's pump.
enum class worker_mode : std::uint8_t {
  virtual_time,  ///< an event on the virtual clock, shortly after a notification: deterministic
  thread,        ///< a thread of its own, in real time beside the program: what ThreadSanitizer should see
};

/// The migration thread of one arena: sleeps until woken, then runs the pump once.
class worker {
 public:
  /// @param seed  Not 0: random delays before each run of the pump, to shake out what depends on its promptness.
  worker(event_loop& loop, worker_mode mode, nanoseconds wake_up, std::uint64_t seed)
      : loop_(loop),
        mode_(mode),
        wake_up_(wake_up),
        seed_(seed) {}
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  ~worker() { detach(); }

  /// Threads: any, but not from within the pump.
  void attach(std::function<void()> pump) {
    detach();
    const auto lock = loop_.lock();
    pump_ = std::move(pump);
    alive_ = std::make_shared<bool>(true);
    due_ = stopping_ = false;
    if (mode_ == worker_mode::thread) {
      thread_ = std::thread([this] { run(); });
    }
  }

  /// Returns when the pump has returned for the last time.
  void detach() {
    std::unique_lock lock = loop_.lock();
    stopping_ = true;
    alive_.reset();
    changed_.notify_all();
    if (thread_.joinable()) {
      lock.unlock();
      thread_.join();
      lock.lock();
    }
    changed_.wait(lock, [&] { return !running_; });
    pump_ = nullptr;
  }

  /// The pump has something to do. The lock of the loop is held.
  void wake() {
    if (alive_ == nullptr || due_) {
      return;
    }
    due_ = true;
    if (mode_ == worker_mode::thread) {
      loop_.announce();
      changed_.notify_all();
      return;
    }
    loop_.after(wake_up_ + delay(), [this, alive = std::weak_ptr<bool>(alive_)] {
      if (!alive.expired()) {
        run_once();
      }
    });
  }

 private:
  void run_once() {
    due_ = false;
    running_ = true;
    loop_.unlocked(pump_);
    running_ = false;
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock = loop_.lock();
    for (;;) {
      changed_.wait(lock, [&] { return due_ || stopping_; });
      if (due_) {
        due_ = false;
        loop_.arrive();
      }
      if (stopping_) {
        return;
      }
      const nanoseconds pause = delay() / 16;  // real time: enough to be overtaken, not enough to be slow
      lock.unlock();
      if (pause.count() > 0) {
        std::this_thread::sleep_for(pause);
      }
      pump_();
      lock = loop_.lock();
    }
  }

  /// Mostly short, sometimes long: up to 100 us, and one time in eight up to 3.2 ms.
  [[nodiscard]] nanoseconds delay() {
    if (seed_ == 0) {
      return {};
    }
    const std::uint64_t draw = detail::absorb(seed_, ++draws_, 0);
    const auto delay = static_cast<std::int64_t>((draw >> 3U) % 100'000U);
    return nanoseconds{draw % 8 == 0 ? delay * 32 : delay};
  }

  event_loop& loop_;
  worker_mode mode_;
  nanoseconds wake_up_;
  std::uint64_t seed_;
  std::uint64_t draws_ = 0;  ///< random delays so far
  std::function<void()> pump_;
  std::shared_ptr<bool> alive_;  ///< events outlive a detached worker
  std::condition_variable changed_;
  std::thread thread_;
  bool due_ = false;
  bool running_ = false;
  bool stopping_ = false;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
