#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/fifo.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/prediction/footprint_predictor.hpp>
#include <deepum/prediction/launch_marks.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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
/// kept up to date incrementally: when a launch is issued as predicted nothing but its own state changes.
///
/// Where blocks are is asked of the map, and not kept. A launch is marked when it comes to be the next to use a block
/// that is not on the device, or one that is, so that a planner finds the first launch that may miss something, and the
/// last one that something may be kept for, without looking at the others. It takes a mark away when it has looked.
///
/// Memory: of the blocks that are used, not of the arena.
///
/// Not synchronised. Whoever calls it says what comes to the device or leaves it with `moved`.
class upcoming_launches {
 public:
  explicit upcoming_launches(bool track_uses = true) : tracks_uses_(track_uses) {}

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
  bool issue(upcoming_launch launch, const block_map& map) {
    const bool as_predicted = issued_ < launches_.size() && launches_[issued_].id == launch.id;
    if (!as_predicted) {
      drop_predictions(map);
      append();
    }
    replace_needs(issued_, launch.needs, map);
    launches_[issued_] = std::move(launch);
    ++issued_;
    return as_predicted;
  }
  /// One more launch is predicted after all others.
  void predict(execution_id id, working_set needs, const block_map& map) {
    append();
    launches_.back().id = id;
    replace_needs(launches_.size() - 1, std::move(needs), map);
  }
  /// Removes what is only predicted.
  void drop_predictions(const block_map& map) {
    while (launches_.size() > issued_) {
      remove_uses(launches_.size() - 1, map);
      launches_.pop_back();
    }
  }
  /// The oldest launch finished, and all uses that it would have made of a block are over.
  void pop_front(const block_map& map) {
    remove_uses(0, map);
    launches_.pop_front();
    ++head_;
    issued_ -= issued_ != 0 ? 1 : 0;
  }
  /// The needs of a launch are known better now. Cost: linear in the ranges of both lists, where they differ, and in
  /// the blocks that are in one of them only.
  void replace_needs(std::size_t distance, working_set needs, const block_map& map) {
    working_set& now = launches_[distance].needs;
    if (now == needs) {
      return;
    }
    if (tracks_uses_) {
      const position at = position_of(distance);
      for_each_of_first_only(*now, *needs, [&](block_id b) { remove(b, at, map); });
      for_each_of_first_only(*needs, *now, [&](block_id b) { insert(b, at, map); });
    }
    now = std::move(needs);
  }
  /// Whether it is known which launch uses a block next; so it is at first. While it is not, no launch counts as the
  /// next to use any block, and what happens to launches costs nothing for their blocks.
  /// Cost: linear in the blocks of all launches, where that changes. While it is not known it takes no memory.
  void track_uses(bool on, const block_map& map) {
    if (tracks_uses_ == on) {
      return;
    }
    tracks_uses_ = on;
    if (!on) {
      forget_uses();
      return;
    }
    for (std::size_t i = 0; i != launches_.size(); ++i) {
      for_each_of_first_only(*launches_[i].needs, *nothing_, [&](block_id b) { insert(b, position_of(i), map); });
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

  /// A block came to the device or left it, or its contents matter again: the launch that uses it next is marked.
  /// @returns  Whether any does.
  bool moved(block_id b, const block_map& map) {
    const use_list* const list = find(b);
    const bool used = list != nullptr && list->first != none;
    if (used) {
      mark(*list, map.resident(b));
    }
    return used;
  }
  /// The first launch in `[from, end)` that may be the next to use a block which is not on the device; `end` if there
  /// is none.
  [[nodiscard]] std::size_t first_missing(std::size_t from, std::size_t end) const {
    return from < end ? missing_.first(position_of(from), position_of(end)) - head_ : end;
  }
  /// The number of launches up to the last of the first `end` ones that may be the next to use a block which is on the
  /// device; 0 if there is none.
  [[nodiscard]] std::size_t up_to_last_kept(std::size_t end) const {
    return kept_.behind_last(head_, position_of(end)) - head_;
  }
  /// All blocks that the launch is the next to use are on the device, or hold nothing.
  void nothing_missing(std::size_t distance) { missing_.clear(position_of(distance)); }
  /// None of them is on the device.
  void nothing_kept(std::size_t distance) { kept_.clear(position_of(distance)); }
  /// Whether a block on the device has lost its last known use since the last call.
  [[nodiscard]] bool take_unused() { return std::exchange(unused_, false); }

  /// Uses of all blocks by all launches.
  [[nodiscard]] std::size_t use_count() const { return use_count_; }

  [[nodiscard]] bytes memory() const {
    return bytes{pool_.capacity() * sizeof(use) + parts_.capacity() * sizeof(parts_[0]) + part_count_ * sizeof(part) +
                 launches_.size() * sizeof(upcoming_launch)} +
           missing_.memory() + kept_.memory();
  }

 private:
  using position = detail::launch_marks::position;  // counts on for ever and wraps; only differences are looked at
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
    return (*parts_[at])[b.value % part_size];
  }

  [[nodiscard]] position position_of(std::size_t distance) const { return head_ + static_cast<position>(distance); }

  void append() {
    launches_.emplace_back();
    launches_.back().needs = nothing_;
    missing_.cover(head_, launches_.size());
    kept_.cover(head_, launches_.size());
  }
  void remove_uses(std::size_t distance, const block_map& map) {
    replace_needs(distance, nothing_, map);
    missing_.clear(position_of(distance));
    kept_.clear(position_of(distance));
  }

  // The launch that uses a block next comes to be looked at.
  void mark(const use_list& list, bool resident) { (resident ? kept_ : missing_).set(pool_[list.first].at); }

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
  void insert(block_id b, position at, const block_map& map) {
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
    pool_[made] = {at, before, after};
    (before == none ? list.first : pool_[before].after) = made;
    (after == none ? list.last : pool_[after].before) = made;
    if (before == none) {
      mark(list, map.resident(b));
    }
    ++use_count_;
  }
  void remove(block_id b, position at, const block_map& map) {
    use_list& list = *find(b);
    std::uint32_t u = pool_[list.last].at == at ? list.last : list.first;
    while (pool_[u].at != at) {
      u = pool_[u].after;
    }
    const use gone = pool_[u];
    (gone.before == none ? list.first : pool_[gone.before].after) = gone.after;
    (gone.after == none ? list.last : pool_[gone.after].before) = gone.before;
    if (gone.before == none && list.first != none) {
      mark(list, map.resident(b));
    } else if (list.first == none) {
      unused_ = unused_ || map.resident(b);
    }
    pool_[u].after = free_;
    free_ = u;
    --use_count_;
  }

  void forget_uses() {
    sequence<use>{}.swap(pool_);
    free_ = none;
    use_count_ = 0;
    parts_.clear();
    part_count_ = 0;
    missing_ = {};
    kept_ = {};
    missing_.cover(head_, launches_.size());
    kept_.cover(head_, launches_.size());
    unused_ = true;
  }

  bool tracks_uses_;
  working_set nothing_ = std::make_shared<const std::vector<block_range>>();
  fifo<upcoming_launch> launches_{};
  detail::launch_marks missing_{};  // on launches that may be the next to use a block which is not on the device
  detail::launch_marks kept_{};     // and one which is
  std::size_t issued_ = 0;
  position head_ = 0;                        // of launches_[0]
  sequence<std::unique_ptr<part>> parts_{};  // by block
  std::size_t part_count_ = 0;
  sequence<use> pool_{};
  std::uint32_t free_ = none;
  std::size_t use_count_ = 0;
  bool unused_ = false;
};

}  // namespace v0
}  // namespace deepum
