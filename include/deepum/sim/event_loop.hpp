#pragma once

#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

/// The virtual clock and what is due on it.
///
/// There is no thread behind it: calls of the host drive it (`host_call`). One host thread at a time has the turn and
/// runs what is due; it passes the turn on between two events. Everything but `host_call` expects the lock to be held.
/// Events of one moment run in the order in which they were scheduled, so that a run of one thread is deterministic.
class event_loop {
 public:
  using action = std::function<void()>;

  event_loop() = default;
  event_loop(const event_loop&) = delete;
  event_loop& operator=(const event_loop&) = delete;

  /// The lock, for what takes no host time. Whoever runs events lets others have it between two of them.
  [[nodiscard]] std::unique_lock<std::mutex> lock() {
    announce();
    std::unique_lock lock(mutex_);
    arrive();
    return lock;
  }
  /// Somebody is about to take the lock: a mutex alone would let the runner of events have it for good.
  void announce() { wanted_.fetch_add(1, std::memory_order_relaxed); }
  void arrive() { wanted_.fetch_sub(1, std::memory_order_relaxed); }

  [[nodiscard]] nanoseconds now() const { return now_; }

  /// Runs `what` when `delay` has passed.
  void after(nanoseconds delay, action what) {
    heap_.push_back({now_ + delay, sequence_++, std::move(what)});
    std::push_heap(heap_.begin(), heap_.end(), later{});
  }

  /// Lets `delay` pass inside the event that is running, if nothing else is due until then. A cheaper `after`.
  [[nodiscard]] bool try_pass(nanoseconds delay) {
    const nanoseconds then = now_ + delay;
    if (then > limit_ || (!heap_.empty() && heap_.front().when <= then)) {
      return false;
    }
    now_ = then;
    return true;
  }

  /// Runs `what` once, when a block has stopped moving or device memory has been given up.
  void on_motion_end(action what) { motion_waiters_.push_back(std::move(what)); }
  void motion_ended() {
    std::vector<action> due;
    due.swap(motion_waiters_);
    for (action& what : due) {
      what();
    }
  }

  /// Runs code that is not the simulator's (kernel bodies, the pump) without the lock. Within an event only.
  template <class Code>
  void unlocked(Code&& code) {
    expects(active_ != nullptr, "code of the program runs outside an event");
    std::unique_lock<std::mutex>& lock = *active_;
    lock.unlock();
    code();
    lock.lock();
  }

  /// One call of a host thread. Has the turn, and the lock, while it lives.
  class host_call {
   public:
    explicit host_call(event_loop& loop) : loop_(loop), lock_(loop.lock()) { take_turn(); }
    ~host_call() { pass_turn(); }
    host_call(const host_call&) = delete;
    host_call& operator=(const host_call&) = delete;

    /// The host works for `time`; what is due meanwhile happens.
    void spend(nanoseconds time) {
      const nanoseconds end = loop_.now_ + time;
      while (!loop_.heap_.empty() && loop_.heap_.front().when <= end) {
        loop_.limit_ = end;
        loop_.run_one();
        let_others();
      }
      loop_.now_ = std::max(loop_.now_, end);
    }

    /// The host waits until `done()`.
    template <class Done>
    void wait(Done&& done) {
      while (!done()) {
        expects(!loop_.heap_.empty(), "the host waits for something that can never happen");
        loop_.limit_ = nanoseconds::max();
        loop_.run_one();
        let_others();
      }
    }

   private:
    void take_turn() {
      expects(loop_.runner_ != std::this_thread::get_id(), "a kernel body or the pump waits for the device");
      const std::uint64_t ticket = loop_.next_ticket_++;
      loop_.turn_passed_.wait(lock_, [&] { return loop_.serving_ == ticket; });
      loop_.runner_ = std::this_thread::get_id();
      loop_.active_ = &lock_;
    }
    void pass_turn() {
      loop_.runner_ = {};
      loop_.active_ = nullptr;
      ++loop_.serving_;
      loop_.turn_passed_.notify_all();
    }
    void let_others() {
      if (loop_.wanted_.load(std::memory_order_relaxed) != 0) {
        lock_.unlock();
        // Bounded, because it is about fairness alone: who announced itself may be delayed for long.
        for (int tries = 0; tries < 1000 && loop_.wanted_.load(std::memory_order_relaxed) != 0; ++tries) {
          std::this_thread::yield();
        }
        lock_.lock();
      }
      if (loop_.next_ticket_ != loop_.serving_ + 1) {
        pass_turn();
        take_turn();
      }
    }

    event_loop& loop_;
    std::unique_lock<std::mutex> lock_;
  };

 private:
  struct event {
    nanoseconds when{};
    std::uint64_t sequence = 0;
    action what{};
  };
  struct later {
    bool operator()(const event& a, const event& b) const {
      return a.when != b.when ? a.when > b.when : a.sequence > b.sequence;
    }
  };

  void run_one() {
    std::pop_heap(heap_.begin(), heap_.end(), later{});
    event next = std::move(heap_.back());
    heap_.pop_back();
    now_ = std::max(now_, next.when);
    next.what();
  }

  std::mutex mutex_;
  std::atomic<unsigned> wanted_{0};
  std::condition_variable turn_passed_;
  std::uint64_t next_ticket_ = 0;
  std::uint64_t serving_ = 0;
  std::thread::id runner_{};
  std::unique_lock<std::mutex>* active_ = nullptr;

  nanoseconds now_{};
  nanoseconds limit_{};
  std::uint64_t sequence_ = 0;
  std::vector<event> heap_;
  std::vector<action> motion_waiters_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
