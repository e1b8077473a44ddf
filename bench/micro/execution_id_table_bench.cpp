#include "per_item.hpp"
#include <deepum/prediction/execution_id_table.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>

using namespace deepum;
using namespace deepum_bench;

namespace {

constexpr std::uint64_t spread = 0x9e3779b97f4a7c15ULL;

launch_signature signature(std::uint64_t launch, std::uint64_t step = 0) {
  return {.exact = (launch + step * launches_per_step + 1) * spread, .shape = launch};
}

execution_id_table known_launches(recognition how, std::uint32_t max_ids = 0) {
  execution_id_table table(how, max_ids);
  for (std::uint64_t i = 0; i < launches_per_step; ++i) {
    table.identify(signature(i));
  }
  return table;
}

void identify_known(benchmark::State& state) {
  execution_id_table table = known_launches(recognition::exact);
  for (std::uint32_t i = 0; i < launches_per_step; ++i) {
    if (!check(state, table.identify(signature(i)) == identified{.id = execution_id{i + 1}}, "a known launch is new")) {
      return;
    }
  }
  for (auto _ : state) {
    for (std::uint64_t i = 0; i < launches_per_step; ++i) {
      benchmark::DoNotOptimize(table.identify(signature(i)));
    }
  }
  report_per(state, "launch", launches_per_step);
}
BENCHMARK(identify_known);

// Every launch has new scalars in every step, as an optimizer that takes its step number by value.
void identify_rebound(benchmark::State& state) {
  execution_id_table table = known_launches(recognition::adaptive);
  if (!check(state, table.identify(signature(3, 1), execution_id{4}).rebound, "new scalars make a new launch")) {
    return;
  }
  std::uint64_t step = 1;
  for (auto _ : state) {
    ++step;
    for (std::uint32_t i = 0; i < launches_per_step; ++i) {
      benchmark::DoNotOptimize(table.identify(signature(i, step), execution_id{i + 1}));
    }
  }
  report_per(state, "launch", launches_per_step);
}
BENCHMARK(identify_rebound);

void identify_new_and_retire(benchmark::State& state) {
  execution_id_table table = known_launches(recognition::exact, launches_per_step);
  if (!check(state, table.identify(signature(0, 1)).retired == execution_id{1}, "the oldest launch is not retired")) {
    return;
  }
  std::uint64_t step = 1;
  for (auto _ : state) {
    ++step;
    for (std::uint32_t i = 0; i < launches_per_step; ++i) {
      benchmark::DoNotOptimize(table.identify(signature(i, step)));
    }
  }
  report_per(state, "launch", launches_per_step);
}
BENCHMARK(identify_new_and_retire);

}  // namespace
