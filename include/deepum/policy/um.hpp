#pragma once

#include <deepum/planning/plan_writer.hpp>
#include <deepum/policy/policy.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {

/// Demand paging, as the driver does it. The only thing left to do is to keep an arena inside a budget that is smaller
/// than the device's memory: what was migrated least recently leaves, which is what the driver does when it is full.
class um_policy final : public policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "um"; }

  void on_launch(const launch_record&, const block_map&) override {
    ++launches_;
    gate_.mark_dirty();
  }

  void on_migrated(block_range, location, const block_map&) override { gate_.mark_dirty(); }
  void on_host_access(block_range, access, const block_map&) override { gate_.mark_dirty(); }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map)) {
      return;
    }
    out.supersedes = true;
    if (map.occupied() <= map.budget()) {
      return;
    }
    std::int64_t excess = -detail::room_to_come(map);
    map.for_each_least_recently_migrated([&](block_id b) {
      if (excess <= 0) {
        return false;
      }
      if (map[b].moving == motion::none) {
        detail::append(out, transfer::evict(location::host(), reason::over_budget), b,
                       detail::blocks_per_transfer(map));
        --excess;
      }
      return true;
    });
  }

  [[nodiscard]] policy_statistics statistics() const override {
    return {.launches = launches_, .unpredicted = launches_};
  }

 private:
  detail::plan_gate gate_{};
  std::uint64_t launches_ = 0;
};

}  // namespace v0
}  // namespace deepum
