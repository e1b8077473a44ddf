#pragma once

#include "property/lockstep_step.hpp"
#include "property/lockstep_world.hpp"
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/device_event.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace deepum_test {

/// Looks for copies of contents that are of no value: blocks without a byte that is allocated and in use, while no
/// launch is in flight. For one arena on the simulated GPU, whose clock is virtual.
class traffic_watch {
 public:
  /// What `arena_options::observer` takes.
  [[nodiscard]] std::function<void(const deepum::device_event&, deepum::launch_id)> observer() {
    return [this](const deepum::device_event& e, deepum::launch_id) { see(e); };
  }
  /// The arena's first byte and its size in blocks.
  void of(const void* base, std::size_t blocks, std::size_t block) {
    first_ = reinterpret_cast<std::uintptr_t>(base) / block;
    blocks_ = blocks;
  }

  /// Nothing is in flight.
  void settled(const lockstep_world& world, deepum::nanoseconds now) {
    const std::set<std::size_t> live = world.memory.live_blocks(0, world.block);
    const std::lock_guard lock(mutex_);
    for (std::size_t b = 0; b < blocks_; ++b) {
      if (!live.contains(first_ + b) && !spared_.contains(b)) {
        dead_since_.try_emplace(b, now);
      } else {
        dead_since_.erase(b);
      }
    }
  }
  /// Blocks that the program uses otherwise.
  void spare(const void* p, std::size_t size, std::size_t block) {
    const std::lock_guard lock(mutex_);
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    for (std::size_t b = at / block; b <= (at + size - 1) / block; ++b) {
      spared_.insert(b - first_);
    }
  }
  /// What a step names may come alive by it. All that it could be: what is forgotten here is only not looked for.
  void revives(const lockstep_world& world, const step& s) {
    using kind = step::kind;
    const std::lock_guard lock(mutex_);
    if (s.what == kind::allocate || s.what == kind::nest || s.what == kind::launch_graph) {
      dead_since_.clear();
      return;
    }
    std::vector<piece> pieces;
    if (is_launch(s.what) || is_transfer(s.what)) {
      pieces = shadow::pieces(world.memory.operands(s));
    } else if (s.what == kind::open_view || s.what == kind::mark_active || s.what == kind::hold ||
               s.what == kind::hint) {
      pieces = {s.a, s.b};
    }
    std::erase_if(pieces, [](const piece& p) { return p.n == 0; });
    for (const std::size_t b : world.memory.blocks(pieces, world.block)) {
      dead_since_.erase(b - first_);
    }
  }

  [[nodiscard]] bool wrong() const {
    const std::lock_guard lock(mutex_);
    return !message_.empty();
  }
  [[nodiscard]] std::string message() const {
    const std::lock_guard lock(mutex_);
    return message_;
  }

 private:
  /// Copies that were on their way to the device may begin later than their blocks died.
  static constexpr auto grace = std::chrono::milliseconds(15);
  /// The driver may take a block on a fault while the command that discards it is on its way.
  static constexpr auto discarded_within = std::chrono::milliseconds(1);

  void see(const deepum::device_event& e) {
    using kind = deepum::device_event::kind;
    {
      const std::lock_guard lock(mutex_);
      for (auto it = taken_.begin(); it != taken_.end();) {
        if (e.what == kind::completed && e.did.forgets() && e.range.contains(it->first)) {
          it = taken_.erase(it);
        } else {
          message_ = e.at > it->second.at + discarded_within ? it->second.message : message_;
          ++it;
        }
      }
    }
    const bool out = e.what == kind::departed || (e.what == kind::completed && e.did.cleans());
    if (!out || e.began == deepum::nanoseconds{}) {
      return;
    }
    const std::lock_guard lock(mutex_);
    for (std::uint32_t b = e.range.begin_value(); b < e.range.end_value(); ++b) {
      if (const auto it = dead_since_.find(b); it != dead_since_.end() && e.began > it->second + grace) {
        std::string message = "block " + std::to_string(b) + (e.what == kind::departed ? " departed" : " was cleaned") +
                              (e.ticket == 0 ? " by the driver" : " by a command") + ", " + deepum::to_string(e.why) +
                              ": it was copied to the host at " + std::to_string(e.began.count()) +
                              " ns, and nothing in it was of any value since " + std::to_string(it->second.count()) +
                              " ns";
        if (e.ticket == 0 && e.what == kind::departed) {
          taken_[deepum::block_id{b}] = {std::move(message), e.at};
        } else {
          message_ = std::move(message);
        }
      }
    }
  }

  mutable std::mutex mutex_;
  std::size_t first_ = 0;
  std::size_t blocks_ = 0;
  std::set<std::size_t> spared_{};
  std::map<std::size_t, deepum::nanoseconds> dead_since_{};
  struct taken {
    std::string message{};
    deepum::nanoseconds at{};
  };
  std::map<deepum::block_id, taken> taken_{};  // dead, by the driver
  std::string message_{};
};

}  // namespace deepum_test
