#pragma once

#include "replay/gpu.hpp"
#include "replay/step_of.hpp"
#include "replay/workload.hpp"
#include <deepum/core/plan.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/planning/step_follower.hpp>
#include <deepum/planning/step_segments.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum::replay {

/// Steps that a program tells an `oracle_policy` while it runs.
///
/// Threads: any.
class told_steps {
 public:
  struct told {
    step_description step{};     ///< without launches: nothing is known of what comes
    nanoseconds in_per_block{};  ///< time that the link takes to bring a block in
    nanoseconds out_per_block{};
    launch_id after{};
  };

  /// The launches behind `after` are those of this step, from its first one on, again and again. Launches that use
  /// nothing need not be among them.
  /// @param next  The launches up to `after` have finished.
  void tell(told next) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(next));
  }
  /// What holds for a launch, where that is something new.
  [[nodiscard]] std::optional<told> take(launch_id launch) {
    const std::lock_guard lock(mutex_);
    std::optional<told> found;
    while (!waiting_.empty() && waiting_.front().after < launch) {
      found = std::move(waiting_.front());
      waiting_.pop_front();
    }
    return found;
  }

 private:
  std::mutex mutex_{};
  std::deque<told> waiting_{};
};

/// Follows the plan of a step that it was told beforehand: the sequence, what every launch uses, how long it runs and
/// what the link delivers. What prediction could reach at best with this planner; for comparison only.
///
/// What a program's step only reads, the driver of managed memory is told to duplicate, so that it leaves without a
/// copy.
///
/// One stream. A launch that declares other blocks than it was told ends the step: nothing is known until the next one
/// is told, and nothing moves but by faults.
class oracle_policy final : public policy {
 public:
  /// From the first launch on the step of a workload, planned for a budget that stays.
  oracle_policy(const workload& w, bytes budget, const link_costs& costs)
      : step_(step_of(w)),
        limits_{.budget = static_cast<std::uint32_t>(budget / block_size),
                .in_per_block = time_of_block(costs.h2d_gbps, costs.copy_latency),
                .out_per_block = time_of_block(costs.d2h_gbps, costs.copy_latency)} {}
  /// @param told        The steps that it follows. Not null.
  /// @param write_back  As `policy_options` has it.
  explicit oracle_policy(std::shared_ptr<told_steps> told, bool write_back = true)
      : told_(std::move(told)),
        write_back_(write_back) {}

  [[nodiscard]] std::string_view name() const override { return "oracle"; }

  void on_launch(const launch_record& record, const block_map& map) override {
    gate_.mark_dirty();
    ++launches_;
    hear(record.id);
    if (step_.size() == 0) {
      ++untold_;
      return;
    }
    const step_description::launch expected = step_[next_];
    if (record.complete && record.accesses.empty() && !expected.uses.empty()) {
      return;
    }
    if (record.complete && !agrees(record.accesses, expected.uses)) {
      ++otherwise_;
      end_step();
      return;
    }
    prepare(map);
    follower_->issued(in_flight_.size());
    in_flight_.push_back({record.id, record.accesses});
    for (const block_access& a : record.accesses) {
      for (std::uint32_t b = a.range.begin_value(); a.mode != access::read && b < a.range.end_value(); ++b) {
        set_duplicated(b, false);  // a write ends it
      }
    }
    next_ = (next_ + 1) % step_.size();
  }
  void on_finish(launch_id launch, stream_id, const block_map&) override {
    gate_.mark_dirty();
    while (!in_flight_.empty() && in_flight_.front().id <= launch) {
      in_flight_.pop_front();
      follower_->advance();
    }
  }
  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.mark_dirty();
    if (follower_) {
      to == map.device() ? follower_->arrived(range) : follower_->look_again(range);
    }
  }
  void on_live(block_range range, const block_map&) override {
    gate_.mark_dirty();
    if (follower_) {
      follower_->look_again(range);
    }
  }
  void on_dead(block_range range, launch_id, const block_map&) override {
    gate_.mark_dirty();
    dead_.note(range);
  }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map) || !follower_) {
      return;
    }
    prepare(map);
    out.supersedes = true;
    for (const block_range r : std::exchange(only_read_, {})) {
      for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
        if (!map.keeps_home_copy() && set_duplicated(b, true)) {
          deepum::detail::append(
              out.hints, driver_hint{.what = advice::set_read_mostly, .where = map.device(), .why = reason::predicted},
              block_id{b}, r.count);
        }
      }
    }
    dead_.forget_elsewhere(map, out);
    follower_->write(map, in_flight_.size(), 1, dead_, out);
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

  /// Launches that came otherwise than told are mispredicted.
  [[nodiscard]] policy_statistics statistics() const override {
    return {.launches = launches_,
            .predicted = launches_ - untold_ - otherwise_,
            .mispredicted = otherwise_,
            .unpredicted = untold_,
            .table_bytes = follower_ ? follower_->memory().count : 0};
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

  void hear(launch_id launch) {
    if (told_ == nullptr) {
      return;
    }
    if (std::optional<told_steps::told> next = told_->take(launch)) {
      end_step();
      step_ = std::move(next->step);
      limits_ = {.in_per_block = next->in_per_block, .out_per_block = next->out_per_block};
      only_read_ = only_read_by(step_);
    }
  }
  void end_step() {
    step_.clear();
    only_read_.clear();
    follower_.reset();
    in_flight_.clear();
    next_ = 0;
  }
  // Plans the step; again where the budget of a program has changed.
  void prepare(const block_map& map) {
    if (follower_ && (told_ == nullptr || map.budget() == limits_.budget)) {
      return;
    }
    limits_.budget = told_ == nullptr ? limits_.budget : map.budget();
    limits_.in_flight = map.blocks_in(enough_in_flight);
    limits_.copies_ahead = write_back_ && map.keeps_home_copy();
    const auto behind = static_cast<std::uint32_t>(in_flight_.size() % step_.size());
    follower_.emplace(step_, limits_, (next_ + step_.size() - behind) % step_.size(), map, write_back_);
  }
  static std::vector<block_range> only_read_by(const step_description& step) {
    enum : std::uint8_t { unused, read, written };
    std::vector<std::uint8_t> use;
    for (std::uint32_t k = 0; k != step.size(); ++k) {
      for (const block_access& a : step[k].uses) {
        use.resize(std::max<std::size_t>(use.size(), a.range.end_value()), unused);
        for (std::uint32_t b = a.range.begin_value(); b != a.range.end_value(); ++b) {
          use[b] = a.mode == access::read && use[b] != written ? read : written;
        }
      }
    }
    std::vector<block_range> all;
    for (std::uint32_t b = 0; b != use.size(); ++b) {
      if (use[b] == read) {
        append_merged(all, block_id{b});
      }
    }
    return all;
  }
  // Whether that is something new.
  bool set_duplicated(std::uint32_t b, bool to) {
    if (duplicated_.size() <= b) {
      duplicated_.resize(std::size_t{b} + 1);
    }
    const bool changes = duplicated_[b] != to;
    duplicated_[b] = to;
    return changes;
  }
  // Whether what a launch declares lies in what was told of it.
  static bool agrees(const std::vector<block_access>& declared, std::span<const block_access> told) {
    for (const block_access& a : declared) {
      for (std::uint32_t b = a.sparse ? a.range.end_value() : a.range.begin_value(); b != a.range.end_value();) {
        const auto use = std::find_if(told.begin(), told.end(),
                                      [&](const block_access& t) { return t.range.contains(block_id{b}); });
        if (use == told.end()) {
          return false;
        }
        b = std::min(a.range.end_value(), use->range.end_value());
      }
    }
    return true;
  }

  std::shared_ptr<told_steps> told_{};
  bool write_back_ = true;
  step_description step_{};  // without launches: nothing is known
  step_limits limits_{};
  std::optional<step_follower> follower_{};
  std::uint32_t next_ = 0;                // launch of the step that will be issued next
  std::deque<flight> in_flight_{};        // launches of the step
  std::vector<block_range> only_read_{};  // by the step; until the driver has been told
  std::vector<bool> duplicated_{};        // by block: the driver has been told
  deepum::detail::dead_blocks dead_{};
  deepum::detail::plan_gate gate_{};
  std::uint64_t launches_ = 0;
  std::uint64_t untold_ = 0;
  std::uint64_t otherwise_ = 0;
};

}  // namespace deepum::replay
