#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/convnet_executor.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/layered_report.hpp"
#include "gpu/library/least_traffic.hpp"
#include "gpu/library/memory_watch.hpp"
#include "gpu/library/recorded_step.hpp"
#include "gpu/library/report.hpp"
#include "gpu/library/sizes.hpp"
#include "nlohmann/json.hpp"
#include "replay/convnet_nets.hpp"
#include "replay/convnet_step.hpp"
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/error.hpp>
#include <deepum/planning/algorithm_choice.hpp>
#include <deepum/planning/layer_offload.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// What a net is measured with.
struct convnet_case {
  replay::convnet net{};
  std::uint32_t batch = 0;
  float_products products = float_products::fma;
  double choice_percent = 60;  ///< of the peak of base: the budget that the dynamic choice gets
};

/// A net's training step: everything resident, vDNN and vDNNExt with each offload and the dynamic choice, and `auto`,
/// which is told no layers, with the peak of each as its budget. With the same algorithms, the result of each step and
/// the weights at the end have to be those of the resident run, bit by bit.
/// @tparam Memory  The library's, managed or paged.
template <class Memory>
class convnet_runs {
 public:
  /// @param take_workload  Gets the name and the text of the step with the fastest algorithms, with measured times, as
  ///                       `deepum-replay` reads it; empty: launches are not timed.
  convnet_runs(bench_settings settings, convnet_case what,
               std::function<void(const std::string&, const std::string&)> take_workload = {})
      : settings_(std::move(settings)),
        what_(std::move(what)),
        take_workload_(std::move(take_workload)),
        name_(absl::StrCat(what_.net.name, "_b", what_.batch, "_", to_string(what_.products))),
        executor_(what_.net, what_.batch, what_.products, settings_.seed) {}

  /// @errors  `status::device_failure`; `status::invalid_argument` where a system computes something else than the
  ///          resident run.
  [[nodiscard]] program_report run() {
    settings_.say(absl::StrCat(name_, ": algorithms"));
    const choice_net choice = executor_.find_algorithms(device_options_of(settings_).chunk);
    const algorithms fastest = with_algorithms(choice, replay::choose_algorithms(choice, true), "");
    report_.name = what_.net.name;
    report_.description =
        absl::StrFormat("%s memory, batch %d, %s", name_of_memory<Memory>, what_.batch, to_string(what_.products));
    report_.managed = settings_.managed;
    report_.pinned = settings_.pinned;
    for (const replay::described_tensor& t : fastest.step.described.tensors) {
      report_.footprint += t.size.count;
    }
    resident(fastest);
    const std::uint64_t base = library(fastest, "vdnn", "none", offload::none, bytes{}).peak_bytes;
    std::uint64_t all = 0;
    for (const offload o : {offload::conv, offload::all}) {
      const std::string word(to_string(o));
      all = library(fastest, "vdnn", word, o, bytes{}).peak_bytes;
      if (all != 0) {
        (void)library(fastest, "vdnn_ext", word, o, bytes{all});
        (void)library(fastest, "auto", "", offload::none, bytes{all});
      }
    }
    for (const char* const system : {"lru", "um"}) {
      if (all != 0) {
        (void)library(fastest, system, "", offload::none, bytes{all});
      }
    }
    if (base != 0) {
      (void)library(fastest, "auto", "", offload::none, whole_blocks(0.8 * static_cast<double>(base)));
      choose(choice, fastest, whole_blocks(what_.choice_percent / 100 * static_cast<double>(base)));
    }
    tell_of(choice, fastest, base);
    find_bounds();
    return std::move(report_);
  }

  /// After `run`: what the dynamic choice gave, and each layer's input beside its computation.
  [[nodiscard]] const nlohmann::ordered_json& facts() const { return facts_; }

 private:
  /// A step with one choice of algorithms, and what it computes.
  struct algorithms {
    std::string name{};  // behind the names of systems
    replay::convnet_step step{};
    std::vector<std::uint64_t> results{};  // by number of the step
    std::uint64_t weights = 0;
  };

  [[nodiscard]] algorithms with_algorithms(const choice_net& choice, const chosen_algorithms& chosen,
                                           const std::string& name) const {
    return {.name = name, .step = replay::make_step(what_.net, name_, choice, chosen), .results = {}, .weights = 0};
  }
  [[nodiscard]] std::int64_t all_steps() const { return settings_.warm_up + settings_.steps + settings_.audit; }

  // ---- one system ---------------------------------------------------------------------------------------------------

  void resident(const algorithms& of) {
    system_run run{.name = absl::StrCat("resident", of.name)};
    settings_.say(absl::StrCat(name_, ": ", run.name));
    const memory_watch watch;
    memory_pool pool(memory_pool::kind::device, capacity_of(of.step, block_size));
    hand_arena arena(pool);
    hand_stream stream(arena);
    const convnet_memory memory(arena, of.step.described);
    algorithms& known = known_.emplace_back(of);
    measure(
        run, known, arena, stream, memory, watch, [] { return counters{}; }, [] {});
    if (of.name.empty()) {
      record(known, run, arena, stream, memory);
    }
    report_.runs.push_back(std::move(run));
  }
  /// What the resident run executes, with times, for the replay; and what it touches, for the bounds.
  void record(algorithms& known, const system_run& run, hand_arena& arena, hand_stream& stream,
              const convnet_memory& memory) {
    {
      step_recorder recorder(arena);
      stream.set_hook(&recorder);
      executor_.run(arena, stream, known.step, memory);
      stream.set_hook(nullptr);
      stream.synchronize();
      recorded_ = recorder.take();
    }
    step_timer timer(known.step.launches.size(), stream.native());
    stream.set_hook(&timer);
    executor_.run(arena, stream, known.step, memory);
    stream.set_hook(nullptr);
    stream.synchronize();
    const std::vector<nanoseconds> times =
        at_most(timer.times(), nanoseconds{static_cast<std::int64_t>(median_ns(run))});
    for (std::size_t k = 0; k < times.size(); ++k) {
      known.step.described.launches[k].duration = times[k];
    }
    if (take_workload_) {
      take_workload_(name_, replay::to_text(known.step.described, "measured launch by launch"));
    }
  }
  /// @param budget  0: no limit; the report then says the peak.
  const system_run& library(const algorithms& of, const std::string& system, const std::string& inputs, offload leaves,
                            bytes budget) {
    system_run run{.name = absl::StrCat(system, inputs.empty() ? "" : " ", inputs, of.name), .budget = budget.count};
    if (settings_.wants(system)) {
      settings_.say(absl::StrFormat("%s: %s, budget %d MiB", name_, run.name, budget.count >> 20));
      try {
        run_library(run, of, system, leaves, budget);
      } catch (const error& e) {
        if (wrong_ || e.code() == status::device_failure) {
          throw;
        }
        run = {.name = run.name, .budget = run.budget, .skipped = e.what()};
      }
      report_.runs.push_back(std::move(run));
      return report_.runs.back();
    }
    return none_;
  }
  void run_library(system_run& run, const algorithms& of, const std::string& system, offload leaves, bytes budget) {
    algorithms& known =
        *std::find_if(known_.begin(), known_.end(), [&](const algorithms& a) { return a.name == of.name; });
    bench_settings own = settings_;
    own.choices.offload = leaves;
    const memory_watch watch;
    const bytes capacity = capacity_of(of.step, std::max(device_options_of(own).chunk, block_size));
    memory_system<Memory> memory(own, system, capacity, budget.count != 0 ? budget : most_of(capacity));
    const convnet_memory tensors(memory.arena(), of.step.described);
    run.pinned = !std::is_same_v<Memory, cuda::managed_memory>;
    measure(
        run, known, memory.arena(), memory.stream(), tensors, watch, [&] { return memory.count(); },
        [&] { memory.watch_peak(); });
    run.peak_bytes = memory.peak_bytes();
    run.budget = budget.count != 0 ? budget.count : run.peak_bytes;
    run.notes = memory.notes();
    if (const policy_statistics p = memory.arena().statistics().policy; p.shared_blocks != 0) {
      absl::StrAppend(&run.notes, run.notes.empty() ? "" : "; ", p.shared_blocks,
                      " blocks are shared with other memory");
    }
  }
  /// With no limit: what the device has, but for what cuDNN and cuBLAS take.
  [[nodiscard]] static bytes most_of(bytes capacity) {
    constexpr std::uint64_t room = std::uint64_t{1} << 30;
    const auto free = static_cast<std::uint64_t>(free_device_memory());
    return std::min(capacity, whole_blocks(static_cast<double>(free > 2 * room ? free - room : free / 2)));
  }
  [[nodiscard]] static bytes capacity_of(const replay::convnet_step& step, bytes block) {
    bytes sum = block * 4;
    for (const replay::described_tensor& t : step.described.tensors) {
      sum += block * (t.size.count / block.count + 1);
    }
    return sum;
  }

  template <class Arena, class Stream, class Count, class WatchPeak>
  void measure(system_run& run, algorithms& known, Arena& arena, Stream& stream, const convnet_memory& memory,
               const memory_watch& watch, Count&& count, WatchPeak&& watch_peak) {
    executor_.draw(stream, memory);
    std::int64_t number = 0;
    const auto step = [&] {
      const counters before = count();
      const auto began = std::chrono::steady_clock::now();
      executor_.run(arena, stream, known.step, memory);
      stream.synchronize();
      measured_step m;
      m.ns = std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now() - began).count();
      m.did = count() - before;
      m.loss = static_cast<float>(executor_.loss());
      m.sum = executor_.bits();
      compare(run, known.results, static_cast<std::size_t>(number++), m);
      return m;
    };
    for (std::int64_t i = 0; i < settings_.warm_up; ++i) {
      run.warm_up.push_back(step());
    }
    watch_peak();
    run.joules = joules_of(settings_.energy, [&] {
      for (std::int64_t i = 0; i < settings_.steps; ++i) {
        run.steps.push_back(step());
      }
    });
    run.taken = watch.during([&] {
      for (std::int64_t i = 0; i < settings_.audit; ++i) {
        (void)step();
      }
    });
    const std::uint64_t weights = executor_.weights_sum(stream, memory);
    if (known.weights == 0) {
      known.weights = weights;
    }
    refuse_unless(weights == known.weights,
                  absl::StrFormat("%s: %s ends with other weights than the resident run", name_, run.name));
  }
  /// The first run with these algorithms, which is the resident one, tells what is right.
  void compare(const system_run& run, std::vector<std::uint64_t>& results, std::size_t number, const measured_step& m) {
    if (number == results.size()) {
      results.push_back(m.sum);
    }
    refuse_unless(std::isfinite(m.loss), absl::StrFormat("%s: the loss of step %d is no number", name_, number));
    refuse_unless(m.sum == results[number],
                  absl::StrFormat("%s: step %d of %s computes something else than the resident run: a loss of %a",
                                  name_, number, run.name, m.loss));
  }
  void refuse_unless(bool right, const std::string& why) {
    if (!right) {
      wrong_ = true;
      throw error(status::invalid_argument, why);
    }
  }

  // ---- the dynamic choice -------------------------------------------------------------------------------------------

  void choose(const choice_net& choice, const algorithms& fastest, bytes budget) {
    const layer_choice made = choose_layers(choice, budget);
    facts_["choice"] = {{"budget_bytes", budget.count},
                        {"outcome", to_string(made.outcome)},
                        {"offload", to_string(made.offload)},
                        {"predicted_peak_bytes", made.peak.count}};
    if (!made.trainable()) {
      return;
    }
    algorithms chosen = with_algorithms(choice, made.algorithms, ", chosen algorithms");
    if (same(chosen.step, fastest.step)) {
      chosen.name.clear();
    } else {
      resident(chosen);
    }
    for (const char* const system : {"vdnn", "vdnn_ext"}) {
      (void)library(chosen, system, "choice", made.offload, budget);
    }
    (void)library(chosen, "auto", "", offload::none, budget);
  }
  static bool same(const replay::convnet_step& a, const replay::convnet_step& b) {
    return std::equal(
        a.algorithms.begin(), a.algorithms.end(), b.algorithms.begin(), b.algorithms.end(),
        [](const auto& x, const auto& y) { return x.has_value() == y.has_value() && (!x || x->number == y->number); });
  }

  // ---- what the file says beside the runs ---------------------------------------------------------------------------

  void tell_of(const choice_net& choice, const algorithms& fastest, std::uint64_t base) {
    facts_["net"] = what_.net.name;
    facts_["batch"] = what_.batch;
    facts_["products"] = to_string(what_.products);
    facts_["base_peak_bytes"] = base;
    const algorithms& known = known_.front();
    std::vector<layer_kind> kinds;
    for (const choice_layer& l : choice.layers) {
      kinds.push_back(l.kind);
    }
    const std::vector<bool> leaves = offloaded_layers(offload::all, kinds);
    for (std::size_t i = 0; i < choice.layers.size(); ++i) {
      nlohmann::ordered_json layer{{"name", what_.net.layers[i].name},
                                   {"kind", to_string(kinds[i])},
                                   {"input_bytes", what_.net.input_elements(i) * what_.batch * sizeof(float)},
                                   {"input_leaves", bool{leaves[i]}}};
      std::int64_t forward = 0;
      std::int64_t backward = 0;
      for (std::size_t k = 0; k < known.step.launches.size(); ++k) {
        const std::optional<replay::described_layer>& of = known.step.described.launches[k].layer;
        if (of && of->number == i) {
          (of->pass == layer_pass::forward ? forward : backward) += known.step.described.launches[k].duration.count();
        }
        if (const std::optional<layer_algorithm>& a = fastest.step.algorithms[k]; a && of->number == i) {
          layer["algorithms"].push_back({{"launch", fastest.step.described.launches[k].kernel},
                                         {"number", a->number},
                                         {"ns", a->time.count()},
                                         {"workspace_bytes", a->workspace.count}});
        }
      }
      layer["forward_ns"] = forward;
      layer["backward_ns"] = backward;
      facts_["layers"].push_back(std::move(layer));
    }
  }
  void find_bounds() {
    const double resident = median_ns(report_.runs.front()) / 1e9;
    const unit_program blocks = in_blocks(recorded_);
    for (const system_run& run : report_.runs) {
      if (run.budget != 0 && bound_of(report_, run.budget) == nullptr) {
        const std::uint64_t in = least_bytes_in(blocks, run.budget);
        const std::uint64_t out = least_bytes_out(blocks, run.budget);
        report_.bounds.push_back({run.budget, in, out, 1e9 * least_seconds(resident, in, out, settings_.pinned)});
      }
    }
  }

  bench_settings settings_;
  convnet_case what_;
  std::function<void(const std::string&, const std::string&)> take_workload_;
  std::string name_;
  convnet_executor executor_;
  std::vector<algorithms> known_{};
  step_program recorded_{};
  program_report report_{};
  nlohmann::ordered_json facts_ = nlohmann::ordered_json::object();
  system_run none_{};  // of a system that is not wanted
  bool wrong_ = false;
};

}  // namespace deepum::gpu_bench
