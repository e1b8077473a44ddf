#pragma once

#include <deepum/core/hash.hpp>
#include <deepum/library_thread.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/worker.hpp>
#include <deepum/units.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE worker::worker(event_loop& loop, worker_mode mode, nanoseconds wake_up, std::uint64_t random_seed)
    : loop_(loop),
      mode_(mode),
      wake_up_(wake_up),
      seed_(random_seed) {}

DEEPUM_SEPARATE worker::~worker() { detach(); }

DEEPUM_SEPARATE void worker::attach(std::function<void()> pump) {
  detach();
  const auto lock = loop_.lock();
  pump_ = std::move(pump);
  alive_ = std::make_shared<bool>(true);
  due_ = stopping_ = false;
  if (mode_ == worker_mode::thread) {
    thread_ = deepum::detail::start_thread([this] { run(); });
  }
}

DEEPUM_SEPARATE void worker::detach() {
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

DEEPUM_SEPARATE void worker::wake() {
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

DEEPUM_SEPARATE void worker::run_once() {
  due_ = false;
  running_ = true;
  loop_.unlocked(pump_);
  running_ = false;
  changed_.notify_all();
}

DEEPUM_SEPARATE void worker::run() {
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

DEEPUM_SEPARATE nanoseconds worker::delay() {
  if (seed_ == 0) {
    return {};
  }
  const std::uint64_t draw = deepum::detail::absorb(seed_, ++draws_, 0);
  const auto delay = static_cast<std::int64_t>((draw >> 3U) % 100'000U);
  return nanoseconds{draw % 8 == 0 ? delay * 32 : delay};
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
