#pragma once

#include <deepum/core/block.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// What is known of a block beside where it is.
enum class mark : std::uint8_t {
  read_mostly = 1,  ///< duplicated whenever it is brought to the device
  duplicated = 2,   ///< the driver has been told so
  discarded = 4,    ///< a launch that writes it without a prefetch would fault on every page of it
  chunk = 8,        ///< the driver holds device memory for it, be it there or not
  present = 16,     ///< it is on the device
  in_place = 32,    ///< the driver maps it where it is, and does not bring it for a fault
};

/// Marks of all blocks. Threads: any.
class block_marks {
 public:
  explicit block_marks(std::uint32_t block_count)
      : marks_(std::make_unique<std::atomic<std::uint8_t>[]>(block_count)) {}

  [[nodiscard]] bool has(block_id b, mark m) const {
    return (marks_[b.value].load(std::memory_order_relaxed) & static_cast<std::uint8_t>(m)) != 0;
  }
  /// @returns  How many blocks did not have it before.
  std::uint32_t set(block_range range, mark m) {
    std::uint32_t changed = 0;
    for (const block_id b : range) {
      changed += (marks_[b.value].fetch_or(static_cast<std::uint8_t>(m), std::memory_order_relaxed) &
                  static_cast<std::uint8_t>(m)) == 0
                     ? 1
                     : 0;
    }
    return changed;
  }
  /// @returns  How many blocks had it before.
  std::uint32_t clear(block_range range, mark m) {
    std::uint32_t changed = 0;
    for (const block_id b : range) {
      const std::uint8_t before =
          marks_[b.value].fetch_and(static_cast<std::uint8_t>(~static_cast<unsigned>(m)), std::memory_order_relaxed);
      changed += (before & static_cast<std::uint8_t>(m)) != 0 ? 1 : 0;
    }
    return changed;
  }

 private:
  std::unique_ptr<std::atomic<std::uint8_t>[]> marks_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
