#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/cuda/api.hpp>
#include <deepum/cuda/driver_context.hpp>
#include <deepum/cuda/handles.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

class block_marks;
class device;

/// A command to the driver, as a lane carries it out.
struct migration {
  transfer what{};
  bool is_hint = false;  ///< for the blocks of `what`, which is no transfer then
  advice hint = advice::none;
  api::place where{};        ///< of the hint: which place is meant
  std::uint64_t ticket = 0;  ///< 0: the end is not waited for

  [[nodiscard]] bool prefetches() const { return !is_hint && what.takes_room(); }
};

/// Migrations of one direction: a thread, streams of its own, and where wanted a context of its own (docs/adr/0006).
///
/// A call to the driver blocks its thread, an eviction for the whole copy; so each direction has a thread, and the host
/// two. Adjacent ranges are merged, because a call for 64 MiB moves 49 GB/s and one for 2 MiB 27, and long ones are
/// cut, so that blocks are reported as they come. Prefetches overlap, each in an idle stream: in a busy one a call
/// takes 50 us more.
///
/// Threads: `submit`, `repopulate_when_idle`, `wait` and `load`, any.
class migration_lane {
 public:
  using report = std::function<void(const device_event&)>;

  static constexpr std::uint32_t blocks_inward = 32;   // a piece to the device: 64 MiB
  static constexpr std::uint32_t blocks_outward = 16;  // a piece to the host: 2 ms
  static constexpr auto idle_before_renewal = std::chrono::milliseconds(20);
  static constexpr std::size_t pieces_in_flight = 3;                // to the device: one moves, the next are ready
  static constexpr auto look_every = std::chrono::microseconds(5);  // for the end of a piece

  /// @param first_byte  Of the managed range, in which blocks are counted.
  /// @param marks       Shared by the lanes.
  /// @param tell        Called by the lane's thread with what has happened.
  /// @errors  `status::device_failure`.
  migration_lane(const device& of, std::byte* first_byte, block_marks& marks, report tell);
  /// Carries out what was submitted.
  ~migration_lane();
  migration_lane(const migration_lane&) = delete;
  migration_lane& operator=(const migration_lane&) = delete;

  /// Queues a command. What follows is told by `report`: arrived and departed as the blocks move, and completed or
  /// failed for its ticket. Advice is not reported.
  void submit(const migration& m);
  /// To be done when nothing else is: discarded blocks are given pages again, on the host.
  void repopulate_when_idle(block_range range);
  /// Waits until everything that was submitted has been carried out.
  void wait();
  /// Commands that have not ended.
  [[nodiscard]] std::size_t load() const;
  /// Whether it has a context of its own.
  [[nodiscard]] bool has_context() const { return context_ && context_->exists(); }

 private:
  /// A part of one or several commands that the driver has.
  struct piece {
    block_range range{};
    cudaStream_t stream = nullptr;
    nanoseconds began{};
    std::vector<migration> parts{};  // by command
    std::vector<std::uint64_t> ended{};
    bool ok = true;
  };

  [[nodiscard]] const driver_context* beside() const { return context_ ? &*context_ : nullptr; }

  void run();
  void close();

  /// Carries out the first command, or gives its first piece to the driver. @returns  Whether to go on at once.
  bool begin_next();

  [[nodiscard]] std::byte* address(block_id b) const { return base_ + b.value * block_size.count; }

  // --- to the device -----------------------------------------------------------------------------------------------

  void begin_prefetch();
  /// Blocks whose duplicates an eviction ended are duplicated again from now on.
  void duplicate_again(block_range range);
  /// @returns  False while it moves.
  bool end_first();
  void arrived(const migration& part, nanoseconds began);

  // --- to the host -------------------------------------------------------------------------------------------------

  void evict_piece();

  void discard();
  void repopulate(block_range range);

  // --- hints -------------------------------------------------------------------------------------------------------

  void advise(const migration& m);
  bool advise_driver(block_range range, cudaMemoryAdvise hint);
  /// Rows of the blocks are read and written where they are, or the blocks are brought for it.
  void touch_in_place(block_range range, bool on);

 public:
  /// The blocks are duplicated no more. Threads: any that has the device's context; takes 2 us a block.
  void end_duplication(block_range range);

 private:
  void finish_first(bool ok);
  void tell_end(std::uint64_t ticket, bool ok);

  const device& gpu_;
  std::byte* base_;
  block_marks& marks_;
  report tell_;
  std::optional<driver_context> context_{};
  std::array<unique_stream, pieces_in_flight> streams_{};
  std::size_t next_stream_ = 0;
  nanoseconds last_ended_{};  // a piece to the device

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable settled_;
  std::deque<migration> queue_{};
  std::deque<block_range> to_repopulate_{};
  std::size_t busy_ = 0;  // commands that have not ended
  bool stopping_ = false;

  std::deque<migration> todo_{};  // of the thread, like what follows
  std::deque<piece> pieces_{};
  std::vector<std::uint64_t> failed_{};  // tickets of which a piece failed
  std::thread thread_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/managed/impl/migration_lane.hpp>  // what it declares
#endif
