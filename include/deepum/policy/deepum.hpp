#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/error.hpp>
#include <deepum/planning/chain_planner.hpp>
#include <deepum/planning/dead_blocks.hpp>
#include <deepum/planning/partial_blocks.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/prediction/execution_table.hpp>
#include <deepum/prediction/history.hpp>
#include <deepum/prediction/pair_tables.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace deepum {
inline namespace v0 {

/// DeepUM as published: learns from page faults alone. Execution IDs and correlation tables (sections 3.1 and 4.2) are
/// `history` and `pair_tables`, chaining (4.2) is `chain_planner`, pre-eviction and invalidation (5.1, 5.2)
/// `pre_eviction`.
///
/// Four things are ours. What the executing launch declares is not taken away, because the engine would wait for its
/// end. The chain pauses where what is expected fills the budget. A launch whose scalars alone have changed is
/// recognised (`policy_options::recognise`). Dead contents leave a full device before the driver takes their room. A
/// fault of no certain launch trains nothing.
class deepum_policy final : public policy {
 public:
  static constexpr std::uint32_t published_lookahead = 32;

  explicit deepum_policy(const policy_options& chosen = {})
      : options_(chosen),
        history_(chosen.recognise, predicts),
        tables_(chosen.block_table),
        chains_(history_, tables_, chosen.lookahead.value_or(published_lookahead),
                {.pre_evict = chosen.pre_evict,
                 .invalidate = chosen.invalidate,
                 .driver_makes_room = chosen.driver_makes_room}) {}

  [[nodiscard]] std::string_view name() const override { return "deepum"; }

  void on_stream(stream_id stream, std::optional<std::uint32_t> lookahead) override {
    gate_.mark_dirty();
    chains_.open(stream, lookahead);
  }
  void on_stream_closed(stream_id stream) override {
    gate_.mark_dirty();
    history_.close(stream);
    chains_.close(stream);
  }

  void on_launch(const launch_record& record, const block_map&) override {
    ++launches_;
    gate_.mark_dirty();
    chains_.issue(record, history_.observe(record.stream, record.signature));
  }
  void on_finish(launch_id launch, stream_id stream, const block_map&) override {
    gate_.mark_dirty();
    chains_.finish(launch, stream, [this](launch_id over) { tables_.finish(over); });
  }
  void on_fault(const fault_record& fault, const block_map&) override {
    gate_.mark_dirty();
    if (fault.launch.valid()) {
      chains_.fault(fault, [&](launch_id launch, execution_id id) { tables_.fault(launch, id, fault.block); });
    }
  }

  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.mark_dirty();
    if (to != map.device()) {
      return;
    }
    if (options_.prefetch) {
      partial_.note(range, map);
    }
    for (const block_id b : range) {
      if (options_.invalidate && detail::is_dead(map[b])) {  // a launch that was in flight when it died has brought it
        dead_.note({b, 1});
      }
    }
  }
  void on_live(block_range range, const block_map&) override {
    gate_.mark_dirty();
    chains_.became_live(range);
  }
  void on_dead(block_range range, launch_id /*last*/, const block_map&) override {
    gate_.mark_dirty();
    if (options_.invalidate) {
      dead_.note(range);
    }
  }
  void on_host_access(block_range, access, const block_map&) override { gate_.mark_dirty(); }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map)) {
      return;
    }
    out.supersedes = true;
    if (options_.prefetch) {
      partial_.write(map, out);
    }
    chains_.write(map, options_.prefetch, out);
    dead_.list_on_device(map);
    dead_.keep_room_for_faults(map, out);
  }

  [[nodiscard]] bool holds_launches() const override { return options_.prefetch && options_.hold_launches; }
  [[nodiscard]] bool ready(launch_id launch, stream_id stream, const block_map& map) const override {
    return chains_.ready(launch, stream, map);
  }

  void save(archive_writer& out) const override {
    out.section(tag, [&] {
      history_.save(out);
      tables_.save(out);
    });
  }
  void load(archive_reader& in, std::uint32_t blocks) override {
    expects(launches_ == 0, "a policy gets its tables before the first launch");
    auto loaded = in.section(tag, [&] {
      history launches = history::load(in, options_.recognise, predicts);
      const execution_id last{launches.execution_ids()};
      return std::pair(std::move(launches), pair_tables::load(in, options_.block_table, last, blocks));
    });
    in.finish();
    history_ = std::move(loaded.first);
    tables_ = std::move(loaded.second);
  }

  [[nodiscard]] policy_statistics statistics() const override {
    return {.launches = launches_,
            .predicted = history_.count(outcome::predicted),
            .mispredicted = history_.count(outcome::mispredicted),
            .unpredicted = history_.count(outcome::unpredicted),
            .table_bytes = (history_.memory() + tables_.memory()).count,
            .execution_ids = history_.execution_ids(),
            .block_tables = tables_.size()};
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("dpum");
  static constexpr execution_table::match predicts = execution_table::match::published;

  policy_options options_;
  history history_;
  pair_tables tables_;
  chain_planner chains_;
  detail::dead_blocks dead_{};
  detail::partial_blocks partial_{};
  detail::plan_gate gate_{};
  std::uint64_t launches_ = 0;
};

}  // namespace v0
}  // namespace deepum
