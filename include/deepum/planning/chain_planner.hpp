#pragma once

#include <deepum/core/block_map.hpp>
#include <deepum/core/fifo.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/planning/pre_eviction.hpp>
#include <deepum/prediction/block_table.hpp>
#include <deepum/prediction/execution_table.hpp>
#include <deepum/prediction/history.hpp>
#include <deepum/prediction/pair_tables.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

namespace deepum {
inline namespace v0 {

/// What a `chain_planner` may plan.
struct chain_options {
  bool pre_evict = true;           ///< false: room is taken as the driver takes it
  bool invalidate = true;          ///< false: dead contents are moved like live ones
  bool driver_makes_room = false;  ///< prefetches wait for no room (`plan::driver_makes_room`)
};

/// Chaining (DeepUM, section 4.2): from a page fault through the tables of the executing and the next N launches.
///
/// A fault starts a chain at its block. The chain takes all successors, leaves a launch at its end block, and goes on
/// at the start block of the predicted next one. It pauses N launches ahead, or where what is expected fills the
/// budget. The next fault starts another. Room is made by `pre_eviction`, from what the chain has not visited.
///
/// Not synchronised.
class chain_planner {
 public:
  /// @param past, tables  What follows which; kept by the caller, who teaches them.
  chain_planner(const history& past, const pair_tables& tables, std::uint32_t lookahead, chain_options chosen)
      : history_(past),
        tables_(tables),
        default_lookahead_(lookahead),
        options_(chosen) {}
  chain_planner(const chain_planner&) = delete;
  chain_planner& operator=(const chain_planner&) = delete;

  /// A stream was opened. @param lookahead  Its degree N; nothing: the default.
  void open(stream_id stream, std::optional<std::uint32_t> lookahead) {
    at(stream).lookahead = lookahead.value_or(default_lookahead_);
  }
  /// A stream was closed. Nothing is expected for its next launches, as if all of them were over.
  void close(stream_id stream) {
    per_stream& s = at(stream);
    expected_blocks_ -= std::accumulate(s.expected.begin(), s.expected.end(), std::uint32_t{0});
    s.finished += s.expected.size();
    s.expected.clear();
    if (chain_.stream == stream.value) {
      chain_ = {};
      queue_.clear();
      parked_.clear();
      walk_.stop();
    }
  }
  /// A launch was issued.
  void issue(const launch_record& record, const observation& seen) {
    per_stream& s = at(record.stream);
    if (s.in_flight.empty()) {
      busy_.push_back(record.stream.value);
    }
    s.in_flight.push_back({record.id, seen.id, seen.context, record.accesses});
  }
  /// A launch finished, and with it those before it on its stream. Calls `finished(launch_id)` for each.
  template <class Finished>
  void finish(launch_id launch, stream_id stream, Finished&& finished) {
    per_stream& s = at(stream);
    if (s.in_flight.empty()) {
      return;
    }
    while (!s.in_flight.empty() && s.in_flight.front().launch <= launch) {
      finished(s.in_flight.front().launch);
      s.in_flight.pop_front();
      ++s.finished;
      expected_blocks_ -= s.expected.empty() ? 0 : s.expected.front();
      if (!s.expected.empty()) {
        s.expected.pop_front();
      }
    }
    if (s.in_flight.empty()) {
      erase(busy_, stream.value);
    }
  }
  /// A launch in flight faulted, and another chain begins. Calls `learn(launch_id, execution_id)` before.
  template <class Learn>
  void fault(const fault_record& fault, Learn&& learn) {
    for (const std::size_t i : busy_) {
      per_stream& s = streams_[i];
      const auto f = std::lower_bound(s.in_flight.begin(), s.in_flight.end(), fault.launch,
                                      [](const flight& of, launch_id wanted) { return of.launch < wanted; });
      if (f != s.in_flight.end() && f->launch == fault.launch) {
        const std::uint64_t ordinal = s.finished + static_cast<std::uint64_t>(f - s.in_flight.begin());
        learn(f->launch, f->id);
        expect(fault.block, i, ordinal);
        begin_chain(fault.block, i, ordinal, *f);
        return;
      }
    }
  }
  /// Contents became live: what the chain visited while it was dead is of interest again.
  void became_live(block_range range) {
    for (const chained_block& c : parked_) {
      if (range.contains(c.block)) {
        const auto later = std::upper_bound(queue_.begin(), queue_.end(), c.ordinal,
                                            [](std::uint64_t o, const chained_block& q) { return o < q.ordinal; });
        queue_.insert(later, c);
      }
    }
    erase_if(parked_, [&](const chained_block& c) { return range.contains(c.block); });
  }

  /// @param prefetch  Blocks may be fetched; else room is made for the budget alone.
  void write(const block_map& map, bool prefetch, plan& out) {
    std::int64_t wanted = 0;
    if (prefetch) {
      extend_chain(map.budget());
      wanted = static_cast<std::int64_t>(collect_missing(map));
    }
    out.driver_makes_room = options_.driver_makes_room;
    if (wanted <= map.room() && map.occupied() <= map.budget()) {
      write_prefetches(map, out, wanted);
      return;
    }
    if (options_.driver_makes_room) {
      // For what is on its way in something will leave. More than that is there where the budget has become smaller.
      const std::int64_t excess = -detail::room_to_come(map) - static_cast<std::int64_t>(map.arriving());
      (void)make_room(map, {.needed = excess, .excess = excess}, out);
      write_prefetches(map, out, wanted);
      return;
    }
    const std::int64_t room = detail::room_to_come(map);
    const std::int64_t made = make_room(map, {.needed = wanted - room, .excess = -room}, out);
    write_prefetches(map, out, std::clamp<std::int64_t>(room + made, 0, wanted));
  }

  /// A launch that the chain has visited, or will visit when it resumes, begins when what it visited there has arrived.
  /// Without a chain, one that is known to need a missing block waits for the launches before it, whose faults start
  /// one.
  [[nodiscard]] bool ready(launch_id launch, stream_id stream, const block_map& map) const {
    if (stream.value >= streams_.size()) {
      return true;
    }
    const per_stream& s = streams_[stream.value];
    const auto it =
        std::find_if(s.in_flight.begin(), s.in_flight.end(), [launch](const flight& f) { return f.launch == launch; });
    if (it == s.in_flight.end()) {
      return true;
    }
    const std::uint64_t ordinal = s.finished + static_cast<std::uint64_t>(it - s.in_flight.begin());
    if (chain_.stream != stream.value || chain_.ordinal < ordinal) {
      if (chain_.active && chain_.stream == stream.value) {
        return false;
      }
      return it == s.in_flight.begin() || all_ready(it->id, map);
    }
    return std::none_of(queue_.begin(), queue_.end(), [&](const chained_block& c) {
      return c.ordinal == ordinal && !detail::is_dead(map[c.block]) && !map.ready(c.block);
    });
  }

 private:
  std::int64_t make_room(const block_map& map, detail::room_request want, plan& out) const {
    return detail::pre_eviction(options_.pre_evict, options_.invalidate)
        .write(
            map, want, [this](block_id b) { return is_expected(b); }, [this](block_id b) { return executing_on(b); },
            out);
  }

  struct flight {
    launch_id launch{};
    execution_id id{};
    execution_context context{};
    std::vector<block_access> declared{};
  };
  // Launches of a stream are counted as they execute: the executing one has the ordinal `finished`.
  struct per_stream {
    std::uint32_t lookahead = 0;
    std::uint64_t finished = 0;
    fifo<flight> in_flight{};
    fifo<std::uint32_t> expected{};  // blocks, by ordinal from `finished` on
  };
  struct chained_block {
    block_id block{};
    std::uint64_t ordinal = 0;
  };
  struct chain {
    bool active = false;
    std::size_t stream = 0;
    std::uint64_t ordinal = 0;
    execution_context context{};
  };
  static constexpr std::size_t no_stream = static_cast<std::size_t>(-1);
  struct expectation {
    std::uint64_t ordinal = 0;
    std::size_t stream = no_stream;
  };

  per_stream& at(stream_id stream) {
    while (stream.value >= streams_.size()) {
      streams_.push_back({.lookahead = default_lookahead_});
    }
    return streams_[stream.value];
  }

  void begin_chain(block_id from, std::size_t stream, std::uint64_t ordinal, const flight& executing) {
    chain_ = {true, stream, ordinal, executing.context};
    queue_.clear();
    parked_.clear();
    if (const block_table* table = tables_.find(executing.id)) {
      walk_.start(*table, from);
    } else {
      walk_.stop();
    }
  }

  void extend_chain(std::uint32_t budget) {
    while (chain_.active) {
      if (expected_blocks_ >= budget && chain_.ordinal > streams_[chain_.stream].finished) {
        return;  // paused
      }
      if (const std::optional<block_id> b = walk_.next()) {
        take(*b);
        continue;
      }
      const per_stream& s = streams_[chain_.stream];
      if (chain_.ordinal >= s.finished + s.lookahead) {
        return;  // paused
      }
      const std::optional<execution_id> next = history_.predict(chain_.context);
      if (!next) {
        chain_.active = false;
        return;
      }
      chain_.context.push(*next);
      ++chain_.ordinal;
      const block_table* table = tables_.find(*next);
      if (table != nullptr && table->start()) {
        walk_.start(*table, *table->start());
        take(*table->start());
      }
    }
  }
  void take(block_id b) {
    expect(b, chain_.stream, chain_.ordinal);
    queue_.push_back({b, chain_.ordinal});
  }

  void expect(block_id b, std::size_t stream, std::uint64_t ordinal) {
    if (is_expected(b)) {
      const expectation before = expected_.get(b);
      per_stream& s = streams_[before.stream];
      --s.expected[static_cast<std::size_t>(before.ordinal - s.finished)];
      --expected_blocks_;
    }
    expected_[b] = {ordinal, stream};
    per_stream& s = streams_[stream];
    if (ordinal >= s.finished) {
      const auto ahead = static_cast<std::size_t>(ordinal - s.finished);
      s.expected.resize(std::max(s.expected.size(), ahead + 1));
      ++s.expected[ahead];
      ++expected_blocks_;
    }
  }
  [[nodiscard]] bool is_expected(block_id b) const {
    const expectation e = expected_.get(b);
    return e.stream != no_stream && e.ordinal >= streams_[e.stream].finished;
  }

  // All that a chain would visit in the launch.
  [[nodiscard]] bool all_ready(execution_id id, const block_map& map) const {
    const block_table* table = tables_.find(id);
    if (table == nullptr || !table->start()) {
      return true;
    }
    survey_.start(*table, *table->start());
    std::optional<block_id> b = table->start();
    while (b && map.ready(*b)) {
      b = survey_.next();
    }
    return !b;
  }
  [[nodiscard]] bool over(const chained_block& c) const { return c.ordinal < streams_[chain_.stream].finished; }
  [[nodiscard]] bool served(const block_map& map, const chained_block& c) const {
    return map.present(c.block) || over(c) || detail::is_dead(map[c.block]);
  }
  // The first blocks of the chain that have to be brought in.
  std::size_t collect_missing(const block_map& map) {
    erase_if(parked_, [&](const chained_block& c) { return over(c); });
    for (; !queue_.empty(); queue_.pop_front()) {
      const chained_block& c = queue_.front();
      if (over(c) || map.ready(c.block)) {
        continue;
      }
      if (!detail::is_dead(map[c.block])) {
        break;
      }
      parked_.push_back(c);  // it may come alive before its launch
    }
    missing_.clear();
    const std::uint32_t most = detail::blocks_per_plan(map);
    for (const chained_block& c : queue_) {
      if (missing_.size() == most) {
        break;
      }
      if (!served(map, c) &&
          std::none_of(missing_.begin(), missing_.end(), [&](const chained_block& m) { return m.block == c.block; })) {
        missing_.push_back(c);
      }
    }
    return missing_.size();
  }

  [[nodiscard]] bool executing_on(block_id b) const {
    return std::any_of(busy_.begin(), busy_.end(), [&](std::uint16_t s) {
      const std::vector<block_access>& declared = streams_[s].in_flight.front().declared;
      return std::any_of(declared.begin(), declared.end(), [b](const block_access& a) { return a.range.contains(b); });
    });
  }

  void write_prefetches(const block_map& map, plan& out, std::int64_t count) {
    const std::uint32_t most = detail::blocks_per_transfer(map);
    std::size_t from = out.transfers.size();
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      if (i == map.room()) {
        from = out.transfers.size();  // what has room now does not wait for the rest
      }
      detail::append(out, transfer::prefetch(map.device(), reason::predicted), missing_[i].block, most, from);
    }
  }

  const history& history_;
  const pair_tables& tables_;
  std::uint32_t default_lookahead_;
  chain_options options_;
  sequence<per_stream> streams_{};
  sequence<std::uint16_t> busy_{};  // streams with launches in flight
  chain chain_{};
  block_walk walk_{};                  // of the chain, in its launch
  mutable block_walk survey_{};        // of `all_ready`; kept for its memory
  fifo<chained_block> queue_{};        // visited, not known to have arrived
  sequence<chained_block> parked_{};   // taken from the queue while their contents were dead
  sequence<chained_block> missing_{};  // of those, what this plan may ask for
  detail::id_map<block_id, expectation> expected_{};
  std::uint32_t expected_blocks_ = 0;  // expected by a launch that has not finished
};

}  // namespace v0
}  // namespace deepum
