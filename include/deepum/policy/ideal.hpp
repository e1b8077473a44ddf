#pragma once

#include <deepum/planning/plan_writer.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/prediction/footprint_predictor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Everything resident: what becomes live is brought in at once, and what the host took back at the next launch. For a
/// budget that holds all; a smaller one stays full of what came first.
class ideal_policy final : public policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "ideal"; }

  void on_launch(const launch_record&, const block_map&) override {
    gate_.mark_dirty();
    ++launches_;
    for (const block_range range : departed_) {
      want(range);
    }
    departed_.clear();
  }
  void on_live(block_range range, const block_map&) override {
    gate_.mark_dirty();
    want(range);
  }
  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.mark_dirty();
    if (to != map.device()) {
      departed_.push_back(range);
      if (departed_.size() > 2 * std::size_t{map.size()}) {  // the same ones again and again
        detail::sort_and_merge(departed_);
      }
    }
  }
  void on_host_access(block_range, access, const block_map&) override { gate_.mark_dirty(); }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map)) {
      return;
    }
    out.supersedes = true;
    std::uint32_t room = map.room();
    std::size_t kept = 0;
    for (const block_range range : wanted_) {
      bool missing = false;
      for (const block_id b : range) {
        if (map.present(b) || detail::is_dead(map[b])) {
          continue;
        }
        missing = true;
        if (room != 0) {
          --room;
          detail::append(out, transfer::prefetch(map.device(), reason::requested), b, range.count);
        }
      }
      if (missing) {
        wanted_[kept++] = range;
      } else {
        std::fill_n(is_wanted_.begin() + range.begin_value(), range.count, false);
      }
    }
    wanted_.resize(kept);
  }

  [[nodiscard]] policy_statistics statistics() const override {
    return {.launches = launches_, .unpredicted = launches_};
  }

 private:
  // Each block once.
  void want(block_range range) {
    if (range.end_value() > is_wanted_.size()) {
      is_wanted_.resize(range.end_value());
    }
    for (const block_id b : range) {
      if (is_wanted_[b.value]) {
        continue;
      }
      is_wanted_[b.value] = true;
      if (b.value != range.begin_value() && !wanted_.empty() && wanted_.back().end_value() == b.value) {
        ++wanted_.back().count;
      } else {
        wanted_.push_back({b, 1});
      }
    }
  }

  std::vector<block_range> wanted_{};    // live, and perhaps not on the device
  std::vector<bool> is_wanted_{};        // by block
  std::vector<block_range> departed_{};  // since the last launch
  detail::plan_gate gate_{};
  std::uint64_t launches_ = 0;
};

}  // namespace v0
}  // namespace deepum
