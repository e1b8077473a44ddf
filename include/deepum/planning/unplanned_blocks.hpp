#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/units.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Whether a block can be asked to leave. What is dead gives its room elsewhere.
[[nodiscard]] inline bool may_leave(const block_map& map, block_id b) {
  return map[b].moving == motion::none && !is_dead(map[b]);
}
/// Plans that a block leaves, with those beside it. @param far  For the host, also where a neighbour has room.
inline void give_up(const block_map& map, block_id b, plan& out, bool far = false) {
  transfer t = transfer::evict(location::host(), reason::make_room);
  t.exactly = far;
  append(out, t, b, map.blocks_in(bytes_per_departure));
}

/// Blocks on the device of which the plan of a step knows nothing: its launches do not use them.
class unplanned_blocks {
 public:
  /// A block came to the device.
  void arrived(block_id b) {
    erase(blocks_, b);
    blocks_.push_back(b);
  }
  /// Plans that up to `count` of them leave, those first that came first: what came last has just been needed.
  /// @returns  How many.
  std::int64_t give_room(const block_map& map, std::int64_t count, plan& out) {
    std::int64_t made = 0;
    erase_if(blocks_, [&](block_id b) { return !map.resident(b); });
    for (const block_id b : blocks_) {
      if (made == count) {
        break;
      }
      if (may_leave(map, b)) {
        give_up(map, b, out);
        ++made;
      }
    }
    return made;
  }
  /// Heap memory held.
  [[nodiscard]] bytes memory() const { return bytes{blocks_.capacity() * sizeof(block_id)}; }

 private:
  sequence<block_id> blocks_{};  // in the order in which they came
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
