#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/fifo.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/step_follower.hpp>
#include <deepum/planning/step_planning.hpp>
#include <deepum/prediction/period_detector.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Recognises a step that recurs, plans it as a whole, and follows it for as long as it does.
///
/// It is planned anew, once a period at most, when the needs of its launches, the budget, or its last uses have
/// changed. Where many needs change in a period, as those of look-ups do, it is not followed. Launches of all streams
/// count in the order of issue, so streams that take turns in another order each time have no step that recurs.
///
/// Not synchronised.
class recurring_step {
 public:
  /// @param longest     Launches of a step at most. 0: none is ever followed.
  /// @param write_back  See `step_follower`.
  explicit recurring_step(std::uint32_t longest, bool write_back = true)
      : launches_(longest),
        most_changes_(longest / rare + 1),
        write_back_(write_back) {}

  /// A launch was issued.
  void issue(execution_id id, launch_id launch) {
    ++issued_;
    last_ = launch;
    launches_.issue(id);
    if (!launches_.recurs() || launches_.period() != planned_period_) {
      give_up();
    } else if (follower_) {
      follower_->issued(launches_.in_flight() - 1);
    }
  }
  /// The oldest launch that had not finished did.
  void finish() {
    ++finished_;
    launches_.finish();
    if (follower_) {
      follower_->advance();
    }
  }
  /// The ID means another launch from now on: from the one that is issued next.
  void forget(execution_id id) { launches_.forget(id); }
  /// The contents of blocks died.
  /// @param last  The last launch that may use them.
  void last_used(block_range range, launch_id last) {
    launches_.last_used(range, last.valid() && last <= last_ ? last_.value - last.value : 0);
  }
  /// The launch that was issued last, or one in flight, was found to need other blocks than before.
  void change() {
    if (changes_.empty() || changes_.back() != issued_) {
      changes_.push_back(issued_);
    }
    if (changes_.size() > most_changes_) {
      changes_.pop_front();
    }
  }

  /// Plans where it is time to, at once.
  /// @param append  Called as `append(execution_id, std::vector<block_access>&)`: adds what the launch uses.
  template <class Append>
  void prepare(const block_map& map, Append&& append) {
    if (std::optional<step_planning> work = begin_planning(map, append)) {
      work->run();
      end_planning(std::move(*work), map);
    }
  }
  /// The same in parts: what has to be planned now, if anything. It is planned elsewhere (`step_planning::run`) and
  /// comes back to `end_planning`, between any other calls. Meanwhile nothing else is planned.
  template <class Append>
  [[nodiscard]] std::optional<step_planning> begin_planning(const block_map& map, Append&& append) {
    if (planning_ || !time_to_plan(map)) {
      return std::nullopt;
    }
    planning_ = true;
    return description_of(map, append);
  }
  /// Follows what was planned, unless the step does not recur any more. What was not planned is not followed.
  void end_planning(step_planning&& work, const block_map& map) {
    planning_ = false;
    if (!work.schedule || work.generation != generation_) {
      return;
    }
    for (; work.finished != finished_; ++work.finished) {
      work.schedule->advance();
    }
    follower_.emplace(std::move(*work.schedule), map, write_back_);
    ++plans_;
  }
  /// Who follows the step; null where none is being followed, or where all of its blocks fit side by side. Valid until
  /// the next call.
  [[nodiscard]] step_follower* follower() { return follower_ && !follower_->idle() ? &*follower_ : nullptr; }
  /// Launches of the step that recurs; 0: none does.
  [[nodiscard]] std::uint32_t period() const { return launches_.recurs() ? launches_.period() : 0; }
  /// How often a step was planned.
  [[nodiscard]] std::uint64_t plans() const { return plans_; }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return launches_.memory() + (follower_ ? follower_->memory() : bytes{}) +
           bytes{(last_uses_.capacity() + planned_last_uses_.capacity()) * sizeof(place_and_blocks) +
                 changes_.size() * sizeof(std::uint64_t)};
  }

 private:
  // A step is followed while at most one in so many launches has changed its needs in the last period.
  static constexpr std::uint64_t rare = 32;

  using place_and_blocks = std::pair<std::uint32_t, block_range>;

  // Nothing is followed any more, and what is being planned will not be.
  void give_up() {
    follower_.reset();
    ++generation_;
  }
  [[nodiscard]] bool time_to_plan(const block_map& map) {
    if (!launches_.recurs()) {
      return false;
    }
    while (!changes_.empty() && issued_ - changes_.front() >= launches_.period()) {
      changes_.pop_front();
    }
    if (changes_.size() * rare > launches_.period()) {
      give_up();
      return false;
    }
    if (!follower_) {
      find_deaths();
      return true;
    }
    if (issued_ - planned_at_ < launches_.period()) {
      return false;
    }
    const bool changed = !changes_.empty();
    planned_at_ = issued_;
    find_deaths();
    return changed || map.budget() != limits_.budget || room_beside(map) != limits_.beside ||
           last_uses_ != planned_last_uses_;
  }
  [[nodiscard]] static std::uint32_t room_beside(const block_map& map) {
    return map.keeps_home_copy() ? map.budget_beside() : 0;
  }
  void find_deaths() {
    last_uses_.clear();
    launches_.for_each_last_use(
        [&](std::uint32_t place, block_range blocks) { last_uses_.emplace_back(place, blocks); });
    std::sort(last_uses_.begin(), last_uses_.end(), [](const place_and_blocks& a, const place_and_blocks& b) {
      return a.first != b.first ? a.first < b.first : a.second.first < b.second.first;
    });
    last_uses_.erase(std::unique(last_uses_.begin(), last_uses_.end()), last_uses_.end());
  }

  // Times are not known. A launch is taken to last the longer the more blocks it uses, and a copy to take much longer:
  // so long that the step lasts as long as its copies. To the host the driver's copies of managed memory are slower
  // (docs/adr/0006), so departures are spread sooner there.
  template <class Append>
  [[nodiscard]] step_planning description_of(const block_map& map, Append&& append) {
    constexpr nanoseconds block_use{1};
    constexpr nanoseconds block_copy{1'000'000};
    step_planning work;
    step_description& step = work.step;
    std::size_t last_use = 0;
    for (std::uint32_t k = 0; k != launches_.period(); ++k) {
      uses_.clear();
      append(launches_.id_at(k), uses_);
      std::int64_t blocks = 1;
      for (const block_access& use : uses_) {
        blocks += use.range.count;
      }
      step.add_launch(block_use * blocks);
      for (const block_access& use : uses_) {
        // Only where the host's copy stays apart can contents be left behind that a launch will overwrite.
        const bool fetched = use.mode == access::overwrite && !map.keeps_home_copy();
        step.add_use(use.range, fetched ? access::update : use.mode);
      }
      for (; last_use != last_uses_.size() && last_uses_[last_use].first == k; ++last_use) {
        step.add_last_use(last_uses_[last_use].second);
      }
    }
    const nanoseconds out = map.keeps_home_copy() ? block_copy : block_copy * 5 / 4;
    limits_ = {.budget = map.budget(),
               .in_per_block = block_copy,
               .out_per_block = out,
               .in_flight = map.blocks_in(enough_in_flight),
               .copies_ahead = write_back_ && map.keeps_home_copy(),
               .beside = room_beside(map)};
    planned_last_uses_ = last_uses_;
    planned_period_ = launches_.period();
    planned_at_ = issued_;
    work.limits = limits_;
    work.position = launches_.position();
    work.generation = generation_;
    work.finished = finished_;
    return work;
  }

  period_detector launches_;
  std::size_t most_changes_;  // that are remembered
  launch_id last_{};          // that was issued
  std::optional<step_follower> follower_{};
  step_limits limits_{};
  bool write_back_;
  sequence<place_and_blocks> planned_last_uses_{};  // that the plan knows
  std::uint64_t issued_ = 0;
  std::uint32_t planned_period_ = 0;
  std::uint64_t planned_at_ = 0;   // in `issued_`
  fifo<std::uint64_t> changes_{};  // of needs, as far as they matter: when, in `issued_`
  std::uint64_t plans_ = 0;
  std::uint64_t finished_ = 0;    // launches, ever
  std::uint64_t generation_ = 0;  // of what recurs: a plan that was begun in an earlier one is not followed
  bool planning_ = false;         // a plan was begun and has not ended

  // Of the plan being made; kept for their memory.
  sequence<place_and_blocks> last_uses_{};
  std::vector<block_access> uses_{};
};

}  // namespace v0
}  // namespace deepum
