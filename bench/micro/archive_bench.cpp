#include "per_item.hpp"
#include <deepum/core/archive.hpp>
#include <deepum/prediction/execution_id_table.hpp>
#include <deepum/prediction/execution_table.hpp>
#include <deepum/prediction/footprint.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace deepum;
using namespace deepum_bench;

namespace {

/// The tables of `auto` after a step.
struct tables {
  execution_id_table ids{recognition::adaptive};
  execution_table successions{execution_table::match::longest_suffix};
  footprint_table footprints{};

  [[nodiscard]] std::vector<std::byte> save() const {
    archive_writer out(block_size);
    ids.save(out);
    successions.save(out);
    footprints.save(out);
    return out.finish();
  }
  [[nodiscard]] static tables load(const std::vector<std::byte>& archive) {
    archive_reader in(archive, block_size);
    execution_id_table ids = execution_id_table::load(in, recognition::adaptive);
    const execution_id last{ids.size()};
    execution_table successions = execution_table::load(in, last, execution_table::match::longest_suffix);
    footprint_table footprints = footprint_table::load(in, last, blocks_per_step);
    in.finish();
    return {std::move(ids), std::move(successions), std::move(footprints)};
  }
};

tables after_a_step() {
  tables t;
  execution_context context;
  for (std::uint32_t i = 1; i <= launches_per_step; ++i) {
    const execution_id id = t.ids.identify({.exact = i * 0x9e3779b97f4a7c15ULL, .shape = i}).id;
    t.successions.record(context, id);
    context.push(id);
    for (std::uint32_t operand = 0; operand < 4; ++operand) {
      t.footprints.at(id).touch({block_id{(i * 97 + operand * 5003) % (blocks_per_step - 8)}, 4},
                                deepum::access::update, true);
    }
  }
  return t;
}

void save_tables(benchmark::State& state) {
  const tables t = after_a_step();
  for (auto _ : state) {
    benchmark::DoNotOptimize(t.save());
  }
  state.counters["bytes"] = static_cast<double>(t.save().size());
  report_per(state, "launch", launches_per_step);
}
BENCHMARK(save_tables)->Unit(benchmark::kMicrosecond);

void load_tables(benchmark::State& state) {
  const std::vector<std::byte> archive = after_a_step().save();
  if (!check(state, tables::load(archive).save() == archive, "tables change when they are loaded")) {
    return;
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(tables::load(archive));
  }
  report_per(state, "launch", launches_per_step);
}
BENCHMARK(load_tables)->Unit(benchmark::kMicrosecond);

}  // namespace
