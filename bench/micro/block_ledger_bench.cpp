#include "per_item.hpp"
#include <deepum/core/block_ledger.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>

using namespace deepum;
using namespace deepum_bench;

namespace {

block_ledger make_map() { return {blocks_per_step, location::device(), blocks_per_step, um_grid}; }
block_ledger resident_map() {
  block_ledger map = make_map();
  for (std::uint32_t b = 0; b < map.size(); ++b) {
    map.arrive(block_id{b}, false);
  }
  return map;
}

/// Times `change` on every block in an order that a cache does not like.
template <class Change>
void time_on_all(benchmark::State& state, block_ledger& map, Change&& change) {
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < map.size(); ++i) {
      change(block_id{i * 4099 % map.size()});
    }
    benchmark::ClobberMemory();
  }
  report_per(state, "block", map.size());
}

void arrive_and_depart(benchmark::State& state) {
  block_ledger map = make_map();
  time_on_all(state, map, [&](block_id b) {
    map.start_arriving(b);
    map.arrive(b, false);
    map.start_leaving(b);
    map.depart(b);
  });
  check(state, map.occupied() == 0 && map[block_id{5}].copies.only_at(location::host()), "a block stays");
}
BENCHMARK(arrive_and_depart)->Unit(benchmark::kMicrosecond);

void start_and_cancel_arriving(benchmark::State& state) {
  block_ledger map = make_map();
  time_on_all(state, map, [&](block_id b) {
    map.start_arriving(b);
    map.cancel_arriving(b);
  });
  check(state, map.occupied() == 0, "an arrival that is cancelled takes room");
}
BENCHMARK(start_and_cancel_arriving)->Unit(benchmark::kMicrosecond);

void write_and_clean(benchmark::State& state) {
  block_ledger map = resident_map();
  time_on_all(state, map, [&](block_id b) {
    map.write(b);
    map.start_cleaning(b);
    map.clean(b);
  });
  check(state, map[block_id{5}].copies.count() == 2 && !map[block_id{5}].dirty, "a block is not clean");
}
BENCHMARK(write_and_clean)->Unit(benchmark::kMicrosecond);

void arrive_and_discard(benchmark::State& state) {
  block_ledger map = make_map();
  time_on_all(state, map, [&](block_id b) {
    map.arrive(b, false);
    map.discard(b);
  });
  check(state, map.occupied() == 0 && map[block_id{5}].copies.empty(), "a discarded block has contents");
}
BENCHMARK(arrive_and_discard)->Unit(benchmark::kMicrosecond);

void arrive_clean_and_depart(benchmark::State& state) {
  block_ledger map = make_map();
  for (std::uint32_t b = 0; b < map.size(); ++b) {
    map.write_on_host(block_id{b});
  }
  time_on_all(state, map, [&](block_id b) {
    map.arrive(b, true);
    map.depart(b);
  });
  check(state, map.occupied() == 0 && map[block_id{5}].copies.only_at(location::host()), "a departure loses contents");
}
BENCHMARK(arrive_clean_and_depart)->Unit(benchmark::kMicrosecond);

void touch_migrated(benchmark::State& state) {
  block_ledger map = resident_map();
  time_on_all(state, map, [&](block_id b) { map.touch_migrated(b); });
}
BENCHMARK(touch_migrated)->Unit(benchmark::kMicrosecond);

void add_and_remove_user(benchmark::State& state) {
  block_ledger map = resident_map();
  time_on_all(state, map, [&](block_id b) {
    map.add_user(b, deepum::access::update);
    map.remove_user(b, deepum::access::update);
  });
}
BENCHMARK(add_and_remove_user)->Unit(benchmark::kMicrosecond);

void visit_in_migration_order(benchmark::State& state) {
  block_ledger map = resident_map();
  for (std::uint32_t i = 0; i < map.size(); ++i) {
    map.touch_migrated(block_id{i * 4099 % map.size()});
  }
  for (auto _ : state) {
    std::uint32_t visited = 0;
    map.for_each_least_recently_migrated([&](block_id b) {
      benchmark::DoNotOptimize(b);
      ++visited;
      return true;
    });
    if (visited != map.size()) {
      state.SkipWithError("a resident block is not visited");
    }
  }
  report_per(state, "block", map.size());
}
BENCHMARK(visit_in_migration_order)->Unit(benchmark::kMicrosecond);

}  // namespace
