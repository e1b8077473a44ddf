#pragma once

#include "gpu/library/energy.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/memory_kinds.hpp"
#include "gpu/library/oracle_step.hpp"
#include "gpu/library/report.hpp"
#include "gpu/library/sizes.hpp"
#include "gpu/library/told_traffic.hpp"
#include <deepum/arena.hpp>
#include <deepum/core/block.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/cuda/stream.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/stream.hpp>
#include <deepum/trace.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// What all runs have in common.
struct bench_settings {
  std::vector<std::string> systems{};
  std::vector<double> budgets{};  ///< percent of the footprint
  std::int64_t steps = 0;
  std::int64_t warm_up = 0;
  std::int64_t audit = 0;  ///< steps behind the timed ones, in which the driver tells what it moves
  std::uint64_t seed = 0;
  cuda::fault_source feed = cuda::fault_source::automatic;
  const energy_meter* energy = nullptr;
  link_rates managed{};
  link_rates pinned{};
  memory_choices choices{};                               ///< for the library's systems
  std::vector<std::unique_ptr<trace>>* traces = nullptr;  ///< gets one of each of the library's arenas; null: of none
  /// Gets the name and the step of a model whose step is recorded; empty: its launches are not timed.
  std::function<void(const std::string&, const step_description&)> take_step{};
  std::function<void(const std::string&)> say = [](const std::string&) {};

  [[nodiscard]] bool wants(std::string_view system) const {
    return std::find(systems.begin(), systems.end(), system) != systems.end();
  }
};

[[nodiscard]] inline std::int64_t free_device_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<std::int64_t>(free);
}

/// Under which policy a system of this name runs the library.
[[nodiscard]] inline std::optional<std::string> policy_of(std::string_view system) {
  if (system == "once") {
    return "um";
  }
  if (system == "um" || system == "lru" || system == "deepum" || system == "auto" || system == "vdnn" ||
      system == "vdnn_ext") {
    return std::string(system);
  }
  return std::nullopt;
}

/// What the device of a system of the library is made with.
[[nodiscard]] inline cuda::device_options device_options_of(const bench_settings& settings) {
  cuda::device_options o{.faults = settings.feed};
  if (settings.choices.chunk.count != 0) {
    o.chunk = settings.choices.chunk;
  }
  o.evicted = settings.choices.host_mapped ? cuda::evicted_chunks::host_mapped : cuda::evicted_chunks::unmapped;
  o.host_limit = settings.choices.host_limit;
  return o;
}
/// And its policy.
[[nodiscard]] inline policy_options tuning_of(const bench_settings& settings) {
  policy_options o;
  o.write_back = settings.choices.write_back_early.value_or(o.write_back);
  o.offload = settings.choices.offload;
  return o;
}

/// The library's arena and stream for one system, with what is watched of them.
template <class Memory>
class memory_system {
 public:
  using arena_type = deepum::arena<Memory>;
  using stream_type = deepum::stream<Memory>;

  /// @param on_fault  Told of each fault with the launch that it is attributed to. On the migration thread.
  /// @errors        `status::unsupported` where the memory or the policy does not take a choice, and those of the
  /// arena.
  memory_system(const bench_settings& settings, const std::string& system, bytes capacity, bytes budget,
                std::function<void(launch_id)> on_fault = {})
      : once_(system == "once"),
        told_(system == oracle_name ? std::make_shared<replay::told_steps>() : nullptr),
        trace_(trace_of(settings, system)),
        here_(static_cast<std::size_t>(capacity / block_size) + 1),
        gpu_(0, device_options_of(settings)),
        arena_(gpu_, {.capacity = capacity,
                      .device_budget = budget,
                      .policy = policy_of(system).value_or("auto"),
                      .tuning = tuning_of(settings),
                      .make_policy = oracle_of(told_),
                      .log = [this](std::string_view line) { note(line); },
                      .observer =
                          [this, on_fault = std::move(on_fault)](const device_event& e, launch_id launch) {
                            watch(e);
                            if (trace_ != nullptr) {
                              trace_->see(e, launch);
                            }
                            if (on_fault && e.what == device_event::kind::fault) {
                              on_fault(launch);
                            }
                          }}),
        stream_(arena_) {}

  [[nodiscard]] arena_type& arena() { return arena_; }
  [[nodiscard]] stream_type& stream() { return stream_; }
  [[nodiscard]] counters count() { return counters_of(arena_.statistics(), block_of_memory(arena_.memory())); }
  /// Whether each allocation is prefetched once, when it is made.
  [[nodiscard]] bool once() const { return once_; }
  /// Blocks on the device at a time, at most, since `watch_peak`; as far as the library is told of what moves.
  [[nodiscard]] std::uint64_t peak_bytes() { return peak_.load() * block_of_memory(arena_.memory()).count; }
  /// What was allocated and filled at first may have been more than the budget. Waits until as much of it has left, as
  /// far as the library is told of what moves, for `longest` at most; no system begins with memory that it shall not
  /// have.
  void settle(bytes budget, std::chrono::seconds longest = std::chrono::seconds{10}) {
    const std::uint64_t blocks = budget / block_of_memory(arena_.memory());
    const auto end = std::chrono::steady_clock::now() + longest;
    while (now_.load() > blocks && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    watch_peak();
  }
  void watch_peak() { peak_.store(0); }
  [[nodiscard]] std::string notes() {
    const std::lock_guard lock(mutex_);
    return notes_;
  }
  [[nodiscard]] const std::byte* base() { return arena_.memory().base(); }
  /// Who is told steps beforehand; null: nobody.
  [[nodiscard]] replay::told_steps* told() { return told_.get(); }

 private:
  static trace* trace_of(const bench_settings& settings, const std::string& system) {
    if (settings.traces == nullptr) {
      return nullptr;
    }
    constexpr std::size_t last_events = std::size_t{1} << 16;
    settings.traces->push_back(std::make_unique<trace>(trace_options{.name = system, .events = last_events}));
    return settings.traces->back().get();
  }
  static std::function<std::unique_ptr<policy>(const policy_options&)> oracle_of(
      const std::shared_ptr<replay::told_steps>& told) {
    if (told == nullptr) {
      return {};
    }
    return [told](const policy_options& o) { return std::make_unique<replay::oracle_policy>(told, o.write_back); };
  }
  void note(std::string_view line) {
    const std::lock_guard lock(mutex_);
    if (notes_.find(line) == std::string::npos && notes_.size() < 500) {
      notes_ += notes_.empty() ? "" : "; ";
      notes_ += line;
    }
  }
  void watch(const device_event& e) {
    const bool arrived = e.what == device_event::kind::arrived;
    // Of what is discarded, managed memory keeps the room, and other memory tells no departure.
    const bool forgotten = !std::is_same_v<Memory, cuda::managed_memory> && e.what == device_event::kind::completed &&
                           e.ticket != 0 && e.did.forgets();
    if (!arrived && !forgotten && e.what != device_event::kind::departed) {
      return;
    }
    for (std::uint32_t b = e.range.begin_value(); b != e.range.end_value() && b < here_.size(); ++b) {
      now_ += arrived && !here_[b] ? 1 : 0;
      now_ -= !arrived && here_[b] ? 1 : 0;
      here_[b] = arrived;
    }
    const std::uint64_t now = now_.load();
    std::uint64_t seen = peak_.load();
    while (seen < now && !peak_.compare_exchange_weak(seen, now)) {
    }
  }

  bool once_;
  std::shared_ptr<replay::told_steps> told_;
  trace* trace_;
  std::mutex mutex_;
  std::string notes_{};
  std::vector<bool> here_;             // of the migration thread
  std::atomic<std::uint64_t> now_{0};  // of them that are there
  std::atomic<std::uint64_t> peak_{0};
  cuda::device gpu_;
  arena_type arena_;
  stream_type stream_;
};

/// On managed memory.
using library_system = memory_system<cuda::managed_memory>;
using library_arena = library_system::arena_type;
using library_stream = library_system::stream_type;

/// An arena as a program sees it whose allocator prefetches what it gives out, as RMM's prefetch adaptor does.
class adapted_arena {
 public:
  explicit adapted_arena(library_system& system) : system_(system) {}

  template <class T>
  [[nodiscard]] T* allocate(std::size_t n) {
    return static_cast<T*>(allocate_bytes(bytes{n * sizeof(T)}));
  }
  [[nodiscard]] void* allocate_bytes(bytes size) {
    void* p = system_.arena().allocate_bytes(size);
    if (system_.once() && p != nullptr) {
      system_.arena().prefetch(p, size, location::device());
    }
    return p;
  }
  void split(const void* p, std::span<const bytes> parts) { system_.arena().split(p, parts); }
  void mark_inactive(const void* p, bytes size) { system_.arena().mark_inactive(p, size); }
  void mark_active(const void* p, bytes size) { system_.arena().mark_active(p, size); }

 private:
  library_system& system_;
};

/// Runs steps with the reader of the driver's events open.
/// @param used  Blocks that the step uses.
template <class Step>
[[nodiscard]] told audit(const std::byte* base, bytes capacity, const std::vector<bool>& used, std::int64_t steps,
                         Step&& step) {
  told t;
  told_traffic reader(base, capacity);
  t.works = reader.works();
  t.why_not = reader.why_not();
  if (!t.works) {
    return t;
  }
  // In the first step it is found out which blocks move at all.
  step();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  reader.take();
  const told_traffic::totals before = reader.seen();
  for (std::int64_t i = 0; i < steps; ++i) {
    step();
    reader.take();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  reader.take();
  const told_traffic::totals& after = reader.seen();
  const auto n = static_cast<double>(std::max<std::int64_t>(1, steps));
  t.in = static_cast<double>(after.in - before.in) / n;
  t.out = static_cast<double>(after.out - before.out) / n;
  t.faulted_in = static_cast<double>(after.faulted_in - before.faulted_in) / n;
  t.faults = static_cast<double>(after.faults - before.faults) / n;
  t.lost = after.lost;
  t.flushes = reader.flushes();
  std::uint64_t peak = after.peak_blocks;
  for (std::uint32_t b = 0; b < used.size(); ++b) {
    peak += used[b] && !reader.moved(block_id{b}) ? 1 : 0;
  }
  t.peak_bytes = peak * block_size.count;
  return t;
}

/// Energy of what `work` does.
template <class Work>
[[nodiscard]] std::optional<double> joules_of(const energy_meter* meter, Work&& work) {
  const std::optional<double> before = meter != nullptr ? meter->joules() : std::nullopt;
  work();
  const std::optional<double> after = before ? meter->joules() : std::nullopt;
  return after ? std::optional<double>(*after - *before) : std::nullopt;
}

}  // namespace deepum::gpu_bench
