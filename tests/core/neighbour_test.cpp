#include <deepum/core/neighbour.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace neighbour_test {

using namespace deepum;

struct some_device {
  [[nodiscard]] int ordinal() const { return number; }
  int number = 0;
};

TEST_CASE("a neighbour is made of a device, and lends its link where nothing else is said") {
  const some_device third{3};
  const std::vector<neighbour> all{{.device = third}, {.device = some_device{5}, .link = false}};
  CHECK(all[0].device.value() == 3);
  CHECK(all[0].link);
  CHECK(all[1].device.value() == 5);
  CHECK_FALSE(all[1].link);
}

}  // namespace neighbour_test
