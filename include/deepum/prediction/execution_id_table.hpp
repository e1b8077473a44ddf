#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/index_list.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/core/slot_index.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace deepum {
inline namespace v0 {

/// When two launches are the same one.
enum class recognition : std::uint8_t {
  exact,     ///< name and all arguments are equal, as published
  adaptive,  ///< or it is the launch that was expected here, with new scalars: AdamW and its step number
};

/// What `execution_id_table::identify` found.
struct identified {
  execution_id id{};
  bool is_new = false;     ///< never seen before; nothing is known of it
  bool rebound = false;    ///< known, with new scalars (`recognition::adaptive`)
  execution_id retired{};  ///< what this ID meant before is over, forget it in all tables first; equals `id`, or none

  friend constexpr bool operator==(const identified&, const identified&) = default;
};

/// The execution ID table (DeepUM, section 3.1): gives each launch that recurs a small number, 1, 2, 3, ...
///
/// Not synchronised.
class execution_id_table {
 public:
  /// @param by       When two launches are the same one.
  /// @param max_ids  Number of IDs kept; the least recently seen one is retired for a new one. 0: unbounded.
  explicit execution_id_table(recognition by, std::uint32_t max_ids = 0) : how_(by), max_ids_(max_ids) {}

  /// The ID of a launch, which becomes the most recently seen one.
  ///
  /// A launch with the same exact hash is the same launch. Failing that, `recognition::adaptive` takes it for the
  /// `expected` one if the shapes are equal; from then on its ID has the new exact hash, and the old one is forgotten.
  /// @param expected  The launch that the history predicts here; none where it predicts nothing.
  /// @errors          None. Cost: one or two hash look-ups.
  identified identify(const launch_signature& signature, execution_id expected = {}) {
    const std::uint32_t known =
        index_.find(signature.exact, [&](std::uint32_t slot) { return entries_[slot].exact == signature.exact; });
    if (known != detail::slot_index::none) {
      see(known);
      return {.id = execution_id{known}};
    }
    if (how_ == recognition::adaptive && expected.value < entries_.size() && expected.valid() &&
        entries_[expected.value].shape == signature.shape) {
      rebind(expected.value, signature);
      see(expected.value);
      return {.id = expected, .rebound = true};
    }
    if (max_ids_ != 0 && size() == max_ids_) {
      const std::uint32_t oldest = by_sight_.front();
      rebind(oldest, signature);
      see(oldest);
      return {.id = execution_id{oldest}, .is_new = true, .retired = execution_id{oldest}};
    }
    expects(entries_.size() < std::numeric_limits<std::uint32_t>::max(), "more launches than there are execution IDs");
    const auto slot = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({.exact = signature.exact, .shape = signature.shape});
    index_.insert(signature.exact, slot);
    see(slot);
    return {.id = execution_id{slot}, .is_new = true};
  }

  /// Number of IDs that mean something.
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size() - 1); }

  /// Appends the launches and the order of their last sight.
  void save(archive_writer& out) const {
    out.section(tag, [&] {
      out.put(std::uint64_t{size()});
      for (std::size_t slot = 1; slot < entries_.size(); ++slot) {
        out.put(entries_[slot].exact);
        out.put(entries_[slot].shape);
      }
      for (std::uint32_t slot = by_sight_.front(); slot != detail::index_list::none; slot = by_sight_.after(slot)) {
        out.put(slot);
      }
    });
  }
  /// A table that was saved. `how` and `max_ids` are those of a new one.
  /// @errors  `status::bad_format`, also where the archive holds more than `max_ids`.
  [[nodiscard]] static execution_id_table load(archive_reader& in, recognition how, std::uint32_t max_ids = 0) {
    return in.section(tag, [&] {
      execution_id_table table(how, max_ids);
      const std::size_t count = in.get_count(2 * sizeof(std::uint64_t) + sizeof(std::uint32_t));
      if (count >= std::numeric_limits<std::uint32_t>::max() || (max_ids != 0 && count > max_ids)) {
        in.refuse("more execution IDs than are kept");
      }
      table.entries_.resize(count + 1);
      for (std::uint32_t slot = 1; slot <= count; ++slot) {
        entry& e = table.entries_[slot];
        e = {.exact = in.get<std::uint64_t>(), .shape = in.get<std::uint64_t>()};
        if (table.index_.find(e.exact, [&](std::uint32_t s) { return table.entries_[s].exact == e.exact; }) !=
            detail::slot_index::none) {
          in.refuse("two execution IDs of one launch");
        }
        table.index_.insert(e.exact, slot);
      }
      for (std::size_t i = 0; i < count; ++i) {
        const auto slot = in.get<std::uint32_t>();
        if (slot == 0 || slot > count || table.by_sight_.contains(slot)) {
          in.refuse("the order of execution IDs names one twice, or none");
        }
        table.see(slot);
      }
      return table;
    });
  }

  /// Heap memory held.
  [[nodiscard]] bytes memory() const {
    return bytes{entries_.capacity() * sizeof(entry)} + by_sight_.memory() + index_.memory();
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("exid");

  struct entry {
    std::uint64_t exact = 0;
    std::uint64_t shape = 0;
  };

  void rebind(std::uint32_t slot, const launch_signature& signature) {
    index_.erase(entries_[slot].exact, slot);
    entries_[slot].exact = signature.exact;
    entries_[slot].shape = signature.shape;
    index_.insert(signature.exact, slot);
  }
  void see(std::uint32_t slot) { by_sight_.move_to_back(slot); }

  recognition how_;
  std::uint32_t max_ids_;
  sequence<entry> entries_{entry{}};  // by ID
  detail::index_list by_sight_{};     // IDs, least recently seen first
  detail::slot_index index_;          // by exact hash
};

}  // namespace v0
}  // namespace deepum
