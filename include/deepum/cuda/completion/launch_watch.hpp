#pragma once

#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/completion/launch_log.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

class device;

/// The launches of a memory kind's streams, and the thread that runs the engine's pump.
///
/// While launches or commands are in flight the thread looks for their ends again and again; else it sleeps. It looks
/// at the streams that have launches in flight, however many are open.
class launch_watch {
 public:
  /// How long the thread pauses between two looks.
  struct intervals {
    nanoseconds busy = std::chrono::microseconds(20);   ///< while anything moves, or somebody waits
    nanoseconds calm = std::chrono::microseconds(200);  ///< while launches are in flight and nothing else is: each look
                                                        ///< delays the launches beside it (docs/lab.md)
    nanoseconds idle = std::chrono::milliseconds(50);   ///< at most, while nothing is in flight
  };

  /// @param of  Outlives it.
  explicit launch_watch(const device& of, const intervals& looks);
  explicit launch_watch(const device& of) : launch_watch(of, intervals{}) {}
  ~launch_watch();
  launch_watch(const launch_watch&) = delete;
  launch_watch& operator=(const launch_watch&) = delete;

  /// @name The pump
  /// @{

  /// Wakes it where it sleeps. Costs an atomic while launches are in flight, because it looks then anyway. Threads:
  /// any.
  void notify();
  /// As `notify`, but it runs again at once: a thread waits for it. Threads: any.
  void hurry();
  /// Runs it from now on. Threads: any but the pump's.
  void attach(std::function<void()> pump);
  /// Returns when it has returned for the last time. Threads: any but the pump's.
  void detach();
  /// How often it has run. Threads: any.
  [[nodiscard]] std::uint64_t runs() const { return runs_.load(std::memory_order_seq_cst); }
  /// Waits until it has run more often than `seen` times, at most so long; then it is woken. Looks at the count for a
  /// moment, and sleeps then. Threads: any but the pump's.
  void wait(std::uint64_t seen, nanoseconds at_most);
  /// @}

  /// @name For streams
  /// @{
  void add(launch_log& /*log*/) { streams_.fetch_add(1, std::memory_order_relaxed); }
  /// All its launches have finished. @param events  Their ends are appended.
  void remove(launch_log& log, std::vector<device_event>& events);
  /// A launch has been given to the device.
  /// @param first  As `launch_log::end` said.
  void issued(launch_log& log, bool first);
  /// Whether the next launch should be marked: while anything moves, and otherwise now and then.
  [[nodiscard]] bool mark_launches();
  [[nodiscard]] bool several_streams() const { return streams_.load(std::memory_order_relaxed) > 2; }
  /// @}

  /// @name For the memory kind
  /// @{
  void command_submitted(std::uint64_t ticket);
  void command_ended() { outstanding_.fetch_sub(1, std::memory_order_relaxed); }

  static bool count_down(std::atomic<std::int64_t>& left);

  /// Of `collect`, `busy_logs`, `clock` and `note_in_flight`.
  [[nodiscard]] std::mutex& mutex() { return mutex_; }
  /// Reports the launches that have finished, stream by stream.
  /// @param of_stream  Called with the place of a stream's first event, when all of them are there.
  /// @returns          Whether some are in flight yet.
  template <class OfStream>
  bool collect(std::vector<device_event>& events, OfStream&& of_stream) {
    {
      const std::lock_guard lock(newly_busy_mutex_);
      busy_.insert(busy_.end(), newly_busy_.begin(), newly_busy_.end());
      newly_busy_.clear();
    }
    std::erase_if(busy_, [&](launch_log* log) {
      const std::size_t collected_before = events.size();
      const bool in_flight = log->collect(clock_, events);
      of_stream(collected_before);
      return !in_flight;
    });
    return !busy_.empty();
  }
  /// The logs of the streams that had launches in flight when they were collected last.
  [[nodiscard]] const std::vector<launch_log*>& busy_logs() const { return busy_; }
  [[nodiscard]] gpu_clock& clock() { return clock_; }
  /// Whether launches were issued since the last time, or had not finished then.
  [[nodiscard]] bool take_launched() { return launched_.exchange(false, std::memory_order_relaxed); }
  void note_in_flight(bool in_flight);
  /// @}

 private:
  static constexpr std::int64_t launches_marked = 512;  // after the last command
  static constexpr std::uint32_t launches_a_mark = 16;  // after those
  static constexpr nanoseconds awake{20'000};           // who waits looks for so long before it sleeps

  /// What the thread does between two looks, and so what ends it.
  enum class rest : std::uint8_t {
    none,   // nothing but time
    nap,    // an urgent wish, or a thread that waits
    sleep,  // any wish
  };

  void run();
  void note_run();
  /// Until the pump is to run again. @returns  False: never.
  [[nodiscard]] bool rest_between_runs();
  void wake();
  /// @returns  Whether the pump has run.
  [[nodiscard]] bool sleep_until(std::uint64_t seen, std::chrono::steady_clock::time_point end);
  [[nodiscard]] bool busy() const;
  /// Nothing has moved for a while, and nobody waits.
  [[nodiscard]] bool calm() const;

  const device& gpu_;
  const intervals looks_;

  std::mutex mutex_;
  gpu_clock clock_;
  std::vector<launch_log*> busy_{};
  std::mutex newly_busy_mutex_;            // innermost
  std::vector<launch_log*> newly_busy_{};  // not yet among them

  std::atomic<std::int64_t> marked_left_{launches_marked};
  std::atomic<std::uint32_t> unmarked_{0};
  std::atomic<int> streams_{0};
  std::atomic<bool> in_flight_{false};         // launches, when last looked
  std::atomic<bool> launched_{false};          // since last asked, or before and not finished by then
  std::atomic<std::uint64_t> outstanding_{0};  // commands

  std::mutex pump_mutex_;
  std::condition_variable changed_;
  std::function<void()> pump_{};
  std::atomic<bool> wanted_{false};
  std::atomic<bool> urgent_{false};
  std::atomic<rest> resting_{rest::none};
  std::atomic<bool> stopping_{false};
  std::thread thread_;

  std::atomic<std::uint64_t> runs_{0};      // of the pump
  std::atomic<std::uint32_t> waiting_{0};   // threads in `wait`
  std::atomic<std::uint32_t> sleeping_{0};  // of those; in one order with the runs: who sleeps is seen, or sees the run
  std::mutex sleepers_mutex_;               // innermost
  std::condition_variable ran_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/completion/impl/launch_watch.hpp>  // what it declares
#endif
