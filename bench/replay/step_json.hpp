#pragma once

#include "nlohmann/json.hpp"
#include <deepum/core/block.hpp>
#include <deepum/planning/step_segments.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace deepum::replay {

/// A step as segments and gaps, as lp_bound.py reads it.
/// @param steps  How many steps of the program it consists of.
[[nodiscard]] inline nlohmann::json json_of(const std::string& name, std::uint32_t steps,
                                            const step_description& step) {
  const step_segments cut(step);
  nlohmann::json launches = nlohmann::json::array();
  for (std::uint32_t k = 0; k != step.size(); ++k) {
    launches.push_back({step[k].duration.count(), cut.need(k)});
  }
  nlohmann::json gaps = nlohmann::json::array();
  for (const step_gap& g : cut.gaps()) {
    gaps.push_back({g.segment, cut.blocks_of(g).count, g.launch, g.next, g.held, g.writes ? 1 : 0, g.returns ? 1 : 0});
  }
  return {{"deepum_step", 1},
          {"name", name},
          {"steps", steps},
          {"block_bytes", block_size.count},
          {"launch_columns", {"ns", "need"}},
          {"launches", std::move(launches)},
          {"gap_columns", {"segment", "blocks", "launch", "next", "held", "writes", "returns"}},
          {"gaps", std::move(gaps)}};
}

}  // namespace deepum::replay
