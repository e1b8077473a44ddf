#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/kernels.hpp"
#include "gpu/library/report.hpp"
#include "gpu/programs/churn_shape.hpp"
#include "nlohmann/json.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/error.hpp>
#include <deepum/operand.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// Launches that compute, one after the other, on a stream and a host thread of their own, while something else goes
/// on. They touch no memory that moves.
class computing {
 public:
  /// Waits until the first ones run.
  /// @errors  `status::device_failure`.
  explicit computing(unsigned rounds) {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    thread_ = std::thread([this, rounds] {
      try {
        work(rounds);
      } catch (...) {
        failure_ = std::current_exception();
        runs_ = true;
      }
    });
    while (!runs_.load()) {
      std::this_thread::yield();
    }
  }
  ~computing() {
    end();
    (void)cuda::succeeded(cudaStreamDestroy(stream_));
  }
  computing(const computing&) = delete;
  computing& operator=(const computing&) = delete;

  /// Ends it. @returns  Nanoseconds of each launch, mean of all.
  /// @errors  `status::device_failure`.
  [[nodiscard]] double launch_ns() {
    end();
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    return ns_ / static_cast<double>(launches_);
  }

 private:
  static constexpr int each = 8;          // launches of a batch
  static constexpr unsigned blocks = 64;  // half of a large GPU: what else goes on has room
  static constexpr unsigned threads = 256;

  void end() {
    stop_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  /// One batch runs while the next one is in the queue, so that what is slow is the device and not the host.
  void work(unsigned rounds) {
    const memory_pool word(memory_pool::kind::device, bytes{sizeof(float)});
    auto* x = reinterpret_cast<float*>(word.base());
    std::array<void*, 2> arguments{&x, &rounds};
    const auto* kernel = reinterpret_cast<const void*>(deepum_gpu_bench_kernels::all().compute);
    std::array<cudaEvent_t, 2> ends{};
    for (cudaEvent_t& e : ends) {
      cuda::check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    std::uint64_t batches = 0;
    const auto launch = [&] {
      for (int i = 0; i < each; ++i) {
        cuda::check(cudaLaunchKernel(kernel, dim3{blocks}, dim3{threads}, arguments.data(), 0, stream_),
                    "cudaLaunchKernel");
      }
      cuda::check(cudaEventRecord(ends[batches % ends.size()], stream_), "cudaEventRecord");
      ++batches;
    };
    const auto await_last_but_one = [&] {
      cuda::check(cudaEventSynchronize(ends[batches % ends.size()]), "cudaEventSynchronize");
    };
    launch();
    launch();
    await_last_but_one();
    runs_ = true;
    const auto began = std::chrono::steady_clock::now();
    do {
      launch();
      await_last_but_one();
      launches_ += each;
    } while (!stop_.load());
    ns_ = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - began).count();
    cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    for (const cudaEvent_t e : ends) {
      (void)cuda::succeeded(cudaEventDestroy(e));
    }
  }

  cudaStream_t stream_ = nullptr;
  std::atomic<bool> runs_{false};
  std::atomic<bool> stop_{false};
  std::exception_ptr failure_{};
  std::uint64_t launches_ = 0;
  double ns_ = 0;
  std::thread thread_{};
};

/// What one way of moving memory both ways at once has reached.
struct churn_result {
  std::string name{};
  std::string skipped{};
  std::uint64_t chunk = 0;
  double in = 0;  ///< bytes a second, while computing goes on beside it
  double out = 0;
  double in_alone = 0;  ///< the same without it
  double out_alone = 0;
  double slowdown = 0;  ///< of what computes, as a factor
  std::vector<std::int64_t> sweep_ns{};
  counters did{};  ///< of all sweeps beside the computing
};

/// A plain sweep that updates all memory, launch by launch, through a budget that a part of it fits into: everything
/// comes and goes in each round, both ways at once, beside launches that compute. Against copies of pinned memory.
/// @tparam Memory  Paged memory is what this is about; any will do.
template <class Memory>
class churn_runs {
 public:
  /// @param chunks  Sizes to try; 0: what the memory chooses.
  churn_runs(bench_settings settings, const churn_shape& shape, std::vector<bytes> chunks, unsigned compute_rounds)
      : settings_(std::move(settings)),
        shape_(shape),
        chunks_(std::move(chunks)),
        rounds_(compute_rounds) {}

  /// @errors  `status::device_failure`; `status::invalid_argument` where the sweeps compute something wrong.
  [[nodiscard]] std::vector<churn_result> run() {
    std::vector<churn_result> out;
    alone_ns_ = computing_alone();
    out.push_back(pinned());
    for (const std::string& system : settings_.systems) {
      if (!policy_of(system) || system == "once") {
        continue;
      }
      for (const bytes chunk : chunks_) {
        settings_.say(absl::StrFormat("churn: %s, chunks of %d MiB", system, chunk.count >> 20));
        churn_result r{.name = system, .chunk = chunk.count};
        try {
          sweep(r);
        } catch (const error& e) {
          if (e.code() == status::device_failure || wrong_) {
            throw;
          }
          r.skipped = e.what();
        }
        out.push_back(std::move(r));
      }
    }
    return out;
  }

  [[nodiscard]] std::string table_of(const std::vector<churn_result>& all) const {
    std::string text = absl::StrFormat(
        "\nchurn: %d MiB of %s memory in groups of %d MiB through %d MiB, at least %d MiB each way in a sweep\n"
        "  %-12s %9s %9s %9s %9s %9s %10s\n",
        shape_.size.count >> 20, name_of_memory<Memory>, shape_.group.count >> 20, shape_.budget.count >> 20,
        least_bytes_of_sweep(shape_) >> 20, "", "chunk MiB", "in GB/s", "out GB/s", "in alone", "out alone", "compute");
    for (const churn_result& r : all) {
      if (!r.skipped.empty()) {
        absl::StrAppendFormat(&text, "  %-12s %9d %s\n", r.name, r.chunk >> 20, r.skipped);
        continue;
      }
      absl::StrAppendFormat(&text, "  %-12s %9d %9.1f %9.1f %9.1f %9.1f %9.3fx\n", r.name, r.chunk >> 20, r.in / 1e9,
                            r.out / 1e9, r.in_alone / 1e9, r.out_alone / 1e9, r.slowdown);
    }
    return text;
  }
  [[nodiscard]] nlohmann::ordered_json json_of(const std::vector<churn_result>& all) const {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const churn_result& r : all) {
      nlohmann::ordered_json one{{"memory", name_of_memory<Memory>}, {"system", r.name}, {"chunk_bytes", r.chunk}};
      if (!r.skipped.empty()) {
        one["skipped"] = r.skipped;
      } else {
        one.update({{"in_each_second", r.in},
                    {"out_each_second", r.out},
                    {"in_each_second_alone", r.in_alone},
                    {"out_each_second_alone", r.out_alone},
                    {"compute_slowdown", r.slowdown},
                    {"bytes_in", r.did.in},
                    {"bytes_out", r.did.out},
                    {"faults", r.did.faults},
                    {"stalled_ns", r.did.stalled_ns},
                    {"sweep_ns", r.sweep_ns}});
      }
      out.push_back(std::move(one));
    }
    return {{"size_bytes", shape_.size.count},      {"budget_bytes", shape_.budget.count},
            {"group_bytes", shape_.group.count},    {"least_bytes_each_way", least_bytes_of_sweep(shape_)},
            {"compute_launch_ns_alone", alone_ns_}, {"runs", out}};
  }

 private:
  using word = deepum_gpu_bench_kernels::word;
  static constexpr unsigned grid = 66;  // the other half of a large GPU: what is measured is not who shares processors
  static constexpr unsigned block = 512;
  static constexpr std::int64_t warm_up = 2;  // sweeps, behind the first one

  [[nodiscard]] std::uint64_t words() const { return shape_.group.count / sizeof(word); }
  /// The same in every sweep, as arguments of a step that recurs are.
  [[nodiscard]] static word value_of(std::uint64_t group) { return static_cast<word>(group * 1000 + 1); }

  double computing_alone() const {
    computing load(rounds_);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return load.launch_ns();
  }

  /// Copies between pinned and device memory, both ways at once.
  churn_result pinned() {
    settings_.say("churn: pinned copies");
    churn_result r{.name = "pinned", .chunk = shape_.group.count};
    const memory_pool host(memory_pool::kind::pinned, 2 * shape_.group);
    const memory_pool device(memory_pool::kind::device, 2 * shape_.group);
    std::array<cudaStream_t, 2> q{};
    for (cudaStream_t& each : q) {
      cuda::check(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    const std::uint64_t n = shape_.group.count;
    const auto rate = [&] {
      const std::uint64_t copies =
          std::max<std::uint64_t>(1, shape_.groups() * static_cast<std::uint64_t>(shape_.sweeps));
      const auto began = std::chrono::steady_clock::now();
      for (std::uint64_t i = 0; i < copies; ++i) {
        cuda::check(cudaMemcpyAsync(device.base(), host.base(), n, cudaMemcpyHostToDevice, q[0]), "cudaMemcpyAsync");
        cuda::check(cudaMemcpyAsync(host.base() + n, device.base() + n, n, cudaMemcpyDeviceToHost, q[1]),
                    "cudaMemcpyAsync");
      }
      for (const cudaStream_t each : q) {
        cuda::check(cudaStreamSynchronize(each), "cudaStreamSynchronize");
      }
      return static_cast<double>(copies * n) /
             std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    };
    (void)rate();
    r.in_alone = r.out_alone = rate();
    {
      computing load(rounds_);
      r.in = r.out = rate();
      r.slowdown = load.launch_ns() / alone_ns_;
    }
    for (const cudaStream_t each : q) {
      (void)cuda::succeeded(cudaStreamDestroy(each));
    }
    return r;
  }

  template <class Stream>
  static void advance(Stream& s, word* x, std::uint64_t n, word value) {
    s.launch("advance", grid, block, 0, deepum_gpu_bench_kernels::all().advance, updates(x, n), n, value);
  }
  template <class Stream>
  static unsigned long long sum_of(Stream& s, const word* x, std::uint64_t n, const memory_pool& total) {
    auto* to = reinterpret_cast<unsigned long long*>(total.base());
    s.memset(to, 0, bytes{sizeof *to});
    s.launch("sum", grid, block, 0, deepum_gpu_bench_kernels::all().checksum, reads(x, n), n, to);
    unsigned long long sum = 0;
    s.memcpy(&sum, to, bytes{sizeof sum});
    s.synchronize();
    return sum;
  }
  /// What a group holds after so many sweeps, worked out in memory that stays on the device.
  [[nodiscard]] std::vector<unsigned long long> expected(std::int64_t sweeps, const memory_pool& total) const {
    const memory_pool pool(memory_pool::kind::device, shape_.group);
    hand_arena arena(pool);
    hand_stream s(arena);
    auto* x = reinterpret_cast<word*>(pool.base());
    std::vector<unsigned long long> sums;
    for (std::uint64_t g = 0; g < shape_.groups(); ++g) {
      s.memset(x, 0, shape_.group);
      for (std::int64_t i = 0; i < sweeps; ++i) {
        advance(s, x, words(), value_of(g));
      }
      sums.push_back(sum_of(s, x, words(), total));
    }
    return sums;
  }

  void sweep(churn_result& r) {
    bench_settings own = settings_;
    own.choices.chunk = bytes{r.chunk};
    constexpr bytes largest_block{std::uint64_t{32} << 20};
    memory_system<Memory> system(own, r.name, shape_.size + largest_block, shape_.budget);
    auto& s = system.stream();
    word* x = system.arena().template allocate<word>(shape_.groups() * words());
    s.memset(x, 0, bytes{shape_.groups() * shape_.group.count});
    std::int64_t done = 0;
    const auto once = [&] {
      const auto began = std::chrono::steady_clock::now();
      for (std::uint64_t g = 0; g < shape_.groups(); ++g) {
        advance(s, x + g * words(), words(), value_of(g));
      }
      s.synchronize();
      ++done;
      return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now() - began).count();
    };
    const memory_pool total(memory_pool::kind::device, bytes{sizeof(unsigned long long)});
    const auto check = [&] {
      const std::vector<unsigned long long> right = expected(done, total);
      for (std::uint64_t g = 0; g < shape_.groups(); ++g) {
        if (const unsigned long long sum = sum_of(s, x + g * words(), words(), total); sum != right[g]) {
          wrong_ = true;
          throw error(status::invalid_argument,
                      absl::StrFormat("group %d holds something else than it should after %d sweeps under %s", g, done,
                                      r.name));
        }
      }
    };
    (void)once();
    check();
    for (std::int64_t i = 0; i < warm_up; ++i) {
      (void)once();
    }
    const auto rates = [&](double& in, double& out, std::vector<std::int64_t>* each) {
      const counters before = system.count();
      std::int64_t ns = 0;
      for (std::int64_t i = 0; i < shape_.sweeps; ++i) {
        const std::int64_t one = once();
        ns += one;
        if (each != nullptr) {
          each->push_back(one);
        }
      }
      const counters did = system.count() - before;
      in = 1e9 * static_cast<double>(did.in) / static_cast<double>(ns);
      out = 1e9 * static_cast<double>(did.out) / static_cast<double>(ns);
      return did;
    };
    (void)rates(r.in_alone, r.out_alone, nullptr);
    {
      computing load(rounds_);
      r.did = rates(r.in, r.out, &r.sweep_ns);
      r.slowdown = load.launch_ns() / alone_ns_;
    }
    check();
  }

  bench_settings settings_;
  churn_shape shape_;
  std::vector<bytes> chunks_;
  unsigned rounds_;
  double alone_ns_ = 0;
  bool wrong_ = false;
};

}  // namespace deepum::gpu_bench
