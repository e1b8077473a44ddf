#pragma once

#include "absl/strings/str_format.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/kernels.hpp"
#include "gpu/programs/model_runs.hpp"
#include "nlohmann/json.hpp"
#include <deepum/units.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// What a launch costs where everything fits: many small ones, on plain memory and through the library.
struct launch_costs {
  std::string system{};
  double host_ns = 0;        ///< of the call, median of all rounds
  double host_ns_worst = 0;  ///< of the slowest round
  double more_ns = 0;        ///< of the call, than that of the runtime in the same round; median
  double through_ns = 0;     ///< of each launch, until all have been executed
};

/// All systems take turns, round by round, so that a processor that is slower for a while is so for all of them.
/// @tparam Memory  The library's.
template <class Memory>
class fits_runs {
 public:
  explicit fits_runs(const bench_settings& settings) : settings_(settings) {}

  /// That of the runtime comes first.
  [[nodiscard]] std::vector<launch_costs> run() {
    const memory_pool plain_pool(memory_pool::kind::device, capacity);
    const memory_pool pool(memory_pool::kind::device, capacity);
    hand_arena arena(pool);
    hand_stream stream(arena);
    std::deque<memory_system<Memory>> library;
    std::vector<contestant> all;
    all.push_back(plain(plain_pool));
    all.push_back(through("resident", arena, stream));
    for (const std::string& system : settings_.systems) {
      if (policy_of(system) && system != "once") {
        settings_.say("small launches: " + system);
        memory_system<Memory>& made = library.emplace_back(settings_, system, capacity, capacity);
        all.push_back(through(system, made.arena(), made.stream()));
      }
    }
    return timed(all);
  }

  [[nodiscard]] static std::string table_of(const std::vector<launch_costs>& all) {
    std::string text = absl::StrFormat("\n%d small launches in a round, everything fits\n  %-10s %12s %14s %14s %16s\n",
                                       launches, "", "host", "slowest round", "more", "until executed");
    for (const launch_costs& c : all) {
      absl::StrAppendFormat(&text, "  %-10s %9.0f ns %11.0f ns %11.0f ns %13.0f ns\n", c.system, c.host_ns,
                            c.host_ns_worst, c.more_ns, c.through_ns);
    }
    return text;
  }
  [[nodiscard]] static nlohmann::ordered_json json_of(const std::vector<launch_costs>& all) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const launch_costs& c : all) {
      out.push_back({{"system", c.system},
                     {"host_ns", c.host_ns},
                     {"host_ns_slowest_round", c.host_ns_worst},
                     {"host_ns_more_than_runtime", c.more_ns},
                     {"ns_until_executed", c.through_ns}});
    }
    return out;
  }

 private:
  static constexpr int rounds = 30;
  static constexpr std::size_t launches = 1000;
  static constexpr std::size_t buffers = 16;
  static constexpr std::uint64_t n = 1024;
  static constexpr bytes capacity = block_size * 64;

  struct contestant {
    std::string system{};
    std::function<void()> issue{};  // all launches of a round
    std::function<void()> wait{};
  };

  static std::vector<launch_costs> timed(const std::vector<contestant>& all) {
    using clock = std::chrono::steady_clock;
    const auto ns = [](clock::time_point a, clock::time_point b) {
      return std::chrono::duration<double, std::nano>(b - a).count() / double{launches};
    };
    struct times {
      std::vector<double> host{};
      std::vector<double> more{};
      std::vector<double> through{};
    };
    std::vector<times> of(all.size());
    for (int r = 0; r < rounds + 3; ++r) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].wait();
        const clock::time_point began = clock::now();
        all[i].issue();
        const clock::time_point issued = clock::now();
        all[i].wait();
        const clock::time_point done = clock::now();
        if (r >= 3) {  // the first ones make events and tables
          of[i].host.push_back(ns(began, issued));
          of[i].more.push_back(of[i].host.back() - of.front().host.back());
          of[i].through.push_back(ns(began, done));
        }
      }
    }
    std::vector<launch_costs> out;
    for (std::size_t i = 0; i < all.size(); ++i) {
      out.push_back({all[i].system, quantile(of[i].host, 0.5), quantile(of[i].host, 1), quantile(of[i].more, 0.5),
                     quantile(of[i].through, 0.5)});
    }
    return out;
  }

  /// Nothing but the runtime.
  static contestant plain(const memory_pool& pool) {
    const auto* kernel = reinterpret_cast<const void*>(deepum_gpu_bench_kernels::all().tiny);
    std::byte* const base = pool.base();
    const std::shared_ptr<CUstream_st> q = [] {
      cudaStream_t made = nullptr;
      cuda::check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      return std::shared_ptr<CUstream_st>(made, [](cudaStream_t s) { (void)cuda::succeeded(cudaStreamDestroy(s)); });
    }();
    cuda::check(cudaMemsetAsync(base, 0, pool.size().count, q.get()), "cudaMemsetAsync");
    return {"runtime",
            [=] {
              for (std::size_t i = 0; i < launches; ++i) {
                auto* x = reinterpret_cast<float*>(base + i % buffers * block_size.count);
                std::uint64_t count = n;
                std::array<void*, 2> arguments{&x, &count};
                cuda::check(cudaLaunchKernel(kernel, dim3{4}, dim3{256}, arguments.data(), 0, q.get()),
                            "cudaLaunchKernel");
              }
            },
            [=] { cuda::check(cudaStreamSynchronize(q.get()), "cudaStreamSynchronize"); }};
  }
  template <class Arena, class Stream>
  static contestant through(const std::string& system, Arena& arena, Stream& stream) {
    std::vector<float*> x;
    for (std::size_t i = 0; i < buffers; ++i) {
      x.push_back(arena.template allocate<float>(block_size.count / sizeof(float)));
      stream.memset(x.back(), 0, block_size);
    }
    const auto kernel = deepum_gpu_bench_kernels::all().tiny;
    return {system,
            [x, kernel, &stream] {
              for (std::size_t i = 0; i < launches; ++i) {
                stream.launch("tiny", 4, 256, 0, kernel, x[i % buffers], n);
              }
            },
            [&stream] { stream.synchronize(); }};
  }

  const bench_settings& settings_;
};

}  // namespace deepum::gpu_bench
