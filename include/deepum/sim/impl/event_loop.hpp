#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE std::unique_lock<std::mutex> event_loop::lock() {
  announce();
  std::unique_lock lock(mutex_);
  arrive();
  return lock;
}

DEEPUM_SEPARATE void event_loop::after(nanoseconds delay, action what) {
  heap_.push_back({now_ + delay, sequence_++, std::move(what)});
  std::push_heap(heap_.begin(), heap_.end(), later{});
}

DEEPUM_SEPARATE bool event_loop::try_pass(nanoseconds delay) {
  const nanoseconds then = now_ + delay;
  if (then > limit_ || (!heap_.empty() && heap_.front().when <= then)) {
    return false;
  }
  now_ = then;
  return true;
}

DEEPUM_SEPARATE void event_loop::on_motion_end(action what) { motion_waiters_.push_back(std::move(what)); }

DEEPUM_SEPARATE void event_loop::motion_ended() {
  sequence<action> due;
  due.swap(motion_waiters_);
  for (action& what : due) {
    what();
  }
}

DEEPUM_SEPARATE event_loop::host_call::host_call(event_loop& loop) : loop_(loop), lock_(loop.lock()) { take_turn(); }

DEEPUM_SEPARATE void event_loop::host_call::spend(nanoseconds time) {
  const nanoseconds end = loop_.now_ + time;
  while (!loop_.heap_.empty() && loop_.heap_.front().when <= end) {
    loop_.limit_ = end;
    loop_.run_one();
    let_others();
  }
  loop_.now_ = std::max(loop_.now_, end);
}

DEEPUM_SEPARATE void event_loop::host_call::take_turn() {
  expects(loop_.runner_ != std::this_thread::get_id(), "a kernel body or the pump waits for the device");
  const std::uint64_t ticket = loop_.next_ticket_++;
  loop_.turn_passed_.wait(lock_, [&] { return loop_.serving_ == ticket; });
  loop_.runner_ = std::this_thread::get_id();
  loop_.active_ = &lock_;
}

DEEPUM_SEPARATE void event_loop::host_call::pass_turn() {
  loop_.runner_ = {};
  loop_.active_ = nullptr;
  ++loop_.serving_;
  loop_.turn_passed_.notify_all();
}

DEEPUM_SEPARATE void event_loop::host_call::let_others() {
  if (loop_.wanted_.load(std::memory_order_relaxed) != 0) {
    // Bounded, because it is about fairness alone: a thread that announced itself may be delayed for long.
    loop_.arrived_.wait_for(lock_, std::chrono::milliseconds(1),
                            [&] { return loop_.wanted_.load(std::memory_order_relaxed) == 0; });
  }
  if (loop_.next_ticket_ != loop_.serving_ + 1) {
    pass_turn();
    take_turn();
  }
}

DEEPUM_SEPARATE void event_loop::run_one() {
  std::pop_heap(heap_.begin(), heap_.end(), later{});
  event next = std::move(heap_.back());
  heap_.pop_back();
  now_ = std::max(now_, next.when);
  next.what();
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
