// What a launch costs the host beside CUDA when everything is resident: through the public face, on both memory kinds,
// with a CUDA runtime that does nothing (null_cuda.hpp). A step of a thousand launches is repeated.
//
// Counters: `ns` is the host's time for a launch in the mean, `ns_p50` in the middle, `ns_p99` that of the slowest but
// one of a hundred, all with two readings of the clock; `ns_elsewhere` what a launch costs the thread that plans;
// `cuda_calls` how often CUDA is called for a launch, that of the launch itself included, with a counter for each of
// these functions. `without_library` is the launch alone.
#include "null_cuda.hpp"
#include <deepum/cuda.hpp>
#include <deepum/deepum.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace deepum;
using namespace deepum::literals;

constexpr std::size_t launches_of_step = 1000;
constexpr std::size_t warm_up = 40;  // steps, after which ends of launches are neither timed nor marked each
constexpr std::size_t steps = 200;

void kernel(float* /*y*/, const float* /*x*/, const float* /*w*/, std::uint64_t /*n*/) {}

// Apart, so that tools which count instructions can be told to count these alone.
template <class Launch>
[[gnu::noinline]] void one_launch(Launch&& launch, std::size_t i) {
  launch(i);
}

// Does the step's launches. `launch(i)` does one of them, `between()` what another thread does meanwhile.
template <class Launch, class Between>
void measured_step(Launch&& launch, Between&& between, std::vector<double>& ns) {
  using clock = std::chrono::steady_clock;
  for (std::size_t i = 0; i != launches_of_step; ++i) {
    const clock::time_point begin = clock::now();
    one_launch(launch, i);
    ns.push_back(std::chrono::duration<double, std::nano>(clock::now() - begin).count());
    if (i % 100 == 99) {
      between();
    }
  }
}

template <class Launch, class Warm, class Between>
void measure(benchmark::State& state, Launch&& launch, Warm&& warm, Between&& between) {
  using clock = std::chrono::steady_clock;
  constexpr double launches = steps * launches_of_step;
  std::vector<double> ns;
  ns.reserve(steps * launches_of_step);
  for (std::size_t i = 0; i != warm_up * launches_of_step; ++i) {
    launch(i % launches_of_step);
    if (i % 100 == 99) {
      between();
    }
  }
  warm();
  clock::duration elsewhere{};
  const auto timed_between = [&] {
    const clock::time_point begin = clock::now();
    between();
    elsewhere += clock::now() - begin;
  };
  for (std::size_t i = 0; i != steps; ++i) {
    measured_step(launch, timed_between, ns);
  }
  const std::map<std::string, std::uint64_t> before = deepum_bench::null_cuda::calls();
  for (std::size_t i = 0; i != launches_of_step; ++i) {
    launch(i);
  }
  double all = 0;
  for (const auto& [name, count] : deepum_bench::null_cuda::calls()) {
    const double each = static_cast<double>(count - before.at(name)) / launches_of_step;
    all += each;
    if (each != 0) {
      state.counters[name] = each;
    }
  }
  state.counters["cuda_calls"] = all;
  state.counters["ns"] = std::accumulate(ns.begin(), ns.end(), 0.0) / launches;
  std::sort(ns.begin(), ns.end());
  state.counters["ns_p50"] = ns[ns.size() / 2];
  state.counters["ns_p99"] = ns[ns.size() * 99 / 100];
  state.counters["ns_elsewhere"] = std::chrono::duration<double, std::nano>(elsewhere).count() / launches;
}

void without_library(benchmark::State& state) {
  for (auto _ : state) {
    float* x = nullptr;
    std::uint64_t n = 0;
    std::vector<void*> arguments{&x, &x, &x, &n};
    measure(
        state,
        [&](std::size_t i) {
          n = i;
          (void)cudaLaunchKernel(reinterpret_cast<const void*>(&kernel), dim3{1, 1, 1}, dim3{1, 1, 1}, arguments.data(),
                                 0, nullptr);
        },
        [] {}, [] {});
  }
}
BENCHMARK(without_library)->Iterations(1)->Unit(benchmark::kMillisecond);

template <class Memory>
void launches(benchmark::State& state, const char* policy) {
  const auto live = static_cast<std::size_t>(state.range(0));
  const auto open = static_cast<std::size_t>(state.range(1));
  for (auto _ : state) {
    try {
      cuda::device gpu{0, {.faults = cuda::fault_source::none, .chunk = 2_MiB}};
      arena<Memory> memory{gpu, {.capacity = 2_GiB, .device_budget = 2_GiB, .policy = policy, .log = {}}};
      std::vector<float*> data;
      for (std::size_t i = 0; i != live; ++i) {
        data.push_back(memory.template allocate<float>(1024));
      }
      std::vector<std::unique_ptr<stream<Memory>>> streams;
      for (std::size_t i = 0; i != open; ++i) {
        streams.push_back(std::make_unique<stream<Memory>>(memory));
      }
      measure(
          state,
          [&](std::size_t i) {
            const auto operand = [&](std::size_t k) { return data[(i * 3 + k) * 7919 % live]; };
            streams[i % open]->launch("kernel", 1, 1, 0, kernel, operand(0), reads(operand(1), 1024),
                                      reads(operand(2), 1024), std::uint64_t{1024});
          },
          // Its thread would be in the way of this one, where there are few cores.
          [&] { memory.memory().detach(); }, [&] { memory.engine().pump(); });
    } catch (const std::exception& e) {
      state.SkipWithError(e.what());
    }
  }
}
// A step as frameworks do it: each launch of its first half allocates its result in stream order, which lives until the
// launch in the second half that reads it.
template <class Memory>
void temporaries(benchmark::State& state, const char* policy) {
  for (auto _ : state) {
    try {
      cuda::device gpu{0, {.faults = cuda::fault_source::none, .chunk = 2_MiB}};
      arena<Memory> memory{gpu, {.capacity = 2_GiB, .device_budget = 2_GiB, .policy = policy, .log = {}}};
      stream<Memory> s{memory};
      float* const weights = memory.template allocate<float>(1 << 20);
      std::vector<float*> results(launches_of_step / 2, nullptr);
      measure(
          state,
          [&](std::size_t i) {
            const bool forward = i < results.size();
            float*& result = results[forward ? i : launches_of_step - 1 - i];
            if (forward) {
              result = static_cast<float*>(s.allocate_bytes(bytes{std::uint64_t{1} << (12 + i % 10)}));
            }
            s.launch("kernel", 1, 1, 0, kernel, result, reads(weights, 1024), reads(weights, 1024),
                     std::uint64_t{1024});
            if (!forward) {
              s.deallocate(result);
            }
          },
          [&] { memory.memory().detach(); }, [&] { memory.engine().pump(); });
    } catch (const std::exception& e) {
      state.SkipWithError(e.what());
    }
  }
}
void managed_auto_temporaries(benchmark::State& state) { temporaries<cuda::managed_memory>(state, "auto"); }
void managed_um_temporaries(benchmark::State& state) { temporaries<cuda::managed_memory>(state, "um"); }
void paged_auto_temporaries(benchmark::State& state) { temporaries<cuda::paged_memory>(state, "auto"); }
void managed_auto(benchmark::State& state) { launches<cuda::managed_memory>(state, "auto"); }
void managed_um(benchmark::State& state) { launches<cuda::managed_memory>(state, "um"); }
void paged_auto(benchmark::State& state) { launches<cuda::paged_memory>(state, "auto"); }
void paged_um(benchmark::State& state) { launches<cuda::paged_memory>(state, "um"); }

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"allocations", "streams"})->Iterations(1)->Unit(benchmark::kMillisecond);
  for (const std::int64_t live : {10, 100'000}) {
    for (const std::int64_t open : {1, 16}) {
      b->Args({live, open});
    }
  }
}
BENCHMARK(managed_auto)->Apply(sizes);
BENCHMARK(managed_um)->Apply(sizes);
BENCHMARK(paged_auto)->Apply(sizes);
BENCHMARK(paged_um)->Apply(sizes);
BENCHMARK(managed_auto_temporaries)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(managed_um_temporaries)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(paged_auto_temporaries)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
