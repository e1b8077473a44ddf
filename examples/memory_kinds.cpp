// Choosing a memory kind: one program on managed memory, whose pages the driver moves, and on paged memory, which
// never faults. The program is a template; what differs is the type of the arena. See docs/paged_memory.md.
//
// On the simulated GPU, where five of twelve buffers fit:
//     cmake --preset release && cmake --build build --target memory_kinds && build/bin/memory_kinds

#include <deepum/deepum.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

using namespace deepum::literals;
using word = std::uint32_t;

// y[i] = 3 * y[i] + x[i]
const deepum::sim::kernel mix{[](word* y, const word* x, std::size_t n) {
                                for (std::size_t i = 0; i < n; ++i)
                                  y[i] = 3 * y[i] + x[i];
                              },
                              [](deepum::sim::work& w, word* y, const word* x, std::size_t n) {
                                w.reads(x, n * sizeof(word));
                                w.updates(y, n * sizeof(word));
                                w.flops(2.0 * static_cast<double>(n));
                              }};

// The sum of all contents after some steps. Prints what the last step moved.
template <class Memory>
word run(const char* kind) {
  constexpr std::size_t n = std::size_t{2} << 20;  // 8 MiB in each buffer
  deepum::sim::device gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = 56_MiB}};
  deepum::arena<Memory> arena{gpu, {.capacity = 128_MiB, .device_budget = 40_MiB}};
  deepum::stream<Memory> s{arena};

  std::vector<word*> x(12);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = arena.template allocate<word>(n);
    // The host goes through views. Managed memory has its contents at x[i] itself, paged memory elsewhere.
    const auto view = arena.host_overwrite(x[i], n);
    std::ranges::fill(view, static_cast<word>(i));
  }

  for (int step = 1; step <= 5; ++step) {
    const deepum::statistics before = arena.statistics();
    const deepum::nanoseconds begin = gpu.now();
    // Every operand is named: on managed memory that is a help, on paged memory a launch may touch nothing else.
    for (std::size_t i = 0; i < x.size(); ++i)
      s.launch("mix", 1024, 256, 0, mix, deepum::updates(x[i], n), deepum::reads(x[(i + 1) % x.size()], n), n);
    s.synchronize();
    if (step == 5) {
      const deepum::statistics moved = arena.statistics() - before;
      std::printf("%s: %6.2f ms, %llu faults, %.0f MiB in, %.0f MiB out\n", kind,
                  static_cast<double>((gpu.now() - begin).count()) / 1e6, static_cast<unsigned long long>(moved.faults),
                  static_cast<double>(moved.in().all_bytes()) / 1048576,
                  static_cast<double>(moved.out().all_bytes()) / 1048576);
    }
  }

  word sum = 0;
  for (const word* p : x) {
    for (const word value : arena.host_read(p, n))
      sum += value;
  }
  return sum;
}

int main() try {
  const word managed = run<deepum::sim::managed_memory>("managed");
  const word paged = run<deepum::sim::paged_memory>("paged  ");

  // The same on the host, where one word stands for a buffer.
  std::vector<word> expected(12);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = static_cast<word>(i);
  for (int step = 0; step < 5; ++step) {
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = 3 * expected[i] + expected[(i + 1) % expected.size()];
  }
  word sum = 0;
  for (const word value : expected)
    sum += value << 21U;  // times the words of a buffer
  const bool right = managed == sum && paged == sum;
  std::puts(right ? "right: the same contents" : "WRONG");
  return right ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "memory_kinds: %s\n", e.what());
  return 1;
}
