#pragma once

#include "support/bulk.hpp"
#include "support/failure.hpp"
#include "support/test_scale.hpp"
#include <deepum/arena.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace paged_sweeps_of_tests {

using namespace deepum;
using namespace deepum::literals;
namespace bulk = deepum_test::bulk;
using deepum_test::failure;
using deepum_test::few;
using deepum_test::mentions;
using word = std::uint32_t;
using arena_type = arena<sim::paged_memory>;
using stream_type = stream<sim::paged_memory>;

inline constexpr std::size_t words_per_block = (2_MiB).count / sizeof(word);
inline constexpr std::size_t stride = 16;  // of words that a launch adds

inline const sim::kernel add{[](word* a, const word* b, std::size_t n) { bulk::add(a, b, n, stride); },
                             [](sim::work& w, word* a, const word* b, std::size_t n) {
                               w.reads(b, n * sizeof(word)).updates(a, n * sizeof(word)).flops(1e8);
                             }};
inline const sim::kernel set{
    [](word* a, std::size_t n, word v) { bulk::fill(a, n, v); },
    [](sim::work& w, word* a, std::size_t n, word) { w.overwrites(a, n * sizeof(word)).flops(1e8); }};
/// Writes more than its argument says.
inline const sim::kernel stray{[](word* a, std::uint64_t other) {
                                 *a = 1;
                                 *reinterpret_cast<word*>(other) = 2;
                               },
                               [](sim::work& w, word* a, std::uint64_t other) {
                                 w.updates(a, sizeof(word)).updates(reinterpret_cast<word*>(other), sizeof(word));
                               }};

struct machine {
  explicit machine(bytes budget, std::string policy = "auto", bytes memory = 512_MiB)
      : gpu(sim::find_profile("h200_pcie5"), {.memory = memory}),
        made(std::make_unique<arena_type>(gpu, arena_options{.capacity = 256_MiB,
                                                             .device_budget = budget,
                                                             .headroom = 4_MiB,
                                                             .policy = std::move(policy),
                                                             .log = [this](std::string_view line) { log += line; }})) {}
  [[nodiscard]] arena_type& memory() { return *made; }

  sim::device gpu;
  std::string log;
  std::unique_ptr<arena_type> made;
};

/// Buffers of four blocks each, and passes over them, forward and back. @returns  What the buffers hold in the end.
struct sweep {
  static constexpr std::size_t buffers = 10;
  static constexpr std::size_t n = 4 * words_per_block;

  explicit sweep(machine& m) : memory(m.memory()), s(memory) {
    for (std::size_t i = 0; i < buffers; ++i) {
      words.push_back(memory.allocate<word>(n));
      const auto view = memory.host_overwrite(words.back(), n);
      std::iota(view.begin(), view.end(), static_cast<word>(i));
    }
  }
  void pass() {
    for (std::size_t i = 0; i + 1 < buffers; ++i) {
      s.launch("add", 1, 1, 0, add, words[i], static_cast<const word*>(words[i + 1]), n);
    }
    for (std::size_t i = buffers - 1; i > 0; --i) {
      s.launch("add", 1, 1, 0, add, words[i], static_cast<const word*>(words[i - 1]), n);
    }
  }
  [[nodiscard]] std::vector<word> result() {
    s.synchronize();
    std::vector<word> all;
    for (const word* p : words) {
      const auto view = memory.host_read(p, n);
      all.insert(all.end(), view.begin(), view.end());
    }
    return all;
  }
  [[nodiscard]] static std::vector<word> expected(int passes) {
    std::vector<std::vector<word>> b(buffers, std::vector<word>(n));
    for (std::size_t i = 0; i < buffers; ++i) {
      std::iota(b[i].begin(), b[i].end(), static_cast<word>(i));
    }
    const auto step = [&](std::size_t to, std::size_t from) {
      for (std::size_t k = 0; k < n; k += stride) {
        b[to][k] += b[from][k];
      }
    };
    std::vector<word> all;
    for (int p = 0; p < passes; ++p) {
      for (std::size_t i = 0; i + 1 < buffers; ++i)
        step(i, i + 1);
      for (std::size_t i = buffers - 1; i > 0; --i)
        step(i, i - 1);
    }
    for (const auto& x : b)
      all.insert(all.end(), x.begin(), x.end());
    return all;
  }

  arena_type& memory;
  stream_type s;
  std::vector<word*> words;
};

}  // namespace paged_sweeps_of_tests
