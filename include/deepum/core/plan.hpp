#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/transfer.hpp>

#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Hints to the driver (CUDA C++ Programming Guide, "Data Usage Hints"), and one to the memory itself: blocks that are
/// in place are not brought for launches that touch rows of them. Those read and write the rows over the link, on the
/// host. Launches that touch all of such a block have it brought as any other, and then rows are found on the device.
enum class advice : std::uint8_t {
  none,
  set_read_mostly,
  unset_read_mostly,
  set_preferred_location,
  unset_preferred_location,
  set_accessed_by,
  unset_accessed_by,
  set_in_place,
  unset_in_place,
};

/// Tells the driver how blocks will be used. It moves nothing.
struct driver_hint {
  block_range blocks{};
  advice what = advice::none;
  location where = location::device();  ///< the place that is meant
  reason why = reason::learned;

  friend constexpr bool operator==(const driver_hint&, const driver_hint&) = default;
};

/// What a policy wants done: first the hints, then the transfers, both in order. The engine carries it out, the
/// transfers of each link in order; what needs room waits for it.
struct plan {
  bool supersedes = false;  ///< what earlier plans want and has not been issued is forgotten first
  /// What is prefetched to the device from now on waits for no room: the driver makes it on the path of the prefetch.
  /// Said by each plan; on memory that never faults it has no effect.
  bool driver_makes_room = false;
  std::vector<driver_hint> hints{};
  std::vector<transfer> transfers{};

  [[nodiscard]] bool empty() const { return hints.empty() && transfers.empty(); }
  void clear() {
    supersedes = false;
    driver_makes_room = false;
    hints.clear();
    transfers.clear();
  }
};

}  // namespace v0
}  // namespace deepum
