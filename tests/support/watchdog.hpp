#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace deepum_test {

/// Ends the program when what it watches takes longer than a minute, of real time: a thread that hangs cannot be ended
/// otherwise.
class watchdog {
 public:
  explicit watchdog(std::string what) : what_(std::move(what)), thread_([this] { watch(); }) {}
  ~watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [this] { return over_; })) {
      std::fprintf(stderr, "hangs for a minute: %s\n", what_.c_str());
      std::abort();
    }
  }

  std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace deepum_test
