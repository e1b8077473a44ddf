// Warm start: a run saves what the library has learned, and the next one begins with it. Its blocks then come ahead of
// the very first launches.
//
// The same program twice on the simulated GPU, where four of ten tensors fit. Its launches declare nothing (a library's
// do not, for example), so that the first run has to find out by page faults what they touch:
//     cmake --preset release && cmake --build build --target warm_start && build/bin/warm_start

#include <deepum/deepum.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

using namespace deepum::literals;
using word = std::uint32_t;

// Pointers hidden in a struct: the stream cannot see what a launch with it touches.
struct tensors {
  word* to;
  const word* from;
};
const deepum::sim::kernel add{[](tensors t, std::size_t n) {
                                for (std::size_t i = 0; i < n; ++i)
                                  t.to[i] += t.from[i] + 1;
                              },
                              [](deepum::sim::work& w, tensors t, std::size_t n) {
                                w.reads(t.from, n * sizeof(word));
                                w.updates(t.to, n * sizeof(word));
                                w.flops(2.0 * static_cast<double>(n));
                              }};

struct run_result {
  double first_step_ms = 0;  // on the clock of the simulated GPU
  std::uint64_t first_step_faults = 0;
  word last = 0;  // of the contents
  std::string policy{};
};

run_result run(const std::string& tables) {
  constexpr std::size_t n = std::size_t{2} << 20;  // 8 MiB in each tensor
  deepum::sim::device gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = 48_MiB}};
  // No such file yet: the arena begins with nothing. One that is damaged, or of another policy: likewise, with a
  // message.
  deepum::arena arena{gpu, {.capacity = 128_MiB, .device_budget = 32_MiB, .tables = tables}};
  deepum::stream s{arena};

  std::vector<word*> x(10);  // tables name tensors by their place in the arena: allocate in the same order in each run
  for (word*& t : x) {
    t = arena.allocate<word>(n);
    std::ranges::fill(arena.host_overwrite(t, n), word{0});
  }

  run_result result;
  for (int step = 0; step < 4; ++step) {
    const deepum::statistics before = arena.statistics();
    const deepum::nanoseconds begin = gpu.now();
    for (std::size_t i = 1; i < x.size(); ++i)
      s.launch("add", 1024, 256, 0, add, tensors{x[i], x[i - 1]}, n);
    s.synchronize();
    if (step == 0) {
      result.first_step_ms = static_cast<double>((gpu.now() - begin).count()) / 1e6;
      result.first_step_faults = (arena.statistics() - before).faults;
    }
  }
  arena.save_tables(tables);
  result.last = arena.host_read(x.back(), n)[n - 1];
  result.policy = arena.policy_name();  // DEEPUM_POLICY may have chosen another one
  return result;
}

int main() try {
  const std::filesystem::path tables =
      std::filesystem::temp_directory_path() / ("deepum_warm_start_" + std::to_string(::getpid()) + ".tables");
  std::filesystem::remove(tables);
  const run_result cold = run(tables.string());
  const auto size = std::filesystem::file_size(tables);
  const run_result warm = run(tables.string());
  std::filesystem::remove(tables);

  std::printf("first step cold: %7.2f ms, %llu faults\n", cold.first_step_ms,
              static_cast<unsigned long long>(cold.first_step_faults));
  std::printf("first step warm: %7.2f ms, %llu faults, with %llu bytes of tables\n", warm.first_step_ms,
              static_cast<unsigned long long>(warm.first_step_faults), static_cast<unsigned long long>(size));
  // The same on the host, where one word stands for a tensor.
  std::vector<word> expected(10);
  for (int step = 0; step < 4; ++step) {
    for (std::size_t i = 1; i < expected.size(); ++i)
      expected[i] += expected[i - 1] + 1;
  }
  const bool same = cold.last == expected.back() && warm.last == expected.back();
  if (same && cold.policy != "auto" && cold.policy != "deepum") {
    std::printf("right: the same contents, no sooner: the policy '%s' learns nothing\n", cold.policy.c_str());
    return 0;
  }
  const bool sooner = warm.first_step_ms < cold.first_step_ms;
  std::puts(!same ? "WRONG contents" : !sooner ? "WRONG: no sooner" : "right: the same contents, sooner");
  return same && sooner ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "warm_start: %s\n", e.what());
  return 1;
}
