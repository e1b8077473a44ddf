#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace serve {

/// What became of an entry that was offered to a queue.
enum class offered : std::uint8_t { taken, full, closed };

/// A queue that says no where it is full, so that whoever waits is told so and not kept waiting.
///
/// Threads: every member, any thread.
template <class T>
class request_queue {
 public:
  /// @param capacity  Entries; with none it takes nothing.
  explicit request_queue(std::size_t capacity) : capacity_(capacity) {}

  /// Never waits.
  [[nodiscard]] offered try_push(T entry) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return offered::closed;
      if (entries_.size() >= capacity_) return offered::full;
      entries_.push_back(std::move(entry));
    }
    changed_.notify_one();
    return offered::taken;
  }
  /// The oldest entry. Waits for one; nothing when the queue is closed and empty.
  [[nodiscard]] std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !entries_.empty(); });
    return take();
  }
  /// The oldest entry, where there is one.
  [[nodiscard]] std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    return take();
  }
  /// Makes room where entries are of no use any more.
  template <class Predicate>
  void remove_if(Predicate useless) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, useless);
  }
  /// Takes nothing from now on. What is in it can still be taken out.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  std::optional<T> take() {
    if (entries_.empty()) return std::nullopt;
    std::optional<T> first{std::move(entries_.front())};
    entries_.pop_front();
    return first;
  }

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> entries_;
  bool closed_ = false;
};

}  // namespace serve
