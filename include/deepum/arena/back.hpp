#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/device_queue.hpp>
#include <deepum/arena/waiting.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/engine/engine_options.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What an arena has for a device that runs its launches: the memory there and the engine that moves its blocks, and
/// how threads of the program wait for the two.
///
/// Threads: every call, any thread, none of them under the lock of the allocation front, but for `tell`.
class arena_back {
 public:
  /// @param space, queues  Outlive it.
  arena_back(memory_space& space, device_queues& queues, std::unique_ptr<policy> chosen, engine_options with);

  [[nodiscard]] memory_space& memory() const { return memory_; }
  [[nodiscard]] device_queues& queues() const { return queues_; }
  [[nodiscard]] deepum::engine& engine() { return engine_; }
  [[nodiscard]] const deepum::engine& engine() const { return engine_; }
  /// Whether the driver brings what is missing.
  [[nodiscard]] bool faults() const { return faults_; }
  [[nodiscard]] bytes block() const { return memory_.block(); }
  [[nodiscard]] block_grid grid() const { return block_grid{block()}; }
  /// So much of the budget that what is enqueued in pieces moves at a time: the rest of it need not leave then. Whole
  /// blocks.
  [[nodiscard]] bytes most_at_once() const;
  [[nodiscard]] const std::function<void(std::string_view)>& log() const { return log_; }
  /// A line for people.
  void log(const std::string& line) const;
  /// @errors  That of a device that has failed.
  void check_device() { probe_->check_device(); }

  /// A stream of launches, which the back must outlive.
  /// @param lookahead  As for `engine::open_stream`.
  stream_id open_stream(std::optional<std::uint32_t> lookahead);
  void close_stream(stream_id stream);
  /// Whether a stream is open.
  [[nodiscard]] bool has_streams() const { return streams_.load() != 0; }

  /// Who tells the engine things faster than it takes them in waits for its next turn, which comes whatever the device
  /// does.
  void keep_pace() {
    if (engine_.crowded()) [[unlikely]] {
      await_next_turn();
    }
  }
  /// Tells the engine what became of blocks, in the order in which it happens: under the front's lock.
  /// @returns  What must be `settle`d before it is used, without the lock.
  [[nodiscard]] std::vector<block_range> tell(std::span<const liveness_change> changes);
  /// Waits for discards that the device has. They end whatever the program does, also where the device has failed.
  void settle(std::span<const block_range> ranges);
  /// Waits until a neighbour holds no more than its budget.
  /// @errors  `status::out_of_host_memory` where what it holds has nowhere to go; `status::device_failure`.
  void await_giving_back(location at);
  /// Waits for a launch whose end gives memory back. The program has to let it end.
  /// @param asked  Bytes that an allocation waits for.
  void await_finish(launch_id last, bytes asked);

  /// Waits until a launch that was submitted may be given to the device. At most `longest_hold`: the device may be
  /// waiting for something that this very thread will do next. On memory that never faults it waits on, and says so.
  /// @param on  Where it goes, if that may be captured: a captured launch executes later, if at all, and waits for
  ///            nothing.
  /// @errors  Those of `engine::admitted`; on memory that never faults that of a device that has failed, and
  ///          `status::out_of_device_memory` within `stream::call`, where it would wait for its own thread. Then the
  ///          launch was taken back.
  void await_admission(launch_id launch, stream_id stream, std::string_view name, const device_queue* on = nullptr) {
    if (engine_.has_to_ask()) {
      await_turn(launch, stream, name, on);
    }
  }

 private:
  static constexpr nanoseconds longest_hold = std::chrono::seconds(1);
  static constexpr nanoseconds longest_stuck = std::chrono::milliseconds(100);

  void await_next_turn();
  void await_turn(launch_id launch, stream_id stream, std::string_view name, const device_queue* on);

  memory_space& memory_;
  device_queues& queues_;
  const bool faults_;
  std::function<void(std::string_view)> log_;
  deepum::engine engine_;
  std::unique_ptr<device_queue> probe_;
  std::atomic<int> streams_{0};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/back.hpp>  // what it declares
#endif
