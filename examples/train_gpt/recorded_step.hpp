#pragma once

#include "backend_sim.hpp"
#include "model.hpp"
#include "operations_sim.hpp"
#include "options.hpp"
#include "step_bound.hpp"
#include <deepum/core/launch.hpp>
#include <deepum/dim.hpp>
#include <deepum/operand.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

// One step of training as a list of operations, without running it: what `least_of` takes.
namespace train_gpt {

/// Memory whose addresses mean something and whose contents do not.
class recording_arena {
 public:
  template <class T>
  [[nodiscard]] T* allocate(std::size_t n) {
    return static_cast<T*>(allocate_bytes(bytes{n * sizeof(T)}));
  }
  [[nodiscard]] void* allocate_bytes(bytes size) {
    const std::uint64_t at = end_;
    end_ += (size.count + 255) / 256 * 256;
    return reinterpret_cast<void*>(base + at);  // NOLINT(performance-no-int-to-ptr): it is a name
  }
  void split(void* /*first*/, const std::vector<bytes>& /*parts*/) {}
  void mark_inactive(void* p, bytes size) {
    if (!step_.empty()) step_.back().dead.emplace_back(offset_of(p), offset_of(p) + size.count);
  }
  void mark_active(void* /*p*/, bytes /*size*/) {}

  [[nodiscard]] bool holds(const void* p) const {
    return reinterpret_cast<std::uintptr_t>(p) >= base && reinterpret_cast<std::uintptr_t>(p) < base + end_;
  }
  void add(step_operation o) { step_.push_back(std::move(o)); }
  /// @param mode  What the device does with the bytes.
  [[nodiscard]] step_use use_of(const void* p, bytes size, deepum::access mode) const {
    return {offset_of(p), offset_of(p) + size.count, mode != deepum::access::overwrite, mode != deepum::access::read};
  }
  /// What was recorded since this was called last.
  [[nodiscard]] std::vector<step_operation> take() { return std::exchange(step_, {}); }

 private:
  // No object lies there.
  static constexpr std::uintptr_t base = std::uintptr_t{1} << 46U;
  [[nodiscard]] static std::uint64_t offset_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p) - base; }

  std::uint64_t end_ = 0;
  std::vector<step_operation> step_{};
};

/// Writes down what kernels say of themselves, and runs none of them.
class recording_stream {
 public:
  recording_stream(recording_arena& arena, const deepum::sim::profile& gpu) : arena_(&arena), gpu_(&gpu) {}

  template <class Kernel, class... Args>
  void launch(const char* /*name*/, deepum::dim /*grid*/, deepum::dim /*block*/, unsigned /*shared*/, const Kernel& k,
              Args... arguments) {
    deepum::sim::work w;
    k.describe(w, argument(arguments)...);
    add(w);
  }
  void memset(void* to, int /*value*/, bytes size) {
    deepum::sim::work w;
    w.overwrites(to, size.count);
    add(w);
  }
  /// The link's part of it is left out.
  void memcpy(void* to, const void* from, bytes size) {
    step_operation o;
    if (arena_->holds(from)) o.uses.push_back(arena_->use_of(from, size, deepum::access::read));
    if (arena_->holds(to)) {
      step_use written = arena_->use_of(to, size, deepum::access::overwrite);
      written.writes = arena_->holds(from);  // else the host has these contents
      o.uses.push_back(written);
    } else {
      std::memset(to, 0, size.count);
    }
    arena_->add(std::move(o));
  }
  void synchronize() {}

 private:
  template <class T>
  static T* argument(const deepum::typed_operand<T>& o) {
    return o.pointer;
  }
  template <class T>
  static T argument(T plain) {
    return plain;
  }
  // As the simulated GPU computes it.
  void add(const deepum::sim::work& w) {
    const double by_flops = w.flops() * 1e9 / (gpu_->peak_flops * gpu_->flops_efficiency);
    const double by_memory = static_cast<double>(w.traffic().count) * 1e9 / gpu_->memory_bandwidth;
    step_operation o{.ns = static_cast<double>(gpu_->launch_latency.count()) + std::max(by_flops, by_memory)};
    for (const deepum::sim::work::span& s : w.spans())
      o.uses.push_back(arena_->use_of(s.address, s.size, s.mode));
    arena_->add(std::move(o));
  }

  recording_arena* arena_;
  const deepum::sim::profile* gpu_;
};

struct recording_backend {
  using arena = recording_arena;
  using stream = recording_stream;
  using operations = sim_operations<recording_stream>;
};

/// The operations of one step on the simulated GPU.
[[nodiscard]] inline std::vector<step_operation> recorded_step(const run_options& options) {
  const deepum::sim::profile gpu = simulated_profile(options);
  recording_arena arena;
  recording_stream stream{arena, gpu};
  gpt<recording_backend> model{arena, stream, options.shape, options.seed, options.use};
  (void)arena.take();
  const std::vector<std::int32_t> text(static_cast<std::size_t>(options.shape.rows()));
  if (options.use == purpose::training) {
    model.differentiate(text, text);
    model.update(options.learning_rate);
  } else {
    model.evaluate(text, text);
  }
  (void)model.loss();
  return arena.take();
}

/// The best that the links of a simulated GPU do, whoever moves the bytes.
[[nodiscard]] inline link_rates best_rates(const deepum::sim::profile& gpu) {
  const double in = std::max({gpu.pinned, gpu.link_in, gpu.remote});
  const double out = std::max({gpu.pinned, gpu.prefetch_out, gpu.remote});
  return {.in = in / 1e9,
          .out = out / 1e9,
          .in_both = std::min(in, std::max(gpu.pinned_both, gpu.link_in)) / 1e9,
          .out_both = std::min(out, std::max(gpu.pinned_both, gpu.prefetch_out_beside_in)) / 1e9};
}

/// The bound of a step on a simulated GPU with the run's budget.
[[nodiscard]] inline step_bound least_possible(const run_options& options) {
  return least_of(recorded_step(options), options.budget.count, best_rates(simulated_profile(options)));
}

}  // namespace train_gpt
