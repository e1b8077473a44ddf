// The short examples of the simulated GPU as programs. tests/short_examples compiles them with what they need of CUDA,
// so all but one are built with DEEPUM_FULL_TESTS alone.

#include "run_program.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

namespace short_examples_test {

using deepum_test::outcome;
using deepum_test::run_program;

TEST_CASE("saxpy takes four steps without a fault, and computes what it says") {
  const outcome o = run_program("saxpy", "2>&1");
  CAPTURE(o.output);
  CHECK(o.status == 0);
  for (const char* words : {"step 1: 0 faults", "step 4: 0 faults", "x[1] begins with 2.00"}) {
    CHECK(o.output.find(words) != std::string::npos);
  }
}

TEST_CASE("saxpy computes the same under every policy, and where there is none of that name") {
  for (const char* policy : {"ideal", "um", "lru", "deepum", "auto", "off", "nonsense"}) {
    CAPTURE(policy);
    const outcome o = run_program("saxpy", "2>&1", std::string("DEEPUM_POLICY=") + policy);
    CAPTURE(o.output);
    CHECK(o.status == 0);
    CHECK(o.output.find("x[1] begins with 2.00") != std::string::npos);
    CHECK((o.output.find("DEEPUM_POLICY") != std::string::npos) == (policy == std::string("nonsense")));
  }
}

TEST_CASE("the short examples are right as programs, where they are built") {
  for (const char* name : {"streams", "warm_start", "memory_kinds"}) {
    CAPTURE(name);
    if (!std::filesystem::exists(std::string{DEEPUM_BIN_DIR} + "/" + name)) continue;
    const outcome o = run_program(name, "2>&1");
    CAPTURE(o.output);
    CHECK(o.status == 0);
    CHECK(o.output.find("right: ") != std::string::npos);
  }
}

}  // namespace short_examples_test
