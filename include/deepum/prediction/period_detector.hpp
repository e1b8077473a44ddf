#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/hash.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Finds out that launches repeat as a step, from those that were issued, and where in the step the device is.
///
/// A period is tried where four launches in a row come as they came before, the last time if there are several; a few
/// are tried at the same time, until a launch does not come as one period before. The step recurs with a period when
/// that many of the launches that followed, or a whole period, have come so. Where it was over soon after, the next one
/// has to come four times as far, or a whole period, so that what looks like a step and is none costs little.
///
/// Of several periods the longest is believed that has been repeated as a whole. Else one as long as an earlier step
/// was: what was left long ago and is taken up again looks like one long step, too.
///
/// Not synchronised. Memory is bounded by the longest step, and by the IDs that there are; it grows only while nothing
/// recurs. Cost of a launch: one hash.
class period_detector {
 public:
  /// Launches that must come as one period before until a step is believed to recur.
  static constexpr std::uint32_t believed_after = 64;

  /// @param longest  Launches of a step at most. 0: no step is ever found.
  explicit period_detector(std::uint32_t longest) : longest_(longest) {
    expects(longest <= std::uint32_t{1} << 28U, "steps cannot be that long");
    if (longest != 0) {
      most_ = std::bit_ceil(std::size_t{longest} + context_length);
      ids_.resize(std::min(most_, first_size));
      seen_.resize(2 * ids_.size());
    }
  }

  /// A launch was issued.
  void issue(execution_id id) {
    if (longest_ == 0) {
      return;
    }
    if (issued_ >= ids_.size() && ids_.size() < most_ && !recurs()) {
      grow();
    }
    const std::uint64_t now = issued_++;
    for (attempt& a : attempts_) {
      if (a.period != 0 && id == at(now - a.period) && means_the_same(now - a.period)) {
        ++a.matched;
      } else {
        give_up(a);
      }
    }
    at(now) = id;
    std::uint32_t& seen = seen_[context_slot(now)];
    const std::uint32_t distance = static_cast<std::uint32_t>(now) - seen;
    if (distance != 0 && distance <= std::min<std::size_t>(longest_, ids_.size() - context_length) &&
        same_context(now, distance)) {
      begin(distance, now);
    }
    seen = static_cast<std::uint32_t>(now);
    choose();
  }
  /// The ID means another launch from now on, so that what comes under it is no recurrence of what came.
  void forget(execution_id id) {
    if (longest_ == 0 || !id.valid()) {
      return;
    }
    since_[id] = issued_;
  }
  /// The oldest launch that had not finished did.
  void finish() {
    ++finished_;
    while (!deaths_.empty() && deaths_.front().after + longest_ < finished_) {
      deaths_.pop_front();
    }
  }
  /// Launches that were issued and have not finished.
  [[nodiscard]] std::uint64_t in_flight() const { return issued_ - finished_; }
  /// The contents of blocks died.
  /// @param since  Launches that were issued after the last one that may use them.
  void death(block_range range, std::uint64_t since) {
    if (longest_ == 0 || range.empty()) {
      return;
    }
    const std::uint64_t after = issued_ - std::min(since, issued_);
    if (!deaths_.empty() && deaths_.back().after == after && deaths_.back().range.end_value() == range.begin_value()) {
      deaths_.back().range.count += range.count;
      return;
    }
    if (deaths_.empty() || deaths_.back().after != after) {
      deaths_at_once_ = 0;
    }
    deaths_.push_back({after, range});
    if (++deaths_at_once_ >= most_deaths_at_once_) {
      merge_deaths();
    }
    if (deaths_.size() > most_) {
      deaths_.pop_front();
    }
  }

  /// The launches that were issued last are a step that recurs.
  [[nodiscard]] bool recurs() const { return believed_ != nobody; }
  /// Number of launches of the step. Needs `recurs()`, as all below.
  [[nodiscard]] std::uint32_t period() const { return attempts_[believed_].period; }
  /// The place in the step of the launch that is executing, or will next. The first launch of the step is an arbitrary
  /// one.
  [[nodiscard]] std::uint32_t position() const { return place_of(finished_); }
  /// The launch at a place in the step.
  [[nodiscard]] execution_id id_at(std::uint32_t place) const {
    const std::uint64_t last = issued_ - 1;
    const std::uint32_t back = (place_of(last) + period() - place) % period();
    return ids_[(last - back) & (ids_.size() - 1)];
  }
  /// Calls `visit(place, block_range)` for the deaths of the last period: after which launch of the step, and what
  /// died. A period is counted back from the launch that is executing, so some may come twice.
  template <class Visit>
  void for_each_death(Visit&& visit) const {
    for (const death_note& d : deaths_) {
      if (d.after != 0 && d.after + period() > finished_) {
        visit(place_of(d.after - 1), d.range);
      }
    }
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return bytes{ids_.capacity() * sizeof(execution_id) + seen_.capacity() * sizeof(std::uint32_t) +
                 deaths_.size() * sizeof(death_note)} +
           since_.memory();
  }

 private:
  // A period that the launches may have.
  struct attempt {
    std::uint32_t period = 0;   // 0: none
    std::uint64_t matched = 0;  // launches that came as one period before
    std::uint64_t origin = 0;   // when the step began that they are compared with

    [[nodiscard]] bool whole() const { return period != 0 && matched >= period; }
  };
  static constexpr std::size_t nobody = 4;  // attempts there are

  // The launches that are remembered become twice as many.
  void grow() {
    std::vector<execution_id> before(2 * ids_.size());
    before.swap(ids_);
    const std::uint64_t oldest = issued_ - before.size();
    for (std::uint64_t i = oldest; i != issued_; ++i) {
      at(i) = before[i & (before.size() - 1)];
    }
    seen_.assign(2 * ids_.size(), 0);
    for (std::uint64_t i = oldest + context_length - 1; i != issued_; ++i) {
      seen_[context_slot(i)] = static_cast<std::uint32_t>(i);
    }
  }

  void begin(std::uint32_t period, std::uint64_t now) {
    attempt* least = nullptr;
    for (attempt& a : attempts_) {
      if (a.period == period) {
        return;
      }
      if (least == nullptr || a.matched < least->matched) {
        least = &a;
      }
    }
    if (least->matched < believed_after) {
      *least = {period, 0, now + 1 - period};
    }
  }
  void give_up(attempt& a) {
    const bool believed = believed_ != nobody && &a == &attempts_[believed_];
    if (believed && !a.whole() && a.matched < std::uint64_t{4} * patience_) {
      patience_ = std::min(4 * patience_, longest_);
    }
    a = {};
  }
  void choose() {
    believed_ = nobody;
    for (std::size_t i = 0; i != attempts_.size(); ++i) {
      const attempt& a = attempts_[i];
      if (a.whole()) {
        patience_ = believed_after;
        remember(a.period);
      }
      if (a.period != 0 && a.matched >= std::min(patience_, a.period) &&
          (believed_ == nobody || better(a, attempts_[believed_]))) {
        believed_ = i;
      }
    }
  }
  [[nodiscard]] bool better(const attempt& a, const attempt& b) const {
    if (a.whole() != b.whole()) {
      return a.whole();
    }
    if (!a.whole() && has_been(a.period) != has_been(b.period)) {
      return has_been(a.period);
    }
    return a.period > b.period;
  }
  // Lengths that steps have had.
  [[nodiscard]] bool has_been(std::uint32_t period) const {
    return std::find(periods_.begin(), periods_.end(), period) != periods_.end();
  }
  void remember(std::uint32_t period) {
    if (!has_been(period)) {
      std::rotate(periods_.begin(), periods_.end() - 1, periods_.end());
      periods_.front() = period;
    }
  }

  static constexpr std::uint32_t context_length = 4;  // as in the execution correlation table (DeepUM, section 4.2)

  struct death_note {
    std::uint64_t after = 0;  // launches that may have used them, and all before those
    block_range range{};
  };

  // Without a launch between them the same blocks may die again and again: of those that died last, each counts once.
  void merge_deaths() {
    const std::uint64_t after = deaths_.back().after;
    const auto first = deaths_.end() - static_cast<std::ptrdiff_t>(std::min(deaths_at_once_, deaths_.size()));
    std::sort(first, deaths_.end(),
              [](const death_note& a, const death_note& b) { return a.range.begin_value() < b.range.begin_value(); });
    auto kept = first;
    for (auto d = first + 1; d != deaths_.end(); ++d) {
      if (d->range.begin_value() <= kept->range.end_value()) {
        kept->range.count = std::max(kept->range.end_value(), d->range.end_value()) - kept->range.begin_value();
      } else {
        *++kept = {after, d->range};
      }
    }
    deaths_.erase(kept + 1, deaths_.end());
    deaths_at_once_ = static_cast<std::size_t>(deaths_.end() - first);
    most_deaths_at_once_ = std::max(few_deaths, 2 * deaths_at_once_);
  }

  [[nodiscard]] execution_id& at(std::uint64_t index) { return ids_[index & (ids_.size() - 1)]; }
  [[nodiscard]] execution_id at(std::uint64_t index) const { return ids_[index & (ids_.size() - 1)]; }
  // The ID of that launch has meant the same launch since.
  [[nodiscard]] bool means_the_same(std::uint64_t index) const { return index >= since_.get(at(index)); }
  [[nodiscard]] std::uint32_t place_of(std::uint64_t index) const {
    // Launches that were in flight before the step was found lie before its origin.
    const attempt& a = attempts_[believed_];
    const std::uint64_t periods = a.origin / a.period + 1;
    return static_cast<std::uint32_t>((index + periods * a.period - a.origin) % a.period);
  }
  // The last launch and the three before it; places before the first one hold none.
  [[nodiscard]] std::size_t context_slot(std::uint64_t now) const {
    const auto pair = [&](std::uint64_t i) { return std::uint64_t{at(now - i).value} << 32U | at(now - i - 1).value; };
    return static_cast<std::size_t>(detail::absorb(0, pair(0), pair(2))) & (seen_.size() - 1);
  }
  [[nodiscard]] bool same_context(std::uint64_t now, std::uint32_t distance) const {
    for (std::uint32_t i = 0; i != context_length; ++i) {
      const execution_id before = at(now - distance - i);
      if (!before.valid() || before != at(now - i) || !means_the_same(now - distance - i)) {
        return false;
      }
    }
    return true;
  }

  static constexpr std::size_t first_size = 16384;  // launches that are remembered at first

  std::uint32_t longest_;
  std::size_t most_ = 0;               // launches that are remembered at most
  std::vector<execution_id> ids_{};    // the last ones, in a ring
  std::vector<std::uint32_t> seen_{};  // by hash of four launches: when they came last; may be any other four
  detail::id_map<execution_id, std::uint64_t>
      since_{};  // launches issued before an ID got its meaning; few ever change
  static constexpr std::size_t few_deaths = 4096;
  std::deque<death_note> deaths_{};
  std::size_t deaths_at_once_ = 0;                // the last ones, all after the same launch
  std::size_t most_deaths_at_once_ = few_deaths;  // until they are merged
  std::uint64_t issued_ = 0;
  std::uint64_t finished_ = 0;
  std::array<attempt, nobody> attempts_{};
  std::size_t believed_ = nobody;
  std::array<std::uint32_t, 4> periods_{};   // of steps that were repeated as a whole, the last four
  std::uint32_t patience_ = believed_after;  // launches that must come as one period before
};

}  // namespace v0
}  // namespace deepum
