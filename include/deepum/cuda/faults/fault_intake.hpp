#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/cuda/completion/launch_watch.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/faults/fault_feed.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// The page faults of one managed range: from the feed that was chosen, in host time.
///
/// Threads: `take`, with the watch's lock held; the rest, any.
class fault_intake {
 public:
  /// A fault of the range.
  struct fault {
    block_id block{};
    access mode = access::read;
    nanoseconds at{};
    std::uint32_t pages = 0;  ///< the one that faulted, of 64 KiB, as a bit
    bool certain = true;      ///< the launches that had not finished by then are known
  };

  /// Chooses a feed and finds out what lies between its clock and the host's.
  /// @param watch   Outlives it.
  /// @param extent  Of the managed range that begins at `first_byte`. Its first bytes are written.
  /// @errors  `status::invalid_argument` for a source that does not exist.
  fault_intake(const device& of, launch_watch& watch, std::byte* first_byte, bytes extent);

  /// `driver`, `cupti`, a name of the program's own feed, or `none`.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// One line for people: which feed was chosen, and why not a better one.
  [[nodiscard]] const std::string& description() const { return description_; }
  [[nodiscard]] bool alive() const { return alive_.load(std::memory_order_relaxed); }
  /// Faults that the feed lost.
  [[nodiscard]] std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

  /// Whether the end of the next launch should be timed: at first, and while there are faults to attribute.
  [[nodiscard]] bool time_launches() { return launch_watch::count_down(timed_left_); }

  /// The faults that the feed has told of, oldest first.
  /// @param in_flight  Launches were, when their ends were looked for.
  /// @param launched   Some were since the last time.
  /// @param looked     When their ends were looked for. Later faults wait while launches are in flight: one that had
  /// not
  ///                   ended then may have by now, and they would be taken to be its own.
  [[nodiscard]] std::vector<fault> take(bool in_flight, bool launched, nanoseconds looked);

 private:
  /// Finds out what lies between the feed's clock and the host's, with faults of the GPU on the first page. A fault
  /// that came late, because this thread was not running when it should have asked for it, says little: then once more.
  /// @returns  Whether the feed told of them.
  bool calibrate(cuda::fault_feed& feed);
  [[nodiscard]] bool holds(std::uintptr_t address) const;

  static constexpr int calibrations = 8;
  static constexpr int most_calibrations = 64;
  static constexpr nanoseconds promptly = std::chrono::milliseconds(1);  // serving it takes a tenth of that
  static constexpr nanoseconds longest_lateness = std::chrono::milliseconds(300);
  static constexpr std::int64_t launches_timed = 512;  // after the last fault, to begin with
  static constexpr std::int64_t most_launches_timed = 1 << 20;

  const device& gpu_;
  launch_watch& watch_;
  std::byte* const base_;
  const bytes size_;
  std::unique_ptr<cuda::fault_feed> feed_{};  // none: nothing is learned
  std::vector<fault_sample> samples_{};
  std::string name_{};
  std::string description_{};
  std::atomic<bool> alive_{false};
  std::atomic<std::uint64_t> lost_{0};
  std::int64_t timed_ahead_ = launches_timed;
  std::atomic<std::int64_t> timed_left_{launches_timed};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/faults/impl/fault_intake.hpp>  // what it declares
#endif
