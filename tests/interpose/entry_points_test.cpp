#include <deepum/interpose/entry_points.hpp>

#include <doctest/doctest.h>

#include <array>

namespace entry_points {

using namespace deepum::interpose;

const std::array<entry_point, 5> all{
    entry_point{"cuMemPrefetchAsync", "cuMemPrefetchAsync", 8000, default_stream::legacy, false},
    entry_point{"cuMemPrefetchAsync_ptsz", "cuMemPrefetchAsync", 8000, default_stream::per_thread, false},
    entry_point{"cuMemPrefetchAsync_v2", "cuMemPrefetchAsync", 12020, default_stream::legacy, false},
    entry_point{"cuMemPrefetchAsync_v2_ptsz", "cuMemPrefetchAsync", 12020, default_stream::per_thread, false},
    entry_point{"cuMemAlloc_v2", "cuMemAlloc", 3020, default_stream::legacy, true}};

TEST_CASE("a symbol is found by the name under which the driver exports it") {
  CHECK(find_exported(all, "cuMemAlloc_v2") == &all[4]);
  CHECK(find_exported(all, "cuMemAlloc") == nullptr);
  CHECK(find_exported(all, "cuMemPrefetchAsync_ptsz") == &all[1]);
}

TEST_CASE("cuGetProcAddress means the newest form that the version knows, for the kind of default stream") {
  CHECK(find_by_version(all, "cuMemPrefetchAsync", 12000, default_stream::legacy) == &all[0]);
  CHECK(find_by_version(all, "cuMemPrefetchAsync", 12000, default_stream::per_thread) == &all[1]);
  CHECK(find_by_version(all, "cuMemPrefetchAsync", 12020, default_stream::legacy) == &all[2]);
  CHECK(find_by_version(all, "cuMemPrefetchAsync", 13000, default_stream::per_thread) == &all[3]);
  CHECK(find_by_version(all, "cuMemPrefetchAsync", 7000, default_stream::legacy) == nullptr);
}

TEST_CASE("a function with one form is found for either kind of default stream") {
  CHECK(find_by_version(all, "cuMemAlloc", 13000, default_stream::per_thread) == &all[4]);
  CHECK(find_by_version(all, "cuMemAlloc", 13000, default_stream::legacy) == &all[4]);
}

}  // namespace entry_points
