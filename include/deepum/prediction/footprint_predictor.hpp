#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/prediction/footprint.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Blocks in ascending order, adjacent ones merged, no block twice. Shared by all upcoming launches with the same ID.
using working_set = std::shared_ptr<const std::vector<block_range>>;

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

/// Which blocks a launch needs: what it declared, and the blocks on which it faulted. A prediction in either case.
///
/// A complete declaration that differs from the one before replaces the footprint; an incomplete one and faults add to
/// it. What was learned settles with the first run that brings few new blocks. When later runs bring many, it is
/// forgotten and settles anew. A launch that faults on many blocks which an earlier run has done without, more than
/// once before it settles, follows indices that change all the time: all is forgotten, and nothing learned for a while.
class footprint_predictor {
 public:
  /// A run brings few new blocks where they are no more than this part of what was learned before.
  static constexpr std::uint32_t few = 8;
  /// Runs have brought many where those are more than this part of what had settled, and more than this number.
  static constexpr std::uint32_t many = 4;
  /// So many runs that bring blocks which an earlier one has done without, more than `few`, and nothing is learned for
  /// so many runs.
  static constexpr std::uint32_t surprises = 2;
  static constexpr std::uint32_t runs_unlearned = 64;

  /// A launch with this ID was issued.
  void declare(execution_id id, const launch_record& record) {
    std::vector<block_access>& before = declared_[id];
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
    lists_[id].reset();
  }

  /// It faulted. @returns  Whether `of(id)` is another list now.
  bool fault(execution_id id, block_id block, access mode) {
    footprint& f = footprints_.at(id);
    const bool grows = !f.contains(block);
    if (grows && !steady(id)) {
      return false;
    }
    f.touch({block, 1}, mode, false);
    if (grows) {
      lists_[id].reset();
      learning& l = learning_[id];
      ++l.now;
      l.other += block.value < l.absent.size() && l.absent[block.value] ? 1 : 0;
      if (l.settled != 0) {
        l.since.push_back({{block, 1}, mode});
      }
    }
    return grows;
  }

  /// It finished. @returns  Whether `of(id)` is another list now.
  bool finish(execution_id id, const block_map& map) {
    learning* const known = learning_.find(id);
    if (known == nullptr) {
      return false;  // it has never faulted
    }
    learning& l = *known;
    if (l.unlearned_runs != 0) {
      --l.unlearned_runs;
      return false;
    }
    const std::uint32_t before = l.blocks;
    const std::uint32_t now = std::exchange(l.now, 0);
    const std::uint32_t other = std::exchange(l.other, 0);
    l.blocks += now;
    if (l.settled != 0) {
      const std::uint32_t since = l.blocks - l.settled;
      if (since <= std::max(l.settled / many, many)) {
        return false;
      }
      relearn(id, l.since);
      l = {.blocks = since};
      l.see_absent(map);
      return true;
    }
    if (before != 0 && now <= before / few) {
      l.settled = l.blocks;
      l.absent = {};
      return false;
    }
    if (before == 0 || other <= before / few || ++l.surprises != surprises) {
      if (now != 0) {
        l.see_absent(map);
      }
      return false;
    }
    relearn(id, {});
    l = {.unlearned_runs = runs_unlearned};
    return true;
  }

  /// Whether the launch uses the same blocks whenever it comes, as far as is known. Of one that does not, only what it
  /// declares is known.
  [[nodiscard]] bool steady(execution_id id) const {
    const learning* const l = learning_.find(id);
    return l == nullptr || l->unlearned_runs == 0;
  }

  /// The blocks that a launch with this ID needs; an empty list where nothing is known. Never null.
  [[nodiscard]] working_set of(execution_id id) {
    working_set& list = lists_[id];
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

  /// Appends the same blocks with what the launch does to them.
  void append_uses(execution_id id, std::vector<block_access>& out) {
    if (const footprint* f = footprints_.find(id)) {
      for (const footprint_entry& e : f->entries()) {
        out.push_back({e.range, e.mode});
      }
    }
  }

  /// Forgets all that faults have taught of launches that were seen to fault on this memory; calls `changed(id)` for
  /// each.
  template <class Changed>
  void forget_learned(block_range range, Changed&& changed) {
    for (std::size_t i = 0; i != learning_.size(); ++i) {
      const execution_id id{static_cast<std::uint32_t>(i)};
      const footprint* const f = footprints_.find(id);
      if (f != nullptr && std::any_of(f->entries().begin(), f->entries().end(), [&](const footprint_entry& each) {
            return !each.mode_known && each.range.overlaps(range);
          })) {
        relearn(id, {});
        learning_.reset(id);
        changed(id);
      }
    }
  }

  void forget(execution_id id) {
    footprints_.forget(id);
    learning_.reset(id);
    declared_.reset(id);
    lists_.reset(id);
  }

  /// Appends what is known of all launches that are over.
  void save(archive_writer& out) const {
    out.section(tag, [&] {
      footprints_.save(out);
      out.put(static_cast<std::uint64_t>(
          std::count_if(declared_.begin(), declared_.end(), [](const auto& d) { return !d.empty(); })));
      declared_.for_each([&](execution_id id, const std::vector<block_access>& d) {
        if (!d.empty()) {
          out.put(id.value);
          put(out, d);
        }
      });
      out.put(static_cast<std::uint64_t>(
          std::count_if(learning_.begin(), learning_.end(), [](const learning& l) { return !l.empty(); })));
      learning_.for_each([&](execution_id id, const learning& l) {
        if (!l.empty()) {
          out.put(id.value);
          out.put(l.blocks);
          out.put(l.surprises);
          out.put(l.unlearned_runs);
          out.put(l.settled);
          put(out, l.since);
        }
      });
    });
  }
  /// Takes what was saved, in place of its own.
  /// @param last_id  Nothing may be known of a higher one.
  /// @param blocks   Of the arena; no others may be named.
  /// @errors         `status::bad_format`; then nothing has changed.
  void load(archive_reader& in, execution_id last_id, std::uint32_t blocks) {
    detail::id_map<execution_id, std::vector<block_access>> declared;
    detail::id_map<execution_id, learning> learned;
    footprints_ = in.section(tag, [&] {
      footprint_table footprints = footprint_table::load(in, last_id, blocks);
      const std::size_t count = in.get_count(sizeof(std::uint32_t) + sizeof(std::uint64_t));
      execution_id before{};
      for (std::size_t i = 0; i < count; ++i) {
        const execution_id id{in.get<std::uint32_t>()};
        if (id <= before || id > last_id || footprints.find(id) == nullptr) {
          in.refuse("a declaration of an execution ID that there is not, or out of order");
        }
        declared[id] = load_accesses(in, blocks);
        if (declared[id].empty()) {
          in.refuse("a declaration names nothing");
        }
        before = id;
      }
      load_learning(in, last_id, blocks, learned);
      return footprints;
    });
    declared_ = std::move(declared);
    lists_.clear();
    learning_ = std::move(learned);
  }

  [[nodiscard]] bytes memory() const {
    bytes sum = footprints_.memory() + declared_.memory() + learning_.memory() + lists_.memory();
    for (const working_set& l : lists_) {
      sum += l ? bytes{sizeof(std::vector<block_range>) + l->capacity() * sizeof(block_range)} : bytes{};
    }
    for (const auto& d : declared_) {
      sum += bytes{d.capacity() * sizeof(block_access)};
    }
    for (const learning& l : learning_) {
      sum += bytes{l.since.capacity() * sizeof(block_access) + l.absent.capacity() / 8};
    }
    return sum;
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("need");

  // What faults have taught of a launch.
  struct learning {
    std::uint32_t blocks = 0;           // learned before the run that is executing
    std::uint32_t now = 0;              // learned in it
    std::uint32_t other = 0;            // of these, what an earlier run has done without
    std::uint32_t surprises = 0;        // since it began to learn
    std::uint32_t unlearned_runs = 0;   // until its blocks are learned again; 0: they are
    std::uint32_t settled = 0;          // blocks that had been learned when it did; 0: it has not
    std::vector<block_access> since{};  // what was learned after that
    std::vector<bool> absent{};         // by block, until it has settled: not there when a run ended

    [[nodiscard]] bool empty() const { return blocks == 0 && unlearned_runs == 0; }
    void see_absent(const block_map& map) {
      absent.resize(map.size());
      for (const block_id b : block_range{block_id{0}, map.size()}) {
        absent[b.value] = !map.present(b);
      }
    }
  };

  // Of what was learned this is left.
  void relearn(execution_id id, const std::vector<block_access>& learned) {
    footprints_.replace(id, footprint{});
    footprint& f = footprints_.at(id);
    for (const block_access& a : declared_[id]) {
      f.touch(a.range, a.mode, true);
    }
    for (const block_access& a : learned) {
      f.touch(a.range, a.mode, false);
    }
    lists_[id].reset();
  }

  static void load_learning(archive_reader& in, execution_id last_id, std::uint32_t blocks,
                            detail::id_map<execution_id, learning>& out) {
    const std::size_t count = in.get_count(5 * sizeof(std::uint32_t) + sizeof(std::uint64_t));
    execution_id before{};
    for (std::size_t i = 0; i < count; ++i) {
      const execution_id id{in.get<std::uint32_t>()};
      if (id <= before || id > last_id) {
        in.refuse("faults of an execution ID that there is not, or out of order");
      }
      learning& l = out[id];
      l.blocks = in.get<std::uint32_t>();
      l.surprises = in.get<std::uint32_t>();
      l.unlearned_runs = in.get<std::uint32_t>();
      l.settled = in.get<std::uint32_t>();
      l.since = load_accesses(in, blocks);
      if (l.empty() || l.settled > l.blocks) {
        in.refuse("faults of an execution ID of which nothing was learned, or less than had been");
      }
      before = id;
    }
  }
  static void put(archive_writer& out, const std::vector<block_access>& all) {
    out.put(std::uint64_t{all.size()});
    for (const block_access& a : all) {
      out.put(a.range.first.value);
      out.put(a.range.count);
      out.put(a.mode);
    }
  }
  [[nodiscard]] static std::vector<block_access> load_accesses(archive_reader& in, std::uint32_t blocks) {
    std::vector<block_access> all(in.get_count(2 * sizeof(std::uint32_t) + sizeof(access)));
    for (block_access& a : all) {
      a.range.first = block_id{in.get<std::uint32_t>()};
      a.range.count = in.get<std::uint32_t>();
      a.mode = in.get_enum(access::overwrite);
      if (a.range.empty() || a.range.begin_value() >= blocks || a.range.count > blocks - a.range.begin_value()) {
        in.refuse("a launch that uses a block that the arena does not have, or none");
      }
    }
    return all;
  }

  footprint_table footprints_{};
  detail::id_map<execution_id, std::vector<block_access>> declared_{};  // as last declared
  detail::id_map<execution_id, learning> learning_{};
  detail::id_map<execution_id, working_set> lists_{};  // null where it has to be made again
};

}  // namespace v0
}  // namespace deepum
