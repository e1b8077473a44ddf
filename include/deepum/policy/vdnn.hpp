#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/layer.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/dead_blocks.hpp>
#include <deepum/planning/layer_transfers.hpp>
#include <deepum/planning/layer_walk.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/policy/lru.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// vDNN (MICRO'16) and vDNNExt (the report in which it is improved): inputs of layers go to the host behind the forward
/// pass and come back ahead of the backward pass. The program names its layers (`stream::layer`).
///
/// Layers run one after another: the first launch of a layer waits until all launches of the layer before it have
/// finished. In `vdnn` it also waits until the input of that layer has left, or what came back beside it has arrived;
/// in `vdnn_ext` for neither, but for its own blocks and for room. The backward pass begins when all inputs have left.
/// Where the host's copy stays, the input is copied while its layer reads it, else behind the layer.
///
/// What a launch declares is brought when its layer begins; room comes from inputs and from dead contents alone, and a
/// launch that lacks room then is refused where memory never faults. Until a launch names a layer, this is `lru`.
class vdnn_policy final : public policy {
 public:
  /// How the end of a layer is waited for.
  enum class layer_end : std::uint8_t { computation_and_copies, computation };

  vdnn_policy(layer_end waits_for, const policy_options& chosen)
      : options_(chosen),
        waits_for_(waits_for),
        walk_(chosen.offload),
        demand_(chosen) {}

  [[nodiscard]] std::string_view name() const override {
    return waits_for_ == layer_end::computation ? "vdnn_ext" : "vdnn";
  }

  void on_stream_closed(stream_id stream) override {
    close_runs(stream, 0);
    std::erase_if(runs_, [stream](const layer_run& r) { return r.stream == stream && r.in_flight == 0 && !r.begun; });
    passed(stream) = 0;
  }
  void on_launch(const launch_record& record, const block_map& map) override {
    gate_.mark_dirty();
    ++launches_;
    if (!layered_) {
      demand_.on_launch(record, map);
    }
    close_runs(record.stream, record.layer ? record.layer->number : 0);
    const std::uint64_t run = record.layer ? run_of(record) : 0;
    in_flight_.push_back({record, run});
    advance(map);
  }
  void on_finish(launch_id launch, stream_id stream, const block_map& map) override {
    gate_.mark_dirty();
    if (!layered_) {
      demand_.on_finish(launch, stream, map);
    }
    const auto it =
        std::find_if(in_flight_.begin(), in_flight_.end(), [launch](const flight& f) { return f.record.id == launch; });
    if (it != in_flight_.end()) {
      if (layer_run* const run = find_run(it->run)) {
        --run->in_flight;
      }
      in_flight_.erase(it);
    }
    advance(map);
  }
  void on_fault(const fault_record& fault, const block_map& map) override {
    gate_.mark_dirty();
    if (!layered_) {
      demand_.on_fault(fault, map);
    }
  }
  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.mark_dirty();
    if (!layered_) {
      demand_.on_migrated(range, to, map);
    }
    for (const block_id b : range) {
      if (to == map.device() && detail::is_dead(map[b])) {  // a launch that was in flight when it died has brought it
        dead_.note({b, 1});
      }
    }
    advance(map);  // a launch that asks next need not wait for a plan
  }
  void on_live(block_range range, const block_map& map) override {
    gate_.mark_dirty();
    if (!layered_) {
      demand_.on_live(range, map);
    }
  }
  void on_dead(block_range range, launch_id last, const block_map& map) override {
    gate_.mark_dirty();
    if (!layered_) {
      demand_.on_dead(range, last, map);
    }
    dead_.note(range);
  }
  void on_host_access(block_range range, access mode, const block_map& map) override {
    gate_.mark_dirty();
    if (!layered_) {
      demand_.on_host_access(range, mode, map);
    }
  }

  void plan_next(const block_map& map, plan& out) override {
    if (!layered_) {
      demand_.plan_next(map, out);
      return;
    }
    if (!advance(map) && !gate_.would_open(map)) {
      return;
    }
    (void)gate_.open(map);
    out.supersedes = true;
    dead_.list_on_device(map);
    // What is dead gives its room up at once, and before anything takes room that is not needed at once.
    const bool frees = options_.invalidate && dead_.give_room(map, map.size(), out) != 0;
    transfers_.write_departures(map, out);
    keep_budget(map, out);
    std::int64_t room = std::max<std::int64_t>(detail::room_to_come(map), 0);
    room -= bring_operands(map, room, out);
    if (!frees) {
      (void)transfers_.write_arrivals(map, room, out);
    }
  }

  [[nodiscard]] bool holds_launches() const override { return options_.hold_launches; }
  [[nodiscard]] bool orders_launches() const override { return true; }
  [[nodiscard]] bool ready(launch_id launch, stream_id stream, const block_map& map) const override {
    if (!layered_) {
      return !options_.hold_launches || demand_.ready(launch, stream, map);
    }
    const auto it =
        std::find_if(in_flight_.begin(), in_flight_.end(), [launch](const flight& f) { return f.record.id == launch; });
    return it == in_flight_.end() ||
           (has_begun(*it) && (!options_.hold_launches || (has_input(map, *it) && has_blocks(map, it->record))));
  }
  [[nodiscard]] bool gives_up(block_id b, const block_map&) const override {
    return !layered_ || (b.value < is_input_.size() && is_input_[b.value]);
  }

  void save(archive_writer& out) const override {
    out.section(tag, [&] { walk_.save(out); });
  }
  void load(archive_reader& in, std::uint32_t /*blocks*/) override {
    expects(launches_ == 0, "a policy gets its tables before the first launch");
    detail::layer_walk loaded = in.section(tag, [&] { return detail::layer_walk::load(in, options_.offload); });
    in.finish();
    walk_ = std::move(loaded);
  }

  [[nodiscard]] policy_statistics statistics() const override {
    return {.launches = launches_,
            .unpredicted = launches_,
            .table_bytes = walk_.memory() + is_input_.size() / 8 + written_by_.size() * sizeof(std::uint32_t),
            .shared_blocks = shared_blocks_};
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("vdnn");

  /// One scope of a layer, from its first launch to the end of what it waits for.
  struct layer_run {
    std::uint64_t number = 0;
    stream_id stream{};
    std::shared_ptr<const layer_scope> scope{};
    std::size_t in_flight = 0;
    bool begun = false;
    bool closed = false;                 // its stream has gone on to something else
    std::optional<std::size_t> place{};  // of a layer that goes back
  };
  struct flight {
    launch_record record{};
    std::uint64_t run = 0;  // 0: of no layer
  };

  // ---- which layer computes ---------------------------------------------------------------------------------------

  void close_runs(stream_id stream, std::uint64_t stays_open) {
    for (layer_run& r : runs_) {
      r.closed = r.closed || (r.stream == stream && r.scope->number != stays_open);
    }
  }
  std::uint64_t run_of(const launch_record& record) {
    layered_ = true;
    const auto it = std::find_if(runs_.rbegin(), runs_.rend(), [&](const layer_run& r) {
      return r.stream == record.stream && r.scope->number == record.layer->number;
    });
    layer_run& run = it != runs_.rend() ? *it : runs_.emplace_back();
    if (!run.scope) {
      run.number = ++last_run_;
      run.stream = record.stream;
      run.scope = record.layer;
    }
    ++run.in_flight;
    if (run.scope->pass == layer_pass::forward) {
      for (const block_access& a : record.accesses) {
        if (a.mode != access::read) {
          note_writer(a.range, run.scope->layer);
        }
      }
    }
    return run.number;
  }
  [[nodiscard]] layer_run* find_run(std::uint64_t number) {
    const auto it =
        std::find_if(runs_.begin(), runs_.end(), [number](const layer_run& r) { return r.number == number; });
    return it == runs_.end() ? nullptr : &*it;
  }
  [[nodiscard]] bool has_begun(const flight& f) const { return f.run == 0 || f.run <= begun_up_to_; }
  /// Layers end and begin. @returns  Whether any did.
  bool advance(const block_map& map) {
    bool changed = false;
    while (!runs_.empty()) {
      layer_run& run = runs_.front();
      if (!run.begun) {
        if (run.scope->pass == layer_pass::backward && transfers_.any_offload(map)) {
          return changed;  // all inputs are away before the first layer goes back
        }
        begin(run, map);
        changed = true;
      }
      if (run.in_flight != 0 || !(run.closed || runs_.size() > 1)) {
        return changed;  // it computes, or may go on to do so
      }
      changed = end_computation(run) || changed;
      const bool awaits_copies =
          waits_for_ == layer_end::computation_and_copies && (transfers_.offloading(map) || transfers_.fetching(map));
      if (runs_.size() == 1 || awaits_copies) {
        return changed;
      }
      passed(run.stream) = run.scope->number;
      runs_.pop_front();
      changed = true;
    }
    return changed;
  }
  /// The last scope of a stream that is over.
  std::uint64_t& passed(stream_id stream) {
    if (passed_.size() <= stream.value) {
      passed_.resize(std::size_t{stream.value} + 1);
    }
    return passed_[stream.value];
  }
  void begin(layer_run& run, const block_map& map) {
    run.begun = true;
    begun_up_to_ = run.number;
    const layer_scope& scope = *run.scope;
    if (passed(run.stream) == scope.number) {
      return;  // another stream's layer came between its launches
    }
    if (scope.pass == layer_pass::forward) {
      const std::size_t place = walk_.forward(scope);
      if (place == 0) {
        transfers_.begin_step();
        is_input_.assign(map.size(), false);
      }
      const std::vector<block_range>& leaving = walk_.leaving(place);
      for (const block_range r : leaving) {
        std::fill_n(is_input_.begin() + r.begin_value(), r.count, true);
      }
      shared_blocks_ += leaving.empty() ? 0 : scope.shared;
      transfers_.offload(run.number, leaving);
      return;
    }
    run.place = walk_.backward(scope.layer);
    if (run.place && options_.prefetch) {
      if (const std::optional<std::size_t> chosen = walk_.find_prefetch(*run.place)) {
        transfers_.fetch(walk_.leaving(*chosen));
      }
    }
  }
  /// @returns  Whether this is news.
  bool end_computation(const layer_run& run) {
    if (std::exchange(computed_up_to_, run.number) == run.number) {
      return false;
    }
    if (run.scope->pass == layer_pass::forward) {
      transfers_.finish(run.number);
    } else {
      spend_output(run.scope->layer);
    }
    return true;
  }
  /// Y of a layer is of no use behind its backward pass. Where the program does not give it up, the room of what had
  /// left is free all the same.
  void spend_output(std::uint32_t layer) {
    for (std::size_t place = 0; place != walk_.size(); ++place) {
      const std::vector<block_range>& input = walk_.leaving(place);
      if (!input.empty() && input.front().begin_value() < written_by_.size() &&
          written_by_[input.front().begin_value()] == layer + 1) {
        transfers_.spend(input);
      }
    }
  }
  void note_writer(block_range range, std::uint32_t layer) {
    if (written_by_.size() < range.end_value()) {
      written_by_.resize(range.end_value());
    }
    std::fill_n(written_by_.begin() + range.begin_value(), range.count, layer + 1);
  }

  // ---- what launches need -----------------------------------------------------------------------------------------

  [[nodiscard]] static bool is_missing(const block_map& map, block_id b) {
    return !map.ready(b) && !map.hollow(b) && !detail::is_dead(map[b]);
  }
  /// A layer goes back when its own input is there, as a whole, whatever its first launch needs of it.
  [[nodiscard]] bool has_input(const block_map& map, const flight& f) const {
    const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const layer_run& r) { return r.number == f.run; });
    return f.run == 0 || run == runs_.end() || !run->place || !transfers_.awaits(map, walk_.leaving(*run->place));
  }
  [[nodiscard]] static bool has_blocks(const block_map& map, const launch_record& record) {
    return std::none_of(record.accesses.begin(), record.accesses.end(), [&](const block_access& a) {
      return std::any_of(a.range.begin(), a.range.end(), [&](block_id b) { return is_missing(map, b); });
    });
  }
  /// @returns  How many blocks are planned.
  std::int64_t bring_operands(const block_map& map, std::int64_t room, plan& out) {
    std::int64_t planned = 0;
    const std::size_t from = out.transfers.size();
    for (const flight& f : in_flight_) {
      if (!has_begun(f)) {
        continue;
      }
      for (const block_access& a : f.record.accesses) {
        for (const block_id b : a.range) {
          if (planned < room && !map.present(b) && !detail::is_dead(map[b])) {
            detail::append(out, transfer::prefetch(map.device(), reason::issued), b, detail::blocks_per_transfer(map),
                           from);
            ++planned;
          }
        }
      }
    }
    return planned;
  }
  /// The budget became smaller, or faults have brought more than it holds.
  void keep_budget(const block_map& map, plan& out) const {
    std::int64_t excess = map.occupied() > map.budget() ? -detail::room_to_come(map) : 0;
    for (const bool inputs : {true, false}) {
      if (excess <= 0) {
        return;
      }
      map.for_each_least_recently_migrated([&](block_id b) {
        if (gives_up(b, map) == inputs && map.moving(b) == motion::none && map.users(b) == 0 &&
            !detail::is_dead(map[b])) {
          detail::append(out, transfer::evict(location::host(), reason::over_budget), b,
                         detail::blocks_per_transfer(map));
          --excess;
        }
        return excess > 0;
      });
    }
  }

  policy_options options_;
  layer_end waits_for_;
  detail::layer_walk walk_;
  detail::layer_transfers transfers_{};
  detail::dead_blocks dead_{};
  detail::plan_gate gate_{};
  lru_policy demand_;     // until a launch names a layer
  bool layered_ = false;  // one has
  std::deque<flight> in_flight_{};
  std::deque<layer_run> runs_{};  // in the order of their first launches
  std::uint64_t last_run_ = 0;
  std::uint64_t begun_up_to_ = 0;
  std::uint64_t computed_up_to_ = 0;
  std::vector<std::uint64_t> passed_{};      // by stream
  std::vector<bool> is_input_{};             // by block: of an input that leaves in this step
  std::vector<std::uint32_t> written_by_{};  // by block: the layer that wrote it in the forward pass, and 1
  std::uint64_t launches_ = 0;
  std::uint64_t shared_blocks_ = 0;
};

}  // namespace v0
}  // namespace deepum
