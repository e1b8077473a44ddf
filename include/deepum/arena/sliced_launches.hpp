#pragma once

#include <deepum/arena/byte_interval.hpp>
#include <deepum/arena/slice_arguments.hpp>
#include <deepum/arena/slicing.hpp>
#include <deepum/arena/stream_launches.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/dim.hpp>
#include <deepum/operand.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Decides which launches of a stream run in slices, and in which ones.
///
/// One that fits is cut where its operands are being uploaded, so that it begins with what has come, and so are the
/// next ones of its kind, which may find the upload of the next step finished or not.
///
/// A launch that recurs is cut in the same places as long as they fit, so that its slices recur, too, and are planned
/// as the launches of a step.
///
/// Threads: as for its stream.
class sliced_launches {
 public:
  /// @param of  Outlives it.
  explicit sliced_launches(stream_launches& of) : launches_(of) {}

  /// Whether a launch runs as a whole, as far as a look without a lock can tell: it fits, or cannot be cut because it
  /// may touch what it does not declare or because it is recorded. Cost: some comparisons.
  [[nodiscard]] bool surely_whole(std::span<const operand> operands, bool complete) const;

  /// Where a launch is cut.
  /// @param pointers  What each of its arguments touches. Gets the places in the arena.
  /// @returns         Nothing where it runs as a whole.
  /// @errors          `status::invalid_argument` where a description does not fit its operand and the grid, or an
  ///                  operand that is read was given up; `status::out_of_device_memory` where even the smallest slice
  ///                  does not fit, on memory that never faults; those of naming operands.
  [[nodiscard]] std::optional<slice_cuts> cut(std::string_view name, launch_signature signature, dim grid,
                                              std::span<sliced_pointer> pointers);
  /// In checked mode the operands of the launch that was cut last. For `open_launch`.
  [[nodiscard]] std::span<const byte_interval> watched() const { return watched_; }

 private:
  static constexpr std::size_t most_remembered = 4096;
  static constexpr unsigned slices_when_checked = 4;
  static constexpr unsigned launches_after_upload = 4;

  void resolve(std::string_view name, dim grid, std::span<sliced_pointer> pointers,
               std::vector<sliced_access>& accesses);

  /// Whether what a launch touches is being uploaded, or was when one of the last launches of its kind was made.
  [[nodiscard]] bool follows_upload(std::uint64_t shape, std::span<const sliced_access> accesses);

  stream_launches& launches_;
  std::vector<byte_interval> watched_{};
  std::unordered_map<std::uint64_t, slice_cuts> cuts_{};    // by the shape of the signature
  std::unordered_map<std::uint64_t, unsigned> uploaded_{};  // likewise: launches that are still cut after an upload
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/sliced_launches.hpp>  // what it declares
#endif
