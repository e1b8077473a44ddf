#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/fifo.hpp>
#include <deepum/core/hash.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace deepum {
inline namespace v0 {

/// Finds the period with which launches repeat as a step, and where in the step the device is.
///
/// A period is tried where four launches in a row come as they came before, a few at a time. It is confirmed when
/// `confirmed_after` launches, or a whole period, have come as one period before; after one that was over soon, four
/// times as many. Of several, the longest that was repeated as a whole wins, then one as long as an earlier step.
///
/// Not synchronised. Memory is bounded by the longest step and the IDs; it grows only while nothing recurs. Cost of a
/// launch: one hash.
class period_detector {
 public:
  /// Launches that must come as one period before until a step is confirmed.
  static constexpr std::uint32_t confirmed_after = 64;

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
    while (!last_uses_.empty() && last_uses_.front().after + longest_ < finished_) {
      last_uses_.pop_front();
    }
  }
  /// Launches that were issued and have not finished.
  [[nodiscard]] std::uint64_t in_flight() const { return issued_ - finished_; }
  /// The contents of blocks died.
  /// @param since  Launches that were issued after the last one that may use them.
  void last_used(block_range range, std::uint64_t since) {
    if (longest_ == 0 || range.empty()) {
      return;
    }
    const std::uint64_t after = issued_ - std::min(since, issued_);
    if (!last_uses_.empty() && last_uses_.back().after == after &&
        last_uses_.back().range.end_value() == range.begin_value()) {
      last_uses_.back().range.count += range.count;
      return;
    }
    if (last_uses_.empty() || last_uses_.back().after != after) {
      last_uses_at_once_ = 0;
    }
    last_uses_.push_back({after, range});
    if (++last_uses_at_once_ >= most_last_uses_at_once_) {
      merge_last_uses();
    }
    if (last_uses_.size() > most_) {
      last_uses_.pop_front();
    }
  }

  /// The launches that were issued last are a step that recurs.
  [[nodiscard]] bool recurs() const { return confirmed_ != none; }
  /// Number of launches of the step. Needs `recurs()`, as all below.
  [[nodiscard]] std::uint32_t period() const { return attempts_[confirmed_].period; }
  /// The place in the step of the launch that is executing, or will next. The first launch of the step is an arbitrary
  /// one.
  [[nodiscard]] std::uint32_t position() const { return place_of(finished_); }
  /// The launch at a place in the step.
  [[nodiscard]] execution_id id_at(std::uint32_t place) const {
    const std::uint64_t last = issued_ - 1;
    const std::uint32_t back = (place_of(last) + period() - place) % period();
    return ids_[(last - back) & (ids_.size() - 1)];
  }
  /// Calls `visit(place, block_range)` for the last uses in the last period: the launch of the step, and the blocks
  /// whose contents are of no use after it. A period is counted back from the launch that is executing, so some may
  /// come twice.
  template <class Visit>
  void for_each_last_use(Visit&& visit) const {
    for (const last_use_note& d : last_uses_) {
      if (d.after != 0 && d.after + period() > finished_) {
        visit(place_of(d.after - 1), d.range);
      }
    }
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return bytes{ids_.capacity() * sizeof(execution_id) + seen_.capacity() * sizeof(std::uint32_t) +
                 last_uses_.size() * sizeof(last_use_note)} +
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
  static constexpr std::size_t most_attempts = 4;
  static constexpr std::size_t none = most_attempts;

  // The launches that are remembered become twice as many.
  void grow() {
    sequence<execution_id> before(2 * ids_.size());
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
    if (least->matched < confirmed_after) {
      *least = {period, 0, now + 1 - period};
    }
  }
  void give_up(attempt& a) {
    const bool confirmed = confirmed_ != none && &a == &attempts_[confirmed_];
    if (confirmed && !a.whole() && a.matched < std::uint64_t{4} * threshold_) {
      threshold_ = std::min(4 * threshold_, longest_);
    }
    a = {};
  }
  void choose() {
    confirmed_ = none;
    for (std::size_t i = 0; i != attempts_.size(); ++i) {
      const attempt& a = attempts_[i];
      if (a.whole()) {
        threshold_ = confirmed_after;
        remember(a.period);
      }
      if (a.period != 0 && a.matched >= std::min(threshold_, a.period) &&
          (confirmed_ == none || better(a, attempts_[confirmed_]))) {
        confirmed_ = i;
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

  struct last_use_note {
    std::uint64_t after = 0;  // launches that may have used them, and all before those
    block_range range{};
  };

  // Without a launch between them contents may be given up again and again: each block counts once.
  void merge_last_uses() {
    const std::uint64_t after = last_uses_.back().after;
    const auto first = last_uses_.end() - static_cast<std::ptrdiff_t>(std::min(last_uses_at_once_, last_uses_.size()));
    std::sort(first, last_uses_.end(), [](const last_use_note& a, const last_use_note& b) {
      return a.range.begin_value() < b.range.begin_value();
    });
    auto kept = first;
    for (auto d = first + 1; d != last_uses_.end(); ++d) {
      if (d->range.begin_value() <= kept->range.end_value()) {
        kept->range.count = std::max(kept->range.end_value(), d->range.end_value()) - kept->range.begin_value();
      } else {
        *++kept = {after, d->range};
      }
    }
    last_uses_.erase(kept + 1, last_uses_.end());
    last_uses_at_once_ = static_cast<std::size_t>(last_uses_.end() - first);
    most_last_uses_at_once_ = std::max(few_last_uses, 2 * last_uses_at_once_);
  }

  [[nodiscard]] execution_id& at(std::uint64_t index) { return ids_[index & (ids_.size() - 1)]; }
  [[nodiscard]] execution_id at(std::uint64_t index) const { return ids_[index & (ids_.size() - 1)]; }
  // The ID of that launch has meant the same launch since.
  [[nodiscard]] bool means_the_same(std::uint64_t index) const { return index >= since_.get(at(index)); }
  [[nodiscard]] std::uint32_t place_of(std::uint64_t index) const {
    // Launches that were in flight before the step was found lie before its origin.
    const attempt& a = attempts_[confirmed_];
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
  std::size_t most_ = 0;            // launches that are remembered at most
  sequence<execution_id> ids_{};    // the last ones, in a ring
  sequence<std::uint32_t> seen_{};  // by hash of four launches: when they came last; may be any other four
  detail::id_map<execution_id, std::uint64_t>
      since_{};  // launches issued before an ID got its meaning; few ever change
  static constexpr std::size_t few_last_uses = 4096;
  fifo<last_use_note> last_uses_{};
  std::size_t last_uses_at_once_ = 0;                   // the last ones, all after the same launch
  std::size_t most_last_uses_at_once_ = few_last_uses;  // until they are merged
  std::uint64_t issued_ = 0;
  std::uint64_t finished_ = 0;
  std::array<attempt, most_attempts> attempts_{};
  std::size_t confirmed_ = none;
  std::array<std::uint32_t, 4> periods_{};     // of steps that were repeated as a whole, the last four
  std::uint32_t threshold_ = confirmed_after;  // launches that must come as one period before
};

}  // namespace v0
}  // namespace deepum
