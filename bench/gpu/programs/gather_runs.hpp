#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/kernels.hpp"
#include "gpu/library/report.hpp"
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// The sizes of the look-ups.
struct gather_shape {
  std::uint32_t pieces = 640;   ///< of 2 MiB, in the table
  std::uint32_t launches = 12;  ///< in a step
  std::uint32_t each = 32;      ///< pieces that a launch updates
  std::int64_t change = 6;      ///< steps until other pieces are chosen

  [[nodiscard]] bytes table() const { return block_size * pieces; }
};

/// Launches that update scattered pieces of a table, found through indices in device memory: what they touch cannot be
/// seen from their arguments, and is not declared. The indices change now and then. Only page faults tell of it.
class gather_runs {
 public:
  gather_runs(const bench_settings& settings, const gather_shape& shape) : settings_(settings), shape_(shape) {}

  [[nodiscard]] program_report run() {
    report_.name = "gather";
    report_.description =
        absl::StrFormat("%d launches that update %d of %d pieces of 2 MiB each, other ones every %d steps",
                        shape_.launches, shape_.each, shape_.pieces, shape_.change);
    report_.footprint = shape_.table().count;
    report_.managed = settings_.managed;
    report_.pinned = settings_.pinned;
    {
      settings_.say("gather: resident");
      const memory_pool pool(memory_pool::kind::device, capacity());
      hand_arena arena(pool);
      hand_stream stream(arena);
      system_run run{.name = "resident"};
      steps(
          run, arena, stream, [] {}, [] { return counters{}; }, [&] { return report_.footprint; },
          [](std::int64_t, std::uint32_t, launch_id) {});
      report_.runs.push_back(std::move(run));
    }
    for (const double percent : settings_.budgets) {
      for (const std::string& system : settings_.systems) {
        if (!policy_of(system)) {
          continue;  // what is written by hand would have to know the indices
        }
        settings_.say(absl::StrFormat("gather, budget %.0f %%: %s", percent, system));
        system_run run{.name = system,
                       .budget = whole_blocks(static_cast<double>(report_.footprint) * percent / 100).count};
        library(run);
        report_.runs.push_back(std::move(run));
      }
    }
    return std::move(report_);
  }

 private:
  using word = deepum_gpu_bench_kernels::word;

  [[nodiscard]] bytes capacity() const { return capacity_of(shape_.table() + block_size * shape_.launches); }

  /// The pieces of one launch, each once.
  [[nodiscard]] std::vector<word> pieces_of(std::int64_t period, std::uint32_t launch) const {
    std::mt19937_64 random(settings_.seed + static_cast<std::uint64_t>(period) * 1000 + launch);
    std::vector<word> all(shape_.pieces);
    std::iota(all.begin(), all.end(), word{0});
    for (std::size_t i = 0; i < shape_.each; ++i) {
      std::swap(all[i], all[i + random() % (all.size() - i)]);
    }
    all.resize(shape_.each);
    return all;
  }

  template <class Arena, class Stream, class Settle, class Count, class Peak, class Launched>
  void steps(system_run& run, Arena& arena, Stream& stream, Settle&& settle, Count&& count, Peak&& peak,
             Launched&& launched) {
    const deepum_gpu_bench_kernels::kernels& k = deepum_gpu_bench_kernels::all();
    word* table = arena.template allocate<word>(static_cast<std::size_t>(shape_.table().count / sizeof(word)));
    std::vector<word*> which;
    for (std::uint32_t l = 0; l < shape_.launches; ++l) {
      which.push_back(arena.template allocate<word>(shape_.each));
    }
    auto* total = arena.template allocate<unsigned long long>(1);
    stream.memset(table, 1, shape_.table());
    stream.synchronize();
    settle();
    const auto one = [&](std::int64_t number) {
      const bool changes = number % shape_.change == 0;
      std::vector<std::vector<word>> chosen;
      for (std::uint32_t l = 0; changes && l < shape_.launches; ++l) {
        chosen.push_back(pieces_of(number / shape_.change, l));
        stream.memcpy(which[l], chosen.back().data(), bytes{shape_.each * sizeof(word)});
      }
      stream.synchronize();
      const counters before = count();
      const auto began = std::chrono::steady_clock::now();
      for (std::uint32_t l = 0; l < shape_.launches; ++l) {
        // No operands: what it touches is not known. The name tells the launches of a step apart.
        const launch_id id =
            stream.call(absl::StrCat("gather ", l), std::initializer_list<operand>{}, [&](cudaStream_t q) {
              const word* indices = which[l];
              word value = static_cast<word>(number) + l;
              word n = shape_.each;
              std::array<void*, 4> arguments{&table, &indices, &n, &value};
              cuda::check(cudaLaunchKernel(reinterpret_cast<const void*>(k.touch_pieces), dim3{shape_.each}, dim3{512},
                                           arguments.data(), 0, q),
                          "cudaLaunchKernel");
            });
        launched(number, l, id);
      }
      stream.synchronize();
      measured_step m;
      m.ns = std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now() - began).count();
      m.did = count() - before;
      return m;
    };
    std::int64_t number = 0;
    for (; number < settings_.warm_up; ++number) {
      run.warm_up.push_back(one(number));
    }
    run.joules = joules_of(settings_.energy, [&] {
      for (std::int64_t i = 0; i < settings_.steps; ++i) {
        run.steps.push_back(one(number++));
      }
    });
    run.peak_bytes = peak();
    stream.memset(total, 0, bytes{sizeof *total});
    stream.launch("checksum", 1024, 256, 0, k.checksum, reads(table), shape_.table().count / sizeof(word),
                  updates(total, 1));
    unsigned long long sum = 0;
    stream.memcpy(&sum, total, bytes{sizeof sum});
    stream.synchronize();
    if (run.name == "resident") {
      expected_ = sum;
    } else if (sum != expected_) {
      throw error(status::invalid_argument, "gather computes something else under " + run.name + ": " +
                                                std::to_string(sum) + ", not " + std::to_string(expected_));
    }
  }

  void library(system_run& run) {
    std::mutex mutex;
    std::map<std::uint64_t, std::uint64_t> faults;  // by launch
    std::vector<std::vector<std::uint64_t>> ids;    // launches, by step
    const std::int64_t free = free_device_memory();
    library_system sys(settings_, run.name, capacity(), bytes{run.budget}, [&](launch_id l) {
      const std::lock_guard lock(mutex);
      ++faults[l.value];
    });
    adapted_arena arena(sys);
    steps(
        run, arena, sys.stream(), [&] { sys.settle(bytes{run.budget}); }, [&] { return sys.count(); },
        [&] { return sys.peak_bytes(); },
        [&](std::int64_t number, std::uint32_t, launch_id id) {
          ids.resize(static_cast<std::size_t>(number) + 1);
          ids.back().push_back(id.value);
        });
    run.device_memory_taken = free - free_device_memory();
    const std::lock_guard lock(mutex);
    run.notes = learned(ids, faults) + (sys.notes().empty() ? "" : "; " + sys.notes());
  }

  /// After how many launches of the same kind no launch faulted any more, for each choice of indices.
  [[nodiscard]] std::string learned(const std::vector<std::vector<std::uint64_t>>& ids,
                                    const std::map<std::uint64_t, std::uint64_t>& faults) const {
    std::string text = "launches until all comes by prefetch, by choice of pieces:";
    for (std::size_t begin = 0; begin < ids.size(); begin += static_cast<std::size_t>(shape_.change)) {
      const std::size_t end = std::min(ids.size(), begin + static_cast<std::size_t>(shape_.change));
      std::size_t slowest = 0;
      for (std::size_t l = 0; l < shape_.launches; ++l) {
        std::size_t needed = 0;  // the last step of this choice in which the launch faulted, counted from 1
        for (std::size_t s = begin; s < end; ++s) {
          needed = faults.contains(ids[s][l]) ? s - begin + 1 : needed;
        }
        slowest = std::max(slowest, needed);
      }
      absl::StrAppend(&text, " ", slowest == end - begin ? absl::StrCat("never in ", slowest) : absl::StrCat(slowest));
    }
    return text;
  }

  const bench_settings& settings_;
  gather_shape shape_;
  program_report report_{};
  unsigned long long expected_ = 0;
};

}  // namespace deepum::gpu_bench
