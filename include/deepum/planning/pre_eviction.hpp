#pragma once

#include <deepum/core/block_map.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/planning/plan_writer.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Room that a plan makes (DeepUM, section 5.1).
struct room_request {
  std::int64_t needed = 0;  ///< blocks that have to go
  std::int64_t excess = 0;  ///< those of them that go whatever is expected: the budget is smaller than what is there
};

/// Pre-eviction and invalidation (DeepUM, sections 5.1 and 5.2): blocks leave before room is needed, the least recently
/// migrated first, but none that is expected. Dead contents are discarded, expected or not.
///
/// Cost: one look at each block on the device, until there is room.
class pre_eviction {
 public:
  /// @param pre_evict   False: victims are those that the driver would take, expected or not.
  /// @param invalidate  False: dead contents are copied out like live ones.
  pre_eviction(bool pre_evict, bool invalidate) : pre_evict_(pre_evict), invalidate_(invalidate) {}

  /// @param expected  `expected(block_id)`: the executing launch or one of the next N uses the block.
  /// @param in_use    `in_use(block_id)`: the executing launch declares it.
  /// @returns         Blocks that leave.
  template <class Expected, class InUse>
  std::int64_t write(const block_map& map, room_request want, Expected&& expected, InUse&& in_use, plan& out) const {
    const std::uint32_t most = blocks_per_transfer(map);
    std::int64_t made = 0;
    const auto evict = [&](block_id victim) {
      const block_state& there = map[victim];
      const bool dead = invalidate_ && is_dead(there);
      if (there.moving != motion::none || (dead && there.users != 0) || in_use(victim)) {
        return;  // on its way already, soon to be had for nothing, or not to be had
      }
      const reason why = dead ? reason::dead : made < want.excess ? reason::over_budget : reason::make_room;
      append(out, dead ? transfer::discard(why) : transfer::evict(location::host(), why), victim, most);
      ++made;
    };
    const auto sweep = [&](std::int64_t wanted, auto&& may_go) {
      map.for_each_least_recently_migrated([&](block_id victim) {
        if (made < wanted && may_go(victim)) {
          evict(victim);
        }
        return made < wanted;
      });
    };
    if (pre_evict_) {
      const auto stays = [&](block_id victim) { return expected(victim) && !is_dead(map[victim]); };
      sweep(want.needed, [&](block_id victim) { return !stays(victim); });
      sweep(want.excess, stays);
    } else {
      sweep(want.needed, [](block_id) { return true; });
    }
    return made;
  }

 private:
  bool pre_evict_;
  bool invalidate_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
