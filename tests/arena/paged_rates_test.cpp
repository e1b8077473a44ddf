// How much steady steps on paged memory move, and at which rate of the link.

#include "arena/paged_program.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace paged_rates_test {

using namespace paged_sweeps_of_tests;
TEST_CASE("blocks are written back ahead of need where the program does not choose otherwise" *
          doctest::skip(deepum_test::thread_sanitized)) {
  for (const bool ahead : {true, false}) {
    CAPTURE(ahead);
    sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB});
    arena_type memory(gpu, {.capacity = 256_MiB, .device_budget = 32_MiB, .tuning = {.write_back = ahead}, .log = {}});
    stream_type s(memory);
    std::vector<word*> words;
    for (int i = 0; i < 10; ++i) {
      words.push_back(memory.allocate<word>(4 * words_per_block));
    }
    for (int step = 0; step < 8; ++step) {
      for (int i = 0; i < 10; ++i) {
        s.launch("set", 1, 1, 0, set, overwrites(words[static_cast<std::size_t>(i)], 4 * words_per_block),
                 4 * words_per_block, word{1});
        if (i % 2 == 0) {
          s.launch("add", 1, 1, 0, add, words[static_cast<std::size_t>(i)], static_cast<const word*>(words[0]),
                   words_per_block);
        }
      }
      for (int i = 9; i >= 0; --i) {
        s.launch("add", 1, 1, 0, add, words[0], static_cast<const word*>(words[static_cast<std::size_t>(i)]),
                 words_per_block);
      }
    }
    s.synchronize();
    CHECK((memory.statistics().out().bytes_for(reason::write_back) != 0) == ahead);
  }
}

/// What steady steps move, in the clock of the simulated device.
struct steady_step {
  double in_rate = 0;   // bytes a second
  double out_rate = 0;  // bytes a second
  bytes in{};
};

// A sweep over equal parts, each launch on the next one, with all launches of a step issued ahead.
template <class Kernel>
steady_step steady_sweep(const Kernel& kernel, int parts, bytes part, bytes budget) {
  sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = budget + 16_MiB}};
  arena_type arena(gpu, {.capacity = part * static_cast<std::uint64_t>(parts + 1), .device_budget = budget});
  stream_type s(arena);
  std::vector<std::byte*> all;
  for (int i = 0; i != parts; ++i) {
    all.push_back(arena.allocate<std::byte>(part.count));
  }
  statistics before;
  nanoseconds began{};
  for (int step = 0; step != 6; ++step) {
    if (step == 5) {
      before = arena.statistics();
      began = gpu.now();
    }
    for (std::byte* p : all) {
      s.launch("sweep", 1, 1, 0, kernel, p, part.count);
    }
    s.synchronize();
  }
  const statistics did = arena.statistics() - before;
  const double seconds = static_cast<double>((gpu.now() - began).count()) / 1e9;
  return {static_cast<double>(did.in().all_bytes()) / seconds, static_cast<double>(did.out().all_bytes()) / seconds,
          bytes{did.in().all_bytes()}};
}

TEST_CASE("a sweep that writes keeps both directions of the link busy" * doctest::skip(deepum_test::thread_sanitized)) {
  const sim::kernel write{[](std::byte*, std::uint64_t) {},
                          [](sim::work& w, std::byte* p, std::uint64_t n) { w.updates(p, n).flops(1e8); }};
  const double link = sim::find_profile("h200_pcie5").pinned_both;
  const steady_step s = steady_sweep(write, 24, 16_MiB, 256_MiB);
  CHECK(s.in_rate > 0.9 * link);
  CHECK(s.out_rate > 0.9 * link);
}

TEST_CASE("a sweep that reads and computes brings little more than has to come, however much is issued ahead" *
          doctest::skip(deepum_test::thread_sanitized)) {
  // A launch computes for 0.35 ms, in which the link could bring it: what does not fit comes while the rest computes.
  const sim::kernel read{[](const std::byte*, std::uint64_t) {},
                         [](sim::work& w, const std::byte* p, std::uint64_t n) { w.reads(p, n).flops(1.7e10); }};
  const steady_step s = steady_sweep(read, 24, 16_MiB, 256_MiB);
  const bytes rest = 16_MiB * (24 - 15);  // where fifteen stay, and one place is for the others
  CHECK(s.in.count <= rest.count * 11 / 10);
}

}  // namespace paged_rates_test
