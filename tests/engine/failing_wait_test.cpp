#include <deepum/engine/failing_wait.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>

namespace failing_wait_test {

using namespace deepum;
using detail::failing_wait;

TEST_CASE("a wait ends after 64 failures in a row that nothing could have helped") {
  failing_wait w;
  for (std::uint32_t i = 1; i < failing_wait::most; ++i) {
    w.failed({}, true);
  }
  CHECK(w.failing());
  CHECK_FALSE(w.unsatisfiable());
  w.failed({}, true);
  CHECK(w.unsatisfiable());
}

TEST_CASE("what moves in between begins the count again, but the wait goes on failing") {
  failing_wait w;
  for (std::uint32_t i = 0; i < failing_wait::most; ++i) {
    w.failed({}, true);
  }
  w.something_moved();
  CHECK(w.failing());
  CHECK_FALSE(w.unsatisfiable());
  w.failed({}, true);
  CHECK_FALSE(w.unsatisfiable());
}

TEST_CASE("while something could have helped, a wait ends after 64 failures and ten seconds, not before both") {
  failing_wait w;
  const nanoseconds began = std::chrono::seconds(5);
  for (std::uint32_t i = 0; i < 2 * failing_wait::most; ++i) {
    w.failed(began, false);
  }
  CHECK_FALSE(w.unsatisfiable());
  w.failed(began + failing_wait::longest - nanoseconds{1}, false);
  CHECK_FALSE(w.unsatisfiable());
  w.failed(began + failing_wait::longest, false);
  CHECK(w.unsatisfiable());

  failing_wait few;
  few.failed(began, false);
  few.failed(began + 2 * failing_wait::longest, false);
  CHECK_FALSE(few.unsatisfiable());
}

TEST_CASE("a success begins everything again") {
  failing_wait w;
  for (std::uint32_t i = 0; i < failing_wait::most; ++i) {
    w.failed({}, true);
  }
  w.succeeded();
  CHECK_FALSE(w.failing());
  CHECK_FALSE(w.unsatisfiable());
  // The ten seconds too.
  for (std::uint32_t i = 0; i < failing_wait::most; ++i) {
    w.failed(2 * failing_wait::longest, false);
  }
  CHECK_FALSE(w.unsatisfiable());
}

}  // namespace failing_wait_test
