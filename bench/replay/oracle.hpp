#pragma once

#include "replay/gpu.hpp"
#include "replay/step_of.hpp"
#include "replay/workload.hpp"
#include <deepum/policy/plan_writing.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/step_follower.hpp>

#include <cstdint>
#include <deque>
#include <optional>

namespace deepum::replay {

/// Follows the plan of a step that it was told beforehand: the sequence, what every launch uses, how long it runs and
/// what the link delivers. What prediction could reach at best with this planner; for comparison only.
///
/// One stream, and from the first launch on the step that it was told.
class oracle_policy final : public policy {
 public:
  oracle_policy(const workload& w, bytes budget, const link_costs& costs)
      : step_(step_of(w)),
        limits_{.budget = static_cast<std::uint32_t>(budget / block_size),
                .in_per_block = time_of_block(costs.h2d_gbps, costs.copy_latency),
                .out_per_block = time_of_block(costs.d2h_gbps, costs.copy_latency)} {}

  [[nodiscard]] std::string_view name() const override { return "oracle"; }

  void on_launch(const launch_record& record, const block_map& map) override {
    gate_.stir();
    if (!follower_) {
      follower_.emplace(step_, limits_, 0, map);
    }
    follower_->issued(in_flight_.size());
    in_flight_.push_back({record.id, record.accesses});
    ++launches_;
  }
  void on_finish(launch_id launch, stream_id, const block_map&) override {
    gate_.stir();
    while (!in_flight_.empty() && in_flight_.front().id <= launch) {
      in_flight_.pop_front();
      follower_->advance();
    }
  }
  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.stir();
    if (follower_) {
      to == map.device() ? follower_->arrived(range) : follower_->look_again(range);
    }
  }
  void on_live(block_range range, const block_map&) override {
    gate_.stir();
    if (follower_) {
      follower_->look_again(range);
    }
  }
  void on_dead(block_range range, launch_id, const block_map&) override {
    gate_.stir();
    dead_.note(range);
  }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map) || !follower_) {
      return;
    }
    out.supersedes = true;
    dead_.forget(map, out);
    follower_->write(map, in_flight_.size(), out);
  }

  [[nodiscard]] bool holds_launches() const override { return true; }
  [[nodiscard]] bool ready(launch_id launch, stream_id, const block_map& map) const override {
    for (const flight& f : in_flight_) {
      if (f.id == launch) {
        return deepum::detail::all_ready(map, f.accesses);
      }
    }
    return true;
  }

  [[nodiscard]] policy_statistics statistics() const override {
    return {.launches = launches_, .predicted = launches_, .table_bytes = follower_ ? follower_->memory().count : 0};
  }

 private:
  struct flight {
    launch_id id{};
    std::vector<block_access> accesses{};
  };

  static nanoseconds time_of_block(double gbps, nanoseconds latency) {
    constexpr double blocks_of_a_copy = 16;
    return nanoseconds{static_cast<std::int64_t>(static_cast<double>(block_size.count) / gbps +
                                                 static_cast<double>(latency.count()) / blocks_of_a_copy)};
  }

  step_description step_;
  step_limits limits_;
  std::optional<step_follower> follower_{};
  std::deque<flight> in_flight_{};
  deepum::detail::dead_blocks dead_{};
  deepum::detail::plan_gate gate_{};
  std::uint64_t launches_ = 0;
};

}  // namespace deepum::replay
