#pragma once

#include "absl/strings/str_format.h"
#include "bench_system.hpp"
#include "hand_memory.hpp"
#include "kernels.hpp"
#include "model_runs.hpp"
#include "nlohmann/json.hpp"
#include <deepum/units.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// What a launch costs where everything fits: many small ones, on plain memory and through the library.
struct launch_costs {
  std::string system{};
  double host_ns = 0;        ///< of the call, median of all rounds
  double host_ns_worst = 0;  ///< of the slowest round
  double through_ns = 0;     ///< of each launch, until all have been executed
};

/// @tparam Memory  The library's.
template <class Memory>
class fits_runs {
 public:
  explicit fits_runs(const bench_settings& settings) : settings_(settings) {}

  [[nodiscard]] std::vector<launch_costs> run() {
    std::vector<launch_costs> out;
    out.push_back(plain());
    {
      const memory_pool pool(memory_pool::kind::device, capacity);
      hand_arena arena(pool);
      hand_stream stream(arena);
      out.push_back(small_launches("resident", arena, stream));
    }
    for (const std::string& system : settings_.systems) {
      if (policy_of(system) && system != "once") {
        settings_.say("small launches: " + system);
        memory_system<Memory> sys(settings_, system, capacity, capacity);
        out.push_back(small_launches(system, sys.arena(), sys.stream()));
      }
    }
    return out;
  }

  [[nodiscard]] static std::string table_of(const std::vector<launch_costs>& all) {
    std::string text = absl::StrFormat("\n%d small launches in a round, everything fits\n  %-10s %12s %14s %16s\n",
                                       launches, "", "host", "slowest round", "until executed");
    for (const launch_costs& c : all) {
      absl::StrAppendFormat(&text, "  %-10s %9.0f ns %11.0f ns %13.0f ns\n", c.system, c.host_ns, c.host_ns_worst,
                            c.through_ns);
    }
    return text;
  }
  [[nodiscard]] static nlohmann::ordered_json json_of(const std::vector<launch_costs>& all) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const launch_costs& c : all) {
      out.push_back({{"system", c.system},
                     {"host_ns", c.host_ns},
                     {"host_ns_slowest_round", c.host_ns_worst},
                     {"ns_until_executed", c.through_ns}});
    }
    return out;
  }

 private:
  static constexpr int rounds = 30;
  static constexpr int launches = 1000;
  static constexpr std::size_t buffers = 16;
  static constexpr std::uint64_t n = 1024;
  static constexpr bytes capacity = block_size * 64;

  template <class Launch, class Wait>
  static launch_costs timed(std::string system, Launch&& launch, Wait&& wait) {
    using clock = std::chrono::steady_clock;
    const auto ns = [](clock::time_point a, clock::time_point b) {
      return std::chrono::duration<double, std::nano>(b - a).count() / launches;
    };
    std::vector<double> host;
    std::vector<double> through;
    for (int r = 0; r < rounds + 3; ++r) {
      wait();
      const clock::time_point began = clock::now();
      for (std::size_t i = 0; i < launches; ++i) {
        launch(i % buffers);
      }
      const clock::time_point issued = clock::now();
      wait();
      const clock::time_point done = clock::now();
      if (r >= 3) {  // the first ones make events and tables
        host.push_back(ns(began, issued));
        through.push_back(ns(began, done));
      }
    }
    return {std::move(system), quantile(host, 0.5), quantile(host, 1), quantile(through, 0.5)};
  }

  /// Nothing but the runtime.
  static launch_costs plain() {
    const memory_pool pool(memory_pool::kind::device, capacity);
    cudaStream_t q = nullptr;
    cuda::check(cudaStreamCreateWithFlags(&q, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    cuda::check(cudaMemsetAsync(pool.base(), 0, pool.size().count, q), "cudaMemsetAsync");
    const auto* kernel = reinterpret_cast<const void*>(deepum_gpu_bench_kernels::all().tiny);
    const launch_costs costs = timed(
        "runtime",
        [&](std::size_t i) {
          auto* x = reinterpret_cast<float*>(pool.base() + i * block_size.count);
          std::uint64_t count = n;
          std::array<void*, 2> arguments{&x, &count};
          cuda::check(cudaLaunchKernel(kernel, dim3{4}, dim3{256}, arguments.data(), 0, q), "cudaLaunchKernel");
        },
        [&] { cuda::check(cudaStreamSynchronize(q), "cudaStreamSynchronize"); });
    (void)cuda::worked(cudaStreamDestroy(q));
    return costs;
  }
  template <class Arena, class Stream>
  static launch_costs small_launches(const std::string& system, Arena& arena, Stream& stream) {
    std::vector<float*> x;
    for (std::size_t i = 0; i < buffers; ++i) {
      x.push_back(arena.template allocate<float>(block_size.count / sizeof(float)));
      stream.memset(x.back(), 0, block_size);
    }
    const auto kernel = deepum_gpu_bench_kernels::all().tiny;
    return timed(
        system, [&](std::size_t i) { stream.launch("tiny", 4, 256, 0, kernel, x[i], n); },
        [&] { stream.synchronize(); });
  }

  const bench_settings& settings_;
};

}  // namespace deepum::gpu_bench
