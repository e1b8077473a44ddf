#include <deepum/engine/recent_peak.hpp>

#include <doctest/doctest.h>

#include <cstdint>

namespace recent_peak_test {

using namespace deepum;
using detail::recent_peak;

TEST_CASE("a peak is remembered for at least a window of launches, and at most for two") {
  for (const std::uint64_t at : {std::uint64_t{0}, recent_peak::window / 2, recent_peak::window - 1}) {
    CAPTURE(at);
    recent_peak p;
    std::uint64_t forgotten = 0;
    for (std::uint64_t finished = 0; finished <= 3 * recent_peak::window; ++finished) {
      p.see(finished == at ? 100 : 7, finished);
      if (finished > at && p.value() != 100 && forgotten == 0) forgotten = finished;
    }
    CHECK(forgotten - at > recent_peak::window);
    CHECK(forgotten - at <= 2 * recent_peak::window);
    CHECK(p.value() == 7);
  }
}

TEST_CASE("a number that changes while no launch ends counts too") {
  recent_peak p;
  CHECK(p.value() == 0);
  p.see(3, 0);
  p.see(9, 0);
  p.see(1, 0);
  CHECK(p.value() == 9);
}

}  // namespace recent_peak_test
