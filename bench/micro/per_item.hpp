#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

namespace deepum_bench {

// The size of the largest recorded workload: a training step of GPT-2 XL has 7936 launches and touches 49075 blocks.
inline constexpr std::uint32_t launches_per_step = 8000;
inline constexpr std::uint32_t blocks_per_step = 49152;

/// Reports the time of each item, of which every iteration handled so many: `per_launch` or `per_block`, in seconds.
inline void report_per(benchmark::State& state, const char* item, double items_per_iteration) {
  using counter = benchmark::Counter;
  state.counters[std::string("per_") + item] =
      counter(items_per_iteration, counter::kIsIterationInvariantRate | counter::kInvert);
}

/// A result that is wrong is not worth timing.
inline bool check(benchmark::State& state, bool holds, const char* what) {
  if (!holds) {
    state.SkipWithError(what);
  }
  return holds;
}

}  // namespace deepum_bench
