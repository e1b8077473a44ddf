// Writes the step of a workload as segments and gaps, for lp_bound.py.

#include "replay/step_json.hpp"
#include "replay/step_of.hpp"
#include "replay/workload.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

namespace deepum::replay {
namespace {

// What launches only look rows up in: bytes that they read and write of each block, by launch and segment.
nlohmann::json look_ups_of(const workload& w, const step_description& step) {
  std::vector<const touched_blocks*> touched;
  for (std::size_t variant = 0; variant != w.variants; ++variant) {
    for (const workload_launch& l : w.launches) {
      touched.push_back(&l.touches(variant));
    }
  }
  const step_segments cut(step);
  nlohmann::json all = nlohmann::json::array();
  for (const step_gap& g : cut.gaps()) {
    const block_range blocks = cut.blocks_of(g);
    const touched_blocks& by = *touched[g.launch];
    if (!std::all_of(blocks.begin(), blocks.end(), [&](block_id b) { return contains(by.looked_up, b); })) {
      continue;
    }
    double in = 0;
    double out = 0;
    std::uint32_t row = 0;
    for (const touched_tensor& t : by.rows) {
      if (contains(t.blocks, blocks.first)) {
        in += t.read ? t.bytes_of(1) : 0;
        out += t.written ? t.bytes_of(1) : 0;
        row = row == 0 ? t.row_bytes : std::min(row, t.row_bytes);
      }
    }
    all.push_back({g.launch, g.segment, in, out, row});
  }
  return all;
}

int run(const char* from, const std::string& to) {
  const workload w = read_workload(from);
  for (const std::string& warning : w.warnings) {
    std::fprintf(stderr, "deepum-step: %s\n", warning.c_str());
  }
  const step_description step = step_of(w);
  nlohmann::json text = json_of(w.name, static_cast<std::uint32_t>(w.variants), step);
  text["look_up_columns"] = {"launch", "segment", "in", "out", "row"};
  text["look_ups"] = look_ups_of(w, step);
  std::ofstream file(to);
  file << text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
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
