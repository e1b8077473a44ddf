#include "run_program.hpp"

#include <doctest/doctest.h>

#include <string>

namespace recommender_test {

using deepum_test::outcome;
using deepum_test::run_program;

TEST_CASE("the recommender computes the same under every policy, and rows of its tables are touched in place") {
  for (const std::string train : {"--train", "--notrain"}) {
    CAPTURE(train);
    const outcome o =
        run_program("recommender", "--steps=3 --rows=4096 --batch=8 --tables=12 --budget=50 " + train + " 2>&1");
    CAPTURE(o.output);
    CHECK(o.status == 0);
    CHECK(o.output.find("bitwise the same in all runs") != std::string::npos);
    CHECK(o.output.find("paged memory") != std::string::npos);
    CHECK(o.output.find("looked up") != std::string::npos);
  }
}

TEST_CASE("what cannot be is refused with one line") {
  for (const std::string bad : {"--skew=1", "--rows=0", "--budget=0", "--device=abacus"}) {
    CAPTURE(bad);
    const outcome o = run_program("recommender", bad + " 2>&1");
    CHECK(o.status == 1);
    CHECK(o.output.find("recommender: ") != std::string::npos);
  }
}

}  // namespace recommender_test
