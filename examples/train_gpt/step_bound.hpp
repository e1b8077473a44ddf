#pragma once

#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

// The time that no schedule of a step can beat (docs/bounds.md, "Between two moments").
namespace train_gpt {

/// Bytes a nanosecond that a link carries: each direction alone, and each while the other works too.
struct link_rates {
  double in = 0;
  double out = 0;
  double in_both = 0;
  double out_both = 0;
};

/// What an operation of a step does with some bytes. Addresses are offsets.
struct step_use {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool needs = false;   ///< the contents have to be on the device
  bool writes = false;  ///< the device makes new contents; neither: the host does
};

/// One operation of a step that repeats.
struct step_operation {
  double ns = 0;  ///< that it takes with everything resident
  std::vector<step_use> uses{};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> dead{};  ///< bytes that are of no value from then on
};

/// What every schedule of a step needs at least, as the mean of many steps.
struct step_bound {
  double ns = 0;
  double in = 0;   ///< bytes to the device
  double out = 0;  ///< bytes to the host
};

namespace detail {

/// What happens to one part of the memory, in order, over one step.
struct part_event {
  std::size_t operation = 0;
  bool needs = false;
  bool writes = false;
  bool dies = false;
};
struct part {
  std::uint64_t size = 0;
  std::vector<part_event> events{};
};

/// The memory in parts that each operation uses as a whole or not at all.
[[nodiscard]] inline std::vector<part> parts_of(const std::vector<step_operation>& step) {
  std::vector<std::uint64_t> edges;
  for (const step_operation& o : step) {
    for (const step_use& u : o.uses)
      edges.insert(edges.end(), {u.begin, u.end});
    for (const auto& [begin, end] : o.dead)
      edges.insert(edges.end(), {begin, end});
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<part> parts(edges.empty() ? 0 : edges.size() - 1);
  for (std::size_t i = 0; i < parts.size(); ++i)
    parts[i].size = edges[i + 1] - edges[i];
  const auto visit = [&](std::uint64_t begin, std::uint64_t end, const part_event& e) {
    const auto first = std::lower_bound(edges.begin(), edges.end(), begin) - edges.begin();
    for (auto i = static_cast<std::size_t>(first); i < parts.size() && edges[i] < end; ++i) {
      std::vector<part_event>& events = parts[i].events;
      if (!e.dies && !events.empty() && events.back().operation == e.operation && !events.back().dies) {
        events.back().writes |= e.writes;  // whether the old contents are needed, the first use says
      } else {
        events.push_back(e);
      }
    }
  };
  for (std::size_t i = 0; i < step.size(); ++i) {
    for (const step_use& u : step[i].uses)
      visit(u.begin, u.end, {i, u.needs, u.writes, false});
    for (const auto& [begin, end] : step[i].dead)
      visit(begin, end, {i, false, false, true});
  }
  return parts;
}

/// For each pair of moments, in bytes: what has to come, and what has to leave, from the one to the other.
///
/// A moment m lies before operation `moments[m]`. Entry [from][k] reaches from moment `from` over the k + 1 moments
/// that follow it, around the end of the step; the last one is a whole step.
class traffic_between {
 public:
  using table = std::vector<std::vector<double>>;
  table in{};
  table out{};

  /// @param moments  The first one is 0.
  traffic_between(const std::vector<part>& parts, const std::vector<std::size_t>& moments, std::uint64_t budget)
      : in(moments.size(), std::vector<double>(moments.size())),
        out(in),
        moments_(moments) {
    for (const part& p : parts) {
      if (!p.events.empty()) add(p);
    }
    // What came first, or stays last, may be what the device holds: as much as fits.
    const auto held = static_cast<double>(budget);
    const std::size_t count = moments.size();
    for (std::size_t from = 0; from < count; ++from) {
      std::partial_sum(in[from].begin(), in[from].end(), in[from].begin());
      for (double& bytes : in[from])
        bytes = std::max(0.0, bytes - held);
    }
    for (std::size_t to = 0; to < count; ++to) {
      double sum = 0;
      for (std::size_t k = 0; k < count; ++k) {
        double& bytes = out[(to + 2 * count - 1 - k) % count][k];
        sum += bytes;
        bytes = std::max(0.0, sum - held);
      }
    }
  }

 private:
  void add(const part& p) {
    const std::size_t count = moments_.size();
    const auto size = static_cast<double>(p.size);
    for (std::size_t m = 0; m < count; ++m) {
      // The first event behind the moment, and the last one before it.
      const auto next = std::find_if(p.events.begin(), p.events.end(),
                                     [&](const part_event& e) { return e.operation >= moments_[m]; });
      const part_event& first = next == p.events.end() ? p.events.front() : *next;
      if (!first.needs || (next == p.events.begin() ? p.events.back() : *(next - 1)).dies) continue;
      in[m][(moment_before(first.operation) + count - m) % count] += size;
      // The contents are those of the last write before.
      const auto behind = static_cast<std::size_t>(next - p.events.begin());
      for (std::size_t k = 1; k <= p.events.size(); ++k) {
        const part_event& e = p.events[(behind + p.events.size() - k) % p.events.size()];
        if (e.needs && !e.writes) continue;
        if (e.writes) {
          const std::size_t from = moment_before(e.operation);
          out[from][(m + count - from - 1) % count] += size;
        }
        break;
      }
    }
  }
  /// The last moment that is not behind an operation.
  [[nodiscard]] std::size_t moment_before(std::size_t operation) const {
    const auto above = std::upper_bound(moments_.begin(), moments_.end(), operation);
    return static_cast<std::size_t>(above - moments_.begin()) - 1;
  }

  const std::vector<std::size_t>& moments_;
};

/// The largest mean for each step of what adds up along a chain of ways, each from one moment to a later one, that
/// closes after some steps.
/// @param amount  Called as `amount(from, k)`, see `traffic_between`.
[[nodiscard]] inline double best_chain(std::size_t moments,
                                       const std::function<double(std::size_t, std::size_t)>& amount) {
  std::vector<std::vector<double>> ways(moments, std::vector<double>(moments));
  double low = 0;
  double high = 0;
  for (std::size_t from = 0; from < moments; ++from) {
    for (std::size_t k = 0; k < moments; ++k) {
      ways[from][k] = amount(from, k);
      high = std::max(high, ways[from][k]);
    }
    low = std::max(low, ways[from].back());
  }
  high *= static_cast<double>(moments);
  // A chain has a mean above `least` where it gains, when each step that it takes costs `least`.
  const auto gains = [&](double least) {
    std::vector<double> best(moments, 0.0);
    for (std::size_t round = 0; round <= moments; ++round) {
      bool changed = false;
      for (std::size_t from = 0; from < moments; ++from) {
        for (std::size_t k = 0; k < moments; ++k) {
          const std::size_t to = from + k + 1;
          const double there = best[from] + ways[from][k] - (to >= moments ? least : 0.0);
          double& known = best[to % moments];
          if (there > known + 1e-6) {
            known = there;
            changed = true;
          }
        }
      }
      if (!changed) return false;
    }
    return true;
  };
  while (high - low > 1e-4 * high) {
    const double middle = (low + high) / 2;
    (gains(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace detail

/// The least that a step can take with so much memory on these links, whoever decides what moves when.
///
/// Take two moments of a run. What the operations between them need is there at the first one or comes until the second
/// one; what they have made and is yet to be read is there at the second one or has left. At no moment there is more
/// on the device than fits. So each way from a moment to a later one takes the time that its operations compute, and
/// the time of those copies. A chain of ways takes the sum; the best chain that closes after some steps is the bound.
/// It holds for all memory kinds and for the mean of many steps; docs/bounds.md has the proof and says what it ignores.
/// @param step     Repeats without end.
/// @param budget   Bytes of the device.
/// @param moments  Looked at, at most. More give a better bound. Cost: their third power, and times the parts.
[[nodiscard]] inline step_bound least_of(const std::vector<step_operation>& step, std::uint64_t budget,
                                         const link_rates& rates, std::size_t moments = 384) {
  const std::size_t operations = step.size();
  if (operations == 0) return {};
  const std::size_t count = std::min(moments, operations);
  std::vector<std::size_t> at(count);
  for (std::size_t m = 0; m < count; ++m)
    at[m] = m * operations / count;
  std::vector<double> computed(operations + 1);  // before each operation
  for (std::size_t i = 0; i < operations; ++i)
    computed[i + 1] = computed[i] + step[i].ns;

  const detail::traffic_between traffic(detail::parts_of(step), at, budget);
  // Which bytes fit into a time t: those with a * in + b * out <= t for both pairs (a, b). Where working both ways at
  // once gains nothing, there is one.
  const bool apart = rates.in_both / rates.in + rates.out_both / rates.out <= 1;
  const std::pair<double, double> lines[] = {
      {1 / rates.in, (1 - rates.in_both / rates.in) / rates.out_both},
      {(1 - rates.out_both / rates.out) / rates.in_both, 1 / rates.out},
  };
  const auto time = [&](std::size_t from, std::size_t k) {
    const std::size_t to = from + k + 1;
    const double compute = (to >= count ? computed[operations] : 0) + computed[at[to % count]] - computed[at[from]];
    const double in = traffic.in[from][k];
    const double out = traffic.out[from][k];
    if (apart) return std::max(compute, in / rates.in + out / rates.out);
    return std::max(
        {compute, in * lines[0].first + out * lines[0].second, in * lines[1].first + out * lines[1].second});
  };
  return {.ns = detail::best_chain(count, time),
          .in = detail::best_chain(count, [&](std::size_t from, std::size_t k) { return traffic.in[from][k]; }),
          .out = detail::best_chain(count, [&](std::size_t from, std::size_t k) { return traffic.out[from][k]; })};
}

}  // namespace train_gpt
