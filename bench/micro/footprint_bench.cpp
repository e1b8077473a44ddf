#include "per_item.hpp"
#include <deepum/prediction/footprint.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

using namespace deepum;
using namespace deepum_bench;

namespace {

// A launch with eight operands of so many blocks each, which do not touch.
constexpr std::uint32_t operands = 8;
block_range operand(std::uint32_t number, std::int64_t blocks) {
  return {block_id{(number * 5003 + 17) % blocks_per_step}, static_cast<std::uint32_t>(blocks)};
}
double block_count(std::int64_t blocks) { return static_cast<double>(operands) * static_cast<double>(blocks); }

footprint declared(std::int64_t blocks) {
  footprint f;
  for (std::uint32_t i = 0; i < operands; ++i) {
    f.touch(operand(i, blocks), i % 2 == 0 ? deepum::access::read : deepum::access::update, true);
  }
  return f;
}

void touch_declared(benchmark::State& state) {
  const std::int64_t blocks = state.range(0);
  if (!check(state, declared(blocks).block_count() == operands * blocks, "a footprint lacks blocks")) {
    return;
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(declared(blocks));
  }
  report_per(state, "launch", 1);
  report_per(state, "block", block_count(blocks));
}
BENCHMARK(touch_declared)->ArgName("blocks")->Arg(1)->Arg(16)->Arg(64);

// What every launch does that was seen before.
void touch_again(benchmark::State& state) {
  const std::int64_t blocks = state.range(0);
  footprint f = declared(blocks);
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < operands; ++i) {
      f.touch(operand(i, blocks), i % 2 == 0 ? deepum::access::read : deepum::access::update, true);
    }
    benchmark::ClobberMemory();
  }
  check(state, f == declared(blocks), "a footprint changes when it is touched again");
  report_per(state, "launch", 1);
  report_per(state, "block", block_count(blocks));
}
BENCHMARK(touch_again)->ArgName("blocks")->Arg(1)->Arg(16)->Arg(64);

// Block by block, as faults come.
void learn_from_faults(benchmark::State& state) {
  const std::int64_t blocks = state.range(0);
  for (auto _ : state) {
    footprint f;
    for (std::uint32_t i = 0; i < operands; ++i) {
      for (std::uint32_t b = 0; b < blocks; ++b) {
        f.touch({block_id{operand(i, blocks).begin_value() + b}, 1}, deepum::access::read, false);
      }
    }
    benchmark::DoNotOptimize(f);
    if (f.entries().size() != operands) {
      state.SkipWithError("adjacent blocks do not merge");
    }
  }
  report_per(state, "block", block_count(blocks));
}
BENCHMARK(learn_from_faults)->ArgName("blocks")->Arg(1)->Arg(16)->Arg(64);

// The worst order: every second block backwards, so that nothing merges and every entry is out of order.
void learn_scattered(benchmark::State& state) {
  const auto blocks = static_cast<std::uint32_t>(state.range(0));
  for (auto _ : state) {
    footprint f;
    for (std::uint32_t b = blocks; b != 0; --b) {
      f.touch({block_id{2 * b}, 1}, deepum::access::read, false);
    }
    benchmark::DoNotOptimize(f);
  }
  report_per(state, "block", blocks);
}
BENCHMARK(learn_scattered)->ArgName("blocks")->Arg(128)->Arg(1024)->Arg(8192);

void contains(benchmark::State& state) {
  const std::int64_t blocks = state.range(0);
  const footprint f = declared(blocks);
  for (auto _ : state) {
    std::uint32_t found = 0;
    for (std::uint32_t i = 0; i < operands; ++i) {
      for (std::uint32_t b = 0; b < blocks; ++b) {
        found += f.contains(block_id{operand(i, blocks).begin_value() + b}) ? 1 : 0;
      }
    }
    benchmark::DoNotOptimize(found);
    if (found != f.block_count()) {
      state.SkipWithError("a footprint lacks blocks");
    }
  }
  report_per(state, "block", block_count(blocks));
}
BENCHMARK(contains)->ArgName("blocks")->Arg(16);

// Finds the footprints of a step in its order and goes through their blocks.
void visit_step(benchmark::State& state) {
  footprint_table table;
  for (std::uint32_t id = 1; id <= launches_per_step; ++id) {
    table.replace(execution_id{id}, declared(state.range(0)));
  }
  for (auto _ : state) {
    std::uint64_t sum = 0;
    for (std::uint32_t id = 1; id <= launches_per_step; ++id) {
      for (const footprint_entry& e : table.find(execution_id{id})->entries()) {
        for (std::uint32_t b = e.range.begin_value(); b != e.range.end_value(); ++b) {
          benchmark::DoNotOptimize(sum += b);
        }
      }
    }
  }
  report_per(state, "launch", launches_per_step);
  report_per(state, "block", launches_per_step * block_count(state.range(0)));
}
BENCHMARK(visit_step)->ArgName("blocks")->Arg(1)->Arg(4)->Unit(benchmark::kMicrosecond);

}  // namespace
