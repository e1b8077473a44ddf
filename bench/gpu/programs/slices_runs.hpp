#pragma once

#include "absl/strings/str_format.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/kernels.hpp"
#include "gpu/library/report.hpp"
#include "nlohmann/json.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/error.hpp>
#include <deepum/operand.hpp>
#include <deepum/slices.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// One launch of AdamW on all weights of a model, step by step.
struct slices_shape {
  bytes size{std::uint64_t{9} << 30};  ///< weights, two moments and gradients
  bytes budget{std::uint64_t{3} << 30};
  std::int64_t steps = 5;

  [[nodiscard]] std::uint64_t weights() const { return size.count / (arrays * sizeof(float)) / 1024 * 1024; }
  [[nodiscard]] std::uint64_t moved_in() const { return arrays * sizeof(float) * weights(); }
  static constexpr std::uint64_t arrays = 4;
  static constexpr std::uint64_t written = 3;
};

/// What one system has reached.
struct slices_result {
  std::string name{};
  std::string skipped{};
  std::uint64_t pieces = 0;  ///< launches of a step
  std::vector<std::int64_t> step_ns{};
  counters first{};   ///< of the first step: nothing of it recurs yet
  counters steady{};  ///< of the last one

  [[nodiscard]] std::int64_t steady_ns() const {
    std::vector<std::int64_t> later(step_ns.begin() + static_cast<std::ptrdiff_t>(step_ns.size() / 2), step_ns.end());
    std::sort(later.begin(), later.end());
    return later.empty() ? 0 : later[later.size() / 2];
  }
};

/// A launch that is larger than the budget, in pieces, beside what the same bytes take on the link.
template <class Memory>
class slices_runs {
 public:
  slices_runs(bench_settings settings, const slices_shape& shape) : settings_(std::move(settings)), shape_(shape) {}

  /// @errors  `status::device_failure`; `status::invalid_argument` where a step computes something wrong.
  [[nodiscard]] std::vector<slices_result> run() {
    std::vector<slices_result> out;
    link_ns_ = link();
    for (const std::string& system : settings_.systems) {
      settings_.say(absl::StrFormat("slices: %s", system));
      slices_result r{.name = system};
      try {
        run(r);
      } catch (const error& e) {
        if (e.code() == status::device_failure || wrong_) {
          throw;
        }
        r.skipped = e.what();
      }
      out.push_back(std::move(r));
    }
    return out;
  }

  /// Nanoseconds that a whole pass takes on the link: all of it in, and what is written out at the same time.
  [[nodiscard]] std::int64_t link_ns() const { return link_ns_; }
  /// The same where the budget stays on the device from one step to the next.
  [[nodiscard]] double least_ns() const {
    const double all = static_cast<double>(shape_.moved_in());
    return static_cast<double>(link_ns_) * std::max(0.0, all - static_cast<double>(shape_.budget.count)) / all;
  }

  [[nodiscard]] std::string table_of(const std::vector<slices_result>& all) const {
    const auto ms = [](auto ns) { return static_cast<double>(ns) / 1e6; };
    std::string text = absl::StrFormat(
        "\nslices: AdamW on %d MiB of %s memory through %d MiB; on the link %.1f ms, from step to step %.1f ms\n"
        "  %-8s %7s %10s %9s %10s %9s %8s %8s\n",
        shape_.moved_in() >> 20, name_of_memory<Memory>, shape_.budget.count >> 20, ms(link_ns_), ms(least_ns()), "",
        "pieces", "first ms", "of link", "steady ms", "of least", "in MiB", "out MiB");
    for (const slices_result& r : all) {
      if (!r.skipped.empty()) {
        text += absl::StrFormat("  %-8s %s\n", r.name, r.skipped);
        continue;
      }
      text += absl::StrFormat("  %-8s %7d %10.1f %8.2fx %10.1f %8.2fx %8d %8d\n", r.name, r.pieces,
                              ms(r.step_ns.front()), ms(r.step_ns.front()) / ms(link_ns_), ms(r.steady_ns()),
                              ms(r.steady_ns()) / ms(least_ns()), r.steady.in >> 20, r.steady.out >> 20);
    }
    return text;
  }
  [[nodiscard]] nlohmann::ordered_json json_of(const std::vector<slices_result>& all) const {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const slices_result& r : all) {
      nlohmann::ordered_json one{{"memory", name_of_memory<Memory>}, {"system", r.name}};
      if (!r.skipped.empty()) {
        one["skipped"] = r.skipped;
      } else {
        one.update({{"pieces", r.pieces},
                    {"step_ns", r.step_ns},
                    {"steady_ns", r.steady_ns()},
                    {"bytes_in_first", r.first.in},
                    {"bytes_out_first", r.first.out},
                    {"bytes_in", r.steady.in},
                    {"bytes_out", r.steady.out},
                    {"faults", r.steady.faults},
                    {"stalled_ns", r.steady.stalled_ns}});
      }
      out.push_back(std::move(one));
    }
    return {{"size_bytes", shape_.moved_in()},
            {"budget_bytes", shape_.budget.count},
            {"link_ns", link_ns_},
            {"least_ns", least_ns()},
            {"runs", out}};
  }

 private:
  using word = deepum_gpu_bench_kernels::word;
  static constexpr unsigned threads = 256;
  static constexpr float rate = 1e-3F;
  static constexpr int gradient_byte = 0x3d;  // of each byte: 0.046 as a float

  /// Copies of pinned memory, both ways at once, of as many bytes as a step moves at most.
  [[nodiscard]] std::int64_t link() const {
    settings_.say("slices: copies of pinned memory");
    constexpr std::uint64_t piece = std::uint64_t{64} << 20;
    const memory_pool host(memory_pool::kind::pinned, bytes{2 * piece});
    const memory_pool device(memory_pool::kind::device, bytes{2 * piece});
    std::array<cudaStream_t, 2> q{};
    for (cudaStream_t& each : q) {
      cuda::check(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    std::int64_t best = 0;
    for (int round = 0; round < 3; ++round) {
      const auto began = std::chrono::steady_clock::now();
      const std::uint64_t all = shape_.moved_in();
      for (std::uint64_t at = 0; at < all; at += piece) {
        const std::uint64_t n = std::min(piece, all - at);
        cuda::check(cudaMemcpyAsync(device.base(), host.base(), n, cudaMemcpyHostToDevice, q[0]), "cudaMemcpyAsync");
        cuda::check(cudaMemcpyAsync(host.base() + piece, device.base() + piece,
                                    n * slices_shape::written / slices_shape::arrays, cudaMemcpyDeviceToHost, q[1]),
                    "cudaMemcpyAsync");
      }
      for (const cudaStream_t each : q) {
        cuda::check(cudaStreamSynchronize(each), "cudaStreamSynchronize");
      }
      const std::int64_t ns = std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now() - began).count();
      best = best == 0 ? ns : std::min(best, ns);
    }
    for (const cudaStream_t each : q) {
      (void)cuda::succeeded(cudaStreamDestroy(each));
    }
    return best;
  }

  /// What each weight is after so many steps, worked out on one of them.
  [[nodiscard]] static word expected(std::int64_t steps) {
    const memory_pool pool(memory_pool::kind::device, bytes{4096});
    hand_arena arena(pool);
    hand_stream s(arena);
    auto* x = reinterpret_cast<float*>(pool.base());
    s.memset(x, 0, bytes{3 * sizeof(float)});
    s.memset(x + 3, gradient_byte, bytes{sizeof(float)});
    for (std::int64_t i = 0; i < steps; ++i) {
      s.launch("adamw", 1, 1, 0, deepum_gpu_bench_kernels::all().adamw, x, x + 1, x + 2, x + 3, std::uint64_t{1}, rate);
    }
    word found = 0;
    s.memcpy(&found, x, bytes{sizeof found});
    s.synchronize();
    return found;
  }

  void run(slices_result& r) {
    constexpr bytes largest_block{std::uint64_t{32} << 20};
    memory_system<Memory> system(settings_, r.name, shape_.size + largest_block * (slices_shape::arrays + 1),
                                 shape_.budget);
    auto& s = system.stream();
    const std::uint64_t n = shape_.weights();
    std::array<float*, slices_shape::arrays> state{};
    for (float*& p : state) {
      p = system.arena().template allocate<float>(n);
      // By the host, so that the first step finds all of it there.
      const auto view = system.arena().host_overwrite(p, n);
      std::memset(view.data(), &p == &state.back() ? gradient_byte : 0, n * sizeof(float));
    }
    for (std::int64_t i = 0; i < shape_.steps; ++i) {
      const counters before = system.count();
      const auto began = std::chrono::steady_clock::now();
      s.launch_in_pieces("adamw", {.elements = n, .threads = threads, .per_block = 4 * threads},
                         deepum_gpu_bench_kernels::all().adamw, updates(state[0], n), updates(state[1], n),
                         updates(state[2], n), reads(state[3], n), piece_size, rate);
      s.synchronize();
      r.step_ns.push_back(std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now() - began).count());
      r.steady = system.count() - before;
      r.pieces = r.steady.launches;
      if (i == 0) {
        r.first = r.steady;
      }
    }
    const word right = expected(shape_.steps);
    const auto view = system.arena().host_read(reinterpret_cast<const word*>(state[0]), n);
    if (const auto wrong = std::find_if(view.begin(), view.end(), [&](word each) { return each != right; });
        wrong != view.end()) {
      wrong_ = true;
      throw error(status::invalid_argument,
                  absl::StrFormat("weight %d is not what it should be after %d steps under %s", wrong - view.begin(),
                                  shape_.steps, r.name));
    }
  }

  bench_settings settings_;
  slices_shape shape_;
  std::int64_t link_ns_ = 0;
  bool wrong_ = false;
};

}  // namespace deepum::gpu_bench
