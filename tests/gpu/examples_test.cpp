// The short examples on a real GPU, as programs: each checks its own result. ./run gpu builds them.

#include "examples/run_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>

namespace {

bool absent(const char* name) { return !std::filesystem::exists(std::string{DEEPUM_BIN_DIR} + "/" + name); }

void check_right(const char* name) {
  const deepum_test::outcome o = deepum_test::run_program(name, "2>&1");
  CAPTURE(o.output);
  CHECK(o.status == 0);
  CHECK(o.output.find("right") != std::string::npos);
}

}  // namespace

TEST_CASE("example: the program on cudaMalloc" * doctest::skip(absent("port_before"))) { check_right("port_before"); }
TEST_CASE("example: the same program on an arena" * doctest::skip(absent("port_after"))) { check_right("port_after"); }
TEST_CASE("example: the same program on the C header" * doctest::skip(absent("port_c"))) { check_right("port_c"); }
TEST_CASE("example: Thrust and CUB" * doctest::skip(absent("thrust_sort"))) { check_right("thrust_sort"); }
TEST_CASE("example: cuBLAS" * doctest::skip(absent("cublas_layers"))) { check_right("cublas_layers"); }

TEST_CASE("example: cuDNN trains to the same losses and weights under every policy and on both memory kinds" *
          doctest::skip(absent("cudnn_cnn"))) {
  const deepum_test::outcome o = deepum_test::run_program("cudnn_cnn", "2>&1");
  CAPTURE(o.output);
  CHECK(o.status == 0);

  // A line for each run: memory and policy, then losses and the checksum of the weights.
  std::set<std::string> runs;
  std::set<std::string> results;
  std::istringstream lines{o.output};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t loss = line.find("loss 0x");
    const std::size_t moved = line.find(" MiB in");
    if (loss == std::string::npos || moved == std::string::npos) continue;
    runs.insert(line.substr(0, loss));
    results.insert(line.substr(loss, line.rfind(',', moved) - loss));
  }
  CHECK(runs.size() == 9);
  CHECK(results.size() == 1);
}
