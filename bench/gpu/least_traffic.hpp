#pragma once

#include "step_program.hpp"

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

}  // namespace deepum::gpu_bench
