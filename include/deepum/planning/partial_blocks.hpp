#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/plan_writer.hpp>

#include <algorithm>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Blocks of which a fault brought in some pages, and of which the rest is wanted too: tables and footprints know whole
/// blocks only.
class partial_blocks {
 public:
  /// Blocks arrived.
  void note(block_range range, const block_map& map) {
    for (const block_id b : range) {
      if (map[b].partial) {
        blocks_.push_back(b);
      }
    }
  }
  /// Plans the rest of those that are still partial, in the order of addresses, so that they make ranges.
  void write(const block_map& map, plan& out) {
    erase_if(blocks_, [&](block_id b) { return !map[b].partial; });
    std::sort(blocks_.begin(), blocks_.end());
    blocks_.erase(std::unique(blocks_.begin(), blocks_.end()), blocks_.end());  // some arrived piece by piece
    const std::uint32_t most = blocks_per_transfer(map);
    for (const block_id b : blocks_) {
      if (map[b].moving == motion::none) {
        append(out, transfer::prefetch(map.device(), reason::keep), b, most);
      }
    }
  }

 private:
  sequence<block_id> blocks_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
