#pragma once

#include "model.hpp"
#include "options.hpp"
#include "report.hpp"
#include "text.hpp"
#include <deepum/arena.hpp>
#include <deepum/stream.hpp>
#include <deepum/trace.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace train_gpt {

/// Called after each step.
using progress = std::function<void(const policy_run&)>;

/// Rises over a tenth of the steps, then falls in a line to a tenth of the peak.
[[nodiscard]] inline float learning_rate_of(std::int64_t step, std::int64_t steps, float peak) {
  const auto warm_up = static_cast<float>(std::max<std::int64_t>(1, steps / 10));
  const float rising = std::min(1.0F, static_cast<float>(step + 1) / warm_up);
  const float done = static_cast<float>(step) / static_cast<float>(steps);
  return peak * rising * (1.0F - 0.9F * done);
}

/// An address range that holds the model, with room for what the allocations leave unused.
/// @param block  Size of the memory's blocks.
[[nodiscard]] inline bytes capacity_for(bytes footprint, bytes block) { return block * (footprint / block + 16); }

/// Where the arena of a device learns of page faults, as the device names it; empty where it does not say.
template <class Arena>
[[nodiscard]] std::string fault_feed_of(Arena& arena) {
  if constexpr (requires { std::string{arena.memory().fault_feed()}; }) {
    return std::string{arena.memory().fault_feed()};
  } else {
    return {};
  }
}

/// Trains a model from scratch under one policy, or runs its forward pass alone.
/// @tparam Backend  As for `gpt`, and `make_device(options, device_memory)`, `device_budget(policy, device_memory)` and
///                  `block(options)`.
/// @param policy   As `deepum::make_policy` names them; `ideal` gets a device that holds everything.
/// @param text     What it learns.
/// @param sample   Where the trained model writes a line to; null: it writes nothing.
/// @param trace    Records the run; null: nobody does.
template <class Backend>
policy_run train(const run_options& options, const std::string& policy, const std::string& text,
                 const progress& on_step, std::string* sample, deepum::trace* trace = nullptr) {
  const bytes capacity = capacity_for(gpt<Backend>::footprint(options.shape, options.use), Backend::block(options));
  const bytes memory = policy == "ideal" ? capacity : options.budget;
  const auto gpu_owner = Backend::make_device(options, memory);
  typename Backend::device& gpu = *gpu_owner;

  // Launches are numbered in the order of issue, so that those of one phase are a range. The observer is called by the
  // arena's own thread.
  std::mutex faulted_mutex;
  std::vector<deepum::launch_id> faulted;
  deepum::arena_options arena_options{.capacity = capacity,
                                      .device_budget = Backend::device_budget(policy, memory),
                                      .policy = policy,
                                      .tuning = {.lookahead = options.lookahead.degree, .hold_launches = options.hold},
                                      .tables = options.tables};
  arena_options.observer = [&, trace](const deepum::device_event& e, deepum::launch_id launch) {
    if (trace != nullptr) trace->see(e, launch);
    if (e.what != deepum::device_event::kind::fault) return;
    const std::lock_guard lock(faulted_mutex);
    faulted.push_back(launch);
  };
  typename Backend::arena arena{gpu, arena_options};
  typename Backend::stream stream{arena};
  gpt<Backend> model{arena, stream, options.shape, options.seed, options.use};
  batches data{text, options.shape.batch, options.shape.context, options.seed + 1};

  policy_run run{.name = policy, .fault_feed = fault_feed_of(arena)};
  deepum::statistics before = arena.statistics();
  for (std::int64_t step = 0; step < options.steps; ++step) {
    data.next();
    const deepum::nanoseconds began = gpu.now();
    if (options.use == purpose::training) {
      model.differentiate(data.tokens(), data.targets());
    } else {
      model.evaluate(data.tokens(), data.targets());
    }
    const deepum::launch_id last_same = arena.engine().last_launch();
    if (options.use == purpose::training) {
      model.update(learning_rate_of(step, options.steps, options.learning_rate));
    }
    const deepum::launch_id last_changing = arena.engine().last_launch();
    run.loss.push_back(model.loss());
    const deepum::nanoseconds ended = gpu.now();
    run.step_ns.push_back((ended - began).count());
    if (trace != nullptr) trace->span("step " + std::to_string(step + 1), began, ended);

    const deepum::statistics now = arena.statistics();
    const deepum::statistics difference = now - before;
    before = now;
    run.faults.push_back(difference.faults);
    {
      const std::lock_guard lock(faulted_mutex);
      run.faults_changing.push_back(static_cast<std::uint64_t>(std::count_if(
          faulted.begin(), faulted.end(), [&](deepum::launch_id l) { return l > last_same && l <= last_changing; })));
      faulted.clear();
    }
    run.bytes_in.push_back(difference.in().all_bytes());
    run.bytes_out.push_back(difference.out().all_bytes());
    run.stall_ns.push_back(difference.stalled.count());
    run.prefetches_used.push_back(difference.prefetches_used);
    run.prefetches_late.push_back(difference.prefetches_late);
    run.prefetches_wasted.push_back(difference.prefetches_wasted);
    run.table_bytes = now.policy.table_bytes;
    on_step(run);
  }
  if (!options.tables.empty()) arena.save_tables(options.tables);  // the next run begins with training, as this one did
  if (sample != nullptr) *sample = write_text(model, "The ", options.sample, options.seed);
  return run;
}

}  // namespace train_gpt
