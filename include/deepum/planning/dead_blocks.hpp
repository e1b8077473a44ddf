#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/plan_writer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Blocks whose contents died, until nothing of them is left, or they are used again.
///
/// Their room on the device costs no copy. It is best given up late: a block that is written again
/// where it is needs neither a discard nor room.
class dead_blocks {
 public:
  /// Contents died.
  void note(block_range range) { noted_.push_back(range); }

  /// Blocks are on the device now. A launch that was in flight when they died may have brought them while they were
  /// waiting to be forgotten elsewhere.
  void arrived(const block_map& map, block_range range) {
    for (const block_id b : range) {
      if (b.value < asked_.size() && asked_[b.value]) {
        asked_[b.value] = false;
        if (is_dead(map[b])) {
          note({b, 1});
        }
      }
    }
  }

  /// Plans to forget what is not on the device, so that it is never brought back.
  void forget_elsewhere(const block_map& map, plan& out) {
    const std::uint32_t most = blocks_per_transfer(map);
    listed_.resize(map.size());
    asked_.resize(map.size());
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
          if (s.users == 0) {
            discard(b, out, most);
            asked_[b.value] = true;
          } else {
            in_use = true;
          }
        }
      }
      if (in_use) {
        noted_[kept++] = range;
      }
    }
    noted_.resize(kept);
  }
  /// Takes note of what has died on the device, and leaves what is elsewhere as it is: for policies that forget nothing
  /// before its room is needed.
  void list_on_device(const block_map& map) {
    listed_.resize(map.size());
    for (const block_range range : std::exchange(noted_, {})) {
      for (const block_id b : range) {
        if (is_dead(map[b]) && map.present(b)) {
          list(b);
        }
      }
    }
  }
  /// On a full device the driver makes room for a fault itself, and copies out what it takes, dead or not. So dead
  /// blocks give their room before there is a fault, an eighth of the budget at most, where nothing else leaves.
  void keep_room_for_faults(const block_map& map, plan& out) {
    const auto kept =
        static_cast<std::int64_t>(std::clamp<std::uint32_t>(map.budget() / 8, 1, map.blocks_in(bytes_per_departure)));
    const std::int64_t room = std::max<std::int64_t>(room_to_come(map), 0);
    if (!map.keeps_home_copy() && room < kept &&
        std::none_of(out.transfers.begin(), out.transfers.end(),
                     [](const transfer& t) { return t.releases() || t.forgets(); })) {
      (void)give_room(map, static_cast<std::size_t>(kept - room), out);
    }
  }
  /// Plans to forget up to `count` blocks that take room on the device and that no launch in flight may use; those
  /// first that died first. @returns  How many.
  std::size_t give_room(const block_map& map, std::size_t count, plan& out) {
    const std::uint32_t most = blocks_per_transfer(map);
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
    look_at(map, [&](block_id at) {
      visit(at);
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
    append(out, transfer::discard(reason::dead), b, most);
  }

  std::vector<block_range> noted_{};  // not looked at yet
  sequence<block_id> on_device_{};    // each once
  std::vector<bool> listed_{};        // by block: it is there
  std::vector<bool> asked_{};         // by block: to be forgotten elsewhere
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
