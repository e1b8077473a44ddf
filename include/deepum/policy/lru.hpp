#pragma once

#include <deepum/core/index_list.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/dead_blocks.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

namespace deepum {
inline namespace v0 {

/// Demand fetching without prediction: what an issued launch declares is brought in, and what was used least recently
/// makes room. What every caching offloader does; here to be compared with.
class lru_policy final : public policy {
 public:
  explicit lru_policy(const policy_options& chosen = {}) : options_(chosen) {}

  [[nodiscard]] std::string_view name() const override { return "lru"; }

  void on_launch(const launch_record& record, const block_map&) override {
    ++launches_;
    gate_.mark_dirty();
    for (const block_access& a : record.accesses) {
      for (const block_id b : a.range) {
        by_use_.move_to_back(b.value);
      }
    }
    in_flight_.push_back(record);
  }
  void on_finish(launch_id launch, stream_id, const block_map&) override {
    gate_.mark_dirty();
    std::erase_if(in_flight_, [&](const launch_record& r) { return r.id == launch; });
  }
  void on_fault(const fault_record& fault, const block_map&) override {
    gate_.mark_dirty();
    by_use_.move_to_back(fault.block.value);
  }
  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.mark_dirty();
    for (const block_id b : range) {
      if (to == map.device() && detail::is_dead(map[b])) {  // a launch that was in flight when it died has brought it
        dead_.note({b, 1});
      }
    }
  }
  void on_live(block_range, const block_map&) override { gate_.mark_dirty(); }
  void on_dead(block_range range, launch_id, const block_map&) override {
    gate_.mark_dirty();
    dead_.note(range);
  }
  void on_host_access(block_range, access, const block_map&) override { gate_.mark_dirty(); }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map)) {
      return;
    }
    out.supersedes = true;
    missing_.clear();
    const std::uint32_t most = detail::blocks_per_plan(map);
    for (const launch_record& l : in_flight_) {
      for (const block_access& a : l.accesses) {
        for (const block_id b : a.sparse ? block_range{} : a.range) {  // rows that are missing fault
          if (missing_.size() != most && !map.present(b) && !detail::is_dead(map[b])) {
            missing_.push_back(b);
          }
        }
      }
    }
    dead_.list_on_device(map);
    const std::int64_t room = detail::room_to_come(map);
    const std::int64_t wanted = static_cast<std::int64_t>(missing_.size());
    const std::int64_t placed = std::clamp<std::int64_t>(room + make_room(map, wanted - room, out), 0, wanted);
    const std::size_t from = out.transfers.size();
    for (std::int64_t i = 0; i != placed; ++i) {
      detail::append(out, transfer::prefetch(map.device(), reason::issued), missing_[static_cast<std::size_t>(i)],
                     detail::blocks_per_transfer(map), from);
    }
    dead_.keep_room_for_faults(map, out);
  }

  [[nodiscard]] bool holds_launches() const override { return options_.hold_launches; }
  [[nodiscard]] bool ready(launch_id launch, stream_id, const block_map& map) const override {
    const auto it =
        std::find_if(in_flight_.begin(), in_flight_.end(), [launch](const launch_record& r) { return r.id == launch; });
    return it == in_flight_.end() || detail::all_ready(map, it->accesses);
  }

  [[nodiscard]] policy_statistics statistics() const override {
    return {.launches = launches_, .unpredicted = launches_, .table_bytes = by_use_.memory().count};
  }

 private:
  // Blocks that nothing in flight uses leave, the least recently used first; dead contents before all others.
  std::int64_t make_room(const block_map& map, std::int64_t needed, plan& out) {
    if (needed <= 0) {
      return 0;
    }
    auto made = static_cast<std::int64_t>(dead_.give_room(map, static_cast<std::size_t>(needed), out));
    for (std::uint32_t i = by_use_.front(); made < needed && i != detail::index_list::none; i = by_use_.after(i)) {
      const block_id b{i};
      const block_state& s = map[b];
      if (map.resident(b) && s.moving == motion::none && s.users == 0 && !detail::is_dead(s)) {
        detail::append(out, transfer::evict(location::host(), reason::make_room), b, detail::blocks_per_transfer(map));
        ++made;
      }
    }
    return made;
  }

  policy_options options_;
  std::deque<launch_record> in_flight_{};
  detail::dead_blocks dead_{};
  detail::index_list by_use_{};  // blocks in the order of their last use
  sequence<block_id> missing_{};
  detail::plan_gate gate_{};
  std::uint64_t launches_ = 0;
};

}  // namespace v0
}  // namespace deepum
