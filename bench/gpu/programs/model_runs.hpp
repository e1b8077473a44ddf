#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/train_gpt/shape.hpp"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/recorded_step.hpp"
#include "gpu/library/report.hpp"
#include "gpu/opponents/double_managed.hpp"
#include "gpu/opponents/double_pinned.hpp"
#include "gpu/programs/models.hpp"
#include <deepum/core/block.hpp>
#include <deepum/cuda/api.hpp>
#include <deepum/cuda/check.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// Steps of a transformer under all systems and budgets: training, or the forward pass alone.
/// @tparam T  float or bf16.
template <class T>
class model_runs {
 public:
  model_runs(const bench_settings& settings, const train_gpt::model_shape& shape, train_gpt::purpose use)
      : settings_(settings),
        shape_(shape),
        use_(use) {}

  [[nodiscard]] static bytes footprint(const train_gpt::model_shape& shape, train_gpt::purpose use) {
    return train_gpt::gpt<hand_backend<T>>::footprint(shape, use);
  }

  /// @errors  `status::device_failure`; `status::invalid_argument` where a system computes something else than the
  ///          others.
  [[nodiscard]] program_report run() {
    describe();
    resident();
    const unit_program blocks = in_blocks(program_);
    used_.assign(blocks.size.size(), false);
    for (const auto& launch : blocks.launches) {
      for (const unit_use& u : launch) {
        used_[u.unit] = true;
      }
    }
    for (const double percent : settings_.budgets) {
      const bytes budget = whole_blocks(static_cast<double>(report_.footprint) * percent / 100);
      budgets_.push_back(budget);
      report_.bounds.push_back({budget.count, least_bytes_in(blocks, budget.count)});
    }
    for (const std::string& system : settings_.systems) {
      if (system == "double_managed") {
        by_hand_managed(system);
      } else if (system == "double_pinned") {
        by_hand_pinned(system);
      } else if (policy_of(system)) {
        library(system);
      }
    }
    return std::move(report_);
  }

  /// Everything fits: each of the library's systems takes turns with the resident run, so that a clock or a processor
  /// that is slower for a while is so for both. So does managed memory without the library, all of it prefetched once.
  /// @errors  As `run`.
  [[nodiscard]] program_report run_in_turns() {
    describe();
    report_.name = "fits";
    system_run resident{.name = "resident"};
    resident_gpt<T> everything(set_up());
    resident.peak_bytes = report_.footprint;
    const auto next = [&] {
      const auto number = static_cast<std::int64_t>(expected_.size());
      const measured_step m = measured(everything.model, number, [] { return counters{}; });
      expected_.push_back(m.loss);
      return m;
    };
    for (std::int64_t i = 0; i < settings_.warm_up; ++i) {
      resident.warm_up.push_back(next());
    }
    const auto take_turns = [&](system_run& run, auto& model, auto&& count) {
      std::int64_t number = 0;
      const auto step = [&] { return checked(run, model, number++, count); };
      for (std::int64_t i = 0; i < settings_.warm_up; ++i) {
        run.warm_up.push_back(step());
      }
      std::vector<double> more;  // by turn
      for (int i = 0; i < turns; ++i) {
        const double beside = turn(resident, next);
        more.push_back(turn(run, step) / beside - 1);
      }
      run.notes =
          absl::StrFormat("%+.2f %% beside resident (%.2f to %.2f, %d turns of %d steps)", 100 * quantile(more, 0.5),
                          100 * quantile(more, 0), 100 * quantile(more, 1), turns, settings_.steps);
    };
    for (const std::string& system : settings_.systems) {
      const bool without_library = system == "managed";
      if (!without_library && (!policy_of(system) || system == "once")) {
        continue;
      }
      settings_.say(absl::StrFormat("%s: %s", report_.name, system));
      system_run run{.name = system, .budget = (capacity() + block_size).count};
      if (without_library) {
        model_by_hand<hand_backend<T>> managed(memory_pool::kind::managed, set_up());
        cuda::check(cuda::api::prefetch(managed.pool.base(), managed.pool.size().count, {.on_host = false, .device = 0},
                                        managed.stream.native()),
                    "cudaMemPrefetchAsync");
        take_turns(run, managed.model, [] { return counters{}; });
        run.peak_bytes = report_.footprint;
      } else {
        library_gpt<T> of(settings_, system, set_up(), bytes{run.budget});
        take_turns(run, of.model, [&] { return of.system.count(); });
        run.peak_bytes = of.system.peak_bytes();
      }
      report_.runs.push_back(std::move(run));
    }
    report_.runs.insert(report_.runs.begin(), std::move(resident));
    return std::move(report_);
  }

  /// All losses of a run under one policy of the library, for comparisons.
  [[nodiscard]] std::vector<float> losses_of(const std::string& system, bytes budget, std::int64_t steps) {
    library_gpt<T> of(settings_, system, set_up(), budget);
    return losses(of.model, steps);
  }
  /// The same where everything is resident.
  [[nodiscard]] std::vector<float> resident_losses(std::int64_t steps) {
    resident_gpt<T> everything(set_up());
    return losses(everything.model, steps);
  }

 private:
  static constexpr unsigned shares[] = {2, 3, 4, 8};
  static constexpr std::int64_t steps_for_tuning = 3;  // with each share; the first is not timed

  static constexpr int turns = 8;  // of a system and the resident run

  [[nodiscard]] bytes capacity() const { return capacity_of(footprint(shape_, use_)); }
  [[nodiscard]] model_set_up set_up() const {
    return {.shape = shape_, .use = use_, .seed = settings_.seed, .capacity = capacity()};
  }
  void describe() {
    report_.name = use_ == train_gpt::purpose::training ? "train" : "evaluate";
    report_.description = absl::StrFormat("%d layers of width %d, %d sequences of %d, %s", shape_.layers, shape_.width,
                                          shape_.batch, shape_.context, sizeof(T) == 2 ? "bf16" : "fp32");
    report_.footprint = footprint(shape_, use_).count;
    report_.managed = settings_.managed;
    report_.pinned = settings_.pinned;
  }
  // Measures the steps of a turn. @returns  Their median, in nanoseconds.
  template <class Step>
  double turn(system_run& run, Step&& step) {
    std::vector<double> ns;
    for (std::int64_t i = 0; i < settings_.steps; ++i) {
      run.steps.push_back(step());
      ns.push_back(static_cast<double>(run.steps.back().ns));
    }
    return quantile(ns, 0.5);
  }

  /// Random bytes, the same for each step number.
  void draw(std::int64_t number) {
    std::mt19937_64 random(settings_.seed * 1'000'003 + static_cast<std::uint64_t>(number));
    const auto n = static_cast<std::size_t>(shape_.rows());
    tokens_.resize(n);
    targets_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      tokens_[i] = static_cast<std::int32_t>(random() % 64 + 32);
      targets_[i] = (tokens_[i] * 7 + 3) % 96;
    }
  }
  /// Launches one step and waits for its loss.
  template <class Model>
  float step(Model& model, std::int64_t number) {
    draw(number);
    return step_drawn(model);
  }
  template <class Model>
  std::vector<float> losses(Model& model, std::int64_t steps) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < steps; ++i) {
      all.push_back(step(model, i));
    }
    return all;
  }
  template <class Model>
  float step_drawn(Model& model) {
    constexpr float learning_rate = 1e-4F;
    if (use_ == train_gpt::purpose::training) {
      model.differentiate(tokens_, targets_);
      model.update(learning_rate);
    } else {
      model.evaluate(tokens_, targets_);
    }
    return model.loss();
  }
  template <class Model, class Count>
  measured_step measured(Model& model, std::int64_t number, Count&& count) {
    draw(number);
    const counters before = count();
    const auto began = std::chrono::steady_clock::now();
    measured_step m;
    m.loss = step_drawn(model);
    m.ns = std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now() - began).count();
    m.did = count() - before;
    return m;
  }
  /// A step whose loss has to be that of the resident run, bit by bit.
  template <class Model, class Count>
  measured_step checked(const system_run& run, Model& model, std::int64_t number, Count&& count) {
    const measured_step m = measured(model, number, count);
    const float expected = expected_.at(static_cast<std::size_t>(number));
    if (std::bit_cast<std::uint32_t>(m.loss) != std::bit_cast<std::uint32_t>(expected)) {
      wrong_ = true;
      throw error(status::invalid_argument,
                  absl::StrFormat("the loss of step %d is %.9g under %s, but %.9g where everything is resident", number,
                                  m.loss, run.name, expected));
    }
    return m;
  }
  template <class Model, class Count>
  void steps(system_run& run, Model& model, std::int64_t& number, Count&& count, const std::function<void()>& warm) {
    for (std::int64_t i = 0; i < settings_.warm_up; ++i) {
      run.warm_up.push_back(checked(run, model, number++, count));
    }
    warm();
    run.joules = joules_of(settings_.energy, [&] {
      for (std::int64_t i = 0; i < settings_.steps; ++i) {
        run.steps.push_back(checked(run, model, number++, count));
      }
    });
  }

  void resident() {
    settings_.say(absl::StrCat(report_.name, ": resident"));
    system_run run{.name = "resident"};
    const std::int64_t free = free_device_memory();
    {
      resident_gpt<T> everything(set_up());
      hand_stream& stream = everything.stream;
      run.device_memory_taken = free - free_device_memory();
      run.peak_bytes = report_.footprint;
      const std::int64_t most = static_cast<std::int64_t>(settings_.budgets.size()) *
                                (static_cast<std::int64_t>(std::size(shares)) * steps_for_tuning + settings_.warm_up +
                                 settings_.steps + settings_.audit + 2);
      const auto count = [] { return counters{}; };
      std::int64_t number = 0;
      const auto next = [&] {
        const measured_step m = measured(everything.model, number++, count);
        expected_.push_back(m.loss);
        return m;
      };
      step_recorder recorder(everything.arena);
      stream.set_hook(&recorder);
      run.warm_up.push_back(next());
      stream.set_hook(nullptr);
      program_ = recorder.take();
      for (std::int64_t i = 1; i < settings_.warm_up; ++i) {
        run.warm_up.push_back(next());
      }
      run.joules = joules_of(settings_.energy, [&] {
        for (std::int64_t i = 0; i < settings_.steps; ++i) {
          run.steps.push_back(next());
        }
      });
      if (settings_.take_step) {  // behind the timed steps: they are the same whether or not it is asked for
        step_timer timer(program_.launches.size(), stream.native());
        stream.set_hook(&timer);
        (void)next();
        stream.synchronize();
        stream.set_hook(nullptr);
        const auto median = nanoseconds{static_cast<std::int64_t>(median_ns(run))};
        settings_.take_step(report_.name, described(program_, at_most(timer.times(), median)));
      }
      while (number < most) {
        (void)next();
      }
    }
    run.notes = absl::StrCat(program_.launches.size(), " launches in a step");
    report_.runs.push_back(std::move(run));
  }

  /// One model for all budgets, one after the other, because drawing its weights takes longer than the steps. What a
  /// policy has learned under one budget it knows under the next.
  /// @param measure  Fills the run of one budget.
  template <class Measure>
  void each_budget(const std::string& system, Measure&& measure) {
    for (const bytes budget : budgets_) {
      settings_.say(absl::StrFormat("%s: %s, budget %d MiB", report_.name, system, budget.count >> 20));
      system_run run{.name = system, .budget = budget.count};
      try {
        measure(run);
      } catch (const error& e) {
        if (e.code() != status::invalid_argument || wrong_) {
          throw;
        }
        run.skipped = e.what();  // its buffers do not fit
      }
      report_.runs.push_back(std::move(run));
    }
  }

  void library(const std::string& system) {
    const std::int64_t free = free_device_memory();
    library_gpt<T> of(settings_, system, set_up(), budgets_.front());
    library_system& sys = of.system;
    std::int64_t number = 0;
    const auto count = [&] { return sys.count(); };
    each_budget(system, [&](system_run& run) {
      sys.arena().set_budget(bytes{run.budget});
      steps(run, of.model, number, count, [&] { sys.watch_peak(); });
      run.peak_bytes = sys.peak_bytes();
      run.device_memory_taken = free - free_device_memory();
      run.driver_told =
          audit(sys.base(), capacity(), used_, settings_.audit, [&] { (void)checked(run, of.model, number++, count); });
      run.notes = sys.notes();
    });
  }

  static counters counters_of_hand(const hand_system& s) {
    const hand_traffic t = s.traffic();
    return {.in = t.in, .out = t.out, .discarded = t.discarded, .stalled_ns = s.stalled().count()};
  }

  /// Tries the sizes of segments, and measures with the best.
  /// @param make  Makes the system with a share; its predecessor has ended.
  template <class System, class Model, class Make>
  std::unique_ptr<System> tuned(system_run& run, Model& model, hand_stream& stream, std::int64_t& number, Make&& make) {
    unsigned best = 0;
    std::int64_t best_ns = 0;
    std::size_t tried_segments = 0;
    std::string why;
    for (const unsigned share : shares) {
      std::unique_ptr<System> system;
      try {
        system = make(share);
      } catch (const error& e) {
        if (e.code() != status::invalid_argument) {
          throw;
        }
        why = e.what();
        continue;
      }
      if (system->segments() == tried_segments) {
        continue;  // the same cut, after it had to be made finer
      }
      tried_segments = system->segments();
      stream.set_hook(system.get());
      std::int64_t shortest = 0;
      for (std::int64_t i = 0; i < steps_for_tuning; ++i) {
        const measured_step m = checked(run, model, number++, [&] { return counters_of_hand(*system); });
        shortest = i == 1 ? m.ns : std::min(i == 0 ? INT64_MAX : shortest, m.ns);
      }
      stream.synchronize();
      stream.set_hook(nullptr);
      if (best == 0 || shortest < best_ns) {
        best = share;
        best_ns = shortest;
      }
    }
    if (best == 0) {
      throw error(status::invalid_argument, why);
    }
    std::unique_ptr<System> system = make(best);
    run.notes = absl::StrFormat("%d segments", system->segments());
    stream.set_hook(system.get());
    return system;
  }

  void by_hand_managed(const std::string& name) {
    const std::int64_t free = free_device_memory();
    model_by_hand<hand_backend<T>> of(memory_pool::kind::managed, set_up());
    hand_stream& stream = of.stream;
    std::int64_t number = 0;
    each_budget(name, [&](system_run& run) {
      const auto system = tuned<double_managed>(run, of.model, stream, number, [&](unsigned share) {
        return std::make_unique<double_managed>(0, of.pool.base(), program_, bytes{run.budget}, share, stream.native());
      });
      const auto count = [&] { return counters_of_hand(*system); };
      steps(run, of.model, number, count, [] {});
      run.peak_bytes = system->peak_bytes();
      run.device_memory_taken = free - free_device_memory();
      run.driver_told = audit(of.pool.base(), of.pool.size(), used_, settings_.audit,
                              [&] { (void)checked(run, of.model, number++, count); });
      stream.synchronize();
      stream.set_hook(nullptr);
    });
  }

  void by_hand_pinned(const std::string& name) {
    const std::int64_t free = free_device_memory();
    on_host setting_up;
    model_by_hand<slot_backend<T>> of(memory_pool::kind::pinned, set_up(), &setting_up);
    hand_stream& stream = of.stream;
    std::int64_t number = 0;
    each_budget(name, [&](system_run& run) {
      run.pinned = true;
      const auto system = tuned<double_pinned>(run, of.model, stream, number, [&](unsigned share) {
        return std::make_unique<double_pinned>(of.arena, program_, bytes{run.budget}, share, stream.native());
      });
      const auto count = [&] { return counters_of_hand(*system); };
      steps(run, of.model, number, count, [] {});
      run.peak_bytes = run.budget;
      run.device_memory_taken = free - free_device_memory();
      stream.synchronize();
      stream.set_hook(nullptr);
    });
  }

  const bench_settings& settings_;
  train_gpt::model_shape shape_;
  train_gpt::purpose use_;
  program_report report_{};
  step_program program_{};
  std::vector<float> expected_{};  // losses, by step
  std::vector<bool> used_{};       // by block
  std::vector<bytes> budgets_{};
  std::vector<std::int32_t> tokens_{};
  std::vector<std::int32_t> targets_{};
  bool wrong_ = false;
};

}  // namespace deepum::gpu_bench
