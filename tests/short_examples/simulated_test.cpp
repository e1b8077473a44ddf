// The short examples that run on the simulated GPU, each in a namespace of its own, so that one compilation does for
// all of them. They check their own results.

#include <deepum/deepum.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

namespace saxpy_example {
#include "../../examples/saxpy.cpp"
}
namespace streams_example {
#include "../../examples/streams.cpp"
}
namespace warm_start_example {
#include "../../examples/warm_start.cpp"
}
namespace slices_example {
#include "../../examples/slices.cpp"
}
namespace memory_kinds_example {
#include "../../examples/memory_kinds.cpp"
}

namespace simulated_test {

TEST_CASE("launches larger than the budget run in slices, with the same results") {
  CHECK(slices_example::main() == 0);
}

TEST_CASE("two streams that wait for each other's events find what one host would") {
  CHECK(streams_example::main() == 0);
}

TEST_CASE("the first step with saved tables is faster than the one without") { CHECK(warm_start_example::main() == 0); }

TEST_CASE("both memory kinds hold the same contents after the same program") {
  CHECK(memory_kinds_example::main() == 0);
}

/// A variable of the environment, for as long as it lives.
struct variable {
  variable(const char* variable_name, const char* value) : name(variable_name) { ::setenv(name, value, 1); }
  ~variable() { ::unsetenv(name); }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;
  const char* name;
};

TEST_CASE("the examples are right under every policy that the environment may name, and under none") {
  for (const char* policy : {"ideal", "um", "lru", "deepum", "auto", "off", "", "nonsense"}) {
    CAPTURE(policy);
    const variable chosen("DEEPUM_POLICY", policy);
    CHECK(saxpy_example::main() == 0);
    CHECK(streams_example::main() == 0);
    CHECK(warm_start_example::main() == 0);
    CHECK(memory_kinds_example::main() == 0);
  }
}

TEST_CASE("an example that cannot go on ends with its status") {
  const variable tight("DEEPUM_BUDGET", "8MiB");
  CHECK(memory_kinds_example::main() == 1);  // a launch touches 16 MiB, where memory never faults
  CHECK(saxpy_example::main() == 0);
}

TEST_CASE("checked mode finds nothing in the examples") {
  ::setenv("DEEPUM_CHECK", "1", 1);
  CHECK(streams_example::main() == 0);
  CHECK(memory_kinds_example::main() == 0);
  ::unsetenv("DEEPUM_CHECK");
}

}  // namespace simulated_test
