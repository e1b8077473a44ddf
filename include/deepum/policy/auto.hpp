#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/error.hpp>
#include <deepum/planning/advisor.hpp>
#include <deepum/planning/dead_blocks.hpp>
#include <deepum/planning/next_use_planner.hpp>
#include <deepum/planning/partial_blocks.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/planning/recurring_step.hpp>
#include <deepum/planning/rows_in_place.hpp>
#include <deepum/planning/step_planning.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/prediction/launch_predictor.hpp>
#include <deepum/prediction/look_up_detector.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// The library's default: plans a step that recurs as a whole (`recurring_step`); else it fetches in the order of first
/// need, and makes room by what is needed last (`next_use_planner`; docs/adr/0005).
///
/// The lookahead reaches as far as the budget can hold, or N launches where N is given; then no step is planned. While
/// half of a stream's predictions are wrong, only issued launches count. Streams share the room. Contents are discarded
/// only where they are dead, and dropped only where the host's copy is current.
class auto_policy final : public policy {
 public:
  explicit auto_policy(const policy_options& chosen = {})
      : options_(chosen),
        coming_({.max_execution_ids = chosen.max_execution_ids,
                 .max_execution_records = chosen.max_execution_records,
                 .horizon = chosen.horizon,
                 .max_upcoming_uses = chosen.max_upcoming_uses,
                 .lookahead = chosen.lookahead}),
        step_(chosen.longest_step, chosen.write_back),
        by_next_use_({.prefetch = chosen.prefetch, .pre_evict = chosen.pre_evict, .invalidate = chosen.invalidate}) {}

  [[nodiscard]] std::string_view name() const override { return "auto"; }
  [[nodiscard]] std::uint32_t period() const override { return step_.period(); }

  void on_stream(stream_id stream, std::optional<std::uint32_t> lookahead) override {
    gate_.mark_dirty();
    coming_.open(stream, lookahead);
  }
  void on_stream_closed(stream_id stream) override {
    gate_.mark_dirty();
    coming_.close(stream);
  }

  void on_launch(const launch_record& record, const block_map& map) override {
    gate_.mark_dirty();
    const launch_record& needed = rows_.on_launch(record, map);
    looked_up_.on_launch(record);
    const issued_launch issued = coming_.issue(needed, map);
    if (issued.retired.valid()) {
      step_.forget(issued.retired);
      advisor_.forget(issued.retired);
    }
    if (issued.changed || !issued.steady) {
      step_.change();
    }
    step_.issue(issued.id, record.id);
    if (step_.follower() == nullptr) {
      coming_.predict_further(record.stream, map);
    }
    if (advises(map)) {
      advisor_.on_launch(issued.id, needed, map);
    }
  }
  void on_finish(launch_id launch, stream_id stream, const block_map& map) override {
    gate_.mark_dirty();
    coming_.finish(launch, stream, map, [&](bool changed) {
      if (changed) {
        step_.change();
      }
      step_.finish();
    });
    looked_up_.on_finish([&](block_range memory) {
      rows_.learn(memory, map);
      coming_.forget_learned(memory);
      step_.change();
    });
  }
  void on_fault(const fault_record& fault, const block_map& map) override {
    gate_.mark_dirty();
    if (rows_.on_fault(fault)) {
      return;  // nobody brings it the next time
    }
    looked_up_.on_fault(fault.block, fault.pages);
    if (step_follower* const follower = step_.follower()) {
      follower->surprised();
    }
    const launch_predictor::lesson learned = coming_.fault(fault);
    if (learned.changed) {
      step_.change();
    }
    if (advises(map)) {
      advisor_.on_fault(fault, learned.culprit, map);
    }
  }

  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.mark_dirty();
    coming_.moved(range, map);
    step_follower* const follower = step_.follower();
    if (to == map.device()) {
      dead_.arrived(map, range);
      if (follower != nullptr) {
        follower->arrived(range);
      }
      if (options_.prefetch) {
        partial_.note(range, map);
      }
    } else if (follower != nullptr) {
      follower->left(range);
      follower->look_again(range);
    }
  }
  void on_live(block_range range, const block_map& map) override {
    gate_.mark_dirty();
    rows_.on_live(range, map);
    looked_up_.on_live(range);
    look_again(range, map);
  }
  void on_dead(block_range range, launch_id last, const block_map&) override {
    gate_.mark_dirty();
    rows_.on_dead(range);
    looked_up_.on_dead(range);
    if (options_.invalidate) {
      dead_.note(range);
      step_.last_used(range, last);
    }
  }
  void on_host_access(block_range range, access, const block_map& map) override {
    gate_.mark_dirty();
    by_next_use_.on_host_access(range, coming_);
    look_again(range, map);
  }

  [[nodiscard]] std::unique_ptr<long_work> begin_work(const block_map& map) override {
    if (!gate_.would_open(map)) {
      return nullptr;
    }
    coming_.refresh(map);
    std::optional<step_planning> work = step_.begin_planning(map, uses_of{coming_});
    return work ? std::make_unique<plan_of_step>(std::move(*work)) : nullptr;
  }
  void end_work(std::unique_ptr<long_work> done, const block_map& map) override {
    gate_.mark_dirty();
    step_.end_planning(std::move(static_cast<plan_of_step&>(*done).work), map);
  }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map)) {
      return;
    }
    coming_.refresh(map);
    step_.prepare(map, uses_of{coming_});
    rows_.write(map, out);
    if (options_.advise) {
      advisor_.write(out);
    }
    step_follower* const follower = follows() ? step_.follower() : nullptr;
    coming_.track_uses(follower == nullptr, map);  // of no interest while a plan says what moves
    if (follower != nullptr) {
      coming_.forget_predictions(map);
    }
    dead_.forget_elsewhere(map, out);
    if (follower != nullptr && !follower->wants_to_write(map, coming_.in_flight())) {
      return;
    }
    out.supersedes = true;
    if (options_.prefetch) {
      partial_.write(map, out);
    }
    if (follower != nullptr) {
      follower->write(map, coming_.in_flight(), coming_.launches_up_to_heads(), dead_, out);
    } else {
      by_next_use_.write(map, coming_, dead_, out);
    }
  }

  [[nodiscard]] bool holds_launches() const override { return options_.prefetch && options_.hold_launches; }
  /// A launch begins when all that it needs is there, where that is known and fits.
  [[nodiscard]] bool ready(launch_id launch, stream_id stream, const block_map& map) const override {
    const upcoming_launch* const l = coming_.find(launch, stream);
    return l == nullptr || (rows_.settled(map) && detail::all_there(map, *l->needs));
  }

  /// The last launches of the streams and the advice belong to this run.
  void save(archive_writer& out) const override {
    out.section(tag, [&] {
      out.put(false);  // a table that predicts blocks by pairs
      coming_.save(out);
    });
  }
  void load(archive_reader& in, std::uint32_t blocks) override {
    expects(coming_.launches() == 0, "a policy gets its tables before the first launch");
    auto tables = in.section(tag, [&] {
      if (in.get_bool()) {
        in.refuse("they predict blocks by pairs, this policy by footprints");
      }
      return coming_.load(in, blocks);
    });
    in.finish();
    coming_.begin_with(std::move(tables));
  }

  [[nodiscard]] policy_statistics statistics() const override {
    const history& past = coming_.past();
    return {.launches = coming_.launches(),
            .predicted = past.count(outcome::predicted),
            .mispredicted = past.count(outcome::mispredicted),
            .unpredicted = past.count(outcome::unpredicted),
            .table_bytes =
                (coming_.memory() + advisor_.memory() + step_.memory() + rows_.memory() + looked_up_.memory()).count,
            .execution_ids = past.execution_ids()};
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("auto");

  struct uses_of {
    void operator()(execution_id id, std::vector<block_access>& uses) const { coming.append_uses(id, uses); }

    launch_predictor& coming;
  };
  struct plan_of_step final : long_work {
    explicit plan_of_step(step_planning&& begun) : work(std::move(begun)) {}
    void run() override { work.run(); }

    step_planning work;
  };

  // A step is followed by fetching and making room; where one of them is switched off there is no plan to follow.
  [[nodiscard]] bool follows() const { return options_.prefetch && options_.pre_evict && !options_.lookahead; }
  // Where the host keeps a copy the memory is not the driver's to move, and there is no driver to advise.
  [[nodiscard]] bool advises(const block_map& map) const { return options_.advise && !map.keeps_home_copy(); }
  // Something may be missing again.
  void look_again(block_range range, const block_map& map) {
    if (step_follower* const follower = step_.follower()) {
      follower->look_again(range);
    }
    coming_.moved(range, map);
  }

  policy_options options_;
  launch_predictor coming_;
  recurring_step step_;
  next_use_planner by_next_use_;
  rows_in_place rows_{};
  look_up_detector looked_up_{};
  advisor advisor_{};
  detail::dead_blocks dead_{};
  detail::partial_blocks partial_{};
  detail::plan_gate gate_{};
};

}  // namespace v0
}  // namespace deepum
