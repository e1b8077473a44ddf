#pragma once

#include <deepum/engine/host_workers.hpp>
#include <deepum/library_thread.hpp>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Threads that do work of the host, one job after the other.
class worker_threads final : public host_workers {
 public:
  worker_threads(unsigned how_many, next_job jobs) : next_(std::move(jobs)) {
    threads_.reserve(how_many);
    for (unsigned i = 0; i != how_many; ++i) {
      threads_.push_back(start_thread([this] { run(); }));
    }
  }
  ~worker_threads() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) {
      t.join();
    }
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      ++wakes_;
    }
    changed_.notify_all();
  }

 private:
  void run() {
    std::uint64_t seen = 0;
    for (;;) {
      if (std::optional<host_job> job = next_()) {
        job->run();
        continue;
      }
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || wakes_ != seen; });
      if (stopping_) {
        return;
      }
      seen = wakes_;
    }
  }

  const next_job next_;
  std::mutex mutex_;  // innermost
  std::condition_variable changed_;
  std::uint64_t wakes_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
