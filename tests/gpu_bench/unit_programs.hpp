// Programs of units for the tests of planners.
#pragma once

#include "gpu/library/step_program.hpp"
#include <deepum/core/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>

namespace deepum_test {

using deepum::gpu_bench::unit_program;
using deepum::gpu_bench::unit_use;

inline unit_use reads(std::uint32_t u) { return {u, deepum::access::read, false}; }
inline unit_use updates(std::uint32_t u) { return {u, deepum::access::update, true}; }
inline unit_use overwrites(std::uint32_t u) { return {u, deepum::access::overwrite, true}; }

/// Up to 15 units, used by up to 24 launches.
/// @param same_size  All units have one byte, and up to 5 otherwise.
inline unit_program random_units(std::uint64_t seed, bool same_size) {
  std::mt19937_64 random(seed);
  unit_program p;
  const std::size_t units = 4 + random() % 12;
  for (std::size_t i = 0; i < units; ++i)
    p.size.push_back(same_size ? 1 : 1 + random() % 5);
  for (std::size_t l = 0; l < 5 + random() % 20; ++l) {
    std::map<std::uint32_t, unit_use> uses;
    for (std::size_t i = 0; i < 1 + random() % 3; ++i) {
      const auto u = static_cast<std::uint32_t>(random() % units);
      uses[u] = random() % 3 == 0 ? overwrites(u) : random() % 2 == 0 ? updates(u) : reads(u);
    }
    p.launches.emplace_back();
    for (const auto& [u, use] : uses)
      p.launches.back().push_back(use);
  }
  return p;
}

}  // namespace deepum_test
