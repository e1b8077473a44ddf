#pragma once

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include "support/test_scale.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace paged_program_of_tests {

using namespace deepum_test;
using namespace deepum::literals;
using namespace std::chrono_literals;
using deepum::access;  // not the one of POSIX
using deepum::bytes;
using deepum::status;
using deepum::cuda::device_options;
using arena_type = deepum::arena<deepum::cuda::paged_memory>;
using stream_type = deepum::stream<deepum::cuda::paged_memory>;
using word = std::uint32_t;

inline void add(word* a, const word* b, std::uint64_t n) {
  device_touch(b, n * sizeof(word), access::read);
  device_touch(a, n * sizeof(word), access::update);
  for (std::uint64_t i = 0; i < n; i += 64) {
    a[i] += b[i];
  }
}
inline void set(word* a, std::uint64_t n, word value) {
  device_touch(a, n * sizeof(word), access::overwrite);
  std::fill_n(a, n, value);
}
/// Writes where none of its arguments says.
inline void stray(word* a, std::uint64_t other) {
  device_touch(a, sizeof(word), access::update);
  *a = 1;
  device_touch(reinterpret_cast<word*>(other), sizeof(word), access::update);
  *reinterpret_cast<word*>(other) = 2;
}

struct machine {
  explicit machine(bytes budget, const char* policy = "auto", device_options options = small_chunks(),
                   bytes memory = 256_MiB, bool checked = false)
      : gpu(memory),
        device(std::in_place, 0, std::move(options)) {
    fake_cuda::register_kernel(add);
    fake_cuda::register_kernel(set);
    fake_cuda::register_kernel(stray);
    arena.emplace(*device, deepum::arena_options{.capacity = 128_MiB,
                                                 .device_budget = budget,
                                                 .headroom = 4_MiB,
                                                 .policy = policy,
                                                 .checked = checked,
                                                 .log = {}});
  }
  static device_options small_chunks() {
    device_options o;
    o.chunk = 2_MiB;
    return o;
  }

  fake_gpu gpu;
  std::optional<deepum::cuda::device> device;
  std::optional<arena_type> arena;
};

constexpr std::uint64_t words_of(bytes size) { return size.count / sizeof(word); }

/// Passes over buffers, forward and back.
struct sweep {
  static constexpr std::size_t buffers = 12;
  static constexpr std::uint64_t n = words_of(4_MiB);

  explicit sweep(arena_type& a, std::size_t count = buffers) : memory(a), s(a) {
    for (std::size_t i = 0; i < count; ++i) {
      words.push_back(memory.allocate<word>(n));
      const auto view = memory.host_overwrite(words.back(), n);
      std::iota(view.begin(), view.end(), static_cast<word>(i));
    }
  }
  void pass() {
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      s.launch("add", 1, 1, 0, add, words[i], static_cast<const word*>(words[i + 1]), n);
    }
    for (std::size_t i = words.size() - 1; i > 0; --i) {
      s.launch("add", 1, 1, 0, add, words[i], static_cast<const word*>(words[i - 1]), n);
    }
  }
  /// A sum of all the words.
  [[nodiscard]] std::uint64_t result() {
    s.synchronize();
    std::uint64_t sum = 0;
    for (const word* p : words) {
      for (const word w : memory.host_read(p, n)) {
        sum = sum * 31 + w;
      }
    }
    return sum;
  }
  [[nodiscard]] static std::uint64_t expected(int passes) {
    std::vector<std::vector<word>> b(buffers, std::vector<word>(n));
    for (std::size_t i = 0; i < buffers; ++i) {
      std::iota(b[i].begin(), b[i].end(), static_cast<word>(i));
    }
    const auto step = [&](std::size_t to, std::size_t from) {
      for (std::size_t k = 0; k < n; k += 64) {
        b[to][k] += b[from][k];
      }
    };
    for (int p = 0; p < passes; ++p) {
      for (std::size_t i = 0; i + 1 < buffers; ++i)
        step(i, i + 1);
      for (std::size_t i = buffers - 1; i > 0; --i)
        step(i, i - 1);
    }
    std::uint64_t sum = 0;
    for (const auto& x : b) {
      for (const word w : x)
        sum = sum * 31 + w;
    }
    return sum;
  }

  arena_type& memory;
  stream_type s;
  std::vector<word*> words;
};

}  // namespace paged_program_of_tests
