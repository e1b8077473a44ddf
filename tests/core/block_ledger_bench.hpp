#pragma once

#include "support/test_scale.hpp"
#include <deepum/core/block_ledger.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace block_ledger_bench_of_tests {

using namespace deepum;

inline std::vector<std::uint32_t> migration_order(const block_map& map) {
  std::vector<std::uint32_t> order;
  map.for_each_least_recently_migrated([&](block_id b) {
    order.push_back(b.value);
    return true;
  });
  return order;
}

using order = std::vector<std::uint32_t>;

inline constexpr location home = location::host();
inline constexpr location here = location::device(0);
inline constexpr location beside = location::device(1);

/// Launches run on the first of two devices.
inline block_ledger two_devices(std::uint32_t blocks = 4) {
  constexpr std::array<std::uint32_t, 2> budgets{3, 2};
  return {blocks, here, budgets, um_grid};
}

}  // namespace block_ledger_bench_of_tests
