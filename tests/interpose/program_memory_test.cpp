#include <deepum/interpose/program_memory.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <optional>

namespace program_memories {

using namespace deepum::interpose;
using namespace deepum::literals;
using deepum::bytes;

TEST_CASE("a program finds what budget and host hold together, within the limit, in whole blocks") {
  CHECK(capacity_of(2_GiB, 6_GiB, std::nullopt, 2_MiB) == 8_GiB);
  CHECK(capacity_of(2_GiB, 6_GiB, 4_GiB, 2_MiB) == 4_GiB);
  CHECK(capacity_of(2_GiB, 6_GiB, 40_GiB, 2_MiB) == 8_GiB);
  CHECK(capacity_of(3_MiB, bytes{}, std::nullopt, 2_MiB) == 2_MiB);
  CHECK(capacity_of(1_MiB, bytes{}, std::nullopt, 2_MiB) == bytes{});
}

TEST_CASE("what is allocated is not free, and comes back") {
  program_memory m(8_MiB);
  m.add({4096, bytes{1000}, false});
  CHECK(m.sizes().total == 8_MiB);
  CHECK(m.sizes().free == 8_MiB - bytes{1024});
  m.add({8192, 1_MiB, true});
  CHECK(m.peak() == 1_MiB + bytes{1024});
  CHECK(m.remove(4096));
  CHECK_FALSE(m.remove(4096));
  CHECK_FALSE(m.remove(8193));
  CHECK(m.sizes().free == 7_MiB);
  CHECK(m.peak() == 1_MiB + bytes{1024});
}

TEST_CASE("an address is found in its allocation, and not behind it") {
  program_memory m(8_MiB);
  m.add({4096, bytes{1000}, false});
  m.add({8192, bytes{16}, true});
  CHECK_FALSE(m.find(4095));
  CHECK(m.find(4096)->size == bytes{1000});
  CHECK(m.find(5095)->address == 4096);
  CHECK_FALSE(m.find(5096));
  CHECK(m.find(8192)->managed);
  CHECK_FALSE(m.find(1));
}

TEST_CASE("memory is new where nothing has been before") {
  program_memory m(8_MiB);
  CHECK(m.add({4096, bytes{1000}, false}));
  CHECK(m.add({8192, bytes{16}, false}));
  CHECK_FALSE(m.add({6000, bytes{16}, false}));
  CHECK(m.remove(8192));
  CHECK_FALSE(m.add({8192, bytes{16}, false}));
  CHECK(m.remove(8192));
  CHECK(m.add({8192, bytes{17}, false}));
}

}  // namespace program_memories
