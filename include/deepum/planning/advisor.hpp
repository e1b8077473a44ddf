#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/execution_id.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/planning/plan_writer.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Advice to the driver from what launches were seen to do with blocks.
///
/// *Read-mostly*: one launch has read the block three times since the last write. Setting it costs as much as an
/// eviction and every write ends it, so fewer reads are no reason. *In place*: the block was never declared or written,
/// only faulted on, twice in a row with at least `long_period` launches between touches. Both are taken back before a
/// launch that contradicts them runs.
///
/// Hints need no room and no link. They wait here until they are put into a plan. Not synchronised.
class advisor {
 public:
  static constexpr std::uint64_t long_period = 1024;
  static constexpr std::uint8_t reads_until_advice = 3;

  void on_launch(execution_id id, const launch_record& record, const block_map& map) {
    ++launches_;
    for (const block_access& a : record.accesses) {
      for (const block_id b : a.range) {
        use& u = uses_[b];
        u.declared = true;
        settle_elsewhere(u, b, map);
        a.mode == access::read ? read(u, b, id, map) : write(u, b, map);
      }
    }
  }

  /// @param id  The launch that faulted; none where that is not known.
  void on_fault(const fault_record& fault, execution_id id, const block_map& map) {
    use& u = uses_[fault.block];
    if (fault.mode != access::read) {
      settle_elsewhere(u, fault.block, map);
      u.long_gaps = 0;
      u.written = true;
      write(u, fault.block, map);
      return;
    }
    if (u.last_touch == launches_) {
      return;  // a launch may fault often on a block
    }
    const bool far = u.last_touch != 0 && launches_ - u.last_touch >= long_period;
    u.long_gaps = static_cast<std::uint8_t>(far ? std::min(u.long_gaps + 1, 2) : 0);
    u.last_touch = launches_;
    if (!far) {
      settle_elsewhere(u, fault.block, map);
    } else if (u.long_gaps >= 2 && map.shortest_row().count != 0 && !u.declared && !u.written && !u.in_place) {
      u.in_place = true;
      advise(advice::set_in_place, map.device(), fault.block);
    }
    if (id.valid() && !u.declared && !far) {
      read(u, fault.block, id, map);
    }
  }

  /// The ID means another launch from now on, which has read nothing.
  void forget(execution_id id) { retired_at_[id] = launches_; }

  /// Puts the hints that have come up into a plan.
  void write(plan& out) {
    out.hints.insert(out.hints.end(), pending_.begin(), pending_.end());
    pending_.clear();
  }

  [[nodiscard]] bytes memory() const { return uses_.memory() + retired_at_.memory(); }

 private:
  struct use {
    std::uint64_t last_touch = 0;  // number of a launch
    std::uint64_t first_read = 0;  // the same, of the first reader's
    execution_id first_reader{};   // since the last write
    std::uint8_t its_reads = 0;    // of the first reader
    std::uint8_t long_gaps = 0;    // in a row, up to two
    bool read_mostly : 1 = false;
    bool in_place : 1 = false;
    bool declared : 1 = false;
    bool written : 1 = false;
  };

  void read(use& u, block_id b, execution_id id, const block_map& map) {
    const std::uint64_t* const retired_at = retired_at_.find(u.first_reader);
    const bool retired = retired_at != nullptr && *retired_at >= u.first_read;
    if (!u.first_reader.valid() || (retired && !u.read_mostly)) {
      u.first_reader = id;
      u.first_read = launches_;
      u.its_reads = 1;
    } else if (u.first_reader == id && u.its_reads < reads_until_advice && ++u.its_reads == reads_until_advice &&
               !u.in_place) {
      u.read_mostly = true;
      advise(advice::set_read_mostly, map.device(), b);
    }
  }
  void write(use& u, block_id b, const block_map& map) {
    if (u.read_mostly) {
      advise(advice::unset_read_mostly, map.device(), b);
    }
    u.read_mostly = false;
    u.first_reader = {};
  }
  void settle_elsewhere(use& u, block_id b, const block_map& map) {
    if (u.in_place) {
      u.in_place = false;
      advise(advice::unset_in_place, map.device(), b);
    }
  }
  void advise(advice what, location where, block_id b) {
    detail::append(pending_, driver_hint{.what = what, .where = where}, b, 0xffffffffU);
  }

  detail::id_map<block_id, use> uses_{};
  detail::id_map<execution_id, std::uint64_t> retired_at_{};  // number of the launch before; 0: it never was
  std::vector<driver_hint> pending_{};
  std::uint64_t launches_ = 0;
};

}  // namespace v0
}  // namespace deepum
