#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/id_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/prediction/execution_table.hpp>
#include <deepum/prediction/footprint_predictor.hpp>
#include <deepum/prediction/history.hpp>
#include <deepum/prediction/trust.hpp>
#include <deepum/prediction/upcoming_launches.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// What one stream will execute, and how far that can be believed.
struct stream_forecast {
  std::unique_ptr<upcoming_launches> ahead{};  ///< null: nothing is in flight or predicted
  prediction_trust trust{};
  std::uint64_t last_issue = 0;              ///< in launches of all streams
  execution_context tail{};                  ///< after the last predicted launch
  std::optional<std::uint32_t> lookahead{};  ///< degree N, where one is given
  std::size_t predictions = 0;               ///< to be made for its next launch at most

  /// Launches ahead for which blocks may be fetched.
  [[nodiscard]] std::size_t reach() const {
    const std::size_t reach = trust.trusted() ? ahead->size() : ahead->issued();
    return lookahead ? std::min<std::size_t>(reach, std::size_t{*lookahead} + 1) : reach;
  }
};

/// Bounds of a `launch_predictor`.
struct predictor_limits {
  std::uint32_t max_execution_ids = 0;       ///< 0: unbounded
  std::size_t max_execution_records = 0;     ///< 0: unbounded
  std::uint32_t horizon = 0;                 ///< launches ahead of a stream
  std::uint32_t max_upcoming_uses = 0;       ///< uses of blocks by those launches
  std::optional<std::uint32_t> lookahead{};  ///< of streams that have none of their own
};

/// What becomes known with a launch that is issued.
struct issued_launch {
  execution_id id{};
  execution_id retired{};  ///< this ID meant another launch before; none: nothing to forget
  bool changed = false;    ///< its needs are others than they were
  bool steady = true;      ///< it uses the same blocks whenever it comes, as far as is known
};

/// What the streams of an arena will execute, which blocks that needs, and when each block is used next: history and
/// footprints, put together for each stream.
///
/// Only active streams, those with launches ahead, are looked at. Most that are open may be idle: of these, the ones
/// that launched last keep their predictions. A stream that has nothing in flight falls back by one launch with each
/// launch of the others.
///
/// Not synchronised. Cost: a launch that comes as predicted adds one prediction, linear in its blocks.
class launch_predictor {
 public:
  /// Launches ahead of a stream while nothing is missing.
  static constexpr std::uint32_t near_horizon = 64;

  /// No use is known.
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  explicit launch_predictor(const predictor_limits& limits)
      : limits_(limits),
        history_(recognises, predicts, limits.max_execution_ids, limits.max_execution_records) {}
  launch_predictor(const launch_predictor&) = delete;
  launch_predictor& operator=(const launch_predictor&) = delete;

  /// A stream was opened. @param lookahead  Its degree N; nothing: that of the limits.
  void open(stream_id stream, std::optional<std::uint32_t> lookahead) {
    at(stream).lookahead = lookahead ? lookahead : limits_.lookahead;
  }
  /// A stream was closed: who gets its number has launched nothing.
  void close(stream_id stream) {
    history_.close(stream);
    if (at(stream).ahead) {
      deactivate(stream.value);
      erase(active_, stream.value);
    }
    at(stream) = fresh();
  }

  /// A launch was issued.
  issued_launch issue(const launch_record& record, const block_map& map) {
    const observation seen = history_.observe(record.stream, record.signature);
    stream_forecast& s = activated(record.stream);
    s.last_issue = ++launches_;
    s.trust.record(seen.was);
    if (seen.retired.valid()) {
      needs_.forget(seen.retired);
      for (const std::uint16_t i : active_) {
        drop_predictions(i, map);
      }
    }
    const working_set before = needs_.of(seen.id);
    needs_.declare(seen.id, record);
    working_set now = needs_.of(seen.id);
    const bool changed = !seen.is_new && before != now;
    if (changed) {
      outdated_.push_back(seen.id);
    }
    const bool steady = needs_.steady(seen.id);
    last_unsteady_ = steady ? last_unsteady_ : launches_;
    ++in_flight_;
    if (!s.ahead->issue({seen.id, record.id, std::move(now)}, map)) {
      s.tail = seen.context;
    }
    return {.id = seen.id, .retired = seen.retired, .changed = changed, .steady = steady};
  }
  /// Predicts some more launches of a stream that has just issued one; the horizon is reached little by little. While
  /// nothing is missing it is near, so that a prediction that was wrong costs little.
  void predict_further(stream_id stream, const block_map& map) {
    stream_forecast& s = at(stream);
    for (std::size_t i = 0;
         i != s.predictions && s.ahead->size() < horizon() && s.ahead->use_count() < limits_.max_upcoming_uses; ++i) {
      const std::optional<execution_id> next = history_.predict(s.tail);
      if (!next) {
        return;
      }
      s.tail.push(*next);
      s.ahead->predict(*next, needs_.of(*next), map);
    }
    s.predictions = std::min(2 * s.predictions, predictions_per_launch);
  }

  /// A launch finished, and with it those before it on its stream. Calls `finished(changed)` for each: whether its
  /// needs are others than they were.
  template <class Finished>
  void finish(launch_id launch, stream_id stream, const block_map& map, Finished&& finished) {
    stream_forecast& s = at(stream);
    while (s.ahead && s.ahead->issued() != 0 && (*s.ahead)[0].launch <= launch) {
      const execution_id id = (*s.ahead)[0].id;
      const bool changed = needs_.finish(id, map);
      if (changed) {
        outdated_.push_back(id);
      }
      --in_flight_;
      s.ahead->pop_front(map);
      finished(changed);
    }
  }

  /// What a fault has taught.
  struct lesson {
    execution_id culprit{};  ///< the launch that is responsible; none: that is not known
    bool changed = false;    ///< needs of a launch are others than they were
  };
  /// A launch faulted. One that no launch can be held responsible for is credited to all that are executing.
  lesson fault(const fault_record& fault) {
    lesson learned;
    for (const std::uint16_t i : active_) {
      const upcoming_launches& ahead = *streams_[stream_id{i}].ahead;
      const std::size_t at = fault.launch.valid() ? ahead.place_of(fault.launch) : 0;
      if (at >= ahead.issued() || (fault.launch.valid() && ahead[at].launch != fault.launch)) {
        continue;
      }
      const execution_id id = ahead[at].id;
      learned.culprit = fault.launch.valid() ? id : execution_id{};
      if (needs_.fault(id, fault.block, fault.mode)) {
        outdated_.push_back(id);
        learned.changed = true;
      }
    }
    return learned;
  }

  /// What faults have taught of launches that use this memory is of no use any more; what they declare stays.
  void forget_learned(block_range range) {
    needs_.forget_learned(range, [&](execution_id id) { outdated_.push_back(id); });
  }
  /// Blocks came to the device or left it, or their contents matter again.
  void moved(block_range range, const block_map& map) {
    if (!tracks_uses_) {
      return;
    }
    for (const block_id b : range) {
      bool used = false;
      for (const std::uint16_t i : active_) {
        used = streams_[stream_id{i}].ahead->moved(b, map) || used;
      }
      if (!map.resident(b)) {
        rests_ = false;
        last_departure_ = launches_;
      }
      all_used_ = all_used_ && (used || !map.resident(b));
    }
  }

  /// Brings the launches ahead up to date with what has been learned of their needs. Before a plan.
  void refresh(const block_map& map) {
    if (outdated_.empty()) {
      return;
    }
    std::sort(outdated_.begin(), outdated_.end());
    for (const std::uint16_t a : active_) {
      stream_forecast& s = streams_[stream_id{a}];
      for (std::size_t i = 0; i != s.ahead->size(); ++i) {
        const execution_id id = (*s.ahead)[i].id;
        if (std::binary_search(outdated_.begin(), outdated_.end(), id)) {
          s.ahead->replace_needs(i, needs_.of(id), map);
        }
      }
    }
    outdated_.clear();
  }
  /// What comes next is known otherwise.
  void forget_predictions(const block_map& map) {
    for (const std::uint16_t i : active_) {
      const upcoming_launches& ahead = *streams_[stream_id{i}].ahead;
      if (ahead.size() != ahead.issued()) {
        drop_predictions(i, map);
      }
    }
  }
  /// Whether it is of interest which launch uses a block next; it costs time. See `upcoming_launches::track_uses`.
  void track_uses(bool on, const block_map& map) {
    if (tracks_uses_ == on) {
      return;
    }
    tracks_uses_ = on;
    for (const std::uint16_t i : active_) {
      streams_[stream_id{i}].ahead->track_uses(on, map);
    }
    all_used_ = false;
  }

  /// Numbers of the streams with launches ahead, ascending: those with launches in flight, and of the idle ones some
  /// that launched last.
  [[nodiscard]] const sequence<std::uint16_t>& active() const { return active_; }
  [[nodiscard]] stream_forecast& stream(std::uint16_t number) { return streams_[stream_id{number}]; }
  /// Launches of other streams since the last one of a stream that has nothing in flight.
  [[nodiscard]] std::uint64_t idle_for(const stream_forecast& s) const {
    return s.ahead->issued() != 0 ? 0 : launches_ - s.last_issue;
  }
  /// Launches until a block is used; of all streams the one that is nearest.
  [[nodiscard]] std::uint64_t next_use(block_id b) const {
    std::uint64_t nearest = never;
    for (const std::uint16_t i : active_) {
      const stream_forecast& s = *streams_.find(stream_id{i});
      if (const std::optional<std::uint32_t> ahead = s.ahead->next_use(b)) {
        nearest = std::min(nearest, *ahead + idle_for(s));
      }
    }
    return nearest;
  }
  /// A launch in flight; null where it is none.
  [[nodiscard]] const upcoming_launch* find(launch_id launch, stream_id stream) const {
    const stream_forecast* const s = streams_.find(stream);
    if (s == nullptr || !s->ahead) {
      return nullptr;
    }
    const std::size_t at = s->ahead->place_of(launch);
    return at != s->ahead->issued() && (*s->ahead)[at].launch == launch ? &(*s->ahead)[at] : nullptr;
  }
  /// Launches in flight, in the order of issue, the first ones until the oldest of each stream is among them. One of
  /// the oldest can begin next.
  [[nodiscard]] std::size_t launches_up_to_heads() const {
    launch_id last{};
    for (const std::uint16_t i : active_) {
      const upcoming_launches& ahead = *streams_.find(stream_id{i})->ahead;
      if (ahead.issued() != 0 && (!last.valid() || last < ahead[0].launch)) {
        last = ahead[0].launch;
      }
    }
    std::size_t sum = 0;
    for (const std::uint16_t i : active_) {
      sum += streams_.find(stream_id{i})->ahead->place_of(launch_id{last.value + 1});
    }
    return sum;
  }
  /// Whether a use is known of every block on the device, as far as that has been looked at: since `found_all_used` no
  /// block has come that has none, and none has lost its last one.
  [[nodiscard]] bool knows_all_used() {
    for (const std::uint16_t i : active_) {
      all_used_ = !streams_[stream_id{i}].ahead->take_unused() && all_used_;
    }
    return all_used_;
  }
  void found_all_used() { all_used_ = true; }
  /// A plan found something to do for the launches ahead, or nothing. Where it is nothing for as many as are looked at,
  /// and nothing has left the device for as many, predictions reach no farther than `near_horizon` until something
  /// leaves or a plan finds work.
  void found_work(bool any) {
    const auto sees_far = [&](std::uint16_t i) {
      return stream(i).ahead->size() >= std::min(limits_.horizon, far_ahead);
    };
    rests_ = !any && (rests_ || (launches_ - last_departure_ >= limits_.horizon &&
                                 std::all_of(active_.begin(), active_.end(), sees_far)));
  }
  /// Launches come whose blocks cannot be known.
  [[nodiscard]] bool expects_surprises() const {
    return last_unsteady_ != 0 && launches_ - last_unsteady_ < unsteady_for;
  }
  [[nodiscard]] std::uint64_t launches() const { return launches_; }
  [[nodiscard]] std::size_t in_flight() const { return in_flight_; }
  [[nodiscard]] const history& past() const { return history_; }
  void append_uses(execution_id id, std::vector<block_access>& out) { needs_.append_uses(id, out); }

  /// Appends what was learned. The last launches of the streams belong to this run.
  void save(archive_writer& out) const {
    history_.save(out);
    needs_.save(out);
  }
  /// What was saved.
  struct tables {
    history launches;
    footprint_predictor needs{};
  };
  /// @param blocks  Of the arena; no others may be named.
  /// @errors        `status::bad_format`.
  [[nodiscard]] tables load(archive_reader& in, std::uint32_t blocks) const {
    tables loaded{history::load(in, recognises, predicts, limits_.max_execution_ids, limits_.max_execution_records)};
    loaded.needs.load(in, execution_id{loaded.launches.execution_ids()}, blocks);
    return loaded;
  }
  /// Begins with them. Nothing has been issued.
  void begin_with(tables learned) {
    history_ = std::move(learned.launches);
    needs_ = std::move(learned.needs);
  }

  [[nodiscard]] bytes memory() const {
    bytes sum = history_.memory() + needs_.memory();
    for (const std::uint16_t i : active_) {
      sum += streams_.find(stream_id{i})->ahead->memory();
    }
    return sum;
  }

 private:
  static constexpr recognition recognises = recognition::adaptive;
  static constexpr execution_table::match predicts = execution_table::match::longest_suffix;
  static constexpr std::size_t predictions_per_launch = 64;
  static constexpr std::size_t idle_streams_followed = 32;  // whose predictions are kept, where many are idle
  static constexpr std::uint64_t unsteady_for = 1024;       // launches after one whose blocks cannot be known

  static constexpr std::uint32_t far_ahead =
      1024;  // where so many launches miss nothing, nothing is taken to be missing

  [[nodiscard]] std::uint32_t horizon() const {
    return rests_ ? std::min(limits_.horizon, near_horizon) : limits_.horizon;
  }
  [[nodiscard]] stream_forecast fresh() const {
    return {.lookahead = limits_.lookahead, .predictions = predictions_per_launch};
  }
  stream_forecast& at(stream_id stream) {
    for (std::size_t i = streams_.size(); i <= stream.value; ++i) {
      streams_[stream_id{static_cast<std::uint16_t>(i)}] = fresh();
    }
    return streams_[stream];
  }
  stream_forecast& activated(stream_id stream) {
    stream_forecast& s = at(stream);
    if (!s.ahead) {
      review_active();
      s.ahead = std::make_unique<upcoming_launches>(tracks_uses_);
      active_.insert(std::lower_bound(active_.begin(), active_.end(), stream.value), stream.value);
    }
    return s;
  }
  // Walks the active streams when there are twice as many as the last walk left.
  void review_active() {
    if (active_.size() < active_reviewed_at_) {
      return;
    }
    idle_.clear();
    for (const std::uint16_t i : active_) {
      if (stream(i).ahead->issued() == 0) {
        idle_.push_back(i);
      }
    }
    if (idle_.size() > idle_streams_followed) {
      std::nth_element(
          idle_.begin(), idle_.begin() + idle_streams_followed, idle_.end(),
          [this](std::uint16_t a, std::uint16_t b) { return stream(a).last_issue > stream(b).last_issue; });
      std::for_each(idle_.begin() + idle_streams_followed, idle_.end(), [this](std::uint16_t i) { deactivate(i); });
      erase_if(active_, [this](std::uint16_t i) { return !stream(i).ahead; });
    }
    active_reviewed_at_ = std::max(2 * active_.size(), 2 * idle_streams_followed);
  }
  // Its predictions go, and come back the slower: it may well launch once only until it is looked at again.
  void deactivate(std::uint16_t number) {
    stream(number).ahead.reset();
    stream(number).predictions = 1;
    all_used_ = false;
  }
  void drop_predictions(std::uint16_t number, const block_map& map) {
    stream(number).ahead->drop_predictions(map);
    stream(number).tail = history_.context(stream_id{number});
  }

  predictor_limits limits_;
  history history_;
  footprint_predictor needs_{};
  detail::id_map<stream_id, stream_forecast> streams_{};
  sequence<std::uint16_t> active_{};
  std::size_t active_reviewed_at_ = 2 * idle_streams_followed;
  sequence<std::uint16_t> idle_{};     // of a review; kept for its memory
  sequence<execution_id> outdated_{};  // their needs are known better than `ahead` says
  bool tracks_uses_ = true;
  bool rests_ = false;  // nothing was missing when a plan looked far ahead, and nothing has left the device since
  std::uint64_t last_departure_ = 0;  // in `launches_`
  bool all_used_ = false;             // no block on the device was without a known use, as far as is known
  std::uint64_t launches_ = 0;
  std::size_t in_flight_ = 0;
  std::uint64_t last_unsteady_ = 0;  // in `launches_`: a launch whose blocks cannot be known
};

}  // namespace v0
}  // namespace deepum
