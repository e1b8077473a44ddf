#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace deepum {
inline namespace v0 {

/// Finds memory that launches look rows up in without saying so: they fault on many of its blocks, and on few pages of
/// each.
///
/// Memory counts as it was allocated, from `least_blocks` on, while no launch declares it. What is looked up is found
/// when two launches in a row were seen to do so. Of memory that is in place faults tell nothing: see
/// `rows_in_place` for the blocks of it that are opened to faults again.
///
/// Not synchronised. Cost: constant for a fault; of the end of a launch, linear in the memory that has faulted since
/// the last one.
class look_up_detector {
 public:
  static constexpr std::uint32_t least_blocks = 16;  // of memory, and half of that of those that fault
  static constexpr std::uint32_t few_pages = 6;      // of the 32 of a block
  static constexpr std::uint32_t runs_until_found = 2;

  /// Memory came alive.
  void on_live(block_range range) {
    on_dead(range);
    if (range.count >= least_blocks) {
      extents_[range.begin_value()].blocks = range;
    }
  }
  void on_dead(block_range range) {
    for (auto at = extent_of(range.begin_value());
         at != extents_.end() && at->second.blocks.begin_value() < range.end_value();) {
      at = at->second.blocks.overlaps(range) ? extents_.erase(at) : std::next(at);
    }
  }
  /// What a launch declares it need not be watched for.
  void on_launch(const launch_record& record) {
    for (std::size_t i = 0; i != watched_.size(); ++i) {
      const auto at = extents_.find(watched_[i]);
      if (at != extents_.end() &&
          std::any_of(record.accesses.begin(), record.accesses.end(), [&](const block_access& a) {
            return a.range.count >= least_blocks && a.range.overlaps(at->second.blocks);
          })) {
        at->second.runs = 0;
        at->second.declared = true;
      }
    }
  }
  /// A launch faulted on pages of a block, as bits of 64 KiB. Where they are not known nothing is learned.
  void on_fault(block_id b, std::uint32_t pages) {
    const auto at = extent_of(b.value);
    if (pages == 0 || at == extents_.end() || !at->second.blocks.contains(b)) {
      return;
    }
    extent& e = at->second;
    if (!e.watched) {
      e.watched = true;
      watched_.push_back(at->first);
    }
    std::uint32_t& seen = pages_[b];
    if (seen == 0) {
      e.faulted.push_back(b);
    }
    seen |= pages;
  }
  /// A launch has ended. Calls `found(block_range)` for memory that is looked up, as has just become clear.
  template <class Found>
  void on_finish(Found&& found) {
    erase_if(watched_, [&](std::uint32_t begin) {
      const auto at = extents_.find(begin);
      return at == extents_.end() || !ended(at->second, found);
    });
  }

  [[nodiscard]] bytes memory() const {
    constexpr std::size_t tree_node = 40;
    bytes sum = pages_.memory() + bytes{extents_.size() * (sizeof(extent) + tree_node)};
    for (const auto& [begin, e] : extents_) {
      sum += bytes{e.faulted.capacity() * sizeof(block_id)};
    }
    return sum;
  }

 private:
  struct extent {
    block_range blocks{};
    sequence<block_id> faulted{};  // since a launch ended last
    std::uint32_t runs = 0;        // launches in a row that looked rows up
    bool declared = false;         // a launch since then says that it uses the memory
    bool watched = false;
  };
  using extents = std::map<std::uint32_t, extent>;  // by their first blocks; they do not overlap

  // The first one that ends behind the block.
  [[nodiscard]] extents::iterator extent_of(std::uint32_t block) {
    auto at = extents_.upper_bound(block);
    if (at != extents_.begin() && std::prev(at)->second.blocks.end_value() > block) {
      --at;
    }
    return at;
  }
  // Returns whether it has to be watched on.
  template <class Found>
  bool ended(extent& e, Found&& found) {
    if (e.faulted.empty()) {
      return true;
    }
    std::uint64_t all = 0;
    for (const block_id b : e.faulted) {
      all += static_cast<std::uint64_t>(std::popcount(pages_[b]));
      pages_[b] = 0;
    }
    const std::uint64_t blocks = e.faulted.size();
    e.faulted.clear();
    const bool looks_up = all <= blocks * few_pages && !e.declared;
    e.declared = false;
    e.runs = !looks_up ? 0 : blocks >= least_blocks / 2 ? e.runs + 1 : e.runs;
    if (e.runs == runs_until_found) {
      e.runs = 0;
      found(e.blocks);
    }
    e.watched = e.runs != 0;
    return e.watched;
  }

  extents extents_{};
  sequence<std::uint32_t> watched_{};                // the first blocks of those that have faulted of late
  detail::id_map<block_id, std::uint32_t> pages_{};  // that faulted since a launch ended last
};

}  // namespace v0
}  // namespace deepum
