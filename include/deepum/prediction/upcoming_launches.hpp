#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/prediction/footprint_predictor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// A launch that has not finished, or has not even been issued.
struct upcoming_launch {
  execution_id id{};
  launch_id launch{};   ///< none: it is only predicted
  working_set needs{};  ///< never null

  [[nodiscard]] bool issued() const { return launch.valid(); }
};

/// What one stream will execute: the launches that are issued and not finished, then those that are predicted; and for
/// each block which of them will use it next.
///
/// A launch is named by its distance: 0 is the executing one, or the next one where none is executing. Everything is
/// kept up to date incrementally: when a launch is issued as predicted nothing but its own state changes. The blocks
/// that a launch is the next to use are tallied, those on the device and those elsewhere, so that a planner finds the
/// first launch that misses something, and the last one that something is kept for, without looking at blocks.
///
/// Memory: of the blocks that are used, not of the arena.
///
/// Not synchronised.
class upcoming_launches {
 public:
  upcoming_launches() = default;
  /// @param resident  By block: whether it is on the device. Kept by the caller, who changes it before it tells of that
  ///                  with `set_resident`; what lies beyond its end is not on the device.
  explicit upcoming_launches(const std::vector<bool>& resident) : resident_(&resident) {}

  /// Number of launches, issued and predicted.
  [[nodiscard]] std::size_t size() const { return launches_.size(); }
  /// Number of those that are issued.
  [[nodiscard]] std::size_t issued() const { return issued_; }
  [[nodiscard]] const upcoming_launch& operator[](std::size_t distance) const { return launches_[distance]; }
  /// How many launches that are issued have a lower number: where the one with this number is, if it is one of them.
  [[nodiscard]] std::size_t place_of(launch_id launch) const {
    const auto end = launches_.begin() + static_cast<std::ptrdiff_t>(issued_);
    const auto it = std::lower_bound(launches_.begin(), end, launch,
                                     [](const upcoming_launch& l, launch_id wanted) { return l.launch < wanted; });
    return static_cast<std::size_t>(it - launches_.begin());
  }

  /// A launch was issued. @returns  Whether it was the one predicted; if not, all predictions are gone.
  /// Cost: linear in its blocks where its needs differ from the prediction, or in those of the predictions it removes.
  bool issue(upcoming_launch launch) {
    const bool as_predicted = issued_ < launches_.size() && launches_[issued_].id == launch.id;
    if (!as_predicted) {
      drop_predictions();
      append();
    }
    replace_needs(issued_, launch.needs);
    launches_[issued_] = std::move(launch);
    ++issued_;
    return as_predicted;
  }
  /// One more launch is predicted after all others.
  void predict(execution_id id, working_set needs) {
    append();
    launches_.back().id = id;
    replace_needs(launches_.size() - 1, std::move(needs));
  }
  /// Removes what is only predicted.
  void drop_predictions() {
    while (launches_.size() > issued_) {
      replace_needs(launches_.size() - 1, nothing_);
      launches_.pop_back();
      tallies_.pop_back();
    }
  }
  /// The oldest launch finished, and all uses that it would have made of a block are over.
  void pop_front() {
    replace_needs(0, nothing_);
    launches_.pop_front();
    tallies_.pop_front();
    ++head_;
    issued_ -= issued_ != 0 ? 1 : 0;
  }
  /// The needs of a launch are known better now. Cost: linear in the ranges of both lists, where they differ, and in
  /// the blocks that are in one of them only.
  void replace_needs(std::size_t distance, working_set needs) {
    working_set& now = launches_[distance].needs;
    if (now == needs) {
      return;
    }
    if (tracks_uses_) {
      const position at = head_ + static_cast<position>(distance);
      for_each_of_first_only(*now, *needs, [&](block_id b) { remove(b, at); });
      for_each_of_first_only(*needs, *now, [&](block_id b) { insert(b, at); });
    }
    now = std::move(needs);
  }
  /// Whether it is known which launch uses a block next; so it is at first. While it is not, no launch counts as the
  /// next to use any block, and what happens to launches costs nothing for their blocks.
  /// Cost: linear in the blocks of all launches, where that changes. While it is not known it takes no memory.
  void track_uses(bool on) {
    if (tracks_uses_ == on) {
      return;
    }
    tracks_uses_ = on;
    for (std::size_t i = 0; i != launches_.size(); ++i) {
      const position at = head_ + static_cast<position>(i);
      for_each_of_first_only(*launches_[i].needs, *nothing_, [&](block_id b) { on ? insert(b, at) : remove(b, at); });
    }
    if (!on) {
      give_memory_back();
    }
  }

  /// The distance of the launch that uses the block next. Nothing: none of those that are known.
  [[nodiscard]] std::optional<std::uint32_t> next_use(block_id b) const {
    const use_list* const list = find(b);
    if (list == nullptr || list->first == none) {
      return std::nullopt;
    }
    return pool_[list->first].at - head_;
  }
  /// A block came to the device or left it.
  void set_resident(block_id b, bool resident) {
    use_list* const list = resident_ == nullptr ? &list_of(b) : find(b);
    if (list != nullptr && list->resident != resident) {
      tally_first(*list, -1);
      list->resident = resident;
      tally_first(*list, 1);
    }
  }
  /// Blocks on the device, as far as `set_resident` told, that the launch is the next to use.
  [[nodiscard]] std::uint32_t kept_for(std::size_t distance) const { return tallies_[distance].resident; }
  /// Other blocks that the launch is the next to use.
  [[nodiscard]] std::uint32_t missed_by(std::size_t distance) const { return tallies_[distance].elsewhere; }
  /// Blocks on the device that any launch will use.
  [[nodiscard]] std::size_t kept() const { return kept_; }

  /// Uses of all blocks by all launches.
  [[nodiscard]] std::size_t use_count() const { return use_count_; }

  [[nodiscard]] bytes memory() const {
    return bytes{pool_.capacity() * sizeof(use) + parts_.capacity() * sizeof(parts_[0]) + part_count_ * sizeof(part) +
                 launches_.size() * (sizeof(upcoming_launch) + sizeof(tally))};
  }

 private:
  using position = std::uint32_t;  // counts on for ever and wraps; only differences are looked at
  static constexpr std::uint32_t none = 0xffffffffU;

  // The uses of a block are a list in the order of launches.
  struct use {
    position at = 0;
    std::uint32_t before = none;
    std::uint32_t after = none;  // or the next free one
  };
  struct use_list {
    std::uint32_t first = none;
    std::uint32_t last = none;
    bool resident = false;
  };
  struct tally {
    std::uint32_t resident = 0;
    std::uint32_t elsewhere = 0;
  };

  // The lists of blocks that lie side by side. They are made when the first of them is used.
  static constexpr std::uint32_t part_size = 512;
  using part = std::array<use_list, part_size>;

  [[nodiscard]] const use_list* find(block_id b) const {
    const std::size_t at = b.value / part_size;
    return at < parts_.size() && parts_[at] ? &(*parts_[at])[b.value % part_size] : nullptr;
  }
  [[nodiscard]] use_list* find(block_id b) { return const_cast<use_list*>(std::as_const(*this).find(b)); }
  use_list& list_of(block_id b) {
    if (use_list* const there = find(b)) {
      return *there;
    }
    const std::size_t at = b.value / part_size;
    if (at >= parts_.size()) {
      parts_.resize(at + 1);
    }
    parts_[at] = std::make_unique<part>();
    ++part_count_;
    for (std::size_t i = 0; resident_ != nullptr && i != part_size && at * part_size + i < resident_->size(); ++i) {
      (*parts_[at])[i].resident = (*resident_)[at * part_size + i];
    }
    return (*parts_[at])[b.value % part_size];
  }

  void append() {
    launches_.emplace_back();
    launches_.back().needs = nothing_;
    tallies_.emplace_back();
  }

  // Counts the block with the launch that uses it next; `by` is 1 or -1, and wraps as unsigned numbers do.
  void tally_first(const use_list& list, int by) {
    if (list.first != none) {
      tally& t = tallies_[pool_[list.first].at - head_];
      (list.resident ? t.resident : t.elsewhere) += static_cast<std::uint32_t>(by);
      kept_ += list.resident ? static_cast<std::size_t>(by) : 0;
    }
  }

  // Calls `visit` for the blocks of one list that are not in the other.
  template <class Visit>
  static void for_each_of_first_only(const std::vector<block_range>& first, const std::vector<block_range>& second,
                                     Visit&& visit) {
    auto other = second.begin();
    for (const block_range r : first) {
      for (std::uint32_t b = r.begin_value(); b != r.end_value();) {
        while (other != second.end() && other->end_value() <= b) {
          ++other;
        }
        const bool any = other != second.end() && other->begin_value() < r.end_value();
        const std::uint32_t end = any ? std::max(b, other->begin_value()) : r.end_value();
        for (; b != end; ++b) {
          visit(block_id{b});
        }
        if (any) {
          b = std::min(other->end_value(), r.end_value());
        }
      }
    }
  }

  // Most uses are added at the end, and removed at either end.
  void insert(block_id b, position at) {
    use_list& list = list_of(b);
    std::uint32_t before = list.last;
    while (before != none && pool_[before].at - head_ > at - head_) {
      before = pool_[before].before;
    }
    const std::uint32_t after = before == none ? list.first : pool_[before].after;
    std::uint32_t made = free_;
    if (made == none) {
      made = static_cast<std::uint32_t>(pool_.size());
      pool_.emplace_back();
    } else {
      free_ = pool_[made].after;
    }
    if (before == none) {
      tally_first(list, -1);
    }
    pool_[made] = {at, before, after};
    (before == none ? list.first : pool_[before].after) = made;
    (after == none ? list.last : pool_[after].before) = made;
    if (before == none) {
      tally_first(list, 1);
    }
    ++use_count_;
  }
  void remove(block_id b, position at) {
    use_list& list = *find(b);
    std::uint32_t u = pool_[list.last].at == at ? list.last : list.first;
    while (pool_[u].at != at) {
      u = pool_[u].after;
    }
    const use gone = pool_[u];
    if (gone.before == none) {
      tally_first(list, -1);
    }
    (gone.before == none ? list.first : pool_[gone.before].after) = gone.after;
    (gone.after == none ? list.last : pool_[gone.after].before) = gone.before;
    if (gone.before == none) {
      tally_first(list, 1);
    }
    pool_[u].after = free_;
    free_ = u;
    --use_count_;
  }

  // There is no use of any block.
  void give_memory_back() {
    std::vector<use>{}.swap(pool_);
    free_ = none;
    if (resident_ != nullptr) {  // else the lists alone know what is on the device
      parts_.clear();
      part_count_ = 0;
    }
  }

  bool tracks_uses_ = true;
  working_set nothing_ = std::make_shared<const std::vector<block_range>>();
  std::deque<upcoming_launch> launches_{};
  std::deque<tally> tallies_{};  // of those
  std::size_t kept_ = 0;
  std::size_t issued_ = 0;
  position head_ = 0;                           // of launches_[0]
  std::vector<std::unique_ptr<part>> parts_{};  // by block
  std::size_t part_count_ = 0;
  const std::vector<bool>* resident_ = nullptr;
  std::vector<use> pool_{};
  std::uint32_t free_ = none;
  std::size_t use_count_ = 0;
};

}  // namespace v0
}  // namespace deepum
