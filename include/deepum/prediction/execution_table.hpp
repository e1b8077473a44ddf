#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/hash.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/index_list.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/core/slot_index.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace deepum {
inline namespace v0 {

/// A launch and the three before it, of one stream. IDs that are none stand for the time before the first launch.
struct execution_context {
  std::array<execution_id, 3> preceding{};  ///< oldest first
  execution_id current{};

  /// `next` is the current launch now.
  constexpr void push(execution_id next) {
    preceding = {preceding[1], preceding[2], current};
    current = next;
  }
  friend constexpr bool operator==(const execution_context&, const execution_context&) = default;
};

/// The execution correlation table (DeepUM, section 4.2): which launch follows which.
///
/// There is one entry for each execution ID; an entry holds any number of records, each of the three IDs that preceded
/// and the one that followed. Several records may hold the same three IDs and different followers: the one recorded
/// last wins. To record what a record says already makes it the one recorded last; records are never duplicated.
///
/// Not synchronised.
class execution_table {
 public:
  /// Which records predict.
  enum class match : std::uint8_t {
    published,       ///< those whose three preceding IDs all agree
    longest_suffix,  ///< where there is none, those that agree in most of the nearest preceding IDs, even in none
  };

  /// @param by           Which records predict.
  /// @param max_records  Records kept, over all entries; the one recorded least recently goes first. 0: unbounded.
  explicit execution_table(match by, std::size_t max_records = 0)
      : lowest_(by == match::published ? whole_context : 0),
        max_records_(max_records) {}

  /// `next` followed. Cost: a few hash look-ups, however many records there are.
  void record(const execution_context& context, execution_id next) {
    const correlation c{context, next};
    std::uint32_t slot = newest(whole_record, c);
    if (slot == none) {
      if (max_records_ != 0 && records_ == max_records_) {
        remove(by_age_.front());
      }
      slot = add(c);
    }
    by_age_.move_to_back(slot);
    for (unsigned level = lowest_; level <= whole_record; ++level) {
      make_newest(level, slot);
    }
  }

  /// What will follow. Nothing where no record says so. Cost: one to four hash look-ups.
  [[nodiscard]] std::optional<execution_id> predict(const execution_context& context) const {
    for (unsigned level = whole_context + 1; level-- > lowest_;) {
      const std::uint32_t slot = newest(level, {context, {}});
      if (slot != none) {
        return pool_[slot].next;
      }
    }
    return std::nullopt;
  }

  /// Removes all records that name this ID, because its number will mean another launch. Does nothing for none.
  ///
  /// Cost: walks the records, least recently recorded first, until it has met all that name the ID. Those of an ID
  /// that is retired because it has not been seen for long are among the first.
  void forget(execution_id id) {
    if (!id.valid()) {
      return;
    }
    for (std::uint32_t slot = by_age_.front(); mentions_.get(id) != 0;) {
      const std::uint32_t newer = by_age_.after(slot);
      if (pool_[slot].names(id)) {
        remove(slot);
      }
      slot = newer;
    }
  }

  /// Number of records in all entries.
  [[nodiscard]] std::size_t records() const { return records_; }

  /// Appends all records, least recently recorded first.
  void save(archive_writer& out) const {
    out.section(tag, [&] {
      out.put(std::uint64_t{records_});
      for (std::uint32_t slot = by_age_.front(); slot != none; slot = by_age_.after(slot)) {
        for_each_id(pool_[slot], [&](execution_id id) { out.put(id.value); });
      }
    });
  }
  /// A table that was saved. `how` and `max_records` are those of a new one.
  /// @param last_id  No record may name a higher one.
  /// @errors         `status::bad_format`, also where the archive holds more than `max_records`.
  [[nodiscard]] static execution_table load(archive_reader& in, execution_id last_id, match how,
                                            std::size_t max_records = 0) {
    return in.section(tag, [&] {
      execution_table table(how, max_records);
      const std::size_t count = in.get_count(5 * sizeof(std::uint32_t));
      if (count >= none || (max_records != 0 && count > max_records)) {
        in.refuse("more execution records than are kept");
      }
      const auto get_id = [&] {
        const execution_id id{in.get<std::uint32_t>()};
        if (id > last_id) {
          in.refuse("an execution record names an ID that there is not");
        }
        return id;
      };
      for (std::size_t i = 1; i <= count; ++i) {
        execution_context context;
        for (execution_id& id : context.preceding) {
          id = get_id();
        }
        context.current = get_id();
        table.record(context, get_id());
        if (table.records() != i) {
          in.refuse("an execution record is there twice");
        }
      }
      return table;
    });
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    bytes sum = bytes{pool_.capacity() * sizeof(correlation) + free_.capacity() * sizeof(std::uint32_t)} +
                mentions_.memory() + by_age_.memory();
    for (const group_level& level : levels_) {
      sum += bytes{level.links.capacity() * sizeof(link)} + level.newest.memory();
    }
    return sum;
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("exco");
  static constexpr std::uint32_t none = detail::slot_index::none;

  // Records are grouped at several levels. At level k, 0 to 3, a group is the records that agree in the current and the
  // k nearest preceding IDs; at level 4 it is one record. A group is a list, most recently recorded first, and the
  // index of the level finds its first one. So a prediction reads the first record of a group, whatever the size.
  static constexpr unsigned whole_context = 3;
  static constexpr unsigned whole_record = 4;

  struct correlation {
    execution_context context{};
    execution_id next{};

    [[nodiscard]] bool names(execution_id id) const {
      const auto& p = context.preceding;
      return p[0] == id || p[1] == id || p[2] == id || context.current == id || next == id;
    }
    [[nodiscard]] bool agrees(unsigned level, const correlation& o) const {
      if (context.current != o.context.current || (level == whole_record && next != o.next)) {
        return false;
      }
      for (unsigned back = 1; back <= 3 && back <= level; ++back) {
        if (context.preceding[3 - back] != o.context.preceding[3 - back]) {
          return false;
        }
      }
      return true;
    }
    [[nodiscard]] std::uint64_t hash(unsigned level) const {
      const auto preceding = [&](unsigned back) -> std::uint64_t {
        return level >= back ? context.preceding[3 - back].value : 0;
      };
      const std::uint64_t h =
          detail::absorb(level, context.current.value | preceding(1) << 32U, preceding(2) | preceding(3) << 32U);
      return level == whole_record ? detail::absorb(h, next.value, 0) : h;
    }
  };
  struct link {
    std::uint32_t older = none;
    std::uint32_t newer = none;
  };
  struct group_level {
    detail::slot_index newest{};
    sequence<link> links{};  // by slot
  };

  [[nodiscard]] std::uint32_t newest(unsigned level, const correlation& c) const {
    return levels_[level].newest.find(c.hash(level), [&](std::uint32_t slot) { return pool_[slot].agrees(level, c); });
  }

  // Moves a record, in a group already or not, to the front of its group.
  void make_newest(unsigned level, std::uint32_t slot) {
    group_level& g = levels_[level];
    const correlation& c = pool_[slot];
    const std::uint32_t front = newest(level, c);
    if (front == slot) {
      return;
    }
    if (g.links[slot].newer != none) {
      detach(g, slot);
    }
    g.links[slot] = {front, none};
    if (front != none) {
      g.links[front].newer = slot;
      g.newest.erase(c.hash(level), front);
    }
    g.newest.insert(c.hash(level), slot);
  }
  static void detach(group_level& g, std::uint32_t slot) {
    const link l = g.links[slot];
    if (l.newer != none) {
      g.links[l.newer].older = l.older;
    }
    if (l.older != none) {
      g.links[l.older].newer = l.newer;
    }
    g.links[slot] = {};
  }

  [[nodiscard]] std::uint32_t add(const correlation& c) {
    std::uint32_t slot = none;
    if (!free_.empty()) {
      slot = free_.back();
      free_.pop_back();
    } else {
      expects(pool_.size() < none, "more records than an execution correlation table can number");
      slot = static_cast<std::uint32_t>(pool_.size());
      pool_.emplace_back();
      for (unsigned level = lowest_; level <= whole_record; ++level) {
        levels_[level].links.resize(pool_.size());
      }
    }
    pool_[slot] = c;
    for_each_id(c, [&](execution_id id) { ++mentions_[id]; });
    ++records_;
    return slot;
  }
  void remove(std::uint32_t slot) {
    const correlation& c = pool_[slot];
    for (unsigned level = lowest_; level <= whole_record; ++level) {
      group_level& g = levels_[level];
      const link l = g.links[slot];
      if (l.newer == none) {
        g.newest.erase(c.hash(level), slot);
        if (l.older != none) {
          g.newest.insert(c.hash(level), l.older);
        }
      }
      detach(g, slot);
    }
    for_each_id(c, [&](execution_id id) { --mentions_[id]; });
    by_age_.erase(slot);
    free_.push_back(slot);
    --records_;
  }
  template <class Visit>
  static void for_each_id(const correlation& c, Visit&& visit) {
    for (const execution_id id : c.context.preceding) {
      visit(id);
    }
    visit(c.context.current);
    visit(c.next);
  }

  unsigned lowest_;  // level
  std::size_t max_records_;
  std::size_t records_ = 0;
  sequence<correlation> pool_{};
  detail::index_list by_age_{};     // slots of the pool, least recently recorded first
  sequence<std::uint32_t> free_{};  // other ones
  std::array<group_level, whole_record + 1> levels_{};
  detail::id_map<execution_id, std::uint32_t> mentions_{};  // how often the records name an ID
};

}  // namespace v0
}  // namespace deepum
