#include <deepum/sim/shared_lines.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace shared_lines_test {

using namespace deepum;

constexpr nanoseconds ns(std::int64_t n) { return nanoseconds{n}; }

TEST_CASE("one has the inlet at a time, and those that wait get it in turn") {
  sim::inlet into;
  std::string got;
  CHECK(into.take([&] { got += 'a'; }));
  CHECK_FALSE(into.take([&] { got += 'b'; }));
  CHECK_FALSE(into.take([&] { got += 'c'; }));
  CHECK(got.empty());
  into.give();
  CHECK(got == "b");
  into.give();
  CHECK(got == "bc");
  into.give();
  CHECK(into.take([] {}));
}

TEST_CASE("links are as fast as they are until the host's memory feeds no more of them") {
  sim::host_bandwidth host;
  CHECK(host.begin(ns(100)) == ns(100));
  CHECK(host.begin(ns(100)) == ns(100));
  host.end();
  host.end();
  host.limit(2);
  CHECK(host.begin(ns(100)) == ns(100));
  CHECK(host.begin(ns(100)) == ns(100));
  CHECK(host.begin(ns(100)) == ns(150));
  CHECK(host.begin(ns(100)) == ns(200));
  host.end();
  host.end();
  CHECK(host.begin(ns(100)) == ns(150));
}

}  // namespace shared_lines_test
