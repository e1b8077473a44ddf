#include "regimes.hpp"

#include <deepum/error.hpp>

#include <algorithm>
#include <map>

namespace deepum::replay {
namespace {

constexpr std::size_t shortest_to_settle = 4;  // turns

nanoseconds median_of_last_half(std::vector<nanoseconds> times) {
  times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

std::vector<regime_report> report_regimes(const program& what, std::span<const nanoseconds> durations) {
  expects(durations.size() == what.turns.size(), "a report of regimes needs the duration of every turn");
  std::map<std::uint32_t, std::vector<nanoseconds>> by_regime;
  std::map<std::uint32_t, nanoseconds> steady;
  std::size_t since = 0;  // the last change
  for (std::size_t i = 0; i != durations.size(); ++i) {
    const std::uint32_t regime = what.turns[i].regime;
    by_regime[regime].push_back(durations[i]);
    if (i + 1 != durations.size() && what.turns[i + 1].regime == regime) {
      continue;
    }
    if (i + 1 - since >= shortest_to_settle) {
      const nanoseconds here = median_of_last_half({durations.begin() + static_cast<std::ptrdiff_t>(since),
                                                    durations.begin() + static_cast<std::ptrdiff_t>(i + 1)});
      const auto [known, is_new] = steady.emplace(regime, here);
      known->second = std::min(known->second, here);
    }
    since = i + 1;
  }
  for (const auto& [regime, times] : by_regime) {
    const nanoseconds all = median_of_last_half(times);
    const auto [known, is_new] = steady.emplace(regime, all);
    known->second = std::min(known->second, all);
  }

  std::vector<regime_report> reports;
  std::map<std::uint32_t, std::size_t> seen;  // turns of a regime so far
  for (std::size_t i = 0; i != durations.size(); ++i) {
    const std::uint32_t regime = what.turns[i].regime;
    if (reports.empty() || reports.back().regime != regime) {
      regime_report r{.regime = regime, .first_turn = i, .steady = steady.at(regime)};
      const std::vector<nanoseconds>& times = by_regime.at(regime);
      for (std::size_t k = seen[regime]; k != times.size() && !r.recovered_in; ++k) {
        if (times[k] * 9 <= r.steady * 10) {
          r.recovered_in = k - seen[regime] + 1;
        }
      }
      reports.push_back(r);
    }
    ++seen[regime];
    regime_report& r = reports.back();
    ++r.turns;
    r.worst = std::max(r.worst, durations[i]);
    r.total += durations[i];
  }
  return reports;
}

}  // namespace deepum::replay
