#include <deepum/prediction/look_up_detector.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace look_up_detector_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX

constexpr block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

struct bench {
  bench() { d.on_live(blocks(10, 64)); }
  /// A launch that faults on some blocks of the memory. @returns  What was found.
  std::vector<block_range> launch(std::uint32_t faulted, std::uint32_t pages, std::vector<block_access> declared = {}) {
    launch_record r;
    r.accesses = std::move(declared);
    d.on_launch(r);
    for (std::uint32_t i = 0; i != faulted; ++i) {
      for (std::uint32_t page = 0; page != pages; ++page) {  // as hardware tells them, one by one
        d.on_fault(block_id{10 + i}, 1U << page);
      }
    }
    std::vector<block_range> found;
    d.on_finish([&](block_range r_found) { found.push_back(r_found); });
    return found;
  }

  look_up_detector d{};
};

TEST_CASE("memory is looked up of which two launches in a row touch few pages of many blocks") {
  bench b;
  CHECK(b.launch(30, 2).empty());
  CHECK(b.launch(20, 6) == std::vector<block_range>{blocks(10, 64)});
}

TEST_CASE("few blocks, many pages, or a launch in between that uses the memory are no look-ups") {
  bench b;
  SUBCASE("few blocks") {
    for (int i = 0; i != 10; ++i)
      CHECK(b.launch(7, 1).empty());
  }
  SUBCASE("many pages") {
    for (int i = 0; i != 10; ++i)
      CHECK(b.launch(30, 7).empty());
  }
  SUBCASE("other launches between them") {
    for (int i = 0; i != 5; ++i) {
      CHECK(b.launch(30, 2).empty());
      CHECK(b.launch(30, 32).empty());
    }
  }
  SUBCASE("a declared use") {
    for (int i = 0; i != 10; ++i)
      CHECK(b.launch(30, 2, {{blocks(10, 64), access::read}}).empty());
  }
  SUBCASE("pages that are not known") {
    for (int i = 0; i != 10; ++i)
      CHECK(b.launch(30, 0).empty());
  }
  SUBCASE("small or freed memory") {
    b.d.on_dead(blocks(20, 2));
    b.d.on_live(blocks(10, 15));
    for (int i = 0; i != 10; ++i)
      CHECK(b.launch(15, 2).empty());
  }
}

TEST_CASE("launches that fault on nothing do not count") {
  bench b;
  CHECK(b.launch(30, 2).empty());
  CHECK(b.launch(0, 0).empty());
  CHECK(b.launch(30, 2).size() == 1);
}

}  // namespace look_up_detector_test
