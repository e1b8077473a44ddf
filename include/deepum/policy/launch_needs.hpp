#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/footprint.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/policy/pair_tables.hpp>
#include <deepum/policy/policy_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Blocks in ascending order, adjacent ones merged, no block twice. Shared by all upcoming launches with the same ID.
using need_list = std::shared_ptr<const std::vector<block_range>>;

namespace detail {

inline void sort_and_merge(std::vector<block_range>& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](block_range a, block_range b) { return a.begin_value() < b.begin_value(); });
  std::size_t kept = 0;
  for (const block_range r : ranges) {
    if (r.empty()) {
      continue;
    }
    if (kept != 0 && ranges[kept - 1].end_value() >= r.begin_value()) {
      block_range& last = ranges[kept - 1];
      last.count = std::max(last.end_value(), r.end_value()) - last.begin_value();
    } else {
      ranges[kept++] = r;
    }
  }
  ranges.resize(kept);
}

}  // namespace detail

/// Which blocks a launch needs, as far as is known. It is a prediction, also for a launch that declares them.
class launch_needs {
 public:
  launch_needs() = default;
  launch_needs(const launch_needs&) = delete;
  launch_needs& operator=(const launch_needs&) = delete;
  virtual ~launch_needs() = default;

  /// A launch with this ID was issued.
  virtual void declare(execution_id id, const launch_record& record) = 0;
  /// It faulted. @returns  Whether `of(id)` is another list now.
  virtual bool fault(execution_id id, launch_id launch, block_id block, access mode) = 0;
  /// It finished. @returns  Whether `of(id)` is another list now.
  virtual bool finish(execution_id id, launch_id launch) = 0;
  /// The blocks that a launch with this ID needs; an empty list where nothing is known. Never null.
  [[nodiscard]] virtual need_list of(execution_id id) = 0;
  virtual void forget(execution_id id) = 0;
  [[nodiscard]] virtual bytes memory() const = 0;

 protected:
  /// A slot for each ID.
  template <class T>
  static T& slot(std::vector<T>& by_id, execution_id id) {
    if (id.value >= by_id.size()) {
      by_id.resize(std::size_t{id.value} + 1);
    }
    return by_id[id.value];
  }
  [[nodiscard]] static bytes memory_of(const std::vector<need_list>& lists) {
    bytes sum{lists.capacity() * sizeof(need_list)};
    for (const need_list& l : lists) {
      sum += l ? bytes{sizeof(std::vector<block_range>) + l->capacity() * sizeof(block_range)} : bytes{};
    }
    return sum;
  }
};

/// Footprints: what the launch declared, and the blocks on which it faulted.
///
/// Faults add to a footprint and never shrink it. A complete declaration that differs from the one before replaces the
/// footprint; one that is not complete adds to it.
class footprint_needs final : public launch_needs {
 public:
  void declare(execution_id id, const launch_record& record) override {
    std::vector<block_access>& before = slot(declared_, id);
    footprint* known = footprints_.find(id);
    if (known != nullptr && before == record.accesses) {
      return;
    }
    before = record.accesses;
    if (known == nullptr || record.complete) {
      footprints_.replace(id, footprint{});
    }
    footprint& f = footprints_.at(id);
    for (const block_access& a : record.accesses) {
      f.touch(a.range, a.mode, true);
    }
    slot(lists_, id).reset();
  }

  bool fault(execution_id id, launch_id, block_id block, access mode) override {
    footprint& f = footprints_.at(id);
    const bool grows = !f.contains(block);
    f.touch({block, 1}, mode, false);
    if (grows) {
      slot(lists_, id).reset();
    }
    return grows;
  }

  bool finish(execution_id, launch_id) override { return false; }

  [[nodiscard]] need_list of(execution_id id) override {
    need_list& list = slot(lists_, id);
    if (!list) {
      std::vector<block_range> ranges;
      if (const footprint* f = footprints_.find(id)) {
        for (const footprint_entry& e : f->entries()) {
          ranges.push_back(e.range);
        }
      }
      detail::sort_and_merge(ranges);
      ranges.shrink_to_fit();
      list = std::make_shared<const std::vector<block_range>>(std::move(ranges));
    }
    return list;
  }

  void forget(execution_id id) override {
    footprints_.forget(id);
    slot(declared_, id) = {};
    slot(lists_, id).reset();
  }

  [[nodiscard]] bytes memory() const override {
    bytes sum =
        footprints_.memory() + memory_of(lists_) + bytes{declared_.capacity() * sizeof(std::vector<block_access>)};
    for (const auto& d : declared_) {
      sum += bytes{d.capacity() * sizeof(block_access)};
    }
    return sum;
  }

 private:
  footprint_table footprints_{};
  std::vector<std::vector<block_access>> declared_{};  // by ID: as last declared
  std::vector<need_list> lists_{};                     // by ID: null where it has to be made again
};

/// The published UM block correlation tables: all that a chain takes from the start block on. Learned from faults
/// alone, so that both ways to know a launch's blocks can be compared under one planner.
class pair_needs final : public launch_needs {
 public:
  explicit pair_needs(block_table_shape shape) : tables_(shape) {}

  void declare(execution_id, const launch_record&) override {}
  bool fault(execution_id id, launch_id launch, block_id block, access) override {
    tables_.fault(launch, id, block);
    return false;
  }
  bool finish(execution_id id, launch_id launch) override {
    const bool learned = tables_.finish(launch);
    if (learned) {
      slot(lists_, id).reset();
    }
    return learned;
  }

  [[nodiscard]] need_list of(execution_id id) override {
    need_list& list = slot(lists_, id);
    if (!list) {
      std::vector<block_range> ranges;
      const block_table* table = tables_.find(id);
      if (table != nullptr && table->start()) {
        ranges.push_back({*table->start(), 1});
        walk_.start(*table, *table->start());
        while (const std::optional<block_id> b = walk_.next()) {
          append_merged(ranges, *b);
        }
      }
      detail::sort_and_merge(ranges);
      list = std::make_shared<const std::vector<block_range>>(std::move(ranges));
    }
    return list;
  }

  void forget(execution_id id) override {
    tables_.forget(id);
    slot(lists_, id).reset();
  }

  [[nodiscard]] bytes memory() const override { return tables_.memory() + memory_of(lists_) + walk_.memory(); }

 private:
  pair_tables tables_;
  std::vector<need_list> lists_{};  // by ID: null where it has to be made again
  block_walk walk_{};
};

[[nodiscard]] inline std::unique_ptr<launch_needs> make_launch_needs(prediction how, block_table_shape shape) {
  if (how == prediction::pairs) {
    return std::make_unique<pair_needs>(shape);
  }
  return std::make_unique<footprint_needs>();
}

}  // namespace v0
}  // namespace deepum
