#pragma once

#include "cuda/paged_program.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace uploads_on_fake_cuda {

using namespace paged_program_of_tests;

inline void check(word* wrong, const word* x, std::uint64_t n, word first) {
  device_touch(x, n * sizeof(word), access::read);
  device_touch(wrong, sizeof(word), access::update);
  for (std::uint64_t i = 0; i < n; ++i) {
    *wrong += x[i] != static_cast<word>(first + i) ? 1 : 0;
  }
}

/// Takes its time.
inline void dawdle(const word* x, std::uint64_t n) {
  device_touch(x, n * sizeof(word), access::read);
  std::this_thread::sleep_for(50ms);
}

inline std::vector<word> numbers(std::uint64_t n, word first) {
  std::vector<word> made(n);
  std::iota(made.begin(), made.end(), first);
  return made;
}

template <class Memory>
struct program {
  explicit program(bytes budget, const char* policy = "auto", bytes chunk = 2_MiB, bytes staged = 256_MiB)
      : gpu(256_MiB),
        device(0, with(chunk)) {
    fake_cuda::register_kernel(check);
    fake_cuda::register_kernel(dawdle);
    fake_cuda::register_kernel(set);
    arena.emplace(device, deepum::arena_options{.capacity = 128_MiB,
                                                .device_budget = budget,
                                                .headroom = 4_MiB,
                                                .policy = policy,
                                                .uploads = {.threads = 3, .piece = 1_MiB, .staged = staged},
                                                .log = {}});
    s.emplace(*arena);
    errors = arena->template allocate<word>(1);
    arena->host_overwrite(errors, 1)[0] = 0;
  }
  static device_options with(bytes chunk) {
    device_options o;
    o.chunk = chunk;
    return o;
  }
  void expect(const word* x, std::uint64_t n, word first) {
    s->launch("check", 1, 1, 0, check, deepum::updates(errors, 1), deepum::reads(x, n), n, first);
  }
  void expect_slowly(const word* x, std::uint64_t n) { s->launch("dawdle", 1, 1, 0, dawdle, deepum::reads(x, n), n); }
  [[nodiscard]] word wrong() { return arena->host_read(errors, 1)[0]; }

  fake_gpu gpu;
  deepum::cuda::device device;
  std::optional<deepum::arena<Memory>> arena;
  std::optional<deepum::stream<Memory>> s;
  word* errors = nullptr;
};

}  // namespace uploads_on_fake_cuda
