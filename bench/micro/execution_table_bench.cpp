#include "per_item.hpp"
#include <deepum/prediction/execution_table.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>

using namespace deepum;
using namespace deepum_bench;

namespace {

using match = execution_table::match;

execution_id launch(std::uint32_t number) { return execution_id{1 + number % launches_per_step}; }
execution_context context_before(std::uint32_t number) {
  const std::uint32_t n = number + launches_per_step;
  return {{launch(n - 4), launch(n - 3), launch(n - 2)}, launch(n - 1)};
}

void record_step(execution_table& table) {
  for (std::uint32_t i = 0; i < launches_per_step; ++i) {
    table.record(context_before(i), launch(i));
  }
}

match match_of(const benchmark::State& state) { return state.range(0) == 0 ? match::published : match::longest_suffix; }

void record_known(benchmark::State& state) {
  execution_table table(match_of(state));
  record_step(table);
  record_step(table);
  if (!check(state, table.records() == launches_per_step, "a record is there twice")) {
    return;
  }
  for (auto _ : state) {
    record_step(table);
  }
  report_per(state, "launch", launches_per_step);
}
BENCHMARK(record_known)->ArgName("suffix")->Arg(0)->Arg(1);

// No launch follows as it did before, and the oldest record makes way.
void record_new_at_limit(benchmark::State& state) {
  execution_table table(match_of(state), launches_per_step);
  record_step(table);
  std::uint32_t step = 1;
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < launches_per_step; ++i) {
      table.record(context_before(i), launch(i + step));
    }
    ++step;
  }
  check(state, table.records() == launches_per_step, "the limit is not kept");
  report_per(state, "launch", launches_per_step);
}
BENCHMARK(record_new_at_limit)->ArgName("suffix")->Arg(0)->Arg(1);

void predict(benchmark::State& state) {
  execution_table table(match_of(state));
  record_step(table);
  for (std::uint32_t i = 0; i < launches_per_step; ++i) {
    if (!check(state, table.predict(context_before(i)) == launch(i), "a prediction is wrong")) {
      return;
    }
  }
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < launches_per_step; ++i) {
      benchmark::DoNotOptimize(table.predict(context_before(i)));
    }
  }
  report_per(state, "launch", launches_per_step);
}
BENCHMARK(predict)->ArgName("suffix")->Arg(0)->Arg(1);

// No preceding launch agrees, so all levels are looked through.
void predict_by_current_alone(benchmark::State& state) {
  execution_table table(match::longest_suffix);
  record_step(table);
  const auto unknown = [](std::uint32_t i) {
    return execution_context{{launch(i + 7), launch(i + 7), launch(i)}, launch(i)};
  };
  if (!check(state, table.predict(unknown(3)) == launch(4), "a prediction is wrong")) {
    return;
  }
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < launches_per_step; ++i) {
      benchmark::DoNotOptimize(table.predict(unknown(i)));
    }
  }
  report_per(state, "launch", launches_per_step);
}
BENCHMARK(predict_by_current_alone);

// Retires the launches of a step one after another, least recently seen first, as the ID table does.
void forget(benchmark::State& state) {
  execution_table table(match_of(state));
  record_step(table);
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < launches_per_step; ++i) {
      table.forget(launch(i));
    }
    state.PauseTiming();
    check(state, table.records() == 0, "a record outlives its launches");
    record_step(table);
    state.ResumeTiming();
  }
  report_per(state, "launch", launches_per_step);
}
BENCHMARK(forget)->ArgName("suffix")->Arg(0)->Arg(1);

}  // namespace
