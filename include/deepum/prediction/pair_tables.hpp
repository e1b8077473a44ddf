#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/prediction/block_table.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {

/// One launch's part of a chain (DeepUM, section 4.2): from a block on, all successors that have not been visited,
/// breadth first, most recent first. The walk is over at the end block, or when no unvisited successor remains.
class block_walk {
 public:
  /// Begins at a block, which counts as visited. The table must outlive the walk.
  void start(const block_table& table, block_id from) {
    stop();
    table_ = &table;
    visit(from);
    given_ = 1;
  }
  void stop() {
    if (++epoch_ == 0) {
      std::fill(visited_.begin(), visited_.end(), 0);
      epoch_ = 1;
    }
    found_.clear();
    expanded_ = given_ = 0;
    table_ = nullptr;
  }

  /// The next block. Nothing: the chain leaves this launch.
  std::optional<block_id> next() {
    while (table_ != nullptr && given_ == found_.size()) {
      if (expanded_ == found_.size() || table_->end() == found_[expanded_]) {
        table_ = nullptr;
        break;
      }
      for (const block_id to : table_->successors(found_[expanded_])) {
        visit(to);
      }
      ++expanded_;
    }
    return table_ != nullptr ? std::optional<block_id>(found_[given_++]) : std::nullopt;
  }

  /// Marks a block as visited. @returns  Whether it had not been.
  bool visit(block_id b) {
    std::uint32_t& visited = visited_[b];
    if (visited == epoch_) {
      return false;
    }
    visited = epoch_;
    found_.push_back(b);
    return true;
  }
  /// The block visited last.
  [[nodiscard]] block_id last() const { return found_.back(); }

  [[nodiscard]] bytes memory() const { return bytes{found_.capacity() * sizeof(block_id)} + visited_.memory(); }

 private:
  const block_table* table_ = nullptr;
  sequence<block_id> found_{};                         // in the order of visits
  std::size_t expanded_ = 0;                           // of those: their successors have been looked at
  std::size_t given_ = 0;                              // of those: returned by next()
  detail::id_map<block_id, std::uint32_t> visited_{};  // the walk that visited it last
  std::uint32_t epoch_ = 0;
};

/// The UM block correlation tables of all launches, and how page faults train them (DeepUM, section 4.2).
///
/// A run trains its table when it is over. One with at least as many faults as any before, the known start block among
/// them, records each fault as the successor of the one before. Any other run was served by prefetching, so its order
/// says nothing of the launch: only what the chain does not reach is added, behind its last block.
///
/// Not synchronised.
class pair_tables {
 public:
  explicit pair_tables(block_table_shape each) : shape_(each) {}

  /// The table of a launch; null where it has never faulted.
  [[nodiscard]] const block_table* find(execution_id id) const {
    const auto* const place = by_id_.find(id);
    return place != nullptr && *place ? &(*place)->table : nullptr;
  }

  /// Launches that have a table. Cost: a look at each execution ID.
  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>(
        std::count_if(by_id_.begin(), by_id_.end(), [](const auto& e) { return e != nullptr; }));
  }

  /// A launch faulted. Faults of a launch come in order of time, and before `finish`.
  void fault(launch_id launch, execution_id id, block_id b) { run_of(launch, id).faults.push_back(b); }

  /// A launch finished: the faults of its run are all known. Cost: that of a walk through its table, if it faulted.
  /// @returns  Whether it had faulted.
  bool finish(launch_id launch) {
    const auto r = std::find_if(runs_.begin(), runs_.end(), [&](const run& x) { return x.launch == launch; });
    if (r == runs_.end()) {
      return false;
    }
    learn(table_of(r->id), r->faults);
    std::swap(*r, runs_.back());
    runs_.pop_back();
    return true;
  }

  /// The ID will mean another launch.
  void forget(execution_id id) {
    by_id_.reset(id);
    erase_if(runs_, [&](const run& r) { return r.id == id; });
  }

  /// Appends the tables of all launches. Runs that are not over have taught nothing yet.
  void save(archive_writer& out) const {
    out.section(tag, [&] {
      out.put(shape_.rows);
      out.put(shape_.ways);
      out.put(shape_.successors);
      out.put(static_cast<std::uint64_t>(size()));
      by_id_.for_each([&](execution_id id, const auto& e) {
        if (e) {
          out.put(id.value);
          out.put(std::uint64_t{e->most_faults});
          e->table.save(out);
        }
      });
    });
  }
  /// Tables that were saved.
  /// @param shape    They must be of this shape.
  /// @param last_id  There may be no table of a higher one.
  /// @param blocks   Of the arena; they may name no others.
  /// @errors         `status::bad_format`.
  [[nodiscard]] static pair_tables load(archive_reader& in, block_table_shape shape, execution_id last_id,
                                        std::uint32_t blocks) {
    return in.section(tag, [&] {
      const block_table_shape saved{in.get<std::uint32_t>(), in.get<std::uint32_t>(), in.get<std::uint32_t>()};
      if (saved != shape) {
        in.refuse("block tables of " + std::to_string(saved.rows) + " rows, " + std::to_string(saved.ways) +
                  " ways and " + std::to_string(saved.successors) + " successors");
      }
      pair_tables loaded(shape);
      const std::size_t count = in.get_count(sizeof(std::uint32_t) + sizeof(std::uint64_t));
      execution_id before{};
      for (std::size_t i = 0; i < count; ++i) {
        const execution_id id{in.get<std::uint32_t>()};
        if (id <= before || id > last_id) {
          in.refuse("a block table of an execution ID that there is not, or out of order");
        }
        entry& e = loaded.table_of(id);
        e.most_faults = static_cast<std::size_t>(in.get<std::uint64_t>());
        e.table = block_table::load(in, shape, blocks);
        if (!e.table.start() || !e.table.end()) {
          in.refuse("a block table of a launch has no start or no end");
        }
        before = id;
      }
      return loaded;
    });
  }

  [[nodiscard]] bytes memory() const {
    bytes sum = walk_.memory() + by_id_.memory();
    for (const auto& e : by_id_) {
      sum += e ? bytes{sizeof(entry)} + e->table.memory() : bytes{};
    }
    return sum;
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("pair");

  struct entry {
    block_table table;
    std::size_t most_faults = 0;  // of any run
  };
  struct run {
    launch_id launch{};
    execution_id id{};
    sequence<block_id> faults{};
  };

  entry& table_of(execution_id id) {
    std::unique_ptr<entry>& place = by_id_[id];
    if (!place) {
      place = std::make_unique<entry>(entry{block_table{shape_}});
    }
    return *place;
  }
  run& run_of(launch_id launch, execution_id id) {
    for (run& r : runs_) {
      if (r.launch == launch) {
        return r;
      }
    }
    runs_.push_back({launch, id, {}});
    return runs_.back();
  }

  void learn(entry& e, sequence<block_id>& faults) {
    block_table& table = e.table;
    walk_.stop();
    erase_if(faults, [&](block_id b) { return !walk_.visit(b); });  // a block that faulted again was evicted meanwhile
    const bool unserved = !table.start() || std::find(faults.begin(), faults.end(), *table.start()) != faults.end();
    if (unserved && faults.size() >= e.most_faults) {
      e.most_faults = faults.size();
      for (std::size_t i = 1; i < faults.size(); ++i) {
        table.record(faults[i - 1], faults[i]);
      }
      table.set_start(faults.front());
      table.set_end(faults.back());
      return;
    }
    walk_.start(table, *table.start());
    while (walk_.next()) {
    }
    for (const block_id b : faults) {
      const block_id last = walk_.last();
      if (walk_.visit(b)) {
        table.record(last, b);
        table.set_end(b);
      }
    }
  }

  block_table_shape shape_;
  detail::id_map<execution_id, std::unique_ptr<entry>> by_id_{};
  sequence<run> runs_{};  // of launches in flight
  block_walk walk_{};
};

}  // namespace v0
}  // namespace deepum
