#pragma once

#include "support/failure.hpp"
#include "support/test_scale.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace upload_program_of_tests {

using namespace deepum;
using namespace deepum::literals;
using namespace std::chrono_literals;
using deepum::access;  // not the one of <unistd.h>
using deepum_test::failure;
using deepum_test::mentions;
using word = std::uint32_t;

constexpr std::size_t words_of(bytes size) { return size.count / sizeof(word); }
constexpr std::size_t block_words = words_of(2_MiB);

/// How many elements are not `first`, `first` + 1, ...
inline std::size_t wrong(const word* x, std::size_t n, word first) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < n; ++i) {
    found += x[i] != static_cast<word>(first + i) ? 1 : 0;
  }
  return found;
}
/// Adds the number of wrong elements to `out`. Takes `flops`.
inline const sim::kernel check{[](word* out, const word* x, std::size_t n, word first, double /*flops*/) {
                                 *out += static_cast<word>(wrong(x, n, first));
                               },
                               [](sim::work& w, word* out, const word* x, std::size_t n, word, double flops) {
                                 w.reads(x, n * sizeof(word)).updates(out, sizeof(word)).flops(flops);
                               }};
inline const sim::kernel fill{
    [](word* x, std::size_t n, word first) { std::iota(x, x + n, first); },
    [](sim::work& w, word* x, std::size_t n, word) { w.overwrites(x, n * sizeof(word)).flops(1e6); }};
inline const sim::kernel busy{[](word* x, double) { ++*x; },
                              [](sim::work& w, word* x, double flops) { w.updates(x, sizeof(word)).flops(flops); }};
/// Reads what it finds through a pointer in memory.
inline const sim::kernel check_found{
    [](word* out, word* const* at, std::size_t n, word first) { *out += static_cast<word>(wrong(*at, n, first)); },
    [](sim::work& w, word* out, word* const* at, std::size_t n, word) {
      w.reads(at, sizeof(word*)).reads(*at, n * sizeof(word)).updates(out, sizeof(word));
    }};
constexpr double short_kernel = 1e6;
constexpr double ten_milliseconds = 4e11;  // about

template <class Memory>
struct program {
  explicit program(bytes budget = 192_MiB, std::string policy = "auto", std::uint64_t seed = 0,
                   upload_options uploads = {}, bytes host_limit = {})
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB, .delay_seed = seed, .host_limit = host_limit}),
        memory(gpu, {.capacity = 512_MiB,
                     .device_budget = budget,
                     .headroom = 4_MiB,
                     .policy = std::move(policy),
                     .uploads = uploads,
                     .log = [this](std::string_view line) { log += line; }}),
        s(memory),
        errors(memory.template allocate<word>(1)) {
    memory.host_overwrite(errors, 1)[0] = 0;
  }
  /// Elements that launches found wrong so far.
  [[nodiscard]] word wrong_elements() { return memory.host_read(errors, 1)[0]; }
  void expect(const word* x, std::size_t n, word first, double flops = short_kernel) {
    s.launch("check", 1, 1, 0, check, updates(errors, 1), reads(x, n), n, first, flops);
  }

  std::string log;
  sim::device gpu;
  arena<Memory> memory;
  stream<Memory> s;
  word* errors;
};

inline std::vector<word> numbers(std::size_t n, word first) {
  std::vector<word> made(n);
  std::iota(made.begin(), made.end(), first);
  return made;
}

/// A file that ends with the test.
struct temporary_file {
  explicit temporary_file(const std::vector<word>& contents) : stream(std::tmpfile()) {
    REQUIRE(stream != nullptr);
    REQUIRE(std::fwrite(contents.data(), sizeof(word), contents.size(), stream) == contents.size());
    std::fflush(stream);
  }
  ~temporary_file() { std::fclose(stream); }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  [[nodiscard]] file at(std::uint64_t offset) const { return {fileno(stream), offset}; }
  std::FILE* stream;
};

}  // namespace upload_program_of_tests
