// What the values of the benchmark's flags mean, and what is said of wrong ones.

#include "program/flags.hpp"

#include "driver_facts/report.hpp"
#include "gpu/library/flag_values.hpp"
#include "gpu/library/sizes.hpp"
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gpu_bench_flags_test {

using namespace deepum::literals;
using deepum::bytes;
using deepum::gpu_bench::chosen;
using deepum::gpu_bench::first_error;
using deepum::gpu_bench::gib_in_range;
using deepum::gpu_bench::in_range;
using deepum::gpu_bench::numbers_from;
using deepum::gpu_bench::one_of;
using deepum::gpu_bench::percentages_from;
using deepum::gpu_bench::sizes_from;

const std::vector<std::string> systems{"resident", "um", "auto"};

TEST_CASE("numbers with commas are all in range, and whole where they have to be") {
  CHECK(*numbers_from<std::int64_t>("tokens", "1,64,4096", 1, 4096) == std::vector<std::int64_t>{1, 64, 4096});
  CHECK(*percentages_from("budgets", "75,37.5") == std::vector<double>{75, 37.5});
  for (const char* wrong : {"", "1,", "0", "4097", "1.5", "1;2", "many"}) {
    CAPTURE(wrong);
    const auto numbers = numbers_from<std::int64_t>("tokens", wrong, 1, 4096);
    REQUIRE(!numbers.ok());
    CHECK(numbers.status().message().find("--tokens are numbers from 1 to 4096") != std::string::npos);
  }
  CHECK(!percentages_from("budgets", "4").ok());
  CHECK(!percentages_from("budgets", "75,201").ok());
}

TEST_CASE("sizes in GiB are whole blocks") {
  CHECK(*sizes_from("budgets-gib", "8,0.5") == std::vector<bytes>{8_GiB, 512_MiB});
  CHECK(sizes_from("budgets-gib", "0.0101")->front() == 10_MiB);
  CHECK(!sizes_from("budgets-gib", "8,0").ok());
  CHECK(gib_in_range("gib", 24).ok());
  CHECK(!gib_in_range("gib", 0).ok());
  CHECK(!gib_in_range("gib", 5000).ok());
}

TEST_CASE("systems are those that the program knows, each once") {
  CHECK(*chosen("systems", "all", systems) == systems);
  CHECK(*chosen("systems", "auto,um", systems) == std::vector<std::string>{"auto", "um"});
  const auto unknown = chosen("systems", "auto,lru", systems);
  REQUIRE(!unknown.ok());
  CHECK(unknown.status().message() == "--systems does not know 'lru'; there are resident, um, auto and all");
  const auto twice = chosen("systems", "um,auto,um", systems);
  REQUIRE(!twice.ok());
  CHECK(twice.status().message() == "--systems names 'um' twice");
}

TEST_CASE("the first thing that is wrong is what is said") {
  CHECK(first_error({in_range("steps", 1, 1, 9), one_of("memory", "paged", {"managed", "paged"})}).ok());
  CHECK(
      first_error({in_range("steps", 3, 1, 9), in_range("warm-up", 1, 2, 9), in_range("audit", -1, 0, 9)}).message() ==
      "--warm-up has to be from 2 to 9, not 1");
  CHECK(one_of("memory", "swapped", {"managed", "paged"}).message() ==
        "--memory is one of managed, paged, not 'swapped'");
}

TEST_CASE("paged memory is also taken under the name that it had before") {
  CHECK(deepum_program::memory_kind_of("mapped") == "paged");
  CHECK(deepum_program::memory_kind_of("paged") == "paged");
  CHECK(deepum_program::memory_kind_of("managed") == "managed");
}

TEST_CASE("a group of facts is found by a part of its name, in capitals or not") {
  using deepum::driver_facts::has_part;
  CHECK(has_part("Mapping a chunk somewhere else", "mapping"));
  CHECK(has_part("Mapping a chunk somewhere else", "CHUNK"));
  CHECK(has_part("Read-mostly", ""));
  CHECK(!has_part("Read-mostly", "mapping"));
}

}  // namespace gpu_bench_flags_test
