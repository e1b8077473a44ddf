#pragma once

#include <deepum/units.hpp>

#include <cstdint>

namespace deepum::gpu_bench {

/// A sweep over memory, round and round.
struct churn_shape {
  bytes size{std::uint64_t{6} << 30};
  bytes budget{std::uint64_t{2} << 30};
  bytes group{std::uint64_t{64} << 20};  ///< what a launch updates
  std::int64_t sweeps = 4;               ///< that are timed

  [[nodiscard]] std::uint64_t groups() const { return size.count / group.count; }
};

/// The bytes that each sweep has to bring, and to send away: at most the budget stays from one to the next, and what
/// was updated has to leave before it comes again.
[[nodiscard]] inline std::uint64_t least_bytes_of_sweep(const churn_shape& s) {
  const std::uint64_t swept = s.groups() * s.group.count;
  return swept > s.budget.count ? swept - s.budget.count : 0;
}

}  // namespace deepum::gpu_bench
