// Memory that launches touch where it is, on the fake GPU. The kernels there use all that they are given, so that a
// byte which they find elsewhere, or too late, is one that counts.

#include "cuda/paged_program.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace rows_in_place_cuda_test {

using namespace paged_program_of_tests;
using deepum::advice;
using deepum::gathers;
using deepum::reads;
using deepum::scatters;

constexpr std::uint64_t n = words_of(8_MiB);
constexpr deepum::looked_up some{16, 64};

/// Tables of 8 MiB: each is looked up into the next one's rows.
template <class Memory>
struct tables {
  explicit tables(deepum::arena<Memory>& a) : memory(a), s(a) {
    for (word i = 0; i != 8; ++i) {
      all.push_back(memory.template allocate<word>(n));
      const auto view = memory.host_overwrite(all.back(), n);
      std::iota(view.begin(), view.end(), i);
    }
    x = memory.template allocate<word>(n);
    s.launch("set", 1, 1, 0, set, deepum::overwrites(x, n), n, word{3});
  }
  void step() {
    for (word* const t : all) {
      s.launch("gather", 1, 1, 0, add, x, gathers(t, n, some), n);
      s.launch("scatter", 1, 1, 0, add, scatters(t, n, some), static_cast<const word*>(x), n);
    }
  }
  void pass() {
    for (std::size_t i = 1; i < all.size(); ++i) {
      s.launch("add", 1, 1, 0, add, all[i], static_cast<const word*>(all[i - 1]), n);
    }
  }
  [[nodiscard]] std::uint64_t result() {
    s.synchronize();
    std::uint64_t sum = 0;
    for (const word* p : all) {
      for (const word w : memory.host_read(p, n)) {
        sum = sum * 31 + w;
      }
    }
    return sum;
  }
  [[nodiscard]] static std::uint64_t expected(int steps, int pass_after) {
    std::vector<std::vector<word>> t(8, std::vector<word>(n));
    std::vector<word> y(n, 3);
    for (std::size_t i = 0; i != t.size(); ++i) {
      std::iota(t[i].begin(), t[i].end(), static_cast<word>(i));
    }
    for (int step = 0; step != steps; ++step) {
      for (auto& table : t) {
        for (std::size_t k = 0; k < n; k += 64) {
          y[k] += table[k];
          table[k] += y[k];
        }
      }
      for (std::size_t i = 1; i < t.size() && step == pass_after; ++i) {
        for (std::size_t k = 0; k < n; k += 64) {
          t[i][k] += t[i - 1][k];
        }
      }
    }
    std::uint64_t sum = 0;
    for (const auto& table : t) {
      for (const word w : table)
        sum = sum * 31 + w;
    }
    return sum;
  }

  deepum::arena<Memory>& memory;
  deepum::stream<Memory> s;
  std::vector<word*> all{};
  word* x = nullptr;
};

TEST_CASE("chunks of the host are mapped for launches that look rows up, and leave when a launch uses a whole table") {
  for (const bytes budget : {24_MiB, 32_MiB}) {
    CAPTURE(budget.count);
    machine m(budget);
    fake_cuda::set_delays(budget.count, 200us);
    tables<deepum::cuda::paged_memory> program(*m.arena);
    program.step();
    program.s.synchronize();
    const deepum::statistics before = m.arena->statistics();
    program.step();
    program.s.synchronize();
    const deepum::statistics used = m.arena->statistics() - before;
    CHECK(used.in().all_bytes() == 0);
    CHECK(used.out().all_bytes() == 0);
    CHECK(used.read_in_place > 0);  // what came before there was too much is on the device
    CHECK(used.read_in_place <= 16 * 16 * 64 * sizeof(word));
    program.pass();
    program.step();
    CHECK(program.result() == tables<deepum::cuda::paged_memory>::expected(3, 1));
    CHECK(m.arena->statistics().failed_calls == 0);
  }
}

TEST_CASE("in checked mode launches find what they look up, too") {
  machine m(32_MiB, "auto", machine::small_chunks(), 256_MiB, true);
  tables<deepum::cuda::paged_memory> program(*m.arena);
  program.step();
  program.pass();
  program.step();
  CHECK(program.result() == tables<deepum::cuda::paged_memory>::expected(2, 0));
}

TEST_CASE("managed memory that is in place is mapped for the device, and does not move by faults") {
  fake_gpu gpu(256_MiB);
  fake_cuda::register_kernel(add);
  fake_cuda::register_kernel(set);
  deepum::cuda::device device{0};
  deepum::arena<deepum::cuda::managed_memory> arena(
      device, {.capacity = 128_MiB, .device_budget = 32_MiB, .policy = "auto", .log = {}});
  tables<deepum::cuda::managed_memory> program(arena);
  program.step();
  program.s.synchronize();
  const deepum::statistics before = arena.statistics();
  program.step();
  program.s.synchronize();
  const deepum::statistics used = arena.statistics() - before;
  CHECK(used.in().all_bytes() == 0);
  CHECK(used.out().all_bytes() == 0);
  CHECK(used.faults == 0);
  CHECK(used.read_in_place == 16 * 16 * 64 * sizeof(word));
  program.pass();
  program.step();
  CHECK(program.result() == tables<deepum::cuda::managed_memory>::expected(3, 1));
}

}  // namespace rows_in_place_cuda_test
