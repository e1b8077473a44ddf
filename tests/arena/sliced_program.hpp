#pragma once

#include "support/failure.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace slices_of_tests {

using namespace deepum;
using namespace deepum::literals;
using deepum::access;  // not that of POSIX
using deepum_test::failure;
using deepum_test::mentions;
using word = std::uint32_t;
using paged = sim::paged_memory;
using managed = sim::managed_memory;

constexpr std::size_t words_of(bytes n) { return n.count / sizeof(word); }

template <class Memory>
struct machine {
  explicit machine(bytes budget = 8_MiB, bool checked = false, const std::string& policy = "auto")
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 256_MiB}),
        memory(gpu, {.capacity = 512_MiB, .device_budget = budget, .policy = policy, .checked = checked, .log = {}}),
        s(std::make_unique<stream<Memory>>(memory)) {}
  word* filled(std::size_t n, word from) {
    word* const p = memory.template allocate<word>(n);
    const auto view = memory.host_overwrite(p, n);
    for (std::size_t i = 0; i < n; ++i) {
      view[i] = from + static_cast<word>(i);
    }
    return p;
  }
  std::vector<word> read(const word* p, std::size_t n) {
    s->synchronize();
    const auto view = memory.host_read(p, n);
    return {view.begin(), view.end()};
  }
  std::uint64_t launches() { return memory.statistics().launches; }

  sim::device gpu;
  arena<Memory> memory;
  std::unique_ptr<stream<Memory>> s;
};

inline constexpr std::size_t per_block = 1024;  // words that a thread block has

struct range {
  std::size_t begin = 0;
  std::size_t count = 0;
};
inline range words_in(const grid_slice& at, std::size_t n) {
  const std::size_t begin = std::min(n, at.begin.x * per_block);
  return {begin, std::min(n, (at.begin.x + at.blocks.x) * per_block) - begin};
}

/// y += x, with what a thread block knows of the grid in its first word.
inline const sim::kernel add{
    [](grid_slice at, word* y, const word* x, std::size_t n) {
      at.for_each_block([&](dim b) {
        const std::size_t begin = b.x * per_block;
        y[begin] += at.grid.x * 1000 + b.x;
        for (std::size_t i = begin; i < std::min(n, begin + per_block); i += 64) {
          y[i] += x[i];
        }
      });
    },
    [](sim::work& w, const grid_slice& at, word* y, const word* x, std::size_t n) {
      const range r = words_in(at, n);
      w.reads(x + r.begin, r.count * sizeof(word)).updates(y + r.begin, r.count * sizeof(word)).flops(1e6);
    }};
template <class Memory>
void launch_add(machine<Memory>& m, word* y, const word* x, std::size_t n) {
  m.s->launch("add", static_cast<unsigned>((n - 1) / per_block + 1), 1024, 0, sliced(add),
              by_x(updates(y, n), per_block), by_x(reads(x, n), per_block), n);
}
inline std::vector<word> added(std::size_t n, word y, word x) {
  std::vector<word> all(n);
  const std::size_t blocks = (n - 1) / per_block + 1;
  for (std::size_t i = 0; i < n; ++i) {
    all[i] = y + static_cast<word>(i) + (i % 64 == 0 ? x + static_cast<word>(i) : 0) +
             (i % per_block == 0 ? static_cast<word>(blocks * 1000 + i / per_block) : 0);
  }
  return all;
}

}  // namespace slices_of_tests
