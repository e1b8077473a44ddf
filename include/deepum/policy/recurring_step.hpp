#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/policy/recurrence.hpp>
#include <deepum/policy/step_schedule.hpp>
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
/// A step is planned when it has been recognised and the needs of its launches have not changed for a period. It is
/// planned anew, once a period at most, when they, the budget, or what died in the last period are different. Where the
/// needs change in every period, as those of data-dependent look-ups do, the step is not followed.
///
/// Several streams have no order that a plan could count on: another stream's launch ends the step.
///
/// Not synchronised.
class recurring_step {
 public:
  /// @param longest  Launches of a step at most. 0: none is ever followed.
  explicit recurring_step(std::uint32_t longest) : launches_(longest) {}

  /// A launch was issued.
  void issue(execution_id id, stream_id stream) {
    if (stream != stream_) {
      interrupt();
      stream_ = stream;
    }
    ++issued_;
    launches_.issue(id);
    if (!launches_.recurs()) {
      schedule_.reset();
    }
  }
  /// The oldest launch that had not finished did.
  void finish() {
    launches_.finish();
    if (schedule_) {
      schedule_->advance();
    }
  }
  /// The contents of blocks died.
  void death(block_range range) { launches_.death(range); }
  /// A launch was found to need other blocks than before.
  void change() {
    changed_at_ = issued_;
    changed_ = true;
  }
  /// What comes next is not what followed before.
  void interrupt() {
    launches_.interrupt();
    schedule_.reset();
  }

  /// Plans where it is time to.
  /// @param budget  Blocks that the device may hold.
  /// @param append  Called as `append(execution_id, std::vector<block_access>&)`: adds what the launch uses.
  template <class Append>
  void prepare(std::uint32_t budget, Append&& append) {
    if (!launches_.recurs()) {
      return;
    }
    if (!schedule_) {
      if (changed_at_ != 0 && issued_ - changed_at_ < launches_.period()) {
        return;
      }
      changed_ = changed_before_ = false;
      find_deaths();
    } else if (issued_ - planned_at_ < launches_.period()) {
      return;
    } else {
      planned_at_ = issued_;
      const bool changed = std::exchange(changed_, false);
      if (changed && changed_before_) {
        schedule_.reset();
        changed_at_ = issued_;
        return;
      }
      changed_before_ = changed;
      find_deaths();
      if (!changed && budget == limits_.budget && deaths_ == planned_deaths_) {
        return;
      }
    }
    plan(budget, append);
  }

  /// What to follow; null where no step is being followed, or where all of it fits. Valid until the next call.
  [[nodiscard]] step_schedule* schedule() { return schedule_ && !schedule_->idle() ? &*schedule_ : nullptr; }
  /// How often a step was planned.
  [[nodiscard]] std::uint64_t plans() const { return plans_; }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return launches_.memory() + (schedule_ ? schedule_->memory() : bytes{}) +
           bytes{(deaths_.capacity() + planned_deaths_.capacity()) * sizeof(place_and_blocks)};
  }

 private:
  using place_and_blocks = std::pair<std::uint32_t, block_range>;

  void find_deaths() {
    deaths_.clear();
    launches_.for_each_death([&](std::uint32_t place, block_range blocks) { deaths_.emplace_back(place, blocks); });
    std::sort(deaths_.begin(), deaths_.end(), [](const place_and_blocks& a, const place_and_blocks& b) {
      return a.first != b.first ? a.first < b.first : a.second.first < b.second.first;
    });
  }

  // Times are not known. A launch is taken to last the longer the more blocks it uses, and a copy to take much longer:
  // so long that the step lasts as long as its copies.
  template <class Append>
  void plan(std::uint32_t budget, Append&& append) {
    constexpr nanoseconds block_use{1};
    constexpr nanoseconds block_copy{1'000'000};
    step_description step;
    std::size_t death = 0;
    for (std::uint32_t k = 0; k != launches_.period(); ++k) {
      uses_.clear();
      append(launches_.id_at(k), uses_);
      std::int64_t blocks = 1;
      for (const block_access& use : uses_) {
        blocks += use.range.count;
      }
      step.add_launch(block_use * blocks);
      for (const block_access& use : uses_) {
        step.add_use(use.range, use.mode);
      }
      for (; death != deaths_.size() && deaths_[death].first == k; ++death) {
        step.add_death(deaths_[death].second);
      }
    }
    limits_ = {budget, block_copy, block_copy};
    schedule_.emplace(step, limits_, launches_.position());
    planned_deaths_ = deaths_;
    planned_at_ = issued_;
    ++plans_;
  }

  recurrence launches_;
  stream_id stream_{};
  std::optional<step_schedule> schedule_{};
  step_limits limits_{};
  std::vector<place_and_blocks> planned_deaths_{};  // that the plan knows
  std::uint64_t issued_ = 0;
  std::uint64_t planned_at_ = 0;  // in `issued_`, as is
  std::uint64_t changed_at_ = 0;  // when needs changed last, or a step was given up; 0: never
  bool changed_ = false;          // needs have changed in this period
  bool changed_before_ = false;   // and in the one before
  std::uint64_t plans_ = 0;

  // Of the plan being made; kept for their memory.
  std::vector<place_and_blocks> deaths_{};
  std::vector<block_access> uses_{};
};

}  // namespace v0
}  // namespace deepum
