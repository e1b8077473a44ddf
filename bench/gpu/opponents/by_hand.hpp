#pragma once

#include "gpu/library/hand_memory.hpp"
#include "gpu/library/layer_executor.hpp"
#include "gpu/library/layered_step.hpp"
#include "gpu/library/layered_systems.hpp"
#include "gpu/library/memory_watch.hpp"
#include "gpu/library/report.hpp"
#include "gpu/opponents/pipeline_planner.hpp"
#include "gpu/opponents/pipelined_buffers.hpp"
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace deepum::gpu_bench {

/// Its name in flags and reports.
inline constexpr const char* hand_system_name = "by_hand";

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
    slots_ = std::make_unique<memory_pool>(memory_pool::kind::device, budget);
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
  std::unique_ptr<memory_pool> slots_{};  // GCC 12 warns of an optional's destructor without reason
  layered_step step_{};
  std::optional<pipelined_buffers> buffers_{};
  hand_traffic earlier_{};
};

/// Shares of the budget that windows are tried with.
inline constexpr double window_shares[] = {1.25, 2, 4, 8, 16};

}  // namespace deepum::gpu_bench
