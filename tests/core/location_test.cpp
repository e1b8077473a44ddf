#include <deepum/core/location.hpp>

#include <doctest/doctest.h>

namespace location_test {

using namespace deepum;

TEST_CASE("the host and each device are different places") {
  CHECK(location::host().is_host());
  CHECK_FALSE(location::device().is_host());
  CHECK(location::device() == location::device(0));
  CHECK(location::device(0) != location::device(1));
  CHECK(location::host().index() == 0);
  CHECK(location::device(2).index() == 3);
}

TEST_CASE("a copy set holds the places that were added and not removed") {
  copy_set copies;
  CHECK(copies.empty());
  copies.add(location::host());
  copies.add(location::device(1));
  copies.add(location::device(1));
  CHECK(copies.count() == 2);
  CHECK(copies.at(location::host()));
  CHECK(copies.at(location::device(1)));
  CHECK_FALSE(copies.at(location::device(0)));
  CHECK_FALSE(copies.only_at(location::device(1)));

  copies.remove(location::host());
  copies.remove(location::host());
  CHECK(copies.only_at(location::device(1)));
  CHECK(copies == copy_set{location::device(1)});
}

TEST_CASE("a copy set tells all places apart up to the limit") {
  for (unsigned i = 0; i + 1 < location::limit; ++i) {
    const copy_set copies{location::device(i)};
    CHECK_FALSE(copies.at(location::host()));
    for (unsigned j = 0; j + 1 < location::limit; ++j) {
      CHECK(copies.at(location::device(j)) == (i == j));
    }
  }
}

}  // namespace location_test
