#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/error.hpp>
#include <deepum/planning/partial_blocks.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/prediction/block_table.hpp>
#include <deepum/prediction/execution_table.hpp>
#include <deepum/prediction/history.hpp>
#include <deepum/prediction/pair_tables.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// DeepUM as published (sections 4 and 5): learns from page faults alone, and ignores what launches declare, but for
/// one thing: what the executing launch declares is not taken away, because the engine would wait for its end.
///
/// Chaining: a fault starts a chain at its block in the table of the executing launch, and the walk takes all
/// successors. The chain leaves a launch at its end block, or when no unvisited successor remains, and goes on at the
/// start block of the predicted next launch (one that has never faulted has none, and is passed by). It pauses N
/// launches ahead of the executing one, or sooner where what is expected fills the budget, and resumes when that one
/// finishes. It ends at the next fault, which starts another, or where no next launch is predicted. A fault that no
/// launch can be held responsible for trains nothing and starts nothing.
///
/// The pause for the budget is ours: where the next N launches need more than it holds, all of it is expected and
/// nothing could leave. So is recognising a launch whose scalars alone have changed (`policy_options::recognise`).
///
/// Pre-eviction: what the chain has visited for the executing and the next N launches, and what the executing ones
/// faulted on, is expected. The rest makes room, least recently migrated first; contents that are dead are discarded
/// instead. When all that is resident is expected, prefetching waits.
class deepum_policy final : public policy {
 public:
  static constexpr std::uint32_t published_lookahead = 32;

  explicit deepum_policy(const policy_options& options = {})
      : options_(options),
        history_(options.recognise, predicts),
        tables_(options.block_table) {}

  [[nodiscard]] std::string_view name() const override { return "deepum"; }

  void on_stream(stream_id stream, std::optional<std::uint32_t> lookahead) override {
    gate_.stir();
    at(stream).lookahead = lookahead.value_or(default_lookahead());
  }

  void on_stream_closed(stream_id stream) override {
    gate_.stir();
    history_.close(stream);
    // Nothing is expected for its next launches, as if all of them were over: the ordinals go on where they are.
    per_stream& s = at(stream);
    expected_blocks_ -= std::accumulate(s.expected.begin(), s.expected.end(), std::uint32_t{0});
    s.finished += s.expected.size();
    s.expected.clear();
    if (chain_.stream == stream.value) {
      chain_ = {};
      queue_.clear();
      asleep_.clear();
      walk_.stop();
    }
  }

  void on_launch(const launch_record& record, const block_map&) override {
    ++launches_;
    gate_.stir();
    const observation seen = history_.observe(record.stream, record.signature);
    per_stream& s = at(record.stream);
    if (s.in_flight.empty()) {
      busy_.push_back(record.stream.value);
    }
    s.in_flight.push_back({record.id, seen.id, seen.context, record.accesses});
  }

  void on_finish(launch_id launch, stream_id stream, const block_map&) override {
    gate_.stir();
    per_stream& s = at(stream);
    if (s.in_flight.empty()) {
      return;
    }
    while (!s.in_flight.empty() && s.in_flight.front().launch <= launch) {
      tables_.finish(s.in_flight.front().launch);
      s.in_flight.pop_front();
      ++s.finished;
      expected_blocks_ -= s.expected.empty() ? 0 : s.expected.front();
      if (!s.expected.empty()) {
        s.expected.pop_front();
      }
    }
    if (s.in_flight.empty()) {
      std::erase(busy_, stream.value);
    }
  }

  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.stir();
    if (to == map.device() && options_.prefetch) {
      partial_.note(range, map);
    }
  }
  void on_live(block_range range, const block_map&) override {
    gate_.stir();
    for (const chained_block& c : asleep_) {
      if (range.contains(c.block)) {
        const auto later = std::upper_bound(queue_.begin(), queue_.end(), c.ordinal,
                                            [](std::uint64_t o, const chained_block& q) { return o < q.ordinal; });
        queue_.insert(later, c);
      }
    }
    std::erase_if(asleep_, [&](const chained_block& c) { return range.contains(c.block); });
  }
  void on_dead(block_range, launch_id /*last*/, const block_map&) override { gate_.stir(); }
  void on_host_access(block_range, access, const block_map&) override { gate_.stir(); }

  void on_fault(const fault_record& fault, const block_map&) override {
    gate_.stir();
    if (!fault.launch.valid()) {
      return;
    }
    for (const std::size_t i : busy_) {
      per_stream& s = streams_[i];
      const auto f = std::lower_bound(s.in_flight.begin(), s.in_flight.end(), fault.launch,
                                      [](const flight& x, launch_id wanted) { return x.launch < wanted; });
      if (f != s.in_flight.end() && f->launch == fault.launch) {
        const std::uint64_t ordinal = s.finished + static_cast<std::uint64_t>(f - s.in_flight.begin());
        tables_.fault(f->launch, f->id, fault.block);
        expect(fault.block, i, ordinal);
        begin_chain(fault.block, i, ordinal, *f);
        return;
      }
    }
  }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map)) {
      return;
    }
    out.supersedes = true;
    std::int64_t wanted = 0;
    if (options_.prefetch) {
      partial_.write(map, out);
      extend_chain(map.budget());
      wanted = static_cast<std::int64_t>(collect_missing(map));
    }
    if (wanted <= map.room() && map.occupied() <= map.budget()) {
      write_prefetches(map, out, wanted);
      return;
    }
    const std::int64_t room = detail::room_to_come(map);
    const std::int64_t made = write_evictions(map, out, wanted - room, -room);
    write_prefetches(map, out, std::clamp<std::int64_t>(room + made, 0, wanted));
  }

  [[nodiscard]] bool holds_launches() const override { return options_.prefetch && options_.hold_launches; }
  /// A launch that the chain has visited, or will visit when it resumes, begins when what it visited there has arrived.
  /// Without a chain, one that is known to need a missing block waits for the launches before it, whose faults start
  /// one.
  [[nodiscard]] bool ready(launch_id launch, stream_id stream, const block_map& map) const override {
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
            .execution_ids = history_.execution_ids()};
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("dpum");
  static constexpr execution_table::match predicts = execution_table::match::published;

  struct flight {
    launch_id launch{};
    execution_id id{};
    execution_context context{};
    std::vector<block_access> declared{};
  };
  // Launches of a stream are counted as they execute: the executing one has the ordinal `finished`.
  struct per_stream {
    std::uint32_t lookahead = published_lookahead;
    std::uint64_t finished = 0;
    std::deque<flight> in_flight{};
    std::deque<std::uint32_t> expected{};  // blocks, by ordinal from `finished` on
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
  struct expectation {
    std::uint64_t ordinal = 0;
    std::size_t stream = no_stream;
  };
  static constexpr std::size_t no_stream = static_cast<std::size_t>(-1);

  [[nodiscard]] std::uint32_t default_lookahead() const { return options_.lookahead.value_or(published_lookahead); }

  per_stream& at(stream_id stream) {
    while (stream.value >= streams_.size()) {
      streams_.push_back({.lookahead = default_lookahead()});
    }
    return streams_[stream.value];
  }

  void begin_chain(block_id from, std::size_t stream, std::uint64_t ordinal, const flight& executing) {
    chain_ = {true, stream, ordinal, executing.context};
    queue_.clear();
    asleep_.clear();
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
    if (b.value >= expected_.size()) {
      expected_.resize(std::size_t{b.value} + 1);
    }
    if (is_expected(b)) {
      const expectation& before = expected_[b.value];
      per_stream& s = streams_[before.stream];
      --s.expected[static_cast<std::size_t>(before.ordinal - s.finished)];
      --expected_blocks_;
    }
    expected_[b.value] = {ordinal, stream};
    per_stream& s = streams_[stream];
    if (ordinal >= s.finished) {
      const auto ahead = static_cast<std::size_t>(ordinal - s.finished);
      s.expected.resize(std::max(s.expected.size(), ahead + 1));
      ++s.expected[ahead];
      ++expected_blocks_;
    }
  }
  [[nodiscard]] bool is_expected(block_id b) const {
    if (b.value >= expected_.size() || expected_[b.value].stream == no_stream) {
      return false;
    }
    const expectation& e = expected_[b.value];
    return e.ordinal >= streams_[e.stream].finished;
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
    std::erase_if(asleep_, [&](const chained_block& c) { return over(c); });
    for (; !queue_.empty(); queue_.pop_front()) {
      const chained_block& c = queue_.front();
      if (over(c) || map.ready(c.block)) {
        continue;
      }
      if (!detail::is_dead(map[c.block])) {
        break;
      }
      asleep_.push_back(c);  // it may come alive before its launch
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

  // `needed` blocks are to go; the first `excess` of them whatever is expected of them.
  std::int64_t write_evictions(const block_map& map, plan& out, std::int64_t needed, std::int64_t excess) {
    const std::uint32_t most = detail::blocks_per_command(map);
    std::int64_t made = 0;
    const auto give_up = [&](block_id b) {
      const block_state& s = map[b];
      const bool dead = options_.invalidate && detail::is_dead(s);
      if (s.moving != motion::none || (dead && s.users != 0) || executing_on(b)) {
        return;  // on its way already, soon to be had for nothing, or not to be had
      }
      const reason why = dead ? reason::dead : made < excess ? reason::over_budget : reason::make_room;
      detail::append(out, {.what = dead ? action::discard : action::evict, .why = why, .to = location::host()}, b,
                     most);
      ++made;
    };
    const auto sweep = [&](std::int64_t target, bool take_expected) {
      map.for_each_least_recently_migrated([&](block_id b) {
        if (made >= target) {
          return false;
        }
        const bool expected = is_expected(b) && !detail::is_dead(map[b]);
        if (expected == take_expected) {
          give_up(b);
        }
        return true;
      });
    };
    if (options_.pre_evict) {
      sweep(needed, false);
      sweep(excess, true);
    } else {  // as the driver does it
      map.for_each_least_recently_migrated([&](block_id b) {
        if (made < needed) {
          give_up(b);
        }
        return made < needed;
      });
    }
    return made;
  }

  void write_prefetches(const block_map& map, plan& out, std::int64_t count) {
    const std::uint32_t most = detail::blocks_per_command(map);
    std::size_t from = out.commands.size();
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      if (i == map.room()) {
        from = out.commands.size();  // what has room now does not wait for the rest
      }
      detail::append(out, {.what = action::prefetch, .why = reason::predicted, .to = map.device()}, missing_[i].block,
                     most, from);
    }
  }

  policy_options options_;
  history history_;
  pair_tables tables_;
  std::vector<per_stream> streams_{};
  std::vector<std::uint16_t> busy_{};  // streams with launches in flight
  chain chain_{};
  block_walk walk_{};                     // of the chain, in its launch
  mutable block_walk survey_{};           // of `all_ready`; kept for its memory
  std::deque<chained_block> queue_{};     // visited, not known to have arrived
  std::vector<chained_block> asleep_{};   // taken from the queue while their contents were dead
  std::vector<chained_block> missing_{};  // of those, what this plan may ask for
  std::vector<expectation> expected_{};   // by block
  std::uint32_t expected_blocks_ = 0;     // expected by a launch that has not finished
  detail::partial_blocks partial_{};
  detail::plan_gate gate_{};
  std::uint64_t launches_ = 0;
};

}  // namespace v0
}  // namespace deepum
