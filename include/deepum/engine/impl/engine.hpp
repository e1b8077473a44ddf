#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/engine.hpp>
#include <deepum/engine/inbox.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/rooms.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/engine/upload_desk.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/saved_tables.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

class engine::turn {
 public:
  explicit turn(engine& of) : of_(of), lock_(of.state_mutex_) { of_.absorb(); }
  ~turn() {
    of_.rooms_->out.issue_urgent();
    of_.rooms_->pressure.work_out();
  }
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;

 private:
  engine& of_;
  std::lock_guard<std::mutex> lock_;
};

DEEPUM_SEPARATE engine::engine(memory_space& space, std::unique_ptr<policy> chooser, engine_options chosen)
    : memory_(space),
      inbox_(space),
      rooms_((expects(chooser != nullptr, "an engine has a policy"),
              std::make_unique<detail::engine_rooms>(space, std::move(chooser), std::move(chosen), inbox_))),
      upload_desk_(std::make_unique<detail::upload_desk>(memory_, inbox_, rooms_->filled, rooms_->facts,
                                                         [this](const std::function<void()>& work) {
                                                           const turn mine(*this);
                                                           work();
                                                         })),
      pager_(rooms_->pager.get()) {
  rooms_->room.refresh();
  rooms_->room.refresh_neighbours();
  rooms_->pressure.work_out();
}

DEEPUM_SEPARATE engine::~engine() = default;

// --- launches --------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE stream_id engine::open_stream(std::optional<std::uint32_t> lookahead) {
  std::optional<stream_id> number = inbox_.take_stream_number(closed_streams_until_asked);
  if (!number) {
    catch_up();
    number = inbox_.take_stream_number(detail::inbox::most_streams);
  }
  if (!number) {
    throw error(status::unsupported,
                "65536 streams of this arena are open, or closed with launches that have not finished; this arena "
                "opens no more: close streams, or share them");
  }
  detail::message m{detail::message::kind::open_stream};
  m.lookahead = lookahead;
  m.record.stream = *number;
  inbox_.push(std::move(m));
  return *number;
}

DEEPUM_SEPARATE void engine::close_stream(stream_id s) {
  detail::message m{detail::message::kind::close_stream};
  m.record.stream = s;
  inbox_.push(std::move(m));
}

DEEPUM_SEPARATE bool engine::surely_fits(const launch_record& record) const {
  return pager_ == nullptr || pager_->surely_fits(record);
}

DEEPUM_SEPARATE void engine::check(launch_record& record) {
  if (!surely_fits(record)) {
    const turn mine(*this);
    pager_->check(record);
  }
}

DEEPUM_SEPARATE launch_id engine::report(launch_record&& record) { return inbox_.push_launch(std::move(record)); }

DEEPUM_SEPARATE launch_id engine::submit(launch_record&& record) {
  check(record);
  return report(std::move(record));
}

DEEPUM_SEPARATE void engine::abandon(launch_id id, stream_id stream) {
  if (memory_.capabilities().keeps_home_copy) {
    detail::message m{detail::message::kind::abandon};
    m.last = id;
    m.record.stream = stream;
    inbox_.push(std::move(m));
  }
}

DEEPUM_SEPARATE bool engine::ask_to_begin(launch_id id, stream_id stream, std::size_t outer) {
  bool hurry = false;
  {
    const turn mine(*this);
    if (rooms_->admitting.try_begin(id, stream, outer)) {
      return true;
    }
    hurry = rooms_->state.policy_due;  // else the pump would find nothing that it has not seen
  }
  if (hurry) {
    memory_.hurry();
  }
  return false;
}

DEEPUM_SEPARATE bool engine::admit(launch_id id) {
  const turn mine(*this);
  return rooms_->admitting.skip_policy(id);
}

DEEPUM_SEPARATE bool engine::let_pass(launch_id id) {
  const turn mine(*this);
  return rooms_->admitting.let_pass(id);
}

DEEPUM_SEPARATE bool engine::fits_beside(launch_id id, stream_id stream,
                                         std::span<const std::pair<launch_id, stream_id>> others) {
  if (others.empty()) {
    return true;
  }
  const std::lock_guard lock(state_mutex_);
  return rooms_->admitting.fits_beside(id, stream, others);
}

DEEPUM_SEPARATE void engine::keep(launch_id id, stream_id stream, std::span<const block_access> blocks) {
  if (pager_ != nullptr) {
    const turn mine(*this);
    rooms_->claims->pin(blocks, false);
    rooms_->state.kept.emplace_back(id, stream);
  }
}

DEEPUM_SEPARATE void engine::release_kept(launch_id id, std::span<const block_access> blocks) {
  if (pager_ != nullptr) {
    {
      const turn mine(*this);
      rooms_->claims->unpin(blocks, false);
      std::erase_if(rooms_->state.kept, [id](const auto& k) { return k.first == id; });
      rooms_->state.policy_due = true;
    }
    memory_.notify();
  }
}

DEEPUM_SEPARATE void engine::withdraw(launch_id id, stream_id stream) {
  const turn mine(*this);
  if (rooms_->state.held.find(id) != rooms_->state.held.end()) {
    (void)rooms_->admitting.take_back(id, stream);
  }
}

// --- facts -----------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE bool engine::tell_live(block_range range) {
  const bool at_once = inbox_.push_live(range);
  if (at_once) {
    memory_.repopulate(range);
  }
  return at_once;
}

DEEPUM_SEPARATE void engine::catch_up() { const turn mine(*this); }

DEEPUM_SEPARATE bool engine::settled(block_range range) {
  const turn mine(*this);
  return repopulated(range);
}

DEEPUM_SEPARATE void engine::dead(block_range range, liveness how, launch_id last) {
  expects(how != liveness::live, "a dead block is not live");
  detail::message m{detail::message::kind::dead};
  m.range = range;
  m.life = how;
  m.last = last;
  inbox_.push(std::move(m));
}

DEEPUM_SEPARATE void engine::host_access(block_range range, access mode) {
  detail::message m{detail::message::kind::host_access};
  m.range = range;
  m.mode = mode;
  inbox_.push(std::move(m));
}

// --- the host on memory that never faults ----------------------------------------------------------------------------

DEEPUM_SEPARATE void engine::begin_host_access(block_range range, access mode) {
  const turn mine(*this);
  rooms_->host->begin(range, mode);
}

DEEPUM_SEPARATE bool engine::host_may_use(block_range range, access mode, block_range whole) {
  {
    const turn mine(*this);
    if (!whole.empty()) {
      (void)rooms_->filled.forget(whole);
    }
    if (rooms_->host->may_use(range, mode)) {
      return true;
    }
  }
  memory_.notify();
  return false;
}

DEEPUM_SEPARATE bool engine::relieve_host() {
  {
    const turn mine(*this);
    if (!rooms_->host->relieve()) {
      return false;
    }
  }
  memory_.notify();
  return true;
}

DEEPUM_SEPARATE void engine::end_host_access(block_range range, access mode) {
  {
    const turn mine(*this);
    rooms_->host->end(range, mode);
  }
  memory_.notify();
}

// --- requests --------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void engine::prefetch(block_range range, location to) {
  detail::message m{detail::message::kind::request};
  m.request = to == memory_.places().runs_on() ? transfer::prefetch(to, reason::requested, range)
                                               : transfer::evict(to, reason::requested, range);
  inbox_.push(std::move(m));
}

DEEPUM_SEPARATE void engine::advise(block_range range, advice hint, location where) {
  detail::message m{detail::message::kind::request};
  m.request = driver_hint{.blocks = range, .what = hint, .where = where, .why = reason::requested};
  inbox_.push(std::move(m));
}

DEEPUM_SEPARATE void engine::discard(block_range range) {
  detail::message m{detail::message::kind::request};
  m.request = transfer::discard(reason::requested, range);
  inbox_.push(std::move(m));
}

DEEPUM_SEPARATE void engine::set_budget(bytes budget) {
  {
    const turn mine(*this);
    rooms_->options.budget = budget;
    rooms_->room.refresh();
    rooms_->state.policy_due = true;
  }
  memory_.notify();
}

DEEPUM_SEPARATE void engine::set_budget(location at, bytes budget) {
  expects(at.is_device() && at.index() < memory_.places().places(), "a budget for a place that holds blocks");
  if (at == memory_.places().runs_on()) {
    set_budget(budget);
    return;
  }
  {
    const turn mine(*this);
    rooms_->room.lend(at, budget);
    rooms_->state.policy_due = true;
  }
  memory_.notify();
}

DEEPUM_SEPARATE bool engine::within_budget(location at) {
  bool within = false;
  {
    const turn mine(*this);
    within = rooms_->state.ledger.occupied(at) <= rooms_->state.ledger.budget(at);
    rooms_->state.policy_due = rooms_->state.policy_due || !within;
  }
  if (!within) {
    memory_.notify();
  }
  return within;
}

DEEPUM_SEPARATE bytes engine::budget() const { return memory_.block() * rooms_->room.blocks(); }

DEEPUM_SEPARATE std::uint64_t engine::room_of_launches() const {
  if (pager_ == nullptr) {
    return rooms_->room.blocks();
  }
  const std::lock_guard lock(state_mutex_);
  const std::uint64_t most = rooms_->state.ledger.budget();
  return most - std::min(most, rooms_->claims->blocks_of_holds());
}

// --- state -----------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE statistics engine::snapshot() {
  const turn mine(*this);
  statistics s = rooms_->state.statistics;
  s.policy = rooms_->chooser->statistics();
  s.lost_faults = memory_.lost_faults();
  s.fault_feed = pager_ != nullptr ? "engine" : memory_.fault_source();
  return s;
}

DEEPUM_SEPARATE std::string_view engine::policy_name() const { return rooms_->chooser->name(); }

DEEPUM_SEPARATE std::vector<std::byte> engine::save_tables() {
  const turn mine(*this);
  return deepum::save_tables(*rooms_->chooser, memory_.block());
}

DEEPUM_SEPARATE void engine::load_tables(std::span<const std::byte> archive) {
  const std::lock_guard lock(state_mutex_);
  deepum::load_tables(*rooms_->chooser, archive, rooms_->state.ledger.size(), memory_.block());
}

// --- the pump --------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void engine::pump() {
  std::unique_ptr<long_work> work;
  {
    const turn mine(*this);
    inbox_.pumped();
    rooms_->room.pumped();
    work = plan_where_due();
  }
  while (work) {
    work->run();
    const turn mine(*this);
    rooms_->chooser->end_work(std::move(work), rooms_->state.ledger);
    rooms_->state.policy_due = true;
    work = plan_where_due();
  }
}

DEEPUM_SEPARATE std::unique_ptr<long_work> engine::plan_where_due() {
  if (std::exchange(rooms_->state.policy_due, false)) {
    if (pager_ != nullptr) {
      pager_->serve();
    }
    if (std::unique_ptr<long_work> work = plan_and_dispatch()) {
      return work;
    }
  }
  rooms_->admitting.settle();
  return nullptr;
}

DEEPUM_SEPARATE std::unique_ptr<long_work> engine::plan_and_dispatch() {
  detail::records& state = rooms_->state;
  plan& made = rooms_->made;
  for (unsigned round = 0; round < rounds_per_pump; ++round) {
    if (std::unique_ptr<long_work> work = rooms_->chooser->begin_work(state.ledger)) {
      return work;
    }
    made.clear();
    rooms_->chooser->plan_next(state.ledger, made);
    const bool nothing = made.empty() && !made.supersedes;
    rooms_->tier.complete(made);
    rooms_->out.enqueue(made);
    if (rooms_->pressure.close()) {
      read_inbox();
    }
    rooms_->out.dispatch();
    if (nothing || !state.queues.all([](const detail::transfer_queue& q) { return q.planned.empty(); })) {
      return nullptr;  // what waits is enough until something happens
    }
  }
  state.policy_due = true;  // a policy with this much to say goes on at the next pump
  return nullptr;
}

DEEPUM_SEPARATE void engine::absorb() {
  std::vector<device_event>& events = rooms_->events;
  events.clear();
  memory_.poll(events);
  read_inbox();
  rooms_->state.policy_due = rooms_->state.policy_due || !events.empty();
  for (const device_event& e : events) {
    rooms_->events_in.apply(e);
  }
  upload_desk_->advance();
  finished_up_to_.store(rooms_->state.launches.finished_up_to().value, std::memory_order_release);
}

DEEPUM_SEPARATE void engine::read_inbox() {
  std::vector<detail::message>& messages = rooms_->messages;
  inbox_.take(messages);
  for (detail::message& m : messages) {
    rooms_->facts_in.apply(m);
  }
  if (!messages.empty()) {
    rooms_->state.policy_due = true;
    messages.clear();
    rooms_->pressure.mark_stale();
  }
}

DEEPUM_SEPARATE bool engine::repopulated(block_range range) {
  if (rooms_->state.discarding(range)) {
    return false;
  }
  memory_.repopulate(range);
  return true;
}

}  // namespace v0
}  // namespace deepum
