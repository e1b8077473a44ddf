#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/gpt_layers.hpp"
#include "gpu/library/layer_executor.hpp"
#include "gpu/library/layered_report.hpp"
#include "gpu/library/layered_step.hpp"
#include "gpu/library/layered_systems.hpp"
#include "gpu/library/least_traffic.hpp"
#include "gpu/library/report.hpp"
#include "gpu/opponents/by_hand.hpp"
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// The word of a run that has chosen something of its policy.
[[nodiscard]] inline std::string name_of_run(const std::string& system, std::optional<bool> write_back_early) {
  return !write_back_early ? system : system + (*write_back_early ? ", write-back early" : ", write-back late");
}

/// A training step of a GPT under all systems and budgets. The result of each step, and all activations and weights at
/// the first and the last one, have to be those of the resident run, bit by bit.
/// @tparam Memory  The library's, managed or paged.
/// @tparam T       float or bf16.
template <class Memory, class T>
class gpt_step_runs {
 public:
  /// @param budgets      Device memory for contents.
  /// @param forgets      Whether arenas hear which contents are of no value.
  /// @param write_backs  Each is tried with the library's systems.
  gpt_step_runs(bench_settings settings, const gpt_shape& shape, std::vector<bytes> budgets, bool forgets,
                std::vector<std::optional<bool>> write_backs)
      : settings_(std::move(settings)),
        shape_(shape),
        budgets_(std::move(budgets)),
        forgets_(forgets),
        write_backs_(std::move(write_backs)),
        set_up_(set_up_of(shape)),
        plain_(step_of(shape)),
        checked_(step_of(shape, summed::everything)),
        executor_(sums_in(checked_)) {}

  /// @errors  `status::device_failure`; `status::invalid_argument` where a system computes something else than the
  ///          resident run.
  [[nodiscard]] program_report run() {
    report_.name = "gpt_step";
    report_.description =
        absl::StrFormat("%s memory, %d layers of width %d, %d sequences of %d, %s, AdamW %s", name_of_memory<Memory>,
                        shape_.layers, shape_.width, shape_.batch, shape_.context, sizeof(T) == 2 ? "bf16" : "fp32",
                        shape_.update_at_end ? "at the end" : "layer by layer");
    report_.footprint = footprint_of(shape_).count;
    report_.managed = settings_.managed;
    report_.pinned = settings_.pinned;
    {
      settings_.say("gpt_step: resident");
      system_run run{.name = "resident"};
      resident_model<T> model(executor_, plain_.tensors);
      measure(run, model);
      report_.runs.push_back(std::move(run));
      if (settings_.wants(oracle_name)) {
        find_facts(model);
      }
    }
    const double resident = median_ns(report_.runs.front()) / 1e9;
    const unit_program blocks = in_blocks(in_memory(plain_));
    for (const bytes budget : budgets_) {
      const std::uint64_t in = least_bytes_in(blocks, budget.count);
      const std::uint64_t out = least_bytes_out(blocks, budget.count);
      report_.bounds.push_back({budget.count, in, out, 1e9 * least_seconds(resident, in, out, settings_.pinned)});
    }
    for (const std::string& system : settings_.systems) {
      if (system == hand_system_name) {
        by_hand();
      } else if (runs_layers(system)) {
        for (const std::optional<bool> early : write_backs_) {
          library(system, early);
        }
      }
    }
    return std::move(report_);
  }

 private:
  static constexpr std::int64_t steps_for_tuning = 3;  // with each window; the first is not timed

  [[nodiscard]] step_numbers numbers(std::int64_t step) const { return {.number = step, .seed = settings_.seed}; }

  template <class Model>
  measured_step step(Model& model, std::int64_t number) {
    const counters before = model.count();
    const auto began = std::chrono::steady_clock::now();
    const std::vector<std::uint64_t> sums = model.run(numbers(number));
    measured_step m;
    m.ns = std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now() - began).count();
    m.sum = sums.front();
    m.did = model.count() - before;
    compare(number, {sums.front()});
    return m;
  }
  /// The first run, which is the resident one, tells what is right.
  void compare(std::int64_t number, const std::vector<std::uint64_t>& sums) {
    std::vector<std::uint64_t>& expected = expected_[{number, sums.size()}];
    if (expected.empty()) {
      expected = sums;
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (sums[i] != expected[i]) {
        wrong_ = true;
        throw error(status::invalid_argument,
                    absl::StrFormat("step %d computes something else than the resident run: sum %d of %d is %d, not %d",
                                    number, i, sums.size(), sums[i], expected[i]));
      }
    }
  }
  template <class Model>
  void begin(Model& model) {
    model.use(set_up_, set_up_.launches.size(), afterwards::ends);
    (void)model.run(numbers(0));
  }
  /// What an oracle is told: both kinds of steps, once without looking, so that cuBLAS has chosen its kernels.
  void find_facts(resident_model<T>& model) {
    for (const auto& [step, times] : {std::pair{&plain_, 3}, std::pair{&checked_, 1}}) {
      model.use(*step, 0, afterwards::repeats);
      (void)model.run(numbers(0));
      for (int i = 0; i < times; ++i) {
        model.time(facts_.times, numbers(0));
      }
    }
    const link_rates& link = std::is_same_v<Memory, cuda::managed_memory> ? settings_.managed : settings_.pinned;
    facts_.in = link.in_both;
    facts_.out = link.out_both;
  }
  template <class Model>
  void check_all(Model& model, std::int64_t number) {
    model.use(checked_, checked_.launches.size(), afterwards::repeats);
    const std::vector<std::uint64_t> sums = model.run(numbers(number));
    compare(number, {sums.front()});
    compare(number, sums);
  }

  template <class Model>
  void measure(system_run& run, Model& model) {
    begin(model);
    std::int64_t number = 0;
    check_all(model, number++);
    const std::int64_t steps = settings_.warm_up + settings_.steps + settings_.audit;
    model.use(plain_, static_cast<std::size_t>(steps) * plain_.launches.size(), afterwards::repeats);
    for (std::int64_t i = 0; i < settings_.warm_up; ++i) {
      run.warm_up.push_back(step(model, number++));
    }
    run.joules = joules_of(settings_.energy, [&] {
      for (std::int64_t i = 0; i < settings_.steps; ++i) {
        run.steps.push_back(step(model, number++));
      }
    });
    run.taken = model.watch().during([&] {
      for (std::int64_t i = 0; i < settings_.audit; ++i) {
        (void)step(model, number++);
      }
    });
    check_all(model, number);
  }

  /// @param make     Makes the model, with a budget: one for all budgets, as long as none fails.
  /// @param measure  Fills the run of one budget.
  template <class Model, class Make, class Measure>
  void each_budget(const std::string& name, Make&& make, Measure&& fill) {
    std::optional<Model> model;
    for (const bytes budget : budgets_) {
      settings_.say(absl::StrFormat("gpt_step: %s, budget %d MiB", name, budget.count >> 20));
      system_run run{.name = name, .budget = budget.count};
      try {
        if (model) {
          model->set_budget(budget);
        } else {
          make(model, budget);
        }
        fill(run, *model);
      } catch (const error& e) {
        if (wrong_ || e.code() == status::device_failure) {
          throw;
        }
        model.reset();
        run = {.name = name, .budget = budget.count, .skipped = e.what()};
      }
      report_.runs.push_back(std::move(run));
    }
  }
  void library(const std::string& system, std::optional<bool> early) {
    bench_settings own = settings_;
    own.choices.write_back_early = early;
    using model_type = library_model<Memory, T>;
    each_budget<model_type>(
        name_of_run(system, early),
        [&](std::optional<model_type>& model, bytes budget) {
          model.emplace(executor_, own, system, plain_.tensors, budget, forgets_, &facts_);
        },
        [&](system_run& run, model_type& model) {
          run.pinned = !std::is_same_v<Memory, cuda::managed_memory>;
          model.system().watch_peak();
          measure(run, model);
          run.peak_bytes = model.system().peak_bytes();
          run.notes = model.notes();
        });
  }
  void by_hand() {
    using model_type = hand_model<T>;
    each_budget<model_type>(
        hand_system_name,
        [&](std::optional<model_type>& model, bytes budget) { model.emplace(executor_, plain_.tensors, budget); },
        [&](system_run& run, model_type& model) {
          run.pinned = true;
          double best = 0;
          std::int64_t best_ns = 0;
          for (const double share : window_shares) {
            model.set_window(share);
            begin(model);
            model.use(plain_, steps_for_tuning * plain_.launches.size(), afterwards::repeats);
            std::int64_t shortest = INT64_MAX;
            for (std::int64_t i = 0; i < steps_for_tuning; ++i) {
              const measured_step m = step(model, i);
              shortest = i == 0 ? shortest : std::min(shortest, m.ns);
            }
            if (best == 0 || shortest < best_ns) {
              best = share;
              best_ns = shortest;
            }
          }
          model.set_window(best);
          run.notes = absl::StrFormat("window: budget / %g", best);
          measure(run, model);
          run.peak_bytes = run.budget;
        });
  }

  bench_settings settings_;
  gpt_shape shape_;
  std::vector<bytes> budgets_;
  bool forgets_;
  std::vector<std::optional<bool>> write_backs_;
  layered_step set_up_;
  layered_step plain_;
  layered_step checked_;
  layer_executor<T> executor_;
  oracle_facts facts_{};
  program_report report_{};
  std::map<std::pair<std::int64_t, std::size_t>, std::vector<std::uint64_t>> expected_{};  // by step and kind of step
  bool wrong_ = false;
};

}  // namespace deepum::gpu_bench
