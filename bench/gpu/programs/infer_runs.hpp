#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/infer_layers.hpp"
#include "gpu/library/layer_executor.hpp"
#include "gpu/library/layered_report.hpp"
#include "gpu/library/layered_step.hpp"
#include "gpu/library/layered_systems.hpp"
#include "gpu/library/least_traffic.hpp"
#include "gpu/library/report.hpp"
#include "gpu/opponents/by_hand.hpp"
#include "gpu/programs/gpt_step_runs.hpp"
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// Calls of models for inference: weights are written once, and only read after. Of several models, which one is called
/// is drawn by lot. Each call's output has to be that of the resident run, bit by bit.
///
/// Double buffering by hand knows all calls beforehand, which a server does not.
/// @tparam Memory  The library's, managed or paged.
/// @tparam T       float or bf16.
template <class Memory, class T>
class infer_runs {
 public:
  /// @param tokens  In a call; each number is measured for itself.
  /// @param calls   Of each.
  infer_runs(bench_settings settings, const infer_shape& shape, std::vector<bytes> budgets,
             std::vector<std::int64_t> tokens, std::int64_t calls)
      : settings_(std::move(settings)),
        shape_(shape),
        budgets_(std::move(budgets)),
        tokens_(std::move(tokens)),
        calls_(calls),
        models_(calls_by_lot(shape.models, static_cast<std::size_t>(all_calls()), settings_.seed)),
        set_up_(set_up_of(shape)) {
    for (const std::int64_t n : tokens_) {
      std::vector<layered_step> each;
      for (std::int64_t m = 0; m < shape.models; ++m) {
        each.push_back(call_of(shape, m, n));
      }
      launches_ = each.front().launches.size();
      programs_.push_back(joined(each, models_));
    }
    expected_.resize(tokens_.size());
  }

  /// @returns  A report for each number of tokens.
  /// @errors   `status::device_failure`; `status::invalid_argument` where a system computes something else than the
  ///           resident run.
  [[nodiscard]] std::vector<program_report> run() {
    for (const std::int64_t n : tokens_) {
      program_report& r = reports_.emplace_back();
      r.name = "infer";
      r.description =
          absl::StrFormat("%s memory, %d model%s of %d layers of width %d, %d token%s in a call, %s",
                          name_of_memory<Memory>, shape_.models, shape_.models == 1 ? "" : "s", shape_.layers,
                          shape_.width, n, n == 1 ? "" : "s", sizeof(T) == 2 ? "bf16" : "fp32");
      r.footprint = footprint_of(shape_).count;
      r.managed = settings_.managed;
      r.pinned = settings_.pinned;
    }
    {
      resident_model<T> model(executor_, set_up_.tensors);
      begin(model);
      for (std::size_t i = 0; i < tokens_.size(); ++i) {
        settings_.say(absl::StrFormat("infer: resident, %d tokens", tokens_[i]));
        system_run run{.name = "resident"};
        measure(run, model, i);
        reports_[i].runs.push_back(std::move(run));
        if (settings_.wants(oracle_name)) {
          find_facts(model, i);
        }
      }
    }
    find_bounds();
    for (const std::string& system : settings_.systems) {
      if (system == hand_system_name) {
        using model_type = hand_model<T>;
        each_budget<model_type>(
            system,
            [&](std::optional<model_type>& model, bytes budget) { model.emplace(executor_, set_up_.tensors, budget); },
            [&](system_run& run, model_type& model, std::size_t i) {
              run.pinned = true;
              by_hand(run, model, i);
            });
      } else if (runs_layers(system)) {
        using model_type = library_model<Memory, T>;
        each_budget<model_type>(
            system,
            [&](std::optional<model_type>& model, bytes budget) {
              model.emplace(executor_, settings_, system, set_up_.tensors, budget, false, &facts_);
            },
            [&](system_run& run, model_type& model, std::size_t i) {
              run.pinned = !std::is_same_v<Memory, cuda::managed_memory>;
              model.system().watch_peak();
              measure(run, model, i);
              run.peak_bytes = model.system().peak_bytes();
              run.notes = model.notes();
            });
      }
    }
    return std::move(reports_);
  }

 private:
  static constexpr std::int64_t calls_for_tuning = 4;  // with each window; the first two are not timed

  [[nodiscard]] std::int64_t all_calls() const { return settings_.warm_up + calls_ + settings_.audit; }
  [[nodiscard]] step_numbers numbers(std::int64_t call) const { return {.number = call, .seed = settings_.seed}; }

  /// What an oracle is told: the calls of all models take the same times. Weights leave paged memory without a copy,
  /// so one direction has the link to itself there.
  void find_facts(resident_model<T>& model, std::size_t tokens) {
    model.use(call_of(shape_, 0, tokens_[tokens]), 0, afterwards::ends);
    (void)model.run(numbers(0));
    for (int i = 0; i < 3; ++i) {
      model.time(facts_.times, numbers(0));
    }
    const bool managed = std::is_same_v<Memory, cuda::managed_memory>;
    facts_.in = managed ? settings_.managed.in_both : settings_.pinned.in;
    facts_.out = managed ? settings_.managed.out_both : settings_.pinned.out;
  }
  void find_bounds() {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const double resident = median_ns(reports_[i].runs.front()) / 1e9;
      layered_step timed{.tensors = programs_[i].tensors};
      const auto first = programs_[i].launches.begin() + settings_.warm_up * static_cast<std::int64_t>(launches_);
      timed.launches.assign(first, first + calls_ * static_cast<std::int64_t>(launches_));
      const unit_program blocks = in_blocks(products_in(timed));
      for (const bytes budget : budgets_) {
        const std::uint64_t in = least_bytes_of_calls(blocks, budget.count) / static_cast<std::uint64_t>(calls_);
        reports_[i].bounds.push_back({budget.count, in, 0, 1e9 * least_seconds(resident, in, 0, settings_.pinned)});
      }
    }
  }

  template <class Model>
  void begin(Model& model) {
    model.use(set_up_, set_up_.launches.size(), afterwards::ends);
    (void)model.run(numbers(0));
  }
  template <class Model>
  measured_step call(Model& model, std::size_t tokens, std::int64_t number) {
    const counters before = model.count();
    const auto began = std::chrono::steady_clock::now();
    const std::vector<std::uint64_t> sums =
        model.run(numbers(number), static_cast<std::size_t>(number) * launches_, launches_);
    measured_step m;
    m.ns = std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now() - began).count();
    m.sum = sums.front();
    m.did = model.count() - before;
    std::vector<std::uint64_t>& expected = expected_[tokens];
    if (static_cast<std::size_t>(number) == expected.size()) {
      expected.push_back(m.sum);  // the resident run comes first and tells what is right
    }
    if (m.sum != expected.at(static_cast<std::size_t>(number))) {
      wrong_ = true;
      throw error(status::invalid_argument,
                  absl::StrFormat("call %d with %d tokens gives %d, but %d in the resident run", number,
                                  tokens_[tokens], m.sum, expected[static_cast<std::size_t>(number)]));
    }
    return m;
  }
  template <class Model>
  void measure(system_run& run, Model& model, std::size_t tokens) {
    model.use(programs_[tokens], programs_[tokens].launches.size(), afterwards::ends);
    std::int64_t number = 0;
    for (std::int64_t i = 0; i < settings_.warm_up; ++i) {
      run.warm_up.push_back(call(model, tokens, number++));
    }
    run.joules = joules_of(settings_.energy, [&] {
      for (std::int64_t i = 0; i < calls_; ++i) {
        run.steps.push_back(call(model, tokens, number++));
      }
    });
    run.taken = model.watch().during([&] {
      for (std::int64_t i = 0; i < settings_.audit; ++i) {
        (void)call(model, tokens, number++);
      }
    });
  }
  void by_hand(system_run& run, hand_model<T>& model, std::size_t tokens) {
    double best = 0;
    std::int64_t best_ns = 0;
    for (const double share : window_shares) {
      const std::int64_t calls = std::min(all_calls(), calls_for_tuning);
      model.set_window(share);
      model.use(programs_[tokens], static_cast<std::size_t>(calls) * launches_, afterwards::ends);
      std::int64_t ns = 0;
      for (std::int64_t i = 0; i < calls; ++i) {
        const measured_step m = call(model, tokens, i);
        ns += i < 2 ? 0 : m.ns;
      }
      if (best == 0 || ns < best_ns) {
        best = share;
        best_ns = ns;
      }
    }
    model.set_window(best);
    run.notes = absl::StrFormat("window: budget / %g", best);
    measure(run, model, tokens);
    run.peak_bytes = run.budget;
  }

  template <class Model, class Make, class Fill>
  void each_budget(const std::string& name, Make&& make, Fill&& fill) {
    std::optional<Model> model;
    for (const bytes budget : budgets_) {
      for (std::size_t i = 0; i < tokens_.size(); ++i) {
        settings_.say(absl::StrFormat("infer: %s, budget %d MiB, %d tokens", name, budget.count >> 20, tokens_[i]));
        system_run run{.name = name, .budget = budget.count};
        try {
          if (!model) {
            make(model, budget);
            begin(*model);
          } else if (i == 0) {
            model->set_budget(budget);
          }
          fill(run, *model, i);
        } catch (const error& e) {
          if (wrong_ || e.code() == status::device_failure) {
            throw;
          }
          model.reset();
          run = {.name = name, .budget = budget.count, .skipped = e.what()};
        }
        reports_[i].runs.push_back(std::move(run));
      }
    }
  }

  bench_settings settings_;
  infer_shape shape_;
  std::vector<bytes> budgets_;
  std::vector<std::int64_t> tokens_;
  std::int64_t calls_;
  std::vector<std::int64_t> models_;  // by call
  layered_step set_up_;
  std::vector<layered_step> programs_{};  // by number of tokens: all calls
  std::size_t launches_ = 0;              // of a call
  layer_executor<T> executor_{1};
  oracle_facts facts_{};
  std::vector<program_report> reports_{};
  std::vector<std::vector<std::uint64_t>> expected_{};  // by number of tokens and call
  bool wrong_ = false;
};

}  // namespace deepum::gpu_bench
