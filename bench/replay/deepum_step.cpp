// Writes the step of a workload as segments and gaps, for lp_bound.py.

#include "nlohmann/json.hpp"
#include "replay/step_of.hpp"
#include "replay/workload.hpp"

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

namespace deepum::replay {
namespace {

nlohmann::json json_of(const workload& w) {
  const step_description step = step_of(w);
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
          {"name", w.name},
          {"steps", w.variants},
          {"block_bytes", block_size.count},
          {"launch_columns", {"ns", "need"}},
          {"launches", std::move(launches)},
          {"gap_columns", {"segment", "blocks", "launch", "next", "held", "writes", "returns"}},
          {"gaps", std::move(gaps)}};
}

int run(const char* from, const std::string& to) {
  const workload w = read_workload(from);
  for (const std::string& warning : w.warnings) {
    std::fprintf(stderr, "deepum-step: %s\n", warning.c_str());
  }
  std::ofstream file(to);
  file << json_of(w).dump() << '\n';
  file.close();
  if (!file) {
    std::fprintf(stderr, "deepum-step: cannot write all of '%s'\n", to.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace deepum::replay

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: deepum-step WORKLOAD FILE\nwrites the workload's step as segments and gaps, in JSON\n", stderr);
    return 2;
  }
  try {
    return deepum::replay::run(argv[1], argv[2]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "deepum-step: %s\n", e.what());
    return 1;
  }
}
