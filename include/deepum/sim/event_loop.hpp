#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

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

  /// The lock, for what takes no host time. A thread that runs events releases it between two of them.
  [[nodiscard]] std::unique_lock<std::mutex> lock();
  /// A thread is about to take the lock: a mutex alone would let the runner of events have it for good.
  void announce() { wanted_.fetch_add(1, std::memory_order_relaxed); }
  /// It has the lock.
  void arrive() {
    if (wanted_.fetch_sub(1, std::memory_order_relaxed) == 1) {
      arrived_.notify_all();
    }
  }

  [[nodiscard]] nanoseconds now() const { return now_; }

  /// Runs `what` when `delay` has passed.
  void after(nanoseconds delay, action what);

  /// Lets `delay` pass inside the event that is running, if nothing else is due until then. A cheaper `after`.
  [[nodiscard]] bool try_pass(nanoseconds delay);

  /// Runs `what` once, when a block has stopped moving or device memory has been given up.
  void on_motion_end(action what);
  void motion_ended();

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
    explicit host_call(event_loop& loop);
    ~host_call() { pass_turn(); }
    host_call(const host_call&) = delete;
    host_call& operator=(const host_call&) = delete;

    /// The host works for `time`; what is due meanwhile happens.
    void spend(nanoseconds time);

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
    void take_turn();
    void pass_turn();
    void let_others();

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

  void run_one();

  std::mutex mutex_;
  std::atomic<unsigned> wanted_{0};  // threads that are about to take the lock
  std::condition_variable arrived_;  // none is
  std::condition_variable turn_passed_;
  std::uint64_t next_ticket_ = 0;
  std::uint64_t serving_ = 0;
  std::thread::id runner_{};
  std::unique_lock<std::mutex>* active_ = nullptr;

  nanoseconds now_{};
  nanoseconds limit_{};
  std::uint64_t sequence_ = 0;
  sequence<event> heap_;
  sequence<action> motion_waiters_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/event_loop.hpp>  // what it declares
#endif
