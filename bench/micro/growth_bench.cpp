// Whether what a long program does goes on costing what it cost at first, in time and in memory: launches by the
// million, streams and residencies opened and closed, allocations made and given back, host accesses between them. All
// of it runs on the simulated GPU under the default policy, through the public face; the cost of the simulator is in
// the times.
//
// `us_early` and `us_late` are the host's microseconds of CPU time for an operation in the second and in the last tenth
// of the run; `heap_early` and `heap_late` the bytes of heap at the end of these. A cost that levels off has late
// values near the early ones. Numbers are those of one run: a run is long enough to need no repetition.

#include <deepum/deepum.hpp>

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <memory>
#include <vector>

namespace {

using namespace deepum;
using namespace deepum::literals;

const auto nothing = sim::kernel(
    "nothing", [](float*, std::uint64_t) {},
    [](sim::work& w, float* x, std::uint64_t) { w.updates(x, sizeof(float)); });

sim::device_options with_memory(bytes size) {
  sim::device_options options;
  options.memory = size;
  return options;
}

// A device, and an arena on it that has a word for errors only.
struct machine {
  explicit machine(bytes capacity, bytes device = 1_GiB)
      : gpu(sim::find_profile("h200_pcie5"), with_memory(device)),
        memory(gpu, {.capacity = capacity, .device_budget = device, .log = {}}) {}

  sim::device gpu;
  arena<sim::managed_memory> memory;
};

double heap_in_use() { return static_cast<double>(::mallinfo2().uordblks + ::mallinfo2().hblkhd); }

// Does `operation(i)` that many times.
template <class Operation>
void measure(benchmark::State& state, std::uint64_t count, Operation&& operation) {
  const auto cpu_us = [] { return static_cast<double>(std::clock()) * 1e6 / CLOCKS_PER_SEC; };
  const std::uint64_t tenth = count / 10;
  std::array<double, 10> us{};
  std::array<double, 10> heap{};
  for (std::size_t part = 0; part != us.size(); ++part) {
    const double begin = cpu_us();
    for (std::uint64_t i = part * tenth; i != (part + 1) * tenth; ++i) {
      operation(i);
    }
    us[part] = (cpu_us() - begin) / static_cast<double>(tenth);
    heap[part] = heap_in_use();
  }
  state.counters["us_early"] = us[1];
  state.counters["us_late"] = us.back();
  state.counters["heap_early"] = heap[1];
  state.counters["heap_late"] = heap.back();
}

// Runs the whole program once; what it throws is its result.
template <class Program>
void once(benchmark::State& state, Program&& program) {
  for (auto _ : state) {
    try {
      program();
    } catch (const std::exception& e) {
      state.SkipWithError(e.what());
    }
  }
}

// So many streams are open. Either one of them launches, or all take turns.
void launches(benchmark::State& state) {
  const auto open = static_cast<std::size_t>(state.range(0));
  const bool all = state.range(1) != 0;
  once(state, [&] {
    machine m(2_GiB);
    std::vector<std::unique_ptr<stream<sim::managed_memory>>> streams;
    std::vector<float*> data;
    for (std::size_t i = 0; i != open; ++i) {
      streams.push_back(std::make_unique<stream<sim::managed_memory>>(m.memory));
      data.push_back(m.memory.allocate<float>(1024));
      streams[i]->launch("first", 1, 1, 0, nothing, data[i], std::uint64_t{0});
    }
    measure(state, 1'000'000, [&](std::uint64_t i) {
      const std::size_t k = all ? i % open : 0;
      streams[k]->launch("again", 1, 1, 0, nothing, data[k], std::uint64_t{0});
      if (i % 1000 == 999) {
        streams[k]->synchronize();  // of the launches in turn this was the last one
      }
    });
  });
}
BENCHMARK(launches)
    ->ArgNames({"streams", "all_launch"})
    ->Args({1, 0})
    ->Args({1000, 0})
    ->Args({1000, 1})
    ->Iterations(1)
    ->Unit(benchmark::kSecond);

// More launches than execution IDs are kept, over and over: each is forgotten by the time it comes again.
void distinct_launches(benchmark::State& state) {
  once(state, [&] {
    machine m(2_GiB, 64_MiB);
    std::vector<float*> data;
    for (std::size_t i = 0; i != 96; ++i) {
      data.push_back(m.memory.allocate<float>((2_MiB).count / sizeof(float)));
    }
    stream s{m.memory};
    measure(state, 300'000, [&](std::uint64_t i) {
      const std::uint64_t launch = i % 70'000;
      s.launch("distinct", 1, 1, 0, nothing, updates(data[launch * 31 % 96], 1), launch);
    });
    s.synchronize();
    state.counters["faults"] = static_cast<double>(m.memory.statistics().faults);
  });
}
BENCHMARK(distinct_launches)->Iterations(1)->Unit(benchmark::kSecond);

// A stream for each request, as servers have it.
void streams_opened_and_closed(benchmark::State& state) {
  once(state, [&] {
    machine m(2_GiB);
    float* const x = m.memory.allocate<float>(1024);
    measure(state, 100'000, [&](std::uint64_t) {
      stream s{m.memory};
      s.launch("request", 1, 1, 0, nothing, x, std::uint64_t{0});
    });
  });
}
BENCHMARK(streams_opened_and_closed)->Iterations(1)->Unit(benchmark::kSecond);

void residencies(benchmark::State& state) {
  once(state, [&] {
    machine m(2_GiB);
    float* const x = m.memory.allocate<float>(1024);
    measure(state, 100'000, [&](std::uint64_t) { const auto held = m.memory.hold({reads(x, 1024)}); });
  });
}
BENCHMARK(residencies)->Iterations(1)->Unit(benchmark::kSecond);

// Allocations of this size that stay, so many of them.
void allocations(benchmark::State& state) {
  const bytes size{static_cast<std::uint64_t>(state.range(0))};
  once(state, [&] {
    machine m(256_GiB);
    measure(state, 100'000, [&](std::uint64_t) {
      benchmark::DoNotOptimize(m.memory.allocate_bytes(size));
      m.gpu.host_work(std::chrono::microseconds(1));
    });
  });
}
BENCHMARK(allocations)
    ->ArgName("bytes")
    ->Arg(256)
    ->Arg(1 << 20)
    ->Arg(3 << 19)
    ->Arg(2 << 20)
    ->Iterations(1)
    ->Unit(benchmark::kSecond);

// Given back at once, without a launch between.
void allocations_given_back(benchmark::State& state) {
  once(state, [&] {
    machine m(2_GiB);
    measure(state, 1'000'000,
            [&](std::uint64_t i) { m.memory.deallocate(m.memory.allocate_bytes(bytes{1 + i % 4'000'000})); });
  });
}
BENCHMARK(allocations_given_back)->Iterations(1)->Unit(benchmark::kSecond);

// The host alone uses the memory.
void host_accesses(benchmark::State& state) {
  once(state, [&] {
    machine m(2_GiB);
    float* const x = m.memory.allocate<float>(1024);
    measure(state, 1'000'000, [&](std::uint64_t) { m.memory.host_write(x, 1024)[0] = 1; });
  });
}
BENCHMARK(host_accesses)->Iterations(1)->Unit(benchmark::kSecond);

// A launch that names so many parts of an allocation, every other one overwritten.
void operands_of_a_launch(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  once(state, [&] {
    machine m(8_GiB, 8_GiB);
    const std::size_t n = (2_MiB).count / sizeof(float);
    float* const x = m.memory.allocate<float>(n * count);
    std::vector<operand> operands;
    for (std::size_t i = 0; i != count; ++i) {
      const operand whole = overwrites(x + i * n, n);
      operands.push_back(i % 2 == 0 ? whole : operand(reads(x + i * n, n)));
    }
    stream s{m.memory};
    measure(state, 2'000, [&](std::uint64_t) {
      s.call("many", operands, [&](auto& native) { native.launch(1, 1, 0, nothing, x, std::uint64_t{0}); });
    });
  });
}
BENCHMARK(operands_of_a_launch)->ArgName("operands")->Arg(10)->Arg(1000)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
