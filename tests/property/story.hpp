#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace deepum_test {

/// Keeps what a program did last, or all of it where it runs alone (DEEPUM_TEST_SEED), and ends the process with it
/// when nothing more happens for a minute.
class watched_story {
 public:
  explicit watched_story(std::string program) : program_(std::move(program)), thread_([this] { watch(); }) {}
  ~watched_story() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  watched_story(const watched_story&) = delete;
  watched_story& operator=(const watched_story&) = delete;

  /// The program is about to do this.
  void next(std::string what) {
    const std::lock_guard lock(mutex_);
    last_.push_back(std::to_string(count_++) + ": " + std::move(what));
    if (last_.size() > kept_) {
      last_.pop_front();
    }
  }
  /// What it did last.
  [[nodiscard]] std::string story() const {
    const std::lock_guard lock(mutex_);
    return story_locked();
  }

 private:
#ifdef DEEPUM_WATCHDOG_SECONDS
  static constexpr auto patience = std::chrono::seconds(DEEPUM_WATCHDOG_SECONDS);
#else
  static constexpr auto patience = std::chrono::seconds(60);
#endif
  [[nodiscard]] std::string story_locked() const {
    std::string all = program_;
    for (const std::string& line : last_) {
      all += "\n  " + line;
    }
    return all;
  }
  void watch() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      const auto before = count_;
      if (!changed_.wait_until(lock, std::chrono::system_clock::now() + patience, [&] { return over_; }) &&
          count_ == before) {
        std::fprintf(stderr, "nothing happens any more in %s\n", story_locked().c_str());
        std::fflush(stderr);
        std::abort();
      }
    }
  }

  const std::size_t kept_ = std::getenv("DEEPUM_TEST_SEED") != nullptr ? std::numeric_limits<std::size_t>::max() : 60;
  std::string program_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> last_{};
  std::size_t count_ = 0;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace deepum_test
