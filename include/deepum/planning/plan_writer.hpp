#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Memory for which one plan asks for room at most. The engine asks again whenever something happens, and each plan
/// starts from the state at that moment: what was planned and not issued is forgotten (`plan::supersedes`).
inline constexpr bytes bytes_per_plan = 256_MiB;
[[nodiscard]] inline std::uint32_t blocks_per_plan(const block_map& map) { return map.blocks_in(bytes_per_plan); }

/// In one transfer that waits for room: from here on larger copies are hardly faster (DESIGN.md).
inline constexpr bytes bytes_per_transfer = 64_MiB;
[[nodiscard]] inline std::uint32_t blocks_per_transfer(const block_map& map) {
  return map.blocks_in(bytes_per_transfer);
}

/// The same, of what leaves while other blocks wait for its room: they can come when the transfer is over.
inline constexpr bytes bytes_per_departure = 16_MiB;

/// Appends a block to transfers or hints, growing the last one where that is of the same kind and the block follows
/// directly.
/// @param limit  Blocks in each at most.
/// @param from   Those before this place are not grown.
template <class Order>
void append(std::vector<Order>& out, const Order& kind, block_id b, std::uint32_t limit, std::size_t from = 0) {
  if (out.size() > from) {
    Order& last = out.back();
    Order same = kind;
    same.blocks = last.blocks;
    if (last == same && last.blocks.end_value() == b.value && last.blocks.count < limit) {
      ++last.blocks.count;
      return;
    }
  }
  out.push_back(kind);
  out.back().blocks = {b, 1};
}
/// The same for the transfers of a plan.
inline void append(plan& out, const transfer& kind, block_id b, std::uint32_t limit, std::size_t from = 0) {
  append(out.transfers, kind, b, limit, from);
}

/// Blocks that can still arrive once those that are leaving are gone; negative: the arena holds more than its budget.
[[nodiscard]] inline std::int64_t room_to_come(const block_map& map) {
  return static_cast<std::int64_t>(map.budget()) + map.leaving() - map.occupied();
}

[[nodiscard]] inline bool is_dead(const block_state& s) { return s.life != liveness::live; }

/// Whether a launch that uses these blocks finds all of them on the device, but for those that it only looks rows up
/// in.
[[nodiscard]] inline bool all_ready(const block_map& map, const std::vector<block_access>& uses) {
  return std::all_of(uses.begin(), uses.end(), [&](const block_access& a) {
    return a.sparse ||
           std::all_of(a.range.begin(), a.range.end(), [&](block_id b) { return map.ready(b) || is_dead(map[b]); });
  });
}

/// Whether a launch that needs these blocks finds all of them on the device, or never can, because they do not fit.
[[nodiscard]] inline bool all_there(const block_map& map, const std::vector<block_range>& needs) {
  std::uint64_t count = 0;
  bool there = true;
  for (const block_range r : needs) {
    count += r.count;
    there = there && std::all_of(r.begin(), r.end(), [&](block_id b) { return map.ready(b) || is_dead(map[b]); });
  }
  return there || count > map.budget();
}

/// Lets a policy plan only where something has happened since its last plan, so that it need not say the same again.
class plan_gate {
 public:
  /// An event happened.
  void mark_dirty() { dirty_ = true; }
  /// Whether there is a reason to plan.
  [[nodiscard]] bool would_open(const block_map& map) const {
    return dirty_ || occupied_ != map.occupied() || leaving_ != map.leaving() || budget_ != map.budget();
  }
  /// The same; the plan that follows takes the reason away.
  bool open(const block_map& map) {
    const bool reason_to_plan = would_open(map);
    occupied_ = map.occupied();
    leaving_ = map.leaving();
    budget_ = map.budget();
    dirty_ = false;
    return reason_to_plan;
  }

 private:
  bool dirty_ = true;
  std::uint32_t occupied_ = 0;
  std::uint32_t leaving_ = 0;
  std::uint32_t budget_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
