// Writes the step of a workload as segments and gaps, for lp_bound.py.

#include "replay/step_json.hpp"
#include "replay/step_of.hpp"
#include "replay/workload.hpp"

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

namespace deepum::replay {
namespace {

int run(const char* from, const std::string& to) {
  const workload w = read_workload(from);
  for (const std::string& warning : w.warnings) {
    std::fprintf(stderr, "deepum-step: %s\n", warning.c_str());
  }
  std::ofstream file(to);
  file << json_of(w.name, static_cast<std::uint32_t>(w.variants), step_of(w))
              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
       << '\n';
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
