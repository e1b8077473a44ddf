#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/error.hpp>
#include <deepum/planning/advisor.hpp>
#include <deepum/planning/dead_blocks.hpp>
#include <deepum/planning/partial_blocks.hpp>
#include <deepum/planning/plan_writer.hpp>
#include <deepum/planning/recurring_step.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/policy_options.hpp>
#include <deepum/prediction/execution_table.hpp>
#include <deepum/prediction/footprint_predictor.hpp>
#include <deepum/prediction/history.hpp>
#include <deepum/prediction/upcoming_launches.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// The library's default: plans a step that recurs as a whole and follows that plan; else it fetches in the order of
/// first need, and makes room by what is needed last (docs/adr/0005).
///
/// *A step that recurs* (`recurring_step`): which blocks are away in which part of the step is chosen once, so that
/// every launch finds room and the link has the time to bring back what left. The plan ends with the first launch that
/// is not the predicted one.
///
/// *Without a plan*: what a stream will execute is the launches that are issued, which is known, and after them the
/// predicted ones. Blocks that are missing are fetched in that order. Room comes from dead contents first, then from
/// the block whose next use is farthest away (Belady's rule): a block without a known next use counts as the farthest,
/// a clean one goes before a dirty one, then the least recently migrated one. A block is never given up for one that is
/// needed no sooner; when there is no other, prefetching waits. So the lookahead reaches as far as the budget can hold,
/// or N launches where N is given; where it is, no step is planned.
///
/// Launches that fault on other blocks in run after run are known by what they declare alone, and some room is kept
/// free for their faults.
///
/// Predictions choose what moves and when, and nothing else: contents are discarded only where they are dead, and
/// dropped only where the host's copy is current.
///
/// Several streams share the room. A stream that has nothing in flight falls back by one launch with each launch of the
/// others, so that one that is never used again does not hold its blocks for ever; and where many have nothing in
/// flight, only those that launched last are looked at. Where half of a stream's predictions
/// have been wrong lately, nothing is fetched for launches that are only predicted until they have been right for a
/// while.
///
/// Cost: a launch that comes as predicted adds one prediction, linear in its blocks. A plan walks the launches from
/// both ends of the horizon, and looks at the blocks only of those that miss something or that something is kept for.
/// It walks through all that is resident only while some of that has no known use.
class auto_policy final : public policy {
 public:
  explicit auto_policy(const policy_options& options = {})
      : options_(options),
        history_(recognises, predicts, options.max_execution_ids, options.max_execution_records),
        step_(options.longest_step, options.write_back) {}

  [[nodiscard]] std::string_view name() const override { return "auto"; }
  [[nodiscard]] std::uint32_t period() const override { return step_.period(); }

  void on_stream(stream_id stream, std::optional<std::uint32_t> lookahead) override {
    gate_.stir();
    at(stream).lookahead = lookahead ? lookahead : options_.lookahead;
  }

  void on_stream_closed(stream_id stream) override {
    gate_.stir();
    history_.close(stream);
    per_stream& s = at(stream);
    if (s.ahead) {
      deactivate(stream.value);
      std::erase(active_, stream.value);
    }
    closed_lost_trust_ += s.trust.times_lost();
    s = {};
  }

  void on_launch(const launch_record& record, const block_map& map) override {
    gate_.stir();
    const observation seen = history_.observe(record.stream, record.signature);
    per_stream& s = activated(record.stream);
    s.last_issue = ++launches_;
    s.trust.record(seen.was);
    if (seen.retired.valid()) {
      forget(seen.retired);
    }
    const working_set before = needs_.of(seen.id);
    needs_.declare(seen.id, record);
    const working_set now = needs_.of(seen.id);
    if (!seen.is_new && before != now) {
      outdated_.push_back(seen.id);
      step_.change();
    }
    if (!needs_.steady(seen.id)) {
      step_.change();
      last_unsteady_ = launches_;
    }
    step_.issue(seen.id, record.id);
    s.settled = std::min(s.settled, s.ahead->issued());
    ++in_flight_;
    if (!s.ahead->issue({seen.id, record.id, now})) {
      s.tail = seen.context;
    }
    if (step_.follower() == nullptr) {
      predict_further(s);
    }
    if (options_.advise) {
      advisor_.on_launch(seen.id, record, map);
    }
  }

  void on_finish(launch_id launch, stream_id stream, const block_map& map) override {
    gate_.stir();
    per_stream& s = at(stream);
    while (s.ahead && s.ahead->issued() != 0 && (*s.ahead)[0].launch <= launch) {
      const upcoming_launch& done = (*s.ahead)[0];
      if (needs_.finish(done.id, map)) {
        outdated_.push_back(done.id);
        step_.change();
      }
      --in_flight_;
      s.ahead->pop_front();
      step_.finish();
      s.settled -= s.settled != 0 ? 1 : 0;
    }
  }

  /// A fault that no launch can be held responsible for is credited to all that are executing.
  void on_fault(const fault_record& fault, const block_map& map) override {
    gate_.stir();
    if (step_follower* const follower = step_.follower()) {
      follower->surprised();
    }
    execution_id culprit{};
    for (const std::uint16_t i : active_) {
      const upcoming_launches& ahead = *streams_[i].ahead;
      const std::size_t at = fault.launch.valid() ? ahead.place_of(fault.launch) : 0;
      if (at >= ahead.issued() || (fault.launch.valid() && ahead[at].launch != fault.launch)) {
        continue;
      }
      const upcoming_launch& l = ahead[at];
      culprit = l.id;
      if (needs_.fault(l.id, fault.block, fault.mode)) {
        outdated_.push_back(l.id);
        step_.change();
      }
    }
    if (options_.advise) {
      advisor_.on_fault(fault, fault.launch.valid() ? culprit : execution_id{}, map);
    }
  }

  void on_migrated(block_range range, location to, const block_map& map) override {
    gate_.stir();
    for (const block_id b : range) {
      set_resident(b, map.resident(b));
    }
    if (step_follower* const follower = step_.follower()) {
      to == map.device() ? follower->arrived(range) : follower->left(range);
    }
    if (to != map.device()) {
      look_again(range);
    } else if (options_.prefetch) {
      partial_.note(range, map);
    }
  }
  void on_live(block_range range, const block_map&) override {
    gate_.stir();
    look_again(range);
  }
  void on_dead(block_range range, launch_id last, const block_map&) override {
    gate_.stir();
    if (options_.invalidate) {
      dead_.note(range);
      step_.death(range, last);
    }
  }
  /// What the host has just touched is not fetched for predictions until the program launches something: it may well go
  /// on touching it.
  void on_host_access(block_range range, access, const block_map&) override {
    gate_.stir();
    if (range.end_value() > held_by_host_.size()) {
      held_by_host_.resize(range.end_value());
    }
    for (const block_id b : range) {
      held_by_host_[b.value] = launches_ + 1;
    }
    look_again(range);
  }

  void plan_next(const block_map& map, plan& out) override {
    if (!gate_.open(map)) {
      return;
    }
    refresh_outdated();
    step_.prepare(map, [&](execution_id id, std::vector<block_access>& uses) { needs_.append_uses(id, uses); });
    step_follower* const follower = follows() ? step_.follower() : nullptr;
    if (options_.advise) {
      advisor_.write(out);
    }
    track_uses(follower == nullptr);
    if (follower != nullptr) {
      forget_predictions();
      dead_.forget_elsewhere(map, out);
      if (follower->wants_to_write(map, in_flight_)) {
        out.supersedes = true;
        partial_.write(map, out);
        follower->write(map, in_flight_, launches_up_to_heads(), dead_, out);
      }
      return;
    }
    out.supersedes = true;
    dead_.forget_elsewhere(map, out);
    missing_.clear();
    begin_marks(map);
    if (options_.prefetch) {
      partial_.write(map, out);
      collect_missing(map);
    }
    std::size_t placed = missing_.size();
    if (placed + room_for_faults(map) > map.room() || map.occupied() > map.budget()) {
      placed = make_room(map, out);
    }
    write_prefetches(map, out, placed);
  }

  [[nodiscard]] bool holds_launches() const override { return options_.prefetch && options_.hold_launches; }
  /// A launch begins when all that it needs is there, where that is known and fits.
  [[nodiscard]] bool ready(launch_id launch, stream_id stream, const block_map& map) const override {
    if (stream.value >= streams_.size() || !streams_[stream.value].ahead) {
      return true;
    }
    const upcoming_launches& ahead = *streams_[stream.value].ahead;
    const std::size_t at = ahead.place_of(launch);
    return at == ahead.issued() || ahead[at].launch != launch || all_there(map, *ahead[at].needs);
  }

  /// What the streams did last and the advice belong to this run.
  void save(archive_writer& out) const override {
    out.section(tag, [&] {
      out.put(false);  // a table that predicts blocks by pairs
      history_.save(out);
      needs_.save(out);
    });
  }
  void load(archive_reader& in, std::uint32_t blocks) override {
    expects(launches_ == 0, "a policy gets its tables before the first launch");
    footprint_predictor needs;
    auto launches = in.section(tag, [&] {
      if (in.get_bool()) {
        in.refuse("they predict blocks by pairs, this policy by footprints");
      }
      history loaded =
          history::load(in, recognises, predicts, options_.max_execution_ids, options_.max_execution_records);
      needs.load(in, execution_id{loaded.execution_ids()}, blocks);
      return loaded;
    });
    in.finish();
    history_ = std::move(launches);
    needs_ = std::move(needs);
  }

  [[nodiscard]] policy_statistics statistics() const override {
    bytes tables = history_.memory() + needs_.memory() + advisor_.memory() + step_.memory();
    for (const std::uint16_t i : active_) {
      tables += streams_[i].ahead->memory();
    }
    return {.launches = launches_,
            .predicted = history_.count(outcome::predicted),
            .mispredicted = history_.count(outcome::mispredicted),
            .unpredicted = history_.count(outcome::unpredicted),
            .table_bytes = tables.count,
            .execution_ids = history_.execution_ids()};
  }

  /// Whether blocks are fetched for this stream's predictions now.
  [[nodiscard]] bool trusts_predictions(stream_id stream) const {
    return stream.value >= streams_.size() || streams_[stream.value].trust.trusted();
  }
  /// Streams that a plan looks at: those with launches in flight, and of the idle ones some that launched last.
  [[nodiscard]] std::size_t streams_looked_at() const { return active_.size(); }
  /// How often that was switched off, for all streams.
  [[nodiscard]] std::uint64_t times_switched_off() const {
    std::uint64_t sum = closed_lost_trust_;
    for (const per_stream& s : streams_) {
      sum += s.trust.times_lost();
    }
    return sum;
  }

 private:
  static constexpr archive_tag tag = make_archive_tag("auto");
  static constexpr recognition recognises = recognition::adaptive;
  static constexpr execution_table::match predicts = execution_table::match::longest_suffix;

  // The predictions made for one launch at most; the horizon is reached little by little.
  static constexpr std::size_t predictions_per_launch = 64;
  static constexpr std::size_t idle_streams_followed = 32;  // whose predictions are kept, where many are idle
  static constexpr std::uint64_t unsteady_for = 1024;       // launches after one whose blocks cannot be known
  static constexpr bytes most_room_for_faults = 256_MiB;
  static constexpr std::size_t clean_among = 128;  // blocks beyond those wanted that are looked at, to find clean ones
  static constexpr std::uint64_t room_distance = 64;  // what is needed sooner does not leave for such room
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  struct per_stream {
    std::unique_ptr<upcoming_launches> ahead{};  // null: nothing is in flight or predicted
    execution_context tail{};                    // after the last predicted launch
    std::optional<std::uint32_t> lookahead{};
    prediction_trust trust{};
    std::size_t settled = 0;  // the blocks of that many launches need nothing
    std::uint64_t last_issue = 0;
    std::size_t predictions = predictions_per_launch;  // to be made for its next launch at most
  };
  struct missing_block {
    block_id block{};
    std::uint64_t distance = 0;
    bool issued = false;
  };
  // Distance, stream, and the place among the launches of that stream.
  using near_launch = std::tuple<std::uint64_t, std::uint16_t, std::size_t>;
  // In the order in which they are preferred.
  enum class victim_kind : std::uint8_t { dead, ordinary };
  struct victim {
    block_id block{};
    victim_kind kind = victim_kind::ordinary;
    bool clean = false;
    bool forced = false;  // the budget demands it
    std::uint64_t distance = 0;
    std::uint64_t migrated_at = 0;
  };

  per_stream& at(stream_id stream) {
    while (stream.value >= streams_.size()) {
      streams_.emplace_back();
      streams_.back().lookahead = options_.lookahead;
    }
    return streams_[stream.value];
  }

  // Only active streams, those with launches ahead, are looked at. Most that are open may be idle: of these, the ones
  // that launched last keep their predictions.
  per_stream& activated(stream_id stream) {
    per_stream& s = at(stream);
    if (!s.ahead) {
      review_active();
      s.ahead = std::make_unique<upcoming_launches>(resident_);
      s.ahead->track_uses(tracks_uses_);
      s.settled = 0;
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
      if (streams_[i].ahead->issued() == 0) {
        idle_.push_back(i);
      }
    }
    if (idle_.size() > idle_streams_followed) {
      std::nth_element(
          idle_.begin(), idle_.begin() + idle_streams_followed, idle_.end(),
          [this](std::uint16_t a, std::uint16_t b) { return streams_[a].last_issue > streams_[b].last_issue; });
      std::for_each(idle_.begin() + idle_streams_followed, idle_.end(), [this](std::uint16_t i) { deactivate(i); });
      std::erase_if(active_, [this](std::uint16_t i) { return !streams_[i].ahead; });
    }
    active_reviewed_at_ = std::max(2 * active_.size(), 2 * idle_streams_followed);
  }
  // Its predictions go, and come back the slower: it may well launch once only until it is looked at again.
  void deactivate(std::uint16_t stream) {
    per_stream& s = streams_[stream];
    s.ahead.reset();
    s.predictions = 1;
  }

  // --- what will be executed ---

  void predict_further(per_stream& s) {
    for (std::size_t i = 0;
         i != s.predictions && s.ahead->size() < options_.horizon && s.ahead->use_count() < options_.max_upcoming_uses;
         ++i) {
      const std::optional<execution_id> next = history_.predict(s.tail);
      if (!next) {
        return;
      }
      s.tail.push(*next);
      s.ahead->predict(*next, needs_.of(*next));
    }
    s.predictions = std::min(2 * s.predictions, predictions_per_launch);
  }

  void forget(execution_id retired) {
    needs_.forget(retired);
    step_.forget(retired);
    advisor_.forget(retired);
    for (const std::uint16_t i : active_) {
      streams_[i].ahead->drop_predictions();
      streams_[i].tail = history_.context(stream_id{i});
    }
  }

  void refresh_outdated() {
    if (outdated_.empty()) {
      return;
    }
    std::sort(outdated_.begin(), outdated_.end());
    for (const std::uint16_t a : active_) {
      per_stream& s = streams_[a];
      for (std::size_t i = 0; i != s.ahead->size(); ++i) {
        const execution_id id = (*s.ahead)[i].id;
        if (std::binary_search(outdated_.begin(), outdated_.end(), id)) {
          s.ahead->replace_needs(i, needs_.of(id));
          s.settled = std::min(s.settled, i);
        }
      }
    }
    outdated_.clear();
  }

  // A step is followed by fetching and making room; where one of them is switched off there is no plan to follow.
  [[nodiscard]] bool follows() const { return options_.prefetch && options_.pre_evict && !options_.lookahead; }
  // Launches in flight, in the order of issue, the first ones until the oldest of each stream is among them. One of the
  // oldest can begin next.
  [[nodiscard]] std::size_t launches_up_to_heads() const {
    launch_id last{};
    for (const std::uint16_t i : active_) {
      const upcoming_launches& ahead = *streams_[i].ahead;
      if (ahead.issued() != 0 && (!last.valid() || last < ahead[0].launch)) {
        last = ahead[0].launch;
      }
    }
    std::size_t sum = 0;
    for (const std::uint16_t i : active_) {
      sum += streams_[i].ahead->place_of(launch_id{last.value + 1});
    }
    return sum;
  }
  // While a step is followed, what comes next is in its plan.
  void forget_predictions() {
    for (const std::uint16_t i : active_) {
      per_stream& s = streams_[i];
      if (s.ahead->size() != s.ahead->issued()) {
        s.ahead->drop_predictions();
        s.tail = history_.context(stream_id{i});
      }
    }
  }

  // The next uses of blocks are of no interest while a plan says what moves, and cost time.
  void track_uses(bool on) {
    if (tracks_uses_ == on) {
      return;
    }
    tracks_uses_ = on;
    for (const std::uint16_t i : active_) {
      streams_[i].ahead->track_uses(on);
      streams_[i].settled = 0;
    }
  }

  // What is known of who is on the device; it may lag behind the block map.
  void set_resident(block_id b, bool resident) {
    if (b.value >= resident_.size()) {
      resident_.resize(std::size_t{b.value} + 1);
    }
    if (resident_[b.value] != resident) {
      resident_[b.value] = resident;
      resident_count_ += resident ? 1 : std::size_t(-1);
      for (const std::uint16_t i : active_) {
        streams_[i].ahead->set_resident(b, resident);
      }
    }
  }

  // Something may be missing again.
  void look_again(block_range range) {
    if (step_follower* const follower = step_.follower()) {
      follower->look_again(range);
    }
    if (!tracks_uses_) {
      return;
    }
    for (const std::uint16_t i : active_) {
      per_stream& s = streams_[i];
      for (const block_id b : range) {
        s.settled = std::min<std::size_t>(s.settled, s.ahead->next_use(b).value_or(never));
      }
    }
  }

  [[nodiscard]] std::uint64_t idle_for(const per_stream& s) const {
    return s.ahead->issued() != 0 ? 0 : launches_ - s.last_issue;
  }

  // Launches until the block is used; of all streams the one that is nearest.
  [[nodiscard]] std::uint64_t next_use(block_id b) const {
    std::uint64_t nearest = never;
    for (const std::uint16_t i : active_) {
      const per_stream& s = streams_[i];
      if (const std::optional<std::uint32_t> ahead = s.ahead->next_use(b)) {
        nearest = std::min(nearest, *ahead + idle_for(s));
      }
    }
    return nearest;
  }

  [[nodiscard]] bool held_by_host(block_id b) const {
    return b.value < held_by_host_.size() && held_by_host_[b.value] == launches_ + 1;
  }

  [[nodiscard]] static bool all_there(const block_map& map, const std::vector<block_range>& needs) {
    std::uint64_t count = 0;
    bool there = true;
    for (const block_range r : needs) {
      count += r.count;
      for (std::uint32_t b = r.begin_value(); b != r.end_value() && there; ++b) {
        there = map.ready(block_id{b}) || detail::is_dead(map[block_id{b}]);
      }
    }
    return there || count > map.budget();
  }

  // --- planning ---

  // Launches of the stream for which blocks are fetched.
  [[nodiscard]] static std::size_t reach(const per_stream& s) {
    std::size_t reach = s.trust.trusted() ? s.ahead->size() : s.ahead->issued();
    if (s.lookahead) {
      reach = std::min<std::size_t>(reach, std::size_t{*s.lookahead} + 1);
    }
    return reach;
  }

  // A block has a part in a plan once.
  void begin_marks(const block_map& map) {
    if (++plan_number_ == 0) {
      std::fill(planned_.begin(), planned_.end(), 0);
      plan_number_ = 1;
    }
    planned_.resize(map.size());
  }

  // The blocks that are missing, those that are needed first in front, as many as one plan may ask for.
  void collect_missing(const block_map& map) {
    const std::uint32_t most = detail::blocks_per_plan(map);
    // Of each stream the first launch that may miss something; the nearest of all in front.
    nearest_.clear();
    const auto look_from = [&](std::uint16_t stream, std::size_t at) {
      per_stream& s = streams_[stream];
      const std::size_t end = reach(s);
      for (; at < end && s.ahead->missed_by(at) == 0; ++at) {
        s.settled += s.settled == at ? 1 : 0;
      }
      if (at < end) {
        nearest_.emplace_back(at + idle_for(s), stream, at);
        std::push_heap(nearest_.begin(), nearest_.end(), std::greater<>{});
      }
    };
    for (const std::uint16_t i : active_) {
      look_from(i, streams_[i].settled);
    }
    while (!nearest_.empty()) {
      std::pop_heap(nearest_.begin(), nearest_.end(), std::greater<>{});
      const auto [distance, stream, at] = nearest_.back();
      nearest_.pop_back();
      per_stream& s = streams_[stream];
      const bool all_there = collect_missing_of(map, (*s.ahead)[at], distance, most);
      if (missing_.size() == most) {
        return;
      }
      s.settled += all_there && s.settled == at ? 1 : 0;
      look_from(stream, at + 1);
    }
  }
  bool collect_missing_of(const block_map& map, const upcoming_launch& l, std::uint64_t distance, std::uint32_t most) {
    bool all_there = true;
    for (const block_range r : *l.needs) {
      for (const block_id b : r) {
        if (map.present(b) || detail::is_dead(map[b])) {
          if (map.resident(b)) {
            set_resident(b, true);
          }
          continue;
        }
        all_there = false;
        if (planned_[b.value] == plan_number_ || (!l.issued() && held_by_host(b))) {
          continue;
        }
        planned_[b.value] = plan_number_;
        missing_.push_back({b, distance, l.issued()});
        if (missing_.size() == most) {
          return false;
        }
      }
    }
    return all_there;
  }

  // Plans what has to leave for the missing blocks, and for the budget. Returns how many of them have room then.
  std::size_t make_room(const block_map& map, plan& out) {
    const std::int64_t room = detail::room_to_come(map);
    const std::size_t excess = room < 0 ? static_cast<std::size_t>(-room) : 0;
    const std::size_t free = room > 0 ? static_cast<std::size_t>(room) : 0;
    // The room for faults is for them and for launches that are issued.
    const std::size_t reserve = room_for_faults(map);
    const auto issued = static_cast<std::size_t>(
        std::count_if(missing_.begin(), missing_.end(), [](const missing_block& m) { return m.issued; }));
    std::size_t placed = std::min(missing_.size(), std::max(std::min(issued, free), free - std::min(free, reserve)));
    const std::size_t kept_free = reserve - std::min(reserve, free - placed);
    collect_victims(map, excess + missing_.size() - placed + kept_free, excess);

    std::size_t taken = std::min(excess, victims_.size());
    for (std::size_t i = 0; i != taken; ++i) {
      victims_[i].forced = true;
    }
    while (excess <= taken && placed < missing_.size() && taken < victims_.size() &&
           may_replace(victims_[taken], missing_[placed])) {
      ++placed;
      ++taken;
    }
    for (std::size_t i = 0; i != kept_free && taken != victims_.size() && victims_[taken].distance > room_distance;
         ++i) {
      ++taken;
    }
    victims_.resize(taken);
    write_evictions(map, out);
    return placed;
  }
  // Blocks that are kept free while launches come whose blocks cannot be known, so that their faults find room and do
  // not wait for something to leave.
  [[nodiscard]] std::size_t room_for_faults(const block_map& map) const {
    const bool expected = last_unsteady_ != 0 && launches_ - last_unsteady_ < unsteady_for;
    return expected && options_.pre_evict ? std::min(map.blocks_in(most_room_for_faults), map.budget() / 16) : 0;
  }
  [[nodiscard]] static bool may_replace(const victim& v, const missing_block& m) {
    return v.kind == victim_kind::dead || v.distance > m.distance;
  }

  // The `count` blocks that should leave first, in that order; fewer where the rest is needed no later than all that is
  // missing. Dead ones, those without a known use, then from the farthest launch on.
  void collect_victims(const block_map& map, std::size_t count, std::size_t excess) {
    victims_.clear();
    collect_dead(map);
    if (!options_.pre_evict) {
      count = excess;
    }
    std::size_t kept = 0;
    for (const std::uint16_t i : active_) {
      kept += streams_[i].ahead->kept();
    }
    if (victims_.size() < count && (active_.size() > 1 || kept < resident_count_)) {
      const std::size_t from = victims_.size();
      const std::size_t enough = count + clean_among;
      std::size_t clean = 0;  // once there are enough of them, no later one would go before them
      map.for_each_least_recently_migrated([&](block_id b) {
        set_resident(b, true);
        if (next_use(b) == never && consider(map, b, never)) {
          clean += victims_.back().clean ? 1 : 0;
        }
        return victims_.size() < enough && from + clean < count;
      });
      sort_equals(from, count);
    }
    collect_farthest(map, count, excess);
    // Those that are to be had for nothing are taken first, but not more than are needed.
    victims_.resize(std::min(victims_.size(), std::max(count, excess)));
  }
  void collect_dead(const block_map& map) {
    dead_.for_each_on_device(map, [&](block_id b) {
      if (planned_[b.value] != plan_number_) {
        planned_[b.value] = plan_number_;
        victims_.push_back({.block = b, .kind = victim_kind::dead, .distance = never});
      }
    });
  }
  void collect_farthest(const block_map& map, std::size_t count, std::size_t excess) {
    const std::uint64_t nearest = excess != 0 || missing_.empty() ? 0 : missing_.front().distance;
    // Of each stream the last launch that something is kept for; the farthest of all in front, of equals the stream
    // with the lowest number.
    farthest_.clear();
    const auto look_before = [&](std::uint16_t stream, std::size_t end) {
      const per_stream& s = streams_[stream];
      while (end != 0 && s.ahead->kept_for(end - 1) == 0) {
        --end;
      }
      if (end != 0 && end - 1 + idle_for(s) > nearest) {
        farthest_.emplace_back(end - 1 + idle_for(s), static_cast<std::uint16_t>(~stream), end - 1);
        std::push_heap(farthest_.begin(), farthest_.end());
      }
    };
    if (victims_.size() < count) {
      for (const std::uint16_t i : active_) {
        look_before(i, streams_[i].ahead->size());
      }
    }
    while (victims_.size() < count && !farthest_.empty()) {
      std::pop_heap(farthest_.begin(), farthest_.end());
      const auto [distance, inverted, at] = farthest_.back();
      farthest_.pop_back();
      const auto stream = static_cast<std::uint16_t>(~inverted);
      const std::size_t from = victims_.size();
      const working_set needs = (*streams_[stream].ahead)[at].needs;
      for (const block_range r : *needs) {
        for (const block_id b : r) {
          set_resident(b, map.resident(b));
          if (map.resident(b) && next_use(b) == distance) {
            consider(map, b, distance);
          }
        }
      }
      sort_equals(from, count);
      look_before(stream, at);
    }
  }
  // Returns whether the block may leave.
  bool consider(const block_map& map, block_id b, std::uint64_t distance) {
    const block_state& s = map[b];
    const bool soon_free = options_.invalidate && detail::is_dead(s);  // a launch in flight may still touch it
    if (s.moving != motion::none || soon_free || planned_[b.value] == plan_number_) {
      return false;
    }
    planned_[b.value] = plan_number_;
    victims_.push_back({.block = b,
                        .clean = s.copies.at(location::host()) && !s.dirty,
                        .distance = distance,
                        .migrated_at = s.migrated_at});
    return true;
  }
  // Those from `from` on are needed equally late: a clean one leaves first, then the least recently migrated one.
  void sort_equals(std::size_t from, std::size_t count) {
    const auto place = [&](std::size_t i) { return victims_.begin() + static_cast<std::ptrdiff_t>(i); };
    std::partial_sort(
        place(from), place(std::clamp(count, from, victims_.size())), victims_.end(),
        [](const victim& x, const victim& y) { return x.clean != y.clean ? x.clean : x.migrated_at < y.migrated_at; });
  }

  void write_evictions(const block_map& map, plan& out) {
    // Those that are equal but for their age, in the order of addresses, so that they make ranges.
    std::sort(victims_.begin(), victims_.end(), [](const victim& a, const victim& b) {
      if (a.forced != b.forced) {
        return a.forced;
      }
      if (a.kind != b.kind) {
        return a.kind < b.kind;
      }
      return a.distance != b.distance ? a.distance > b.distance : a.block < b.block;
    });
    for (const victim& v : victims_) {
      command c{.what = action::evict, .why = reason::make_room, .to = location::host()};
      if (v.kind != victim_kind::ordinary) {
        c.what = action::discard;
        c.why = reason::dead;
      } else {
        c.what = v.clean && map[v.block].users == 0 ? action::drop : action::evict;
        c.why = v.forced ? reason::over_budget : reason::make_room;
      }
      detail::append(out, c, v.block, detail::blocks_per_command(map));
    }
  }

  void write_prefetches(const block_map& map, plan& out, std::size_t count) {
    const std::uint32_t per_command = detail::blocks_per_command(map);
    const std::uint32_t per_plan = detail::blocks_per_plan(map);
    std::size_t from = out.commands.size();
    for (std::size_t i = 0; i != count; ++i) {
      const missing_block& m = missing_[i];
      const bool at_once = count <= map.room();
      if (i == map.room()) {
        from = out.commands.size();  // what has room now does not wait for the rest
      }
      detail::append(
          out, {.what = action::prefetch, .why = m.issued ? reason::issued : reason::predicted, .to = map.device()},
          m.block, at_once ? per_plan : per_command, from);
    }
  }

  policy_options options_;
  history history_;
  footprint_predictor needs_{};
  advisor advisor_{};
  std::vector<per_stream> streams_{};    // by number
  std::vector<std::uint16_t> active_{};  // those of them with launches ahead, ascending
  std::size_t active_reviewed_at_ = 2 * idle_streams_followed;
  bool tracks_uses_ = true;
  std::uint64_t closed_lost_trust_ = 0;  // how often closed streams have
  recurring_step step_;
  std::vector<execution_id> outdated_{};       // their needs are known better than `ahead` says
  std::vector<std::uint64_t> held_by_host_{};  // by block: `launches_` + 1 when the host touched it last
  std::size_t in_flight_ = 0;
  std::uint64_t last_unsteady_ = 0;  // in `launches_`: a launch whose blocks cannot be known
  std::uint64_t launches_ = 0;

  std::vector<bool> resident_{};  // by block
  std::size_t resident_count_ = 0;
  detail::dead_blocks dead_{};
  detail::partial_blocks partial_{};
  detail::plan_gate gate_{};

  // Of the plan being made; kept for their memory.
  std::vector<missing_block> missing_{};
  std::vector<victim> victims_{};
  std::vector<near_launch> nearest_{};
  std::vector<near_launch> farthest_{};
  std::vector<std::uint16_t> idle_{};
  std::vector<std::uint32_t> planned_{};  // by block: the plan that it had a part in last
  std::uint32_t plan_number_ = 0;
};

}  // namespace v0
}  // namespace deepum
