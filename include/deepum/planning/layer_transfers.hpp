#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/planning/plan_writer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Inputs of layers on their way to the host and back.
///
/// To the host: where the host's copy stays, an input is copied beside the layer that reads it, and gives its room up
/// without a copy when that layer is over. Elsewhere it leaves when the layer is over, because a block that is read
/// cannot be copied out. What was written meanwhile (an activation in place that was issued late) is copied again.
class layer_transfers {
 public:
  /// The layer run of that number begins to read these blocks for the last time in the forward pass.
  void offload(std::uint64_t run, const std::vector<block_range>& blocks) {
    if (!blocks.empty()) {
      leaving_.push_back({run, blocks, false});
    }
  }
  /// The computation of that layer run is over.
  void finish(std::uint64_t run) {
    for (leaving_input& l : leaving_) {
      l.computed = l.computed || l.run == run;
    }
  }
  /// Blocks come back for a layer.
  void fetch(const std::vector<block_range>& blocks) { coming_.insert(coming_.end(), blocks.begin(), blocks.end()); }
  /// Blocks that came back are of no more use in this step: their room is free where the host's copy is still current.
  void spend(const std::vector<block_range>& blocks) { spent_.insert(spent_.end(), blocks.begin(), blocks.end()); }
  /// A step begins: what the one before it wanted back is of no use.
  void begin_step() {
    coming_.clear();
    spent_.clear();
  }

  /// Whether an input whose layer is over has not left yet. Blocks that a launch in flight uses are waited for by none.
  [[nodiscard]] bool offloading(const block_map& map) const {
    return std::any_of(leaving_.begin(), leaving_.end(), [&](const leaving_input& l) {
      return l.computed && any_of(l.blocks, [&](block_id b) { return has_to_leave(map, b); });
    });
  }
  /// The same of any input, its layer over or not.
  [[nodiscard]] bool any_offload(const block_map& map) const {
    return offloading(map) ||
           std::any_of(leaving_.begin(), leaving_.end(), [](const leaving_input& l) { return !l.computed; });
  }
  /// Whether an input that was asked back is not there yet.
  [[nodiscard]] bool fetching(const block_map& map) const {
    return any_of(coming_, [&](block_id b) { return has_to_come(map, b); });
  }

  /// Whether some of these blocks were asked back and are not there yet.
  [[nodiscard]] bool awaits(const block_map& map, const std::vector<block_range>& blocks) const {
    return any_of(blocks, [&](block_id b) {
      return has_to_come(map, b) &&
             std::any_of(coming_.begin(), coming_.end(), [b](block_range r) { return r.contains(b); });
    });
  }

  /// Plans what leaves: inputs whose layers are over, then copies of those that are being read. Forgets what has left.
  void write_departures(const block_map& map, plan& out) {
    const std::uint32_t most = map.blocks_in(bytes_per_departure);
    std::erase_if(leaving_, [&](const leaving_input& l) {
      return l.computed && !any_of(l.blocks, [&](block_id b) { return has_to_leave(map, b); });
    });
    for (const block_range r : spent_) {
      for (const block_id b : r) {
        if (map.resident(b) && map.moving(b) == motion::none && map.users(b) == 0 && !map.dirty(b) &&
            map.life(b) == liveness::live) {
          append(out, transfer::drop(reason::dead), b, most);
        }
      }
    }
    spent_.clear();
    for (const leaving_input& l : leaving_) {
      const bool copies = map.keeps_home_copy();
      if (!l.computed && !copies) {
        continue;
      }
      for (const block_range r : l.blocks) {
        for (const block_id b : r) {
          if (l.computed ? has_to_leave(map, b) && map.moving(b) != motion::leaving : may_be_copied(map, b)) {
            append(
                out,
                l.computed ? transfer::evict(location::host(), reason::make_room) : transfer::clean(reason::write_back),
                b, most);
          }
        }
      }
    }
  }
  /// Plans what comes back, and forgets what has come.
  /// @param room  Blocks that may come. @returns  How many are planned.
  std::int64_t write_arrivals(const block_map& map, std::int64_t room, plan& out) {
    std::int64_t planned = 0;
    std::erase_if(coming_, [&](block_range r) {
      return std::none_of(r.begin(), r.end(), [&](block_id b) { return has_to_come(map, b); });
    });
    const std::size_t from = out.transfers.size();
    for (const block_range r : coming_) {
      for (const block_id b : r) {
        if (planned < room && has_to_come(map, b) && !map.present(b)) {
          append(out, transfer::prefetch(map.device(), reason::predicted), b, blocks_per_transfer(map), from);
          ++planned;
        }
      }
    }
    return planned;
  }

 private:
  struct leaving_input {
    std::uint64_t run = 0;
    std::vector<block_range> blocks{};
    bool computed = false;  // its layer is over
  };

  template <class Predicate>
  static bool any_of(const std::vector<block_range>& blocks, Predicate&& holds) {
    return std::any_of(blocks.begin(), blocks.end(),
                       [&](block_range part) { return std::any_of(part.begin(), part.end(), holds); });
  }
  static bool has_to_leave(const block_map& map, block_id b) {
    return map.moving(b) == motion::leaving || (map.resident(b) && map.users(b) == 0 && map.life(b) == liveness::live);
  }
  static bool may_be_copied(const block_map& map, block_id b) {
    return map.resident(b) && map.dirty(b) && map.moving(b) == motion::none && map[b].writers == 0 &&
           map.life(b) == liveness::live;
  }
  static bool has_to_come(const block_map& map, block_id b) {
    return map.life(b) == liveness::live && !map.ready(b) && !map.nowhere(b) && !map.hollow(b);
  }

  std::vector<leaving_input> leaving_{};  // in the order of their layers
  std::vector<block_range> coming_{};
  std::vector<block_range> spent_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
