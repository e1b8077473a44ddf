#pragma once

#include <deepum/sim/event_loop.hpp>
#include <deepum/units.hpp>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

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
  worker(event_loop& loop, worker_mode mode, nanoseconds wake_up, std::uint64_t seed);
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  ~worker();

  /// Threads: any, but not from within the pump.
  void attach(std::function<void()> pump);

  /// Returns when the pump has returned for the last time.
  void detach();

  /// The pump has something to do. The lock of the loop is held.
  void wake();

 private:
  void run_once();

  void run();

  /// Mostly short, sometimes long: up to 100 us, and one time in eight up to 3.2 ms.
  [[nodiscard]] nanoseconds delay();

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

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/worker.hpp>  // what it declares
#endif
