#pragma once

#include "gpu/library/step_program.hpp"
#include "gpu/opponents/residency_planner.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// Prefetching by hand, for a program whose launches are known: which units move before each launch.
///
/// Before a launch, what it and its next ones need comes, as many of them as fit a window; what they do not need and
/// what is needed last makes room (Belady's rule), contents of no value first. What is clean or of no value leaves
/// without a copy. Units lie in one piece.
///
/// Threads: one.
class pipeline_planner {
 public:
  /// @param budget  Bytes of the device.
  /// @param window  Bytes that a launch and those after it, for which is prefetched, may use. A launch that needs more
  ///                gets it.
  /// @errors        `status::invalid_argument` where a launch needs more than the budget.
  pipeline_planner(unit_program p, std::uint64_t budget, std::uint64_t window, afterwards then)
      : program_(std::move(p)),
        budget_(budget),
        window_(window),
        then_(then),
        room_(budget, true),
        at_(program_.size.size(), nowhere),
        dirty_(program_.size.size()),
        wanted_(program_.size.size()),
        uses_(program_.size.size()) {
    for (std::size_t i = 0; i < program_.launches.size(); ++i) {
      std::uint64_t needed = 0;
      for (const unit_use& u : program_.launches[i]) {
        needed += program_.size[u.unit];
        uses_[u.unit].push_back({i, u.mode == access::overwrite});
      }
      if (needed > budget) {
        throw error(status::invalid_argument, "launch " + std::to_string(i) + " needs " + std::to_string(needed) +
                                                  " bytes, more than the budget of " + std::to_string(budget));
      }
    }
  }

  /// What has to be enqueued before the next launch, in order.
  [[nodiscard]] std::vector<move> next() {
    std::vector<move> moves;
    if (position_ != 0) {
      release(launch(position_ - 1));
    }
    if (front_ == position_) {
      if (!std::exchange(front_wanted_, false)) {
        want(launch(front_));
      }
      if (!bring(front_, moves)) {
        make_place(moves);
      }
      ++front_;
    }
    while (front_ - position_ < program_.launches.size() && (then_ == afterwards::repeats || front_ < end())) {
      if (!front_wanted_) {
        std::uint64_t more = 0;
        for (const unit_use& u : launch(front_)) {
          more += wanted_[u.unit] == 0 ? program_.size[u.unit] : 0;
        }
        if (wanted_bytes_ + more > window_) {
          break;
        }
        want(launch(front_));
        front_wanted_ = true;
      }
      if (!bring(front_, moves)) {
        break;  // the next time, when launches have ended
      }
      ++front_;
      front_wanted_ = false;
    }
    for (const unit_use& u : launch(position_)) {
      dirty_[u.unit] = dirty_[u.unit] || u.written;
    }
    ++position_;
    return moves;
  }

  [[nodiscard]] bool resident(std::uint32_t unit) const { return at_[unit] != nowhere; }
  [[nodiscard]] std::uint64_t place_of(std::uint32_t unit) const { return at_[unit]; }
  /// Whether the device alone has the contents. They may be of no value.
  [[nodiscard]] bool dirty(std::uint32_t unit) const { return dirty_[unit]; }
  [[nodiscard]] const unit_program& program() const { return program_; }

 private:
  static constexpr std::uint64_t nowhere = std::numeric_limits<std::uint64_t>::max();
  struct use {
    std::size_t launch = 0;
    bool overwrites = false;
  };
  struct next_use {
    std::uint64_t at = std::numeric_limits<std::uint64_t>::max();
    bool dead = false;
  };

  [[nodiscard]] std::uint64_t end() const { return program_.launches.size(); }
  [[nodiscard]] const std::vector<unit_use>& launch(std::uint64_t i) const {
    return program_.launches[static_cast<std::size_t>(i % program_.launches.size())];
  }

  void want(const std::vector<unit_use>& uses) {
    for (const unit_use& u : uses) {
      wanted_bytes_ += wanted_[u.unit]++ == 0 ? program_.size[u.unit] : 0;
    }
  }
  void release(const std::vector<unit_use>& uses) {
    for (const unit_use& u : uses) {
      wanted_bytes_ -= --wanted_[u.unit] == 0 ? program_.size[u.unit] : 0;
    }
  }

  /// The first use behind a launch.
  [[nodiscard]] next_use next_use_of(std::uint32_t unit, std::uint64_t behind) const {
    const std::vector<use>& all = uses_[unit];
    const std::uint64_t rounds = behind / end();
    const auto later = std::upper_bound(all.begin(), all.end(), static_cast<std::size_t>(behind % end()),
                                        [](std::size_t i, const use& u) { return i < u.launch; });
    if (later != all.end()) {
      return {rounds * end() + later->launch, later->overwrites};
    }
    if (then_ == afterwards::ends || all.empty()) {
      return {};
    }
    return {(rounds + 1) * end() + all.front().launch, all.front().overwrites};
  }

  /// Brings all that a launch needs and that is not there.
  /// @returns  Whether there was room for it.
  bool bring(std::uint64_t at, std::vector<move>& moves) {
    std::vector<std::uint32_t> victims;  // the best last
    bool sorted = false;
    for (const unit_use& u : launch(at)) {
      if (at_[u.unit] != nowhere) {
        continue;
      }
      std::optional<std::uint64_t> place = room_.try_take(program_.size[u.unit]);
      while (!place) {
        if (!sorted) {
          victims = victims_for(at);
          sorted = true;
        }
        if (victims.empty()) {
          return false;
        }
        leave(victims.back(), at, moves);
        victims.pop_back();
        place = room_.try_take(program_.size[u.unit]);
      }
      at_[u.unit] = *place;
      dirty_[u.unit] = false;
      moves.push_back({.unit = u.unit, .at = *place, .inward = true, .copies = u.mode != access::overwrite});
    }
    return true;
  }
  /// The next launch does not fit between what later ones want, or lies in pieces: it gets all of the device.
  void make_place(std::vector<move>& moves) {
    std::fill(wanted_.begin(), wanted_.end(), 0U);
    wanted_bytes_ = 0;
    front_ = position_;
    front_wanted_ = false;
    want(launch(position_));
    if (bring(position_, moves)) {
      return;
    }
    for (std::uint32_t unit = 0; unit < at_.size(); ++unit) {
      if (at_[unit] != nowhere) {
        // Also what the launch itself has: what came in vain just now is simply brought again.
        leave(unit, position_ == 0 ? 0 : position_ - 1, moves);
      }
    }
    expects(bring(position_, moves), "a launch fits into the budget and yet finds no room");
  }
  [[nodiscard]] std::vector<std::uint32_t> victims_for(std::uint64_t at) const {
    struct candidate {
      bool dead = false;
      std::uint64_t next = 0;
      std::uint32_t unit = 0;
    };
    std::vector<candidate> found;
    for (std::uint32_t unit = 0; unit < at_.size(); ++unit) {
      if (at_[unit] != nowhere && wanted_[unit] == 0) {
        const next_use n = next_use_of(unit, at);
        found.push_back({n.dead, n.at, unit});
      }
    }
    std::sort(found.begin(), found.end(), [](const candidate& a, const candidate& b) {
      if (a.dead != b.dead) {
        return b.dead;
      }
      return a.next != b.next ? a.next < b.next : a.unit > b.unit;
    });
    std::vector<std::uint32_t> units;
    units.reserve(found.size());
    for (const candidate& c : found) {
      units.push_back(c.unit);
    }
    return units;
  }
  void leave(std::uint32_t unit, std::uint64_t behind, std::vector<move>& moves) {
    moves.push_back({.unit = unit, .at = at_[unit], .copies = dirty_[unit] && !next_use_of(unit, behind).dead});
    room_.give_back(at_[unit], program_.size[unit]);
    at_[unit] = nowhere;
    dirty_[unit] = false;
  }

  unit_program program_;
  std::uint64_t budget_;
  std::uint64_t window_;
  afterwards then_;
  device_room room_;
  std::vector<std::uint64_t> at_;  // by unit
  std::vector<bool> dirty_;
  std::vector<std::uint32_t> wanted_;  // by how many launches from the next one up to the front
  std::uint64_t wanted_bytes_ = 0;
  std::vector<std::vector<use>> uses_;
  std::uint64_t position_ = 0;  // the next launch
  std::uint64_t front_ = 0;     // the first one whose units have not been brought
  bool front_wanted_ = false;
};

}  // namespace deepum::gpu_bench
