#pragma once

#include "gpu/library/step_program.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// Launches that are served together: while they compute, what the next ones need comes.
struct segment {
  std::size_t first = 0;  ///< launch
  std::size_t count = 0;
  std::vector<unit_use> units{};  ///< each once, by number; the mode is that of its first use
  std::uint64_t bytes = 0;
};

/// Cuts a step into segments, each as long as possible.
/// @param most  Bytes that a segment may use. A launch that uses more is a segment of its own.
[[nodiscard]] inline std::vector<segment> cut(const unit_program& p, std::uint64_t most) {
  std::vector<segment> out;
  std::map<std::uint32_t, unit_use> units;
  const auto close = [&] {
    for (const auto& [unit, use] : units) {
      out.back().units.push_back(use);
    }
    units.clear();
  };
  for (std::size_t i = 0; i < p.launches.size(); ++i) {
    std::uint64_t more = 0;
    for (const unit_use& u : p.launches[i]) {
      more += units.contains(u.unit) ? 0 : p.size[u.unit];
    }
    if (out.empty() || out.back().bytes + more > most) {
      if (!out.empty()) {
        close();
      }
      out.push_back({.first = i});
      more = 0;
      for (const unit_use& u : p.launches[i]) {
        more += p.size[u.unit];
      }
    }
    out.back().bytes += more;
    ++out.back().count;
    for (const unit_use& u : p.launches[i]) {
      const auto [it, fresh] = units.try_emplace(u.unit, u);
      it->second.written = it->second.written || u.written;
    }
  }
  if (!out.empty()) {
    close();
  }
  return out;
}

/// Room on the device: a number of bytes, or addresses where contents have to lie in one piece.
class device_room {
 public:
  device_room(std::uint64_t size, bool in_one_piece) : free_(size), in_one_piece_(in_one_piece) {
    if (in_one_piece) {
      gaps_.emplace(0, size);
    }
  }
  /// @returns  Where; nothing where there is no room. The smallest gap that is large enough.
  [[nodiscard]] std::optional<std::uint64_t> try_take(std::uint64_t size) {
    if (size > free_) {
      return std::nullopt;
    }
    if (!in_one_piece_) {
      free_ -= size;
      return 0;
    }
    auto best = gaps_.end();
    for (auto it = gaps_.begin(); it != gaps_.end(); ++it) {
      if (it->second >= size && (best == gaps_.end() || it->second < best->second)) {
        best = it;
      }
    }
    if (best == gaps_.end()) {
      return std::nullopt;
    }
    const std::uint64_t at = best->first;
    const std::uint64_t left = best->second - size;
    gaps_.erase(best);
    if (left != 0) {
      gaps_.emplace(at + size, left);
    }
    free_ -= size;
    return at;
  }
  void give_back(std::uint64_t at, std::uint64_t size) {
    free_ += size;
    if (!in_one_piece_) {
      return;
    }
    auto [it, fresh] = gaps_.emplace(at, size);
    if (const auto after = std::next(it); after != gaps_.end() && it->first + it->second == after->first) {
      it->second += after->second;
      gaps_.erase(after);
    }
    if (it != gaps_.begin()) {
      if (const auto before = std::prev(it); before->first + before->second == it->first) {
        before->second += it->second;
        gaps_.erase(it);
      }
    }
  }

 private:
  std::uint64_t free_;
  bool in_one_piece_;
  std::map<std::uint64_t, std::uint64_t> gaps_{};  // begin, size
};

/// Something that moves for a segment.
struct move {
  std::uint32_t unit = 0;
  std::uint64_t at = 0;  ///< where on the device, if contents lie in one piece
  bool inward = false;
  bool copies = false;  ///< else contents that are of no value, or that the host has
};

/// Double buffering by hand, as the planner of an endless repetition of one step whose launches are known: while a
/// segment computes, what it and its successor do not use and what is needed last makes room for its successor.
class residency_planner {
 public:
  /// @param budget        Bytes of the device.
  /// @param in_one_piece  Contents lie in one piece at an address, and what is clean leaves without a copy.
  residency_planner(const unit_program& p, std::vector<segment> segments, std::uint64_t budget, bool in_one_piece)
      : size_(p.size),
        segments_(std::move(segments)),
        room_(budget, in_one_piece),
        clean_needs_no_copy_(in_one_piece),
        at_(p.size.size(), nowhere),
        dirty_(p.size.size()),
        uses_(p.size.size()) {
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      for (const unit_use& u : segments_[s].units) {
        uses_[u.unit].push_back({s, u.mode == access::overwrite});
      }
    }
  }

  [[nodiscard]] const std::vector<segment>& segments() const { return segments_; }

  /// What has to move before the next segment may compute, in order, while its predecessor computes.
  /// @errors  `status::invalid_argument` where it does not fit beside its predecessor.
  [[nodiscard]] std::vector<move> next() {
    const std::size_t s = next_++ % segments_.size();
    const bool first = next_ == 1;
    std::vector<move> moves;
    std::vector<bool> stays(size_.size());
    for (const unit_use& u : segments_[s].units) {
      stays[u.unit] = true;
    }
    if (!first) {
      for (const unit_use& u : segments_[(s + segments_.size() - 1) % segments_.size()].units) {
        stays[u.unit] = true;
      }
    }
    std::vector<std::uint32_t> victims;  // the best last
    bool sorted = false;
    for (const unit_use& u : segments_[s].units) {
      if (at_[u.unit] == nowhere) {
        std::optional<std::uint64_t> at = room_.try_take(size_[u.unit]);
        while (!at) {
          if (!sorted) {
            victims = victims_for(s, stays);
            sorted = true;
          }
          if (victims.empty()) {
            throw error(status::invalid_argument,
                        "launches " + std::to_string(segments_[s].first) + " to " +
                            std::to_string(segments_[s].first + segments_[s].count - 1) +
                            " do not fit into the budget beside those before them; cut the step into smaller segments");
          }
          moves.push_back(leave(victims.back(), s));
          victims.pop_back();
          at = room_.try_take(size_[u.unit]);
        }
        at_[u.unit] = *at;
        dirty_[u.unit] = false;
        moves.push_back({.unit = u.unit, .at = *at, .inward = true, .copies = u.mode != access::overwrite});
      }
    }
    for (const unit_use& u : segments_[s].units) {
      dirty_[u.unit] = dirty_[u.unit] || u.written;
    }
    return moves;
  }

  [[nodiscard]] bool resident(std::uint32_t unit) const { return at_[unit] != nowhere; }

 private:
  static constexpr std::uint64_t nowhere = std::numeric_limits<std::uint64_t>::max();
  struct use {
    std::size_t segment = 0;
    bool overwrites = false;
  };

  /// How many segments from `s` on until the unit is used again, and whether its contents count then.
  [[nodiscard]] std::pair<std::size_t, bool> next_use(std::uint32_t unit, std::size_t s) const {
    const std::vector<use>& all = uses_[unit];
    const auto later =
        std::upper_bound(all.begin(), all.end(), s, [](std::size_t at, const use& u) { return at < u.segment; });
    const bool this_step = later != all.end();
    const use& u = this_step ? *later : all.front();
    return {u.segment + (this_step ? 0 : segments_.size()) - s, u.overwrites};
  }
  /// What may leave: contents of no value first, then what is needed last; neighbours together.
  [[nodiscard]] std::vector<std::uint32_t> victims_for(std::size_t s, const std::vector<bool>& stays) const {
    struct candidate {
      bool dead = false;
      std::size_t distance = 0;
      std::uint32_t unit = 0;
    };
    std::vector<candidate> found;
    for (std::uint32_t unit = 0; unit < at_.size(); ++unit) {
      if (at_[unit] != nowhere && !stays[unit]) {
        const auto [distance, overwritten] = next_use(unit, s);
        found.push_back({overwritten, distance, unit});
      }
    }
    std::sort(found.begin(), found.end(), [](const candidate& a, const candidate& b) {
      if (a.dead != b.dead) {
        return b.dead;
      }
      return a.distance != b.distance ? a.distance < b.distance : a.unit > b.unit;
    });
    std::vector<std::uint32_t> units;
    units.reserve(found.size());
    for (const candidate& c : found) {
      units.push_back(c.unit);
    }
    return units;
  }
  move leave(std::uint32_t unit, std::size_t s) {
    const bool dead = next_use(unit, s).second;
    const move m{.unit = unit, .at = at_[unit], .copies = !dead && (dirty_[unit] || !clean_needs_no_copy_)};
    room_.give_back(at_[unit], size_[unit]);
    at_[unit] = nowhere;
    return m;
  }

  std::vector<std::uint64_t> size_;
  std::vector<segment> segments_;
  device_room room_;
  bool clean_needs_no_copy_;
  std::vector<std::uint64_t> at_;  // by unit
  std::vector<bool> dirty_;
  std::vector<std::vector<use>> uses_;
  std::size_t next_ = 0;
};

/// The step cut so that every two segments that follow one another fit, as long as that is possible.
/// @param share  The first attempt: a segment may use the budget divided by it.
/// @errors       `status::invalid_argument` where no cut fits.
[[nodiscard]] inline residency_planner plan_residency(const unit_program& p, std::uint64_t budget, unsigned share,
                                                      bool in_one_piece) {
  for (unsigned s = share;; s *= 2) {
    const residency_planner made(p, cut(p, budget / s), budget, in_one_piece);
    residency_planner trial = made;
    try {
      for (std::size_t i = 0; i < 6 * trial.segments().size(); ++i) {
        (void)trial.next();
      }
      return made;
    } catch (const error&) {
      if (s >= 1024) {
        throw;
      }
    }
  }
}

}  // namespace deepum::gpu_bench
