#include "replay/replay.hpp"

#include <deepum/core/signature.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/error.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

namespace deepum::replay {
namespace {

// What the program tells of a launch, which does not change from step to step.
struct declared_launch {
  launch_signature signature{};
  std::vector<block_access> accesses{};
  bool complete = true;
  const touched_blocks* of = nullptr;
};

// Launches with look-ups declare what they touch in any case; the blocks of the look-ups are theirs to know. Where rows
// can be touched in place, and it is known how many there are, they declare that they look rows up in the tensor.
declared_launch declare(const workload& w, const workload_launch& l, std::size_t variant, bool rows_in_place) {
  declared_launch d;
  d.of = &l.touches(variant);
  signature_builder signature{l.kernel};
  block_set sparse;
  for (const workload_operand& o : l.operands) {
    const workload_tensor& t = w.tensors[o.tensor];
    signature.operand(t.address.count, t.size.count, o.mode);
    if (o.rows != 0 && rows_in_place) {
      d.accesses.push_back({.range = t.span,
                            .mode = o.mode == deepum::access::read ? o.mode : deepum::access::update,
                            .sparse = true,
                            .row_bytes = o.row_bytes,
                            .touched = o.row_bytes * o.rows});
    } else if (o.data_dependent) {
      d.complete = false;
      sparse.push_back(t.span);
    }
  }
  d.signature = signature.finish();
  const auto add = [&](const block_set& set, deepum::access mode) {
    for (const block_range all : set) {
      deepum::for_each_run(
          all, [&](block_id b) { return !rows_in_place || !contains(d.of->looked_up, b); },
          [&](block_range r) {
            if (std::none_of(sparse.begin(), sparse.end(), [&](block_range s) { return s.overlaps(r); })) {
              d.accesses.push_back({r, mode});
            }
          });
    }
  };
  // Fresh blocks are overwritten as a whole. Others that are written keep bytes of their neighbours, or are not said
  // to.
  block_set others;
  for (const block_range r : d.of->writes) {
    for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
      if (contains(d.of->fresh, block_id{b})) {
        continue;
      }
      if (!others.empty() && others.back().end_value() == b) {
        ++others.back().count;
      } else {
        others.push_back({block_id{b}, 1});
      }
    }
  }
  add(d.of->reads, deepum::access::read);
  add(others, deepum::access::update);
  add(d.of->fresh, deepum::access::overwrite);
  return d;
}

void check_fits(const program& what, bytes budget) {
  for (const auto& w : what.workloads) {
    if (block_size * w->largest_launch > budget) {
      throw error(status::invalid_argument, "a launch of '" + w->name + "' uses " + std::to_string(w->largest_launch) +
                                                " blocks of 2 MiB, and the budget holds " +
                                                std::to_string(budget / block_size) + ": give a larger budget");
    }
  }
}

template <class Memory>
class replayer {
 public:
  replayer(const program& what, std::unique_ptr<policy> chooser, const replay_options& options, const machine& on)
      : what_(what),
        options_(options),
        gpu_(what.end_block(), on, options.memory == replay_memory::home_copy, options.schedule),
        memory_(gpu_),
        engine_(memory_, std::move(chooser), {.budget = on.budget, .headroom = {}, .observer = options.observer}) {
    gpu_.attach([this] { engine_.pump(); });
    live_.resize(gpu_.blocks());
    freed_after_.resize(gpu_.blocks());
    declared_.resize(what.workloads.size());
  }

  replay_result run() {
    replay_result result;
    result.policy = engine_.policy_name();
    begin();
    for (std::size_t turn = 0; turn != what_.turns.size(); ++turn) {
      run_turn(turn);
      if (options_.progress) {
        options_.progress(turn);
      }
    }
    while (gpu_.queued() != 0) {
      run_next();
    }
    collect();
    result.turns = std::move(turns_);
    return result;
  }

 private:
  // What persists is on the host, and alive.
  void begin() {
    for (const auto& w : what_.workloads) {
      for (const block_range r : w->persistent) {
        for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
          if (!live_[b]) {
            live_[b] = true;
            gpu_.put_on_host(block_id{b});
            (void)engine_.live({block_id{b}, 1});
          }
        }
        engine_.host_access(r, deepum::access::overwrite);
      }
    }
  }

  void run_turn(std::size_t turn) {
    const program_turn& now = what_.turns[turn];
    const workload& w = *what_.workloads[now.workload];
    const std::vector<declared_launch>& launches = declared(now);
    while (streams_.size() <= now.stream.value) {
      streams_.push_back(engine_.open_stream({}));
    }
    for (std::uint32_t k = 0; k != launches.size(); ++k) {
      const declared_launch& d = launches[k];
      device_launch l{.touched = d.of,
                      .all = d.of->all(),
                      .duration = w.launches[k].duration,
                      .kernel = k,
                      .step = static_cast<std::uint32_t>(turn)};
      while (gpu_.queued() > options_.run_ahead) {
        run_next();
      }
      allocate(l.all);
      const stream_id stream = streams_[now.stream.value];
      l.id = engine_.submit({.stream = stream,
                             .signature = d.signature,
                             .accesses = d.accesses,
                             .complete = d.complete,
                             .name = w.launches[k].kernel,
                             .layer = scope_of(w, k)});
      while (!engine_.admitted(l.id, stream)) {
        run_until_reported();
      }
      const launch_id id = l.id;
      gpu_.launch(std::move(l));
      free(w.launches[k].dead, id);
    }
    ends_.push_back(engine_.last_launch());
    collect();
  }

  // Each step has scopes of its own.
  std::shared_ptr<const layer_scope> scope_of(const workload& w, std::uint32_t k) {
    const std::shared_ptr<const layer_scope>& layer = w.launches[k].layer;
    if (layer && (k == 0 || w.launches[k - 1].layer != layer)) {
      layer_scope made = *layer;
      made.number = ++scopes_;
      scope_ = std::make_shared<const layer_scope>(std::move(made));
    }
    return layer ? scope_ : nullptr;
  }
  // Things happen; the last launch of a turn may have finished among them.
  void run_next() {
    gpu_.run_next();
    collect();
  }
  // Until the device has reported something, or has nothing left to do.
  void run_until_reported() {
    const std::uint64_t before = gpu_.reports();
    while (gpu_.reports() == before && !gpu_.quiet()) {
      run_next();
    }
  }
  void collect() {
    for (const executed_launch& e : gpu_.take_finished()) {
      while (!freed_.empty() && freed_.front().after <= e.id) {
        free_now(freed_.front());
        freed_.pop_front();
      }
      if (turns_.size() < ends_.size() && e.id == ends_[turns_.size()]) {
        const statistics all = engine_.snapshot();
        turns_.push_back({e.ended - last_end_, all - before_});
        turns_.back().used.policy.table_bytes = all.policy.table_bytes;
        turns_.back().peak = block_size * gpu_.take_peak();
        before_ = all;
        last_end_ = e.ended;
      }
    }
  }

  // Blocks that are freed when a launch has finished; those that are allocated again before are dead for a moment.
  struct deferred_free {
    launch_id after{};
    const block_set* blocks = nullptr;
  };
  void allocate(const block_set& blocks) {
    for (const block_range r : blocks) {
      for_each_run(
          r, [&](block_id b) { return freed_after_[b.value].valid(); },
          [&](block_range again) {
            tell_dead(again, freed_after_[again.begin_value()]);
            for (std::uint32_t b = again.begin_value(); b != again.end_value(); ++b) {
              freed_after_[b] = {};
            }
          });
      for_each_run(
          r, [&](block_id b) { return !live_[b.value]; },
          [&](block_range fresh) {
            set_live(fresh, true);
            if (!engine_.live(fresh)) {
              while (!engine_.settled(fresh)) {
                run_until_reported();
              }
            }
          });
    }
  }
  void free(const block_set& blocks, launch_id after) {
    for (const block_range r : blocks) {
      for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
        freed_after_[b] = after;
      }
    }
    freed_.push_back({after, &blocks});
  }
  void free_now(const deferred_free& f) {
    for (const block_range r : *f.blocks) {
      for_each_run(
          r, [&](block_id b) { return freed_after_[b.value] == f.after; },
          [&](block_range dead) {
            tell_dead(dead, f.after);
            for (std::uint32_t b = dead.begin_value(); b != dead.end_value(); ++b) {
              freed_after_[b] = {};
            }
          });
    }
  }
  void tell_dead(block_range range, launch_id last) {
    set_live(range, false);
    engine_.dead(range, liveness::unallocated, last);
  }
  void set_live(block_range range, bool live) {
    for (std::uint32_t b = range.begin_value(); b != range.end_value(); ++b) {
      live_[b] = live;
    }
  }
  // Calls `visit` for the longest ranges of blocks for which the predicate holds.
  template <class Predicate, class Visit>
  static void for_each_run(block_range range, Predicate&& holds, Visit&& visit) {
    for (std::uint32_t b = range.begin_value(); b != range.end_value();) {
      const std::uint32_t from = b;
      while (b != range.end_value() && holds(block_id{b})) {
        ++b;
      }
      if (b != from) {
        visit(block_range{block_id{from}, b - from});
      } else {
        ++b;
      }
    }
  }

  const std::vector<declared_launch>& declared(const program_turn& turn) {
    const workload& w = *what_.workloads[turn.workload];
    std::vector<std::vector<declared_launch>>& variants = declared_[turn.workload];
    variants.resize(w.variants);
    std::vector<declared_launch>& launches = variants[turn.variant % w.variants];
    if (launches.empty()) {
      for (const workload_launch& l : w.launches) {
        launches.push_back(declare(w, l, turn.variant, gpu_.shortest_row().count != 0));
      }
    }
    return launches;
  }

  const program& what_;
  const replay_options& options_;
  gpu gpu_;
  Memory memory_;
  engine engine_;
  std::vector<stream_id> streams_{};
  std::vector<bool> live_{};              // by block
  std::vector<launch_id> freed_after_{};  // by block: it is freed when that launch has finished
  std::deque<deferred_free> freed_{};
  std::vector<std::vector<std::vector<declared_launch>>> declared_{};  // by workload and variant
  std::vector<launch_id> ends_{};                                      // by turn: its last launch
  std::vector<replayed_turn> turns_{};
  std::shared_ptr<const layer_scope> scope_{};
  std::uint64_t scopes_ = 0;
  statistics before_{};
  nanoseconds last_end_{};
};

}  // namespace

replay_result replay(const program& what, std::unique_ptr<policy> chooser, const replay_options& options) {
  const machine on = options.on ? *options.on : one_device(options.budget, options.costs);
  check_fits(what, on.budget);
  if (options.memory == replay_memory::home_copy) {
    return replayer<blocks_with_home_copy>(what, std::move(chooser), options, on).run();
  }
  return replayer<managed_blocks>(what, std::move(chooser), options, on).run();
}

}  // namespace deepum::replay
