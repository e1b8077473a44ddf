#include <deepum/core/launch.hpp>
#include <deepum/interpose/copy_extent.hpp>

#include <doctest/doctest.h>

namespace copy_extents {

using namespace deepum::interpose;
using deepum::access;
using deepum::bytes;

TEST_CASE("bytes in a row are overwritten as a whole") {
  const copy_extent e{4096, 100, 1, 1, 0, 0};
  CHECK(written_by(e).size == bytes{100});
  CHECK(written_by(e).mode == access::overwrite);
  CHECK(read_by(e).mode == access::read);
  CHECK(read_by(e).address == reinterpret_cast<const void*>(4096));
}

TEST_CASE("what lies between rows stays, so rows with gaps are updated") {
  const copy_extent gaps{0, 100, 3, 1, 128, 0};
  CHECK(gaps.span() == bytes{2 * 128 + 100});
  CHECK(written_by(gaps).mode == access::update);
  CHECK(written_by({0, 128, 3, 1, 128, 0}).mode == access::overwrite);
  CHECK(written_by({0, 128, 3, 1, 128, 0}).size == bytes{3 * 128});
}

TEST_CASE("slices count by the rows between them") {
  const copy_extent dense{0, 64, 4, 2, 64, 4};
  CHECK(dense.span() == bytes{2 * 4 * 64});
  CHECK(dense.dense());
  const copy_extent apart{0, 64, 4, 2, 64, 8};
  CHECK(apart.span() == bytes{8 * 64 + 4 * 64});
  CHECK_FALSE(apart.dense());
  const copy_extent single_rows{0, 64, 1, 3, 128, 1};
  CHECK_FALSE(single_rows.dense());
}

TEST_CASE("nothing is touched where there is nothing") {
  CHECK(written_by({0, 0, 1, 1, 0, 0}).size == bytes{});
  CHECK(read_by({0, 8, 0, 1, 8, 0}).size == bytes{});
  CHECK(copy_extent{}.empty());
}

}  // namespace copy_extents
