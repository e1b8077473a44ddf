#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/policy/plan.hpp>
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

/// In one command that waits for room: from here on larger copies are hardly faster (DESIGN.md).
inline constexpr bytes bytes_per_command = 64_MiB;
[[nodiscard]] inline std::uint32_t blocks_per_command(const block_map& map) { return map.blocks_in(bytes_per_command); }

/// The same, of what leaves while other blocks wait for its room: they can come when the command is over.
inline constexpr bytes bytes_per_departure = 16_MiB;

/// Appends a block to a plan, growing the last command where that is of the same kind and the block follows directly.
/// @param limit  Blocks in a command at most.
/// @param from   Commands before this place are not grown.
inline void append(plan& out, const command& kind, block_id b, std::uint32_t limit, std::size_t from = 0) {
  if (out.commands.size() > from) {
    command& last = out.commands.back();
    command same = kind;
    same.range = last.range;
    if (last == same && last.range.end_value() == b.value && last.range.count < limit) {
      ++last.range.count;
      return;
    }
  }
  out.commands.push_back(kind);
  out.commands.back().range = {b, 1};
}

/// Blocks that can still arrive once those that are leaving are gone; negative: the arena holds more than its budget.
[[nodiscard]] inline std::int64_t room_to_come(const block_map& map) {
  return static_cast<std::int64_t>(map.budget()) + map.leaving() - map.occupied();
}

[[nodiscard]] inline bool is_dead(const block_state& s) { return s.life != liveness::live; }

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
    std::erase_if(blocks_, [&](block_id b) { return !map[b].partial; });
    std::sort(blocks_.begin(), blocks_.end());
    blocks_.erase(std::unique(blocks_.begin(), blocks_.end()), blocks_.end());  // some arrived piece by piece
    const std::uint32_t most = blocks_per_command(map);
    for (const block_id b : blocks_) {
      if (map[b].moving == motion::none) {
        append(out, {.what = action::prefetch, .why = reason::keep, .to = map.device()}, b, most);
      }
    }
  }

 private:
  std::vector<block_id> blocks_{};
};

/// Blocks whose contents died, until nothing of them is left, or they are used again.
///
/// What the device has of them is room that costs no copy. It is best given up late: a block that is written again
/// where it is needs neither a discard nor room.
class dead_blocks {
 public:
  /// Contents died.
  void note(block_range range) { noted_.push_back(range); }

  /// Plans to forget what is not on the device, so that it is never brought back.
  void forget_elsewhere(const block_map& map, plan& out) {
    const std::uint32_t most = blocks_per_command(map);
    listed_.resize(map.size());
    std::size_t kept = 0;
    for (const block_range range : noted_) {
      bool in_use = false;
      for (const block_id b : range) {
        const block_state& s = map[b];
        if (!is_dead(s)) {
          continue;
        }
        if (map.present(b)) {
          list(b);
        } else if (!s.copies.empty()) {
          s.users == 0 ? discard(b, out, most) : void(in_use = true);
        }
      }
      if (in_use) {
        noted_[kept++] = range;
      }
    }
    noted_.resize(kept);
  }
  /// Plans to forget up to `count` blocks that take room on the device and that no launch in flight may use; those
  /// first that died first. @returns  How many.
  std::size_t give_room(const block_map& map, std::size_t count, plan& out) {
    const std::uint32_t most = blocks_per_command(map);
    if (count == 0) {
      return 0;
    }
    std::size_t given = 0;
    look_at(map, [&](block_id b) {
      discard(b, out, most);
      return ++given != count;
    });
    return given;
  }
  /// Calls `visit(block_id)` for those that take room on the device and that no launch in flight may use.
  template <class Visit>
  void for_each_on_device(const block_map& map, Visit&& visit) {
    look_at(map, [&](block_id b) {
      visit(b);
      return true;
    });
  }

 private:
  void list(block_id b) {
    if (!listed_[b.value]) {
      listed_[b.value] = true;
      on_device_.push_back(b);
    }
  }
  // Until `visit` returns false. Those that are none any more are forgotten.
  template <class Visit>
  void look_at(const block_map& map, Visit&& visit) {
    std::size_t kept = 0;
    std::size_t i = 0;
    for (bool go_on = true; go_on && i != on_device_.size(); ++i) {
      const block_id b = on_device_[i];
      const block_state& s = map[b];
      if (!is_dead(s) || !map.present(b)) {
        listed_[b.value] = false;
        continue;
      }
      on_device_[kept++] = b;
      if (s.users == 0 && s.moving == motion::none) {
        go_on = visit(b);
      }
    }
    on_device_.erase(on_device_.begin() + static_cast<std::ptrdiff_t>(kept),
                     on_device_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  static void discard(block_id b, plan& out, std::uint32_t most) {
    append(out, {.what = action::discard, .why = reason::dead, .to = location::host()}, b, most);
  }

  std::vector<block_range> noted_{};   // not looked at yet
  std::vector<block_id> on_device_{};  // each once
  std::vector<bool> listed_{};         // by block: it is there
};

/// Whether a launch that uses these blocks finds all of them on the device.
[[nodiscard]] inline bool all_ready(const block_map& map, const std::vector<block_access>& uses) {
  for (const block_access& a : uses) {
    for (const block_id b : a.range) {
      if (!map.ready(b) && !is_dead(map[b])) {
        return false;
      }
    }
  }
  return true;
}

/// Lets a policy plan only where something has happened since its last plan, so that it need not say the same again.
class plan_gate {
 public:
  /// An event happened.
  void stir() { stirred_ = true; }
  /// Whether there is a reason to plan; the plan that follows takes it away.
  bool open(const block_map& map) {
    const bool moved = occupied_ != map.occupied() || leaving_ != map.leaving() || budget_ != map.budget();
    occupied_ = map.occupied();
    leaving_ = map.leaving();
    budget_ = map.budget();
    const bool stirred = stirred_;
    stirred_ = false;
    return stirred || moved;
  }

 private:
  bool stirred_ = true;
  std::uint32_t occupied_ = 0;
  std::uint32_t leaving_ = 0;
  std::uint32_t budget_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
