#pragma once

#include "kernels.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// A loop that is larger than its budget, on any memory kind, for tests of what it leaves behind.
namespace gpu_loop {

inline const auto silent = [](std::string_view) {};

constexpr std::uint64_t words_of(deepum::bytes size) { return size.count / sizeof(std::uint32_t); }

/// What a loop leaves behind, and what it cost from the third turn on.
struct loop_result {
  std::vector<std::uint32_t> memory{};
  deepum::statistics late{};
};

/// What happens behind the launches of a turn, before they have run.
using meanwhile = std::function<void(int turn)>;

inline constexpr int turns = 6;

/// Twelve buffers of 16 MiB, each updated from the one before it, six times.
template <class Memory = deepum::cuda::managed_memory>
loop_result run_loop(const std::string& policy, deepum::bytes budget, deepum::cuda::device_options options,
                     const meanwhile& then = {}, deepum::cuda::fault_feed_maker feed = {}) {
  using namespace deepum::literals;
  deepum::cuda::device gpu{0, std::move(options), std::move(feed)};
  deepum::arena<Memory> arena{gpu, {.capacity = 256_MiB, .device_budget = budget, .policy = policy, .log = silent}};
  deepum::stream stream{arena};
  const std::uint64_t n = words_of(16_MiB);
  std::vector<std::uint32_t*> x;
  for (std::uint32_t i = 0; i < 12; ++i) {
    x.push_back(arena.template allocate<std::uint32_t>(n));
    stream.launch("fill", 256, 256, 0, gpu_kernels::fill, deepum::overwrites(x.back(), n), i, 7U, n);
  }
  deepum::statistics before;
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      stream.launch("mix", 256, 256, 0, gpu_kernels::mix, x[i], deepum::reads(x[(i + x.size() - 1) % x.size()]), n);
    }
    if (then) {
      then(turn);
    }
    if (turn == 2) {
      stream.synchronize();
      before = arena.statistics();
    }
  }
  stream.synchronize();
  loop_result r;
  r.late = arena.statistics() - before;
  for (const std::uint32_t* p : x) {
    const auto view = arena.host_read(p, n);
    r.memory.insert(r.memory.end(), view.begin(), view.end());
  }
  return r;
}

}  // namespace gpu_loop
