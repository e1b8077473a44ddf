#pragma once

#include "gpu/library/step_program.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// Rates of a link, in bytes for each second: one direction alone, and each while the other is busy too.
struct link_rates {
  double in = 0;
  double out = 0;
  double in_both = 0;
  double out_both = 0;
};

/// The least time, in seconds, that bytes take to go both ways: the best mix of times in which one direction works and
/// times in which both do.
[[nodiscard]] inline double best_mix_seconds(double bytes_in, double bytes_out, const link_rates& r) {
  const double apart = bytes_in / r.in + bytes_out / r.out;
  // Working both ways pays for all of the time or for none, so that it ends with the first direction that is done.
  const double together = std::min(bytes_in / r.in_both, bytes_out / r.out_both);
  const double left_in = std::max(0.0, bytes_in - together * r.in_both);
  const double left_out = std::max(0.0, bytes_out - together * r.out_both);
  return std::min(apart, together + left_in / r.in + left_out / r.out);
}

/// The least bytes that have to come to the device in the first of endless equal steps, from an empty device on,
/// whoever decides: contents that are overwritten before they are read need not come, and among the others Belady's
/// rule keeps those that are needed soonest. Exact for units of one size.
/// @param budget  Bytes of the device. A launch that needs more gets it.
[[nodiscard]] inline std::uint64_t least_bytes_in(const unit_program& p, std::uint64_t budget, std::size_t steps) {
  constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t count = p.launches.size();
  // Next use of each unit behind each of its uses, in launches of an endless repetition; from behind.
  struct next_use {
    std::uint64_t at = never;
    bool dead = false;  // it begins with an overwrite
  };
  std::vector<std::vector<next_use>> next(p.launches.size());
  {
    std::vector<next_use> known(p.size.size());
    for (int round = 0; round < 2; ++round) {
      for (std::size_t i = p.launches.size(); i-- > 0;) {
        next[i].resize(p.launches[i].size());
        for (std::size_t j = 0; j < p.launches[i].size(); ++j) {
          const unit_use& u = p.launches[i][j];
          next[i][j] = known[u.unit];
          if (next[i][j].at != never && next[i][j].at <= i) {
            next[i][j].at += count;  // of the next step
          }
          known[u.unit] = {i, u.mode == access::overwrite};
        }
      }
    }
  }

  std::vector<bool> resident(p.size.size());
  std::vector<std::uint64_t> until(p.size.size(), 0);  // when a resident unit is needed
  std::uint64_t used = 0;
  std::uint64_t came = 0;
  std::priority_queue<std::pair<std::uint64_t, std::uint32_t>> farthest;
  std::vector<std::uint64_t> needed_at(p.size.size(), never);  // the launch that is being served
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < p.launches.size(); ++i) {
      const std::uint64_t now = step * count + i;
      for (const unit_use& u : p.launches[i]) {
        needed_at[u.unit] = now;
        if (!resident[u.unit]) {
          came += u.mode == access::overwrite ? 0 : p.size[u.unit];
          resident[u.unit] = true;
          used += p.size[u.unit];
        }
      }
      std::vector<std::pair<std::uint64_t, std::uint32_t>> spared;
      while (used > budget && !farthest.empty()) {
        const auto [at, unit] = farthest.top();
        farthest.pop();
        if (!resident[unit] || until[unit] != at) {
          continue;  // an old entry
        }
        if (needed_at[unit] == now) {
          spared.emplace_back(at, unit);
          continue;
        }
        resident[unit] = false;
        used -= p.size[unit];
      }
      for (const auto& entry : spared) {
        farthest.push(entry);
      }
      for (std::size_t j = 0; j < p.launches[i].size(); ++j) {
        const std::uint32_t unit = p.launches[i][j].unit;
        const next_use& n = next[i][j];
        if (n.dead || n.at == never) {
          resident[unit] = false;  // its contents are of no value any more
          used -= p.size[unit];
        } else {
          until[unit] = n.at + step * count;
          farthest.emplace(until[unit], unit);
        }
      }
    }
  }
  return came;
}

/// The same in each step, once it goes on and on: some steps may need a little more, and others less.
[[nodiscard]] inline std::uint64_t least_bytes_in(const unit_program& p, std::uint64_t budget) {
  constexpr std::size_t before = 4;
  constexpr std::size_t counted = 8;
  return (least_bytes_in(p, budget, before + counted) - least_bytes_in(p, budget, before)) / counted;
}

/// The least bytes that have to come during some calls, whatever is there when they begin.
[[nodiscard]] inline std::uint64_t least_bytes_of_calls(const unit_program& calls, std::uint64_t budget) {
  const std::uint64_t from_nothing = least_bytes_in(calls, budget, 1);
  return from_nothing > budget ? from_nothing - budget : 0;
}

/// Bytes that have to leave in each of endless equal steps, whoever decides, if contents that the host has need not be
/// copied again: what was written and is yet to be read lives, and where more of it lives than fits, the rest must have
/// left. Of all places between two launches, the one with the most. At least so much; a schedule may need more.
[[nodiscard]] inline std::uint64_t least_bytes_out(const unit_program& p, std::uint64_t budget) {
  const std::size_t count = p.launches.size();
  std::vector<std::vector<std::pair<std::size_t, unit_use>>> uses(p.size.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (const unit_use& u : p.launches[i]) {
      uses[u.unit].emplace_back(i, u);
    }
  }
  // Bytes that begin to live behind a launch, and those that end with one. What lives from the last step on is there
  // from the beginning.
  std::vector<std::uint64_t> begins(count);
  std::vector<std::uint64_t> ends(count);
  std::uint64_t alive = 0;
  for (std::size_t unit = 0; unit < uses.size(); ++unit) {
    const auto& all = uses[unit];
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (!all[k].second.written) {
        continue;
      }
      std::size_t last = 0;  // launches until the last one that reads it
      for (std::size_t j = 1; j <= all.size(); ++j) {
        const auto& [at, use] = all[(k + j) % all.size()];
        if (use.mode == access::overwrite) {
          break;
        }
        last = at + (k + j >= all.size() ? count : 0) - all[k].first;
        if (use.written) {
          break;
        }
      }
      if (last == 0) {
        continue;
      }
      begins[all[k].first] += p.size[unit];
      ends[(all[k].first + last) % count] += p.size[unit];
      alive += all[k].first + last >= count ? p.size[unit] : 0;
    }
  }
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    alive = alive + begins[i] - ends[i];
    most = std::max(most, alive);
  }
  return most > budget ? most - budget : 0;
}

/// The time below which no step can be: with everything resident it takes as long as it computes, and the link takes
/// its time for the least that has to move.
[[nodiscard]] inline double least_seconds(double resident, std::uint64_t least_in, std::uint64_t least_out,
                                          const link_rates& r) {
  return std::max(resident, best_mix_seconds(static_cast<double>(least_in), static_cast<double>(least_out), r));
}

}  // namespace deepum::gpu_bench
