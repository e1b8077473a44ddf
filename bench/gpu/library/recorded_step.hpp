#pragma once

#include "gpu/library/hand_memory.hpp"
#include "gpu/library/oracle_step.hpp"
#include "gpu/library/step_program.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/live_bytes.hpp>
#include <deepum/error.hpp>
#include <deepum/operand.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

// A recorded step as lp_bound.py wants it: how long its launches run, what they use, and what dies when.
namespace deepum::gpu_bench {

/// Takes the time of each launch of a step.
class step_timer final : public launch_hook {
 public:
  /// @param launches  As many as the step has.
  /// @errors          `status::device_failure`.
  step_timer(std::size_t launches, cudaStream_t q) : events_(launches), launches_(launches), stream_(q) {}

  void before(std::string_view /*name*/, std::span<const operand> /*operands*/) override {
    if (enqueued_ == 0) {
      events_.mark(0, stream_);
    }
  }
  void after() override {
    expects(enqueued_ != launches_, "a step that is timed has more launches than when it was recorded");
    events_.mark(++enqueued_, stream_);
  }
  /// By launch. All of them have finished.
  [[nodiscard]] std::vector<nanoseconds> times() const {
    expects(enqueued_ == launches_, "a step that is timed has fewer launches than when it was recorded");
    return events_.times();
  }

 private:
  launch_timer events_;
  std::size_t launches_;
  cudaStream_t stream_;
  std::size_t enqueued_ = 0;
};

/// Times of launches, shortened alike if they are more than a step takes: events between launches keep the device from
/// the next one for a little while.
[[nodiscard]] inline std::vector<nanoseconds> at_most(std::vector<nanoseconds> times, nanoseconds step) {
  const nanoseconds all = std::accumulate(times.begin(), times.end(), nanoseconds{});
  if (all > step) {
    const double share = static_cast<double>(step.count()) / static_cast<double>(all.count());
    for (nanoseconds& t : times) {
      t = nanoseconds{static_cast<std::int64_t>(static_cast<double>(t.count()) * share)};
    }
  }
  return times;
}

namespace detail {

/// The blocks whose contents die as a whole behind each launch, of what the program says of them.
[[nodiscard]] inline std::vector<std::vector<block_range>> declared_last_uses(const step_program& p) {
  live_bytes live(um_grid.blocks_of(bytes{}, p.capacity).count, um_grid);
  std::vector<block_range> alive;
  for (const part& each : p.parts) {
    live.mark_active(each.offset, each.size, alive);
  }
  std::vector<std::vector<block_range>> last_uses;
  for (int round = 0; round < 2; ++round) {  // in the first one some are alive that are not when the step recurs
    last_uses.assign(p.launches.size(), {});
    for (std::size_t i = 0; i < p.launches.size(); ++i) {
      for (const value_change& c : p.launches[i].changes) {
        if (c.of_value) {
          live.mark_active(c.offset, c.size, alive);
        } else {
          live.mark_inactive(c.offset, c.size, last_uses[i]);
        }
      }
    }
  }
  return last_uses;
}

}  // namespace detail

/// The step on managed memory, in blocks, as a planner sees it.
///
/// There contents are in one place, so a block that the step writes is copied whenever it leaves, even if nobody has
/// written it since it came: its reads are updates. A block that no launch writes may be read-mostly, and then leaves
/// without a copy. What is overwritten as a whole is dead from the use before on, and what the program says is of no
/// value is so at once.
/// @param times  By launch.
[[nodiscard]] inline step_description described(const step_program& p, std::span<const nanoseconds> times) {
  expects(times.size() == p.launches.size(), "as many times as launches");
  const unit_program blocks = in_blocks(p);
  std::vector<std::vector<block_range>> last_uses = detail::declared_last_uses(p);
  std::vector<bool> written(blocks.size.size());
  std::vector<std::optional<std::size_t>> last(blocks.size.size());  // by block: the launch that used it last
  for (int round = 0; round < 2; ++round) {  // the use before the first one is in the step before
    for (std::size_t i = 0; i < blocks.launches.size(); ++i) {
      for (const unit_use& u : blocks.launches[i]) {
        written[u.unit] = written[u.unit] || u.written;
        if (round == 1 && u.mode == access::overwrite) {
          last_uses[*last[u.unit]].push_back({block_id{u.unit}, 1});
        }
        last[u.unit] = i;
      }
    }
  }
  step_description step;
  for (std::size_t i = 0; i < blocks.launches.size(); ++i) {
    step.add_launch(times[i]);
    for (const unit_use& u : blocks.launches[i]) {
      const bool copied = u.mode == access::read && written[u.unit];
      step.add_use({block_id{u.unit}, 1}, copied ? access::update : u.mode);
    }
    for (const block_range dead : last_uses[i]) {
      step.add_last_use(dead);
    }
  }
  return step;
}

}  // namespace deepum::gpu_bench
