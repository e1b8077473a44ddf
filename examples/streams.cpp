// Several streams: two pipelines, each on a stream of its own, share one arena and its budget. The second one copies
// what the first one makes to the host, beside its next step; events order that. Launches of the two mix in time, but
// what follows which is kept for each stream, so that both are foreseen.
//
// On the simulated GPU, where eight of the fourteen buffers fit:
//     cmake --preset release && cmake --build build --target streams && build/bin/streams

#include <deepum/deepum.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

using namespace deepum::literals;
using word = std::uint32_t;

// A kernel of the simulated GPU: to[i] += from[i], and what that touches and costs.
const deepum::sim::kernel add{[](word* to, const word* from, std::size_t n) {
                                for (std::size_t i = 0; i < n; ++i)
                                  to[i] += from[i];
                              },
                              [](deepum::sim::work& w, word* to, const word* from, std::size_t n) {
                                w.reads(from, n * sizeof(word));
                                w.updates(to, n * sizeof(word));
                                w.flops(2e4 * static_cast<double>(n));  // as if it computed for half a millisecond
                              }};

int main() try {
  constexpr std::size_t n = std::size_t{2} << 20;  // 8 MiB in each buffer
  constexpr int steps = 6;
  deepum::sim::device gpu{deepum::sim::find_profile("h200_pcie5"), {.memory = 96_MiB}};
  deepum::arena arena{gpu, {.capacity = 256_MiB, .device_budget = 64_MiB}};
  deepum::stream producer{arena};
  deepum::stream consumer{arena};

  std::vector<word*> a(8);
  std::vector<word*> b(6);
  for (std::vector<word*>* buffers : {&a, &b}) {
    for (word*& x : *buffers) {
      x = arena.allocate<word>(n);
      producer.memset(x, 0, deepum::bytes{n * sizeof(word)});
    }
  }
  producer.synchronize();
  std::ranges::fill(arena.host_overwrite(a[0], n), word{1});
  std::ranges::fill(arena.host_overwrite(b[0], n), word{1});

  std::vector<std::vector<word>> results(steps, std::vector<word>(n));
  decltype(producer)::event_type produced;
  decltype(producer)::event_type taken;  // an event that was never recorded counts as reached
  deepum::statistics before = arena.statistics();
  for (int step = 1; step <= steps; ++step) {
    producer.wait(taken);  // the last buffer of the step before
    for (std::size_t i = 1; i < a.size(); ++i)
      producer.launch("produce", 1024, 256, 0, add, a[i], a[i - 1], n);
    producer.record(produced);

    consumer.wait(produced);
    consumer.memcpy(results[static_cast<std::size_t>(step - 1)].data(), a.back(), deepum::bytes{n * sizeof(word)});
    consumer.record(taken);
    for (std::size_t i = 1; i < b.size(); ++i)
      consumer.launch("consume", 1024, 256, 0, add, b[i], b[i - 1], n);
    if (step % 2 == 0) {
      producer.synchronize();
      consumer.synchronize();
      const deepum::statistics now = arena.statistics();
      const deepum::statistics both = now - before;
      before = now;
      std::printf("steps %d and %d: %llu launches, %llu faults, %.0f MiB in, %.0f MiB out\n", step - 1, step,
                  static_cast<unsigned long long>(both.launches), static_cast<unsigned long long>(both.faults),
                  static_cast<double>(both.in().all_bytes()) / 1048576,
                  static_cast<double>(both.out().all_bytes()) / 1048576);
    }
  }

  // The same on the host, where one word stands for a buffer.
  std::vector<word> expected_a(a.size());
  std::vector<word> expected_b(b.size());
  expected_a[0] = expected_b[0] = 1;
  bool right = true;
  for (const std::vector<word>& result : results) {
    for (std::vector<word>* buffers : {&expected_a, &expected_b}) {
      for (std::size_t i = 1; i < buffers->size(); ++i)
        (*buffers)[i] += (*buffers)[i - 1];
    }
    right = right && std::ranges::all_of(result, [&](word x) { return x == expected_a.back(); });
  }
  for (const word x : arena.host_read(b.back(), n))
    right = right && x == expected_b.back();
  std::printf("%s: the pipelines end with %u and %u\n", right ? "right" : "WRONG", expected_a.back(),
              expected_b.back());
  return right ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "streams: %s\n", e.what());
  return 1;
}
