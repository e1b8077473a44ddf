#pragma once

#include <deepum/policy/plan_writing.hpp>
#include <deepum/policy/policy.hpp>

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
    gate_.stir();
    ++launches_;
    wanted_.insert(wanted_.end(), departed_.begin(), departed_.end());
    departed_.clear();
  }
  void on_live(block_range range, const block_map&) override {
    gate_.stir();
    wanted_.push_back(range);
  }
  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.stir();
    if (to != map.device()) {
      departed_.push_back(range);
    }
  }
  void on_host_access(block_range, access, const block_map&) override { gate_.stir(); }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map)) {
      return;
    }
    out.supersedes = true;
    std::uint32_t room = map.room();
    std::size_t kept = 0;
    for (const block_range range : wanted_) {
      bool missing = false;
      for (std::uint32_t b = range.begin_value(); b != range.end_value(); ++b) {
        if (map.present(block_id{b}) || detail::is_dead(map[block_id{b}])) {
          continue;
        }
        missing = true;
        if (room != 0) {
          --room;
          detail::append(out, {.what = action::prefetch, .why = reason::requested, .to = map.device()}, block_id{b},
                         range.count);
        }
      }
      if (missing) {
        wanted_[kept++] = range;
      }
    }
    wanted_.resize(kept);
  }

  [[nodiscard]] policy_statistics statistics() const override {
    return {.launches = launches_, .unpredicted = launches_};
  }

 private:
  std::vector<block_range> wanted_{};    // live, and perhaps not on the device
  std::vector<block_range> departed_{};  // since the last launch
  detail::plan_gate gate_{};
  std::uint64_t launches_ = 0;
};

}  // namespace v0
}  // namespace deepum
