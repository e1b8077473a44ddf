#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/core/block.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace deepum {
inline namespace v0 {

/// Blocks of a footprint that the launch treats alike.
struct footprint_entry {
  block_range range{};
  access mode = access::update;
  bool mode_known = false;  ///< the program declared it; else it was learned from a fault

  friend constexpr bool operator==(const footprint_entry&, const footprint_entry&) = default;
};

/// What a second use does to the mode of a block within one launch.
///
/// `overwrite` stays only where it came first: the old contents are dead before anything else happens to them.
[[nodiscard]] constexpr access join(access first, access then) {
  return first == then || first == access::overwrite ? first : access::update;
}

/// The blocks that a launch touches, in first-touch order, adjacent blocks with equal modes merged.
///
/// A footprint grows and never shrinks. A block that is touched again keeps its place, and its modes are joined. A mode
/// learned from a fault is a guess, and the first touch of a page does not tell what follows: such a block is taken for
/// an update, unless the program declared it; then the declaration stays, and a fault that writes makes a read an
/// update.
///
/// Not synchronised.
class footprint {
 public:
  /// The launch touches these blocks, in ascending order.
  /// @param range       May be empty.
  /// @param mode        What it does with them.
  /// @param mode_known  The program declared it; else it is what a fault showed.
  /// @errors            None. Cost: logarithmic in the number n of entries where nothing changes. A new entry moves
  ///                    4n bytes at most, none if it lies behind all others; to split or join entries is O(n).
  void touch(block_range range, access mode, bool mode_known) {
    std::uint32_t at = range.begin_value();
    const std::uint32_t end = range.end_value();
    std::size_t rank = rank_after(at);  // entries that begin at or before `at`
    while (at != end) {
      if (rank != 0 && at < entries_[by_block_[rank - 1]].range.end_value()) {
        const footprint_entry& there = entries_[by_block_[rank - 1]];
        const std::uint32_t part_end = std::min(end, there.range.end_value());
        retouch(rank - 1, {block_id{at}, part_end - at}, mode, mode_known);
        at = part_end;
      } else {
        const std::uint32_t gap_end =
            rank < by_block_.size() ? std::min(end, entries_[by_block_[rank]].range.begin_value()) : end;
        append(rank, {block_id{at}, gap_end - at}, mode_known ? mode : access::update, mode_known);
        at = gap_end;
      }
      rank = rank_after(at);
    }
  }

  /// Ranges in first-touch order. Valid until the next `touch`.
  [[nodiscard]] std::span<const footprint_entry> entries() const { return {entries_.data(), entries_.size()}; }

  /// Cost: logarithmic in the number of entries.
  [[nodiscard]] bool contains(block_id block) const {
    const std::size_t rank = rank_after(block.value);
    return rank != 0 && entries_[by_block_[rank - 1]].range.contains(block);
  }

  /// Number of blocks in all entries.
  [[nodiscard]] std::uint32_t block_count() const { return blocks_; }
  [[nodiscard]] bool empty() const { return blocks_ == 0; }

  /// Appends all entries.
  void save(archive_writer& out) const {
    out.put(std::uint64_t{entries_.size()});
    for (const footprint_entry& e : entries_) {
      out.put(e.range.first.value);
      out.put(e.range.count);
      out.put(e.mode);
      out.put(e.mode_known);
    }
  }
  /// A footprint that was saved.
  /// @param blocks  Of the arena; it may name no others.
  /// @errors        `status::bad_format`.
  [[nodiscard]] static footprint load(archive_reader& in, std::uint32_t blocks) {
    footprint f;
    const std::size_t count = in.get_count(2 * sizeof(std::uint32_t) + sizeof(access) + sizeof(bool));
    for (std::uint32_t i = 0; i < count; ++i) {
      footprint_entry e;
      e.range.first = block_id{in.get<std::uint32_t>()};
      e.range.count = in.get<std::uint32_t>();
      e.mode = in.get_enum(access::overwrite);
      e.mode_known = in.get_bool();
      if (e.range.empty() || e.range.begin_value() >= blocks || e.range.count > blocks - e.range.begin_value()) {
        in.refuse("a footprint names a block that the arena does not have, or none");
      }
      if (!e.mode_known && e.mode != access::update) {
        in.refuse("a footprint takes a guess for more than an update");
      }
      f.entries_.push_back(e);
      f.by_block_.push_back(i);
      f.blocks_ += e.range.count;
    }
    std::sort(f.by_block_.begin(), f.by_block_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return f.entries_[a].range.begin_value() < f.entries_[b].range.begin_value();
    });
    for (std::size_t rank = 1; rank < count; ++rank) {
      if (f.entries_[f.by_block_[rank - 1]].range.overlaps(f.entries_[f.by_block_[rank]].range)) {
        in.refuse("a footprint names a block twice");
      }
    }
    return f;
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return bytes{entries_.capacity() * sizeof(footprint_entry) + by_block_.capacity() * sizeof(std::uint32_t)};
  }

  /// The same blocks in the same order with the same modes.
  friend bool operator==(const footprint& a, const footprint& b) { return a.entries_ == b.entries_; }

 private:
  // The number of entries that begin at or before a block.
  [[nodiscard]] std::size_t rank_after(std::uint32_t block) const {
    const auto place =
        std::upper_bound(by_block_.begin(), by_block_.end(), block,
                         [&](std::uint32_t b, std::uint32_t e) { return b < entries_[e].range.begin_value(); });
    return static_cast<std::size_t>(place - by_block_.begin());
  }

  // May the second continue the first, as one entry?
  [[nodiscard]] static bool mergeable(const footprint_entry& first, const footprint_entry& second) {
    return first.range.end_value() == second.range.begin_value() && first.mode == second.mode &&
           first.mode_known == second.mode_known;
  }

  // Blocks that no entry has yet. `rank`: the number of entries that lie before them.
  void append(std::size_t rank, block_range range, access mode, bool mode_known) {
    const footprint_entry fresh{range, mode, mode_known};
    blocks_ += range.count;
    if (!entries_.empty() && mergeable(entries_.back(), fresh)) {
      entries_.back().range.count += range.count;
      return;
    }
    by_block_.insert(by_block_.begin() + static_cast<std::ptrdiff_t>(rank),
                     static_cast<std::uint32_t>(entries_.size()));
    entries_.push_back(fresh);
  }

  // A part of the entry of that rank is touched again.
  void retouch(std::size_t rank, block_range part, access mode, bool mode_known) {
    const std::size_t index = by_block_[rank];
    const footprint_entry whole = entries_[index];
    const footprint_entry changed{part, join(whole.mode, mode), whole.mode_known || mode_known};
    if (changed.mode == whole.mode && changed.mode_known == whole.mode_known) {
      return;
    }
    // The entry becomes up to three. At its edges the changed part may merge with the entries beside it in first-touch
    // order. All that is replaced is adjacent in that order and in the order of blocks, and so is what replaces it.
    std::size_t first = index;
    std::size_t last = index + 1;
    std::size_t first_rank = rank;
    std::array<footprint_entry, 3> parts{};
    std::size_t count = 0;
    const auto put = [&](const footprint_entry& e) {
      if (count != 0 && mergeable(parts[count - 1], e)) {
        parts[count - 1].range.count += e.range.count;
      } else if (!e.range.empty()) {
        parts[count++] = e;
      }
    };
    if (part.first == whole.range.first && first != 0 && mergeable(entries_[first - 1], changed)) {
      --first;
      --first_rank;
      put(entries_[first]);
    }
    put({{whole.range.first, part.begin_value() - whole.range.begin_value()}, whole.mode, whole.mode_known});
    put(changed);
    put({{block_id{part.end_value()}, whole.range.end_value() - part.end_value()}, whole.mode, whole.mode_known});
    if (part.end_value() == whole.range.end_value() && last != entries_.size() && mergeable(changed, entries_[last])) {
      put(entries_[last]);
      ++last;
    }
    replace(first, last, first_rank, {parts.data(), count});
  }

  // Puts `parts` in the place of the entries [first, last), of which the first has that rank.
  void replace(std::size_t first, std::size_t last, std::size_t rank, std::span<const footprint_entry> parts) {
    const auto at = [](auto& v, std::size_t i) { return v.begin() + static_cast<std::ptrdiff_t>(i); };
    const std::size_t kept = std::min(last - first, parts.size());
    std::copy_n(parts.begin(), kept, at(entries_, first));
    if (parts.size() == last - first) {
      return;
    }
    const auto was = static_cast<std::uint32_t>(last);
    const auto is = static_cast<std::uint32_t>(first + parts.size());
    for (std::uint32_t& e : by_block_) {
      if (e >= was) {
        e = e - was + is;
      }
    }
    if (is < was) {
      entries_.erase(at(entries_, is), at(entries_, was));
      by_block_.erase(at(by_block_, rank + kept), at(by_block_, rank + (last - first)));
    } else {
      entries_.insert(at(entries_, was), parts.begin() + static_cast<std::ptrdiff_t>(kept), parts.end());
      by_block_.insert(at(by_block_, rank + kept), is - was, 0);
      for (std::size_t i = kept; i != parts.size(); ++i) {
        by_block_[rank + i] = static_cast<std::uint32_t>(first + i);
      }
    }
  }

  sequence<footprint_entry> entries_{};  // in first-touch order
  sequence<std::uint32_t> by_block_{};   // their places in that order, sorted by block
  std::uint32_t blocks_ = 0;
};

/// The footprints of all launches, by execution ID.
///
/// Not synchronised. A footprint stays where it is until its ID is forgotten.
class footprint_table {
 public:
  /// The footprint of a launch; null where nothing has been learned of it. Cost: an index into a vector.
  [[nodiscard]] footprint* find(execution_id id) {
    auto* const place = by_id_.find(id);
    return place != nullptr ? place->get() : nullptr;
  }
  [[nodiscard]] const footprint* find(execution_id id) const {
    const auto* const place = by_id_.find(id);
    return place != nullptr ? place->get() : nullptr;
  }
  /// The footprint of a launch, an empty one where there was none.
  [[nodiscard]] footprint& at(execution_id id) {
    expects(id.valid(), "a footprint is asked for without an execution ID");
    std::unique_ptr<footprint>& place = by_id_[id];
    if (!place) {
      place = std::make_unique<footprint>();
    }
    return *place;
  }
  void replace(execution_id id, footprint with) { at(id) = std::move(with); }
  /// The ID will mean another launch. Does nothing where there is no footprint.
  void forget(execution_id id) { by_id_.reset(id); }

  /// Appends all footprints.
  void save(archive_writer& out) const {
    out.section(tag, [&] {
      out.put(static_cast<std::uint64_t>(
          std::count_if(by_id_.begin(), by_id_.end(), [](const auto& f) { return f != nullptr; })));
      by_id_.for_each([&](execution_id id, const auto& f) {
        if (f) {
          out.put(id.value);
          f->save(out);
        }
      });
    });
  }
  /// A table that was saved.
  /// @param last_id  There may be no footprint of a higher one.
  /// @param blocks   Of the arena; it may name no others.
  /// @errors         `status::bad_format`.
  [[nodiscard]] static footprint_table load(archive_reader& in, execution_id last_id, std::uint32_t blocks) {
    return in.section(tag, [&] {
      footprint_table table;
      const std::size_t count = in.get_count(sizeof(std::uint32_t) + sizeof(std::uint64_t));
      execution_id before{};
      for (std::size_t i = 0; i < count; ++i) {
        const execution_id id{in.get<std::uint32_t>()};
        if (id <= before || id > last_id) {
          in.refuse("a footprint of an execution ID that there is not, or out of order");
        }
        table.replace(id, footprint::load(in, blocks));
        before = id;
      }
      return table;
    });
  }

  /// Heap memory held. Cost: linear in the number of IDs.
  [[nodiscard]] bytes memory() const {
    bytes sum = by_id_.memory();
    for (const std::unique_ptr<footprint>& f : by_id_) {
      sum += f ? bytes{sizeof(footprint)} + f->memory() : bytes{};
    }
    return sum;
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("foot");

  detail::id_map<execution_id, std::unique_ptr<footprint>> by_id_{};
};

}  // namespace v0
}  // namespace deepum
