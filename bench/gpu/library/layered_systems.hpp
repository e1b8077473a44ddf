#pragma once

#include "examples/train_gpt/bf16.hpp"
#include "gpu/library/bench_system.hpp"
#include "gpu/library/hand_memory.hpp"
#include "gpu/library/layer_executor.hpp"
#include "gpu/library/layered_step.hpp"
#include "gpu/library/memory_watch.hpp"
#include "gpu/library/oracle_step.hpp"
#include "gpu/library/report.hpp"
#include "gpu/library/step_program.hpp"
#include <deepum/cuda/managed_memory.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

// A layered model on memory as each system has it. All have the same members:
// * use(step, planned, then): from now on this step is executed; plans so many launches beforehand; waits.
// * run(numbers), run(numbers, first, count): executes all of it once, or some of its launches, the next ones, and
//   waits. Returns the sums.
// * count(): what it has counted since it began.
// * set_budget(bytes), watch(): the memory it takes.
namespace deepum::gpu_bench {

/// Whether a system of this name runs layered programs with the library.
[[nodiscard]] inline bool runs_layers(const std::string& system) {
  return system == oracle_name || (policy_of(system) && system != "once");
}

namespace detail {

/// Tensors that are where they are.
struct in_place {
  std::vector<std::byte*> at{};

  [[nodiscard]] std::span<std::byte* const> before(std::size_t /*launch*/) const { return at; }
  void after(std::size_t /*launch*/) const {}
};

/// Tensors of an arena, which hears what is of no value.
template <class Arena>
class in_arena {
 public:
  Arena* arena = nullptr;
  std::vector<std::byte*> at{};
  std::vector<tensor> tensors{};
  unvalued none{};               ///< of the step that is executed; empty: nobody says anything
  std::vector<bool> inactive{};  ///< by tensor

  [[nodiscard]] std::span<std::byte* const> before(std::size_t launch) {
    if (!none.before.empty()) {
      for (const std::uint32_t t : none.before[launch]) {
        activate(t);
      }
    }
    return at;
  }
  void after(std::size_t launch) {
    if (!none.after.empty()) {
      for (const std::uint32_t t : none.after[launch]) {
        arena->mark_inactive(at[t], tensors[t].size());
        inactive[t] = true;
      }
    }
  }
  /// Another step is executed from now on, which may use its tensors in another order.
  void follow(unvalued next) {
    for (std::uint32_t t = 0; t < tensors.size(); ++t) {
      activate(t);
    }
    none = std::move(next);
  }

 private:
  void activate(std::uint32_t t) {
    if (inactive[t]) {
      arena->mark_active(at[t], tensors[t].size());
      inactive[t] = false;
    }
  }
};

/// The same, with an event before each launch and behind the last.
struct timed_in_place {
  std::span<std::byte* const> at{};
  launch_timer& timer;
  cudaStream_t stream = nullptr;

  [[nodiscard]] std::span<std::byte* const> before(std::size_t launch) const {
    if (launch == 0) {
      timer.mark(0, stream);
    }
    return at;
  }
  void after(std::size_t launch) const { timer.mark(launch + 1, stream); }
};

template <class Arena>
[[nodiscard]] std::vector<std::byte*> allocated(Arena& arena, const std::vector<tensor>& tensors) {
  std::vector<std::byte*> at;
  at.reserve(tensors.size());
  for (const tensor& t : tensors) {
    at.push_back(static_cast<std::byte*>(arena.allocate_bytes(t.size())));
  }
  return at;
}

template <class T, class Stream, class Place>
std::vector<std::uint64_t> run(layer_executor<T>& executor, Stream& stream, const layered_step& step, Place& place,
                               const step_numbers& numbers, std::size_t first, std::size_t count) {
  const std::size_t sums = executor.sums_of(step, first, count);
  executor.clear_sums(stream, sums);
  for (std::size_t i = first; i < first + count; ++i) {
    executor.launch(stream, step.tensors, step.launches[i], place.before(i), numbers);
    place.after(i);
  }
  return executor.read_sums(stream, sums);
}

}  // namespace detail

/// All memory on the device.
template <class T>
class resident_model {
 public:
  resident_model(layer_executor<T>& executor, const std::vector<tensor>& tensors)
      : executor_(executor),
        pool_(memory_pool::kind::device, footprint_of(tensors)),
        arena_(pool_),
        stream_(arena_),
        place_{detail::allocated(arena_, tensors)} {}

  void use(layered_step step, std::size_t /*planned*/, afterwards /*then*/) { step_ = std::move(step); }
  std::vector<std::uint64_t> run(const step_numbers& numbers) { return run(numbers, 0, step_.launches.size()); }
  std::vector<std::uint64_t> run(const step_numbers& numbers, std::size_t first, std::size_t count) {
    return detail::run(executor_, stream_, step_, place_, numbers, first, count);
  }
  /// Executes all of the step, and adds how long each launch took.
  void time(launch_times& times, const step_numbers& numbers) {
    launch_timer timer(step_.launches.size());
    detail::timed_in_place place{place_.at, timer, stream_.native()};
    (void)detail::run(executor_, stream_, step_, place, numbers, 0, step_.launches.size());
    timer.add_to(times, step_);
  }
  [[nodiscard]] counters count() const { return {}; }
  [[nodiscard]] const memory_watch& watch() const { return watch_; }

 private:
  layer_executor<T>& executor_;
  memory_watch watch_{};
  memory_pool pool_;
  hand_arena arena_;
  hand_stream stream_;
  detail::in_place place_;
  layered_step step_{};
};

/// An arena of the library.
template <class Memory, class T>
class library_model {
 public:
  /// Launches between two uses, from which on it is said that contents are of no value.
  static constexpr std::size_t worth_a_word = 12;

  /// @param forgets  Whether the arena hears what is of no value.
  /// @param facts    What an oracle is told of steps; null for other systems.
  library_model(layer_executor<T>& executor, const bench_settings& settings, const std::string& system,
                const std::vector<tensor>& tensors, bytes budget, bool forgets, const oracle_facts* facts = nullptr)
      : executor_(executor),
        forgets_(forgets),
        facts_(facts),
        system_(settings, system, capacity_of(tensors, settings.choices.chunk), budget) {
    if (std::is_same_v<Memory, cuda::managed_memory>) {
      watch_ = memory_watch();  // its contexts are there now, and nothing else
    }
    place_.arena = &system_.arena();
    place_.at = detail::allocated(system_.arena(), tensors);
    place_.tensors = tensors;
    place_.inactive.resize(tensors.size());
  }

  void use(layered_step step, std::size_t /*planned*/, afterwards then) {
    step_ = std::move(step);
    place_.follow(forgets_ && then == afterwards::repeats ? unvalued_in(step_, worth_a_word) : unvalued{});
    if (system_.told() != nullptr) {
      tell();
    }
  }
  std::vector<std::uint64_t> run(const step_numbers& numbers) { return run(numbers, 0, step_.launches.size()); }
  std::vector<std::uint64_t> run(const step_numbers& numbers, std::size_t first, std::size_t count) {
    return detail::run(executor_, system_.stream(), step_, place_, numbers, first, count);
  }
  [[nodiscard]] counters count() { return system_.count(); }
  [[nodiscard]] const memory_watch& watch() const { return watch_; }
  void set_budget(bytes budget) { system_.arena().set_budget(budget); }
  [[nodiscard]] memory_system<Memory>& system() { return system_; }
  /// What the library has logged, and the host memory that it holds, where it counts that.
  [[nodiscard]] std::string notes() {
    std::string text = system_.notes();
    if (const std::optional<bytes> host = host_memory_of(system_.arena().memory())) {
      text += (text.empty() ? "" : "; ") + std::to_string(host->count >> 20) + " MiB of host memory";
    }
    if (system_.told() != nullptr) {
      const policy_statistics p = system_.arena().statistics().policy;
      text += (text.empty() ? "" : "; ") + std::to_string(told_launches_) + " launches were told beforehand";
      if (p.mispredicted != 0) {
        text += ", and steps came otherwise " + std::to_string(p.mispredicted) + " times";
      }
    }
    return text;
  }

  /// Of the arena's address range: every tensor may begin with a block, however large the memory's blocks are.
  [[nodiscard]] static bytes capacity_of(const std::vector<tensor>& tensors, bytes chunk) {
    constexpr bytes largest{std::uint64_t{32} << 20};
    const bool managed = std::is_same_v<Memory, cuda::managed_memory>;
    const bytes block = managed ? block_size : std::max(chunk, largest);
    return footprint_of(tensors, block) + bytes{4 * block.count};
  }

 private:
  /// Steps whose launches have been measured: not the set-up, which each run executes once. Its memory is cleared in
  /// pieces on some memory kinds, too.
  void tell() {
    auto& arena = system_.arena();
    const auto measured = [&] {
      for (std::size_t i = 0; i < step_.launches.size(); ++i) {
        if (!facts_->times.of(step_, i)) {
          return false;
        }
      }
      return true;
    };
    replay::told_steps::told next{.after = arena.engine().last_launch()};
    told_launches_ = 0;
    if (facts_ != nullptr && measured()) {
      std::vector<operand> operands;
      std::vector<block_access> accesses;
      const auto uses = [&](const layer_launch& l) -> const std::vector<block_access>& {
        operands.clear();
        for (const tensor_use& u : uses_of(l)) {
          operands.push_back({place_.at[u.tensor], bytes{u.elements * step_.tensors[u.tensor].element}, u.mode});
        }
        arena.rooms().launches.declare(operands, accesses);
        return accesses;
      };
      std::vector<std::vector<block_range>> last_uses;
      if (!place_.none.before.empty()) {
        std::vector<bytes> offsets;
        for (const std::byte* at : place_.at) {
          offsets.push_back(bytes{static_cast<std::uint64_t>(at - arena.memory().base())});
        }
        last_uses = last_uses_in(step_.tensors, offsets, place_.none, arena.block());
      }
      told_launches_ = last_uses.empty() ? period_of(step_.launches) : step_.launches.size();
      next.step = told_step(step_, told_launches_, uses, last_uses, facts_->times,
                            !std::is_same_v<Memory, cuda::managed_memory>);
      next.in_per_block = time_of(arena.block(), facts_->in);
      next.out_per_block = time_of(arena.block(), facts_->out);
    }
    system_.told()->tell(std::move(next));
  }

  layer_executor<T>& executor_;
  memory_watch watch_{};
  bool forgets_;
  const oracle_facts* facts_;
  std::size_t told_launches_ = 0;
  memory_system<Memory> system_;
  detail::in_arena<typename memory_system<Memory>::arena_type> place_{};
  layered_step step_{};
};

/// Managed memory that the library takes for a step.
[[nodiscard]] inline bytes managed_capacity(const layered_step& s) {
  return library_model<cuda::managed_memory, train_gpt::bf16>::capacity_of(s.tensors, {});
}

}  // namespace deepum::gpu_bench
