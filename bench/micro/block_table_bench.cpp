#include "per_item.hpp"
#include <deepum/prediction/block_table.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace deepum;
using namespace deepum_bench;

namespace {

/// The blocks of one launch, in the order of their faults: runs of adjacent ones at several places.
std::vector<block_id> faults(std::int64_t count) {
  std::vector<block_id> blocks;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i) {
    blocks.emplace_back((i / 16 * 1009 + i % 16) % blocks_per_step);
  }
  return blocks;
}

block_table trained(const std::vector<block_id>& blocks, block_table_shape shape = {}) {
  block_table table(shape);
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    table.record(blocks[i - 1], blocks[i]);
  }
  return table;
}

void record_known_pairs(benchmark::State& state) {
  const std::vector<block_id> blocks = faults(state.range(0));
  block_table table = trained(blocks);
  if (!check(state, table.successors(blocks[1]).front() == blocks[2], "a successor is missing")) {
    return;
  }
  for (auto _ : state) {
    for (std::size_t i = 1; i < blocks.size(); ++i) {
      table.record(blocks[i - 1], blocks[i]);
    }
    benchmark::ClobberMemory();
  }
  report_per(state, "block", static_cast<double>(blocks.size() - 1));
}
BENCHMARK(record_known_pairs)->ArgName("blocks")->Arg(16)->Arg(256)->Arg(1024);

void record_into_new_table(benchmark::State& state) {
  const std::vector<block_id> blocks = faults(state.range(0));
  for (auto _ : state) {
    const block_table table = trained(blocks);
    benchmark::DoNotOptimize(table.memory());
  }
  report_per(state, "block", static_cast<double>(blocks.size() - 1));
}
BENCHMARK(record_into_new_table)->ArgName("blocks")->Arg(16)->Arg(256)->Arg(1024);

void successors(benchmark::State& state) {
  const std::vector<block_id> blocks = faults(state.range(0));
  const block_table table = trained(blocks);
  for (auto _ : state) {
    std::size_t found = 0;
    for (const block_id b : blocks) {
      found += table.successors(b).size();
    }
    benchmark::DoNotOptimize(found);
    if (found + 1 < blocks.size()) {
      state.SkipWithError("a successor is missing");
    }
  }
  report_per(state, "block", static_cast<double>(blocks.size()));
}
BENCHMARK(successors)->ArgName("blocks")->Arg(16)->Arg(256)->Arg(1024);

}  // namespace
