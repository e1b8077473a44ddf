#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <type_traits>

namespace units_test {

using namespace deepum;

TEST_CASE("bytes add, subtract, scale and compare like numbers") {
  bytes b = 3_KiB;
  b += 1_KiB;
  CHECK(b == bytes{4096});
  b -= 96_B;
  CHECK(b == 4000_B);
  CHECK(b * 2 == 8000_B);
  CHECK(2 * b == b + b);
  CHECK(1_GiB / 1_MiB == 1024);
  CHECK(7_B / 4_B == 1);
  CHECK(1_MiB > 1023_KiB);
  CHECK(bytes{} == 0_B);
}

TEST_CASE("bytes reach past what 32 bits hold") { CHECK((80_GiB).count == std::uint64_t{80} << 30U); }

// That a plain number does not turn into bytes is in tests/compile_errors/host.cpp, with what the compiler says.
TEST_CASE("bytes do not turn into a plain number by themselves") {
  CHECK_FALSE(std::is_convertible_v<bytes, std::uint64_t>);
}

TEST_CASE("nanoseconds take the durations of the standard library") {
  const nanoseconds t = std::chrono::microseconds{3};
  CHECK(t.count() == 3000);
}

}  // namespace units_test
