#pragma once

#include "bench_system.hpp"
#include "hand_memory.hpp"
#include "layer_executor.hpp"
#include "layered_step.hpp"
#include "memory_watch.hpp"
#include "pipelined_buffers.hpp"
#include "report.hpp"
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
  library_model(layer_executor<T>& executor, const bench_settings& settings, const std::string& system,
                const std::vector<tensor>& tensors, bytes budget, bool forgets)
      : executor_(executor),
        forgets_(forgets),
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
  layer_executor<T>& executor_;
  memory_watch watch_{};
  bool forgets_;
  memory_system<Memory> system_;
  detail::in_arena<typename memory_system<Memory>::arena_type> place_{};
  layered_step step_{};
};

/// Double buffering by hand, with the window that suits it best.
template <class T>
class hand_model {
 public:
  hand_model(layer_executor<T>& executor, const std::vector<tensor>& tensors, bytes budget)
      : executor_(executor),
        home_(memory_pool::kind::pinned, footprint_of(tensors)),
        arena_(home_),
        stream_(arena_),
        at_(detail::allocated(arena_, tensors)) {
    set_budget(budget);
  }

  /// @param share  A launch and those it prefetches for may use the budget divided by it.
  void set_window(double share) { share_ = share; }
  void use(layered_step step, std::size_t planned, afterwards then) {
    stop();
    step_ = std::move(step);
    const auto window = static_cast<std::uint64_t>(static_cast<double>(slots_->size().count) / share_);
    buffers_.emplace(at_, *slots_, in_tensors(step_), window, then, stream_.native());
    buffers_->plan(planned);
  }
  std::vector<std::uint64_t> run(const step_numbers& numbers) { return run(numbers, 0, step_.launches.size()); }
  std::vector<std::uint64_t> run(const step_numbers& numbers, std::size_t first, std::size_t count) {
    return detail::run(executor_, stream_, step_, *buffers_, numbers, first, count);
  }
  [[nodiscard]] counters count() const {
    hand_traffic t = earlier_;
    if (buffers_) {
      const hand_traffic now = buffers_->traffic();
      t = {t.in + now.in, t.out + now.out, t.discarded + now.discarded};
    }
    return {.in = t.in, .out = t.out, .discarded = t.discarded};
  }
  [[nodiscard]] const memory_watch& watch() const { return watch_; }
  void set_budget(bytes budget) {
    stop();
    slots_.reset();
    slots_.emplace(memory_pool::kind::device, budget);
  }

 private:
  void stop() {
    if (buffers_) {
      const hand_traffic now = buffers_->traffic();
      earlier_ = {earlier_.in + now.in, earlier_.out + now.out, earlier_.discarded + now.discarded};
      buffers_.reset();
    }
  }

  layer_executor<T>& executor_;
  memory_watch watch_{};
  memory_pool home_;
  hand_arena arena_;
  hand_stream stream_;
  std::vector<std::byte*> at_;
  double share_ = 4;
  std::optional<memory_pool> slots_{};
  layered_step step_{};
  std::optional<pipelined_buffers> buffers_{};
  hand_traffic earlier_{};
};

/// Shares of the budget that windows are tried with.
inline constexpr double window_shares[] = {1.25, 2, 4, 8, 16};

}  // namespace deepum::gpu_bench
