#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/demand_paging.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/engine/migration_state.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/error.hpp>
#include <deepum/log.hpp>
#include <deepum/policy/plan.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/saved_tables.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// How an engine treats its device.
struct engine_options {
  bytes budget{};                            ///< device memory to hold at most; 0: what is free, less the headroom
  bytes headroom{std::uint64_t{512} << 20};  ///< left free where no budget is given
  std::uint32_t commands_in_flight =
      0;                    ///< on each link at a time; 0: the memory's choice, or 2: one moves, one is ready
  bytes bytes_in_flight{};  ///< on each link at a time, bounds what a new plan cannot take back; 0: the memory's, or
                            ///< 256 MiB
  std::uint32_t failures_until_pause = 8;  ///< commands that fail in a row before prefetching pauses
  std::uint64_t launches_of_pause = 1024;  ///< launches that finish before it is tried again
  /// Takes messages for people, one line each. Called by the migration thread under the engine's lock.
  std::function<void(std::string_view)> log = default_log();
  /// Sees every device event with the launch it belongs to (invalid where that is ambiguous), and what the engine adds
  /// to them (see `device_event`). Called like `log`.
  std::function<void(const device_event&, launch_id)> observer{};
};

/// Orders all migrations of one arena on one device.
///
/// Program threads report launches and facts; they go through one inbox, so that the facts of all threads are in one
/// order (docs/adr/0001). `pump` takes them and what the device reports, tells the policy, asks it for plans and issues
/// commands:
///
/// * faults, finishes and facts first, commands last, so that a plan made for the newest fault replaces what older
///   plans had not yet issued;
/// * each direction in the order of the plan, a bounded number of commands at a time; no direction waits for the other,
///   except that a prefetch waits for room;
/// * an eviction waits while a launch declares the block that is executing, or held back as the next one of its stream:
///   else launches that wait would take blocks from each other for ever. Evicting what later launches need is safe on
///   managed memory, and whether it is wise is the policy's to say: where the program runs a whole step ahead of the
///   device, every block is needed by some launch in flight;
/// * the law: contents are given up only where facts say that the block is dead as a whole, and behind every launch in
///   flight that was issued before it died. A whole overwrite by a launch in flight is not enough here: nothing orders
///   a command on managed memory before a launch that is already in its stream (docs/adr/0003).
///
/// On backed memory (`backed_memory_kind`) what a block costs depends on its contents: what has none gets room without
/// a copy, and what the host has a current copy of gives its room up without one. A block is cleaned only while no
/// launch in flight may write it, and is clean only if none was submitted meanwhile.
///
/// On memory that never faults (`faultless_memory_kind`) `detail::demand_paging` takes the driver's place: a launch
/// begins when all that it declares is there, and gets what it misses before anything that is planned.
///
/// Hints may fail: that is counted, logged once and rolled back, and nothing throws.
///
/// Threads: every public call may be made by any thread, `pump` included. Lock order: see docs/architecture.md.
template <memory_kind Memory>
class engine {
 public:
  /// @param memory   Outlives the engine. Its worker calls `pump`; it must not do so any more when the engine is
  ///                 destroyed.
  /// @param chooser  The policy. Called by one thread at a time.
  engine(Memory& memory, std::unique_ptr<policy> chooser, engine_options options)
      : memory_(memory),
        block_(detail::block_of(memory)),
        options_(std::move(options)),
        policy_(checked(std::move(chooser))),
        state_(static_cast<std::uint32_t>(memory.capacity() / block_), memory.place(), block_),
        demand_(memory, state_, *policy_) {
    choose_depth();
    state_.map.set_backed(backed);
    holds_launches_ = faultless || policy_->holds_launches();
    if constexpr (detail::may_miss_faults<Memory>) {
      saw_faults_ = memory.sees_faults();
    }
    refresh_budget();
  }
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  /// @name Launches. Cost: one push under the inbox lock.
  /// @{

  /// @param lookahead  Degree N of lookahead for this stream; nothing: the policy's own.
  /// @returns          Its number. One that a closed stream had is given out again when all launches of that one have
  ///                   finished and the policy has been told.
  /// @errors           `status::unsupported` where 65536 streams are open.
  stream_id open_stream(std::optional<std::uint32_t> lookahead) {
    message m{message::kind::open_stream};
    m.lookahead = lookahead;
    std::optional<stream_id> number = take_stream_number(closed_streams_until_asked);
    if (!number) {
      catch_up();
      number = take_stream_number(most_streams);
    }
    if (!number) {
      throw error(
          status::unsupported,
          "65536 streams of this arena are open, or closed with launches that have not finished; it numbers no more: "
          "close streams, or share them");
    }
    m.record.stream = *number;
    push(std::move(m));
    return *number;
  }
  /// Its launches have finished, as far as the device is concerned.
  void close_stream(stream_id s) {
    message m{message::kind::close_stream};
    m.record.stream = s;
    push(std::move(m));
  }

  /// Whether a launch can begin at all. Comes before `report`.
  /// @param record  With everything but its number. Where it may touch anything, on memory that never faults, all that
  ///                is alive becomes its operands.
  /// @errors        On memory that never faults: `status::out_of_device_memory` where the launch can never begin,
  ///                `status::invalid_argument` where the host is using what it touches.
  void check([[maybe_unused]] launch_record& record) {
    if constexpr (faultless) {
      if (!demand_.surely_fits(record)) {
        std::lock_guard lock(state_mutex_);
        absorb();
        demand_.check(record);
      }
    }
  }
  /// A launch is about to be issued to the device. Called before it is, and after `check`.
  /// @returns  Its number.
  launch_id report(launch_record&& record) {
    message m{message::kind::launch};
    m.record = std::move(record);
    return push(std::move(m));
  }
  /// Both.
  launch_id submit(launch_record&& record) {
    check(record);
    return report(std::move(record));
  }
  /// A launch that was admitted will not run, or not as a whole: what it declared to overwrite is as it was before.
  /// Comes before the launch ends.
  void abandon(launch_id id, stream_id stream) {
    if constexpr (backed) {
      message m{message::kind::abandon};
      m.last = id;
      m.record.stream = stream;
      push(std::move(m));
    }
  }

  /// Whether a launch may be given to the device now: the policy brings nothing for it any more (docs/adr/0004). The
  /// program asks again until it may, or calls `admit`. Without a lock where all that is alive fits the budget.
  ///
  /// A launch for which nothing moves and behind nothing that executes is always admitted: what it misses will fault.
  /// On memory that never faults it is admitted when all of it is there.
  /// @param outer  Launches of this arena whose bodies are making it, and which end behind it.
  /// @errors  On memory that never faults: `status::out_of_device_memory`, `status::out_of_host_memory` where it can
  ///          never begin. Then it was taken back.
  [[nodiscard]] bool admitted(launch_id id, stream_id stream, std::size_t outer = 0) {
    if (!holds_launches_ || !have_to_ask_.load(std::memory_order_relaxed)) {
      return true;
    }
    {
      std::lock_guard lock(state_mutex_);
      absorb();
      if (may_begin(id, stream, outer)) {
        return true;
      }
    }
    if constexpr (detail::can_hurry<Memory>) {
      memory_.hurry();
    } else {
      memory_.notify();
    }
    return false;
  }
  /// A launch has waited too long. @returns  Whether it is given to the device as it is; else it has to go on waiting.
  bool admit(launch_id id) {
    std::lock_guard lock(state_mutex_);
    const auto it = state_.find_held(id);
    if (it == state_.held.end()) {
      return true;
    }
    if constexpr (faultless) {
      it->let_go = true;  // the policy is not waited for any more
      state_.stirred = true;
      return false;
    }
    state_.statistics.unprepared_launches += it->let_go ? 0 : 1;
    release(it);
    return true;
  }

  /// Whether a launch that is held back could be on the device together with others that have not finished.
  /// @param others  Those that are, each with its stream. Cost: nothing where there are none.
  [[nodiscard]] bool fits_beside(launch_id id, stream_id stream,
                                 std::span<const std::pair<launch_id, stream_id>> others) {
    if (others.empty()) {
      return true;
    }
    std::lock_guard lock(state_mutex_);
    launch_record together;
    const auto add = [&](launch_id which, stream_id on) {
      if (const launch_record* r = state_.launches.find(which, on)) {
        together.accesses.insert(together.accesses.end(), r->accesses.begin(), r->accesses.end());
      }
    };
    add(id, stream);
    for (const auto& [which, on] : others) {
      add(which, on);
    }
    return detail::distinct_blocks(together) <= state_.map.budget();
  }
  /// A launch that has asked and was not admitted will not be given to the device after all. Nothing where it is not
  /// held back any more.
  void withdraw(launch_id id, stream_id stream) {
    std::lock_guard lock(state_mutex_);
    absorb();
    if (state_.find_held(id) != state_.held.end()) {
      (void)take_back(id, stream);
    }
  }

  /// The launch that was submitted last; invalid where there was none.
  [[nodiscard]] launch_id last_launch() const { return launch_id{last_launch_.load(std::memory_order_acquire)}; }
  /// This launch and all before it, on every stream, are known to have finished.
  [[nodiscard]] launch_id finished_up_to() const { return launch_id{finished_up_to_.load(std::memory_order_acquire)}; }
  [[nodiscard]] bool finished(launch_id id) const { return id <= finished_up_to(); }
  /// @}

  /// @name Facts.
  /// @{

  /// Contents of the blocks matter from now on: discards of them that were not issued are cancelled. Cost: one push
  /// under the inbox lock; the state lock while discards are asked for, planned or on their way, where what is alive
  /// may not fit the budget, and on memory that never faults.
  /// @returns  False while a discard of one of the blocks is on its way. The memory must not be used before `settled`.
  [[nodiscard]] bool live(block_range range) { return tell_live(range) || settled(range); }
  /// The same in the order of launches and facts, without a wait for any lock but that of the inbox.
  /// @returns  Whether the memory may be used now. Else `settled` says so, which has to be asked in any case.
  [[nodiscard]] bool tell_live(block_range range) {
    const bool at_once = push_live(range);
    if (at_once) {
      renew(range);
    }
    return at_once;
  }
  /// So much has been reported since the last `pump` that the program should wait for the next one: the memory for what
  /// is reported, and for what a policy notes of it until it plans, is bounded. Pumps come whatever the device does. No
  /// lock.
  [[nodiscard]] bool crowded() const { return crowded_.load(std::memory_order_relaxed); }
  /// Takes in what happened up to now, so that `finished` knows of it; plans nothing.
  void catch_up() {
    std::lock_guard lock(state_mutex_);
    absorb();
  }
  /// No discard of these blocks is on its way.
  [[nodiscard]] bool settled(block_range range) {
    std::lock_guard lock(state_mutex_);
    absorb();
    return renewed(range);
  }
  /// The blocks hold nothing of value any more, as a whole.
  /// @param how   `unallocated` or `inactive`.
  /// @param last  The last launch that may still use them.
  void dead(block_range range, liveness how, launch_id last) {
    expects(how != liveness::live, "a dead block is not live");
    message m{message::kind::dead};
    m.range = range;
    m.life = how;
    m.last = last;
    push(std::move(m));
  }
  /// The host is about to read or write the blocks of a memory kind where it uses the same addresses.
  void host_access(block_range range, access mode) {
    message m{message::kind::host_access};
    m.range = range;
    m.mode = mode;
    push(std::move(m));
  }
  /// @}

  /// @name The host on memory that never faults
  /// A read needs contents that are current on the host, a write blocks that are not on the device and stay away from
  /// it.
  /// @{

  /// From now on the host uses the blocks, as soon as it may.
  void begin_host_access(block_range range, access mode)
    requires faultless_memory_kind<Memory>
  {
    std::lock_guard lock(state_mutex_);
    absorb();
    demand_.begin_host_access(range, mode);
    note_pressure();
  }
  /// Whether it may. Asks for what that takes.
  /// @errors  `status::out_of_host_memory`, `status::device_failure` where the blocks cannot get there.
  [[nodiscard]] bool host_may_use(block_range range, access mode)
    requires faultless_memory_kind<Memory>
  {
    {
      std::lock_guard lock(state_mutex_);
      absorb();
      if (demand_.host_may_use(range, mode)) {
        return true;
      }
    }
    memory_.notify();
    return false;
  }
  /// The host has no memory for more blocks: copies of it that the device has too are given up, and blocks that only
  /// the host has go to the device where there is room.
  /// @returns  Whether it is worth to ask for memory again.
  [[nodiscard]] bool relieve_host()
    requires faultless_memory_kind<Memory>
  {
    {
      std::lock_guard lock(state_mutex_);
      absorb();
      if (!demand_.relieve_host()) {
        return false;
      }
    }
    memory_.notify();
    return true;
  }
  /// It does not any more.
  void end_host_access(block_range range, access mode)
    requires faultless_memory_kind<Memory>
  {
    {
      std::lock_guard lock(state_mutex_);
      demand_.end_host_access(range, mode);
    }
    memory_.notify();
  }
  /// @}

  /// @name Requests of the program. They go before what the policy plans, and are not forgotten when it plans anew.
  /// @{

  /// Move blocks. Room is not made for it: what does not fit when nothing is under way is dropped and counted, and so
  /// is what comes while 1024 requests wait.
  void prefetch(block_range range, location to) {
    message m{message::kind::request};
    m.request = {
        .what = to.is_host() ? action::evict : action::prefetch, .why = reason::requested, .to = to, .range = range};
    push(std::move(m));
  }
  void advise(block_range range, advice hint, location where) {
    message m{message::kind::request};
    m.request = {.what = action::advise, .why = reason::requested, .hint = hint, .to = where, .range = range};
    push(std::move(m));
  }
  /// Give the contents of blocks up. Blocks that a launch in flight may touch are left alone, and counted as dropped.
  /// The memory must not be used before `settled`.
  void discard(block_range range) {
    message m{message::kind::request};
    m.request = {.what = action::discard, .why = reason::requested, .range = range};
    push(std::move(m));
  }
  /// @}

  /// Device memory to hold at most. @param budget  0: what is free, less the headroom, refreshed now and then.
  void set_budget(bytes budget) {
    {
      std::lock_guard lock(state_mutex_);
      options_.budget = budget;
      refresh_budget();
      state_.stirred = true;
    }
    memory_.notify();
  }
  [[nodiscard]] bytes budget() const {
    std::lock_guard lock(state_mutex_);
    return block_ * state_.map.budget();
  }

  /// What has been done so far, up to this moment.
  [[nodiscard]] statistics snapshot() {
    std::lock_guard lock(state_mutex_);
    absorb();
    statistics s = state_.statistics;
    s.policy = policy_->statistics();
    if constexpr (detail::may_miss_faults<Memory>) {
      s.lost_faults = memory_.lost_faults();
      s.fault_feed = memory_.fault_feed();
    } else if constexpr (faultless) {
      s.fault_feed = "engine";
    }
    return s;
  }
  [[nodiscard]] std::string_view policy_name() const { return policy_->name(); }

  /// What the policy has learned up to this moment, for the next run of the program. Holds the state lock for as long
  /// as that takes, which is linear in its tables.
  [[nodiscard]] std::vector<std::byte> save_tables() {
    std::lock_guard lock(state_mutex_);
    absorb();
    return deepum::save_tables(*policy_, block_);
  }
  /// The policy begins with what an earlier run saved. Called before any stream is opened.
  /// @errors  Those of `deepum::load_tables`; then the policy knows nothing.
  void load_tables(std::span<const std::byte> archive) {
    std::lock_guard lock(state_mutex_);
    deepum::load_tables(*policy_, archive, state_.map.size(), block_);
  }

  /// Takes what happened, tells the policy, plans, issues. Never waits for the device, never throws.
  void pump() {
    std::lock_guard lock(state_mutex_);
    absorb();
    {
      std::lock_guard inbox(inbox_mutex_);
      reported_ = 0;
      crowded_.store(false, std::memory_order_relaxed);
    }
    if (options_.budget.count == 0 && ++pumps_ % pumps_per_refresh == 0) {
      refresh_budget();
    }
    if (std::exchange(state_.stirred, false)) {
      if constexpr (faultless) {
        demand_.serve();
      }
      plan_and_issue();
    }
    if constexpr (faultless) {
      demand_.settle();
    } else {
      admit_if_stuck();
    }
    note_pressure();
  }

 private:
  static std::unique_ptr<policy> checked(std::unique_ptr<policy> chooser) {
    expects(chooser != nullptr, "an engine has a policy");
    return chooser;
  }

  void plan_and_issue() {
    for (unsigned round = 0; round < rounds_per_pump; ++round) {
      plan_.clear();
      policy_->plan_next(state_.map, plan_);
      const bool nothing = plan_.commands.empty() && !plan_.supersedes;
      enqueue();
      issue();
      if (nothing || !state_.inward.planned.empty() || !state_.outward.planned.empty()) {
        return;  // what waits is enough until something happens
      }
    }
    state_.stirred = true;  // a policy with this much to say goes on at the next pump
  }

  struct message {
    enum class kind : std::uint8_t { open_stream, close_stream, launch, abandon, dead, live, host_access, request };
    explicit message(kind k) : what(k) {}

    kind what;
    access mode = access::read;
    liveness life = liveness::live;
    std::optional<std::uint32_t> lookahead{};
    block_range range{};
    launch_id last{};
    command request{};
    launch_record record{};
  };

  static constexpr bool backed = backed_memory_kind<Memory>;
  static constexpr bool faultless = faultless_memory_kind<Memory>;
  static constexpr unsigned rounds_per_pump = 16;     // plans taken from a policy before the lock is given up
  static constexpr unsigned pumps_per_refresh = 64;   // asking for the free memory is a system call on a real device
  static constexpr std::size_t most_requests = 1024;  // hints of the program that wait in one direction
  static constexpr std::size_t most_messages = 4096;  // between two pumps, before the program waits
  static constexpr std::uint32_t most_streams = 1U << 16U;         // that `stream_id` can tell apart
  static constexpr std::uint32_t closed_streams_until_asked = 64;  // whether they are over, before more are numbered

  // --- inbox -------------------------------------------------------------------------------------------------------

  /// A launch is numbered here, under the lock, so that numbers are in the order of the inbox.
  launch_id push(message&& m) {
    launch_id id{};
    push(std::move(m), [&](message& put) {
      if (put.what == message::kind::launch) {
        id = launch_id{last_launch_.load(std::memory_order_relaxed) + 1};
        put.record.id = id;
        last_launch_.store(id.value, std::memory_order_release);
      }
      discards_ = discards_ || asks_for_discard(put);
      streams_closing_ += put.what == message::kind::close_stream ? 1 : 0;
    });
    return id;
  }
  /// @param closing  Nothing is found where so many closed streams still have their numbers and no other has been given
  ///                 back: numbers stay small, and so does all that is kept by them.
  std::optional<stream_id> take_stream_number(std::uint32_t closing) {
    std::lock_guard lock(inbox_mutex_);
    if (!free_streams_.empty()) {
      const stream_id number = free_streams_.back();
      free_streams_.pop_back();
      return number;
    }
    if (next_stream_ == most_streams || streams_closing_ >= closing) {
      return std::nullopt;
    }
    return stream_id{static_cast<std::uint16_t>(next_stream_++)};
  }
  /// The number of a stream is free when the stream has been closed and nothing of it is in flight.
  void give_back_if_over(stream_id s) {
    if (state_.launches.over(s)) {
      policy_->on_stream_closed(s);
      std::lock_guard lock(inbox_mutex_);
      free_streams_.push_back(s);
      --streams_closing_;
    }
  }
  /// @returns  Whether no block is given up before this has been read, and launches need not wait for room because of
  ///           it.
  bool push_live(block_range range) {
    message m{message::kind::live};
    m.range = range;
    bool at_once = false;
    push(std::move(m), [&](const message& put) {
      at_once = !faultless && !discards_ && put.range.count <= spare_;
      spare_ -= at_once ? put.range.count : 0;
    });
    return at_once;
  }
  /// @param note  Called under the inbox lock.
  template <class Note>
  void push(message&& m, Note&& note) {
    bool first = false;
    {
      std::lock_guard lock(inbox_mutex_);
      note(m);
      first = inbox_.empty();
      inbox_.push_back(std::move(m));
      crowded_.store(++reported_ >= most_messages, std::memory_order_relaxed);
    }
    if (first) {
      memory_.notify();
    }
  }
  static bool asks_for_discard(const message& m) {
    return m.what == message::kind::request && m.request.what == action::discard;
  }

  /// Takes in what the program and the device report. The device is asked first: whatever it reports of a launch, the
  /// launch itself was in the inbox before.
  void absorb() {
    events_.clear();
    memory_.poll(events_);
    take_inbox();
    state_.stirred = state_.stirred || !events_.empty();
    for (const device_event& e : events_) {
      take(e);
    }
    finished_up_to_.store(state_.launches.finished_up_to().value, std::memory_order_release);
  }

  void take_inbox() {
    unread_ = false;
    {
      std::lock_guard lock(inbox_mutex_);
      discards_ =
          discards_ && !(state_.discards.idle() && std::none_of(inbox_.begin(), inbox_.end(), asks_for_discard));
      std::swap(inbox_, taken_);
    }
    for (message& m : taken_) {
      take(m);
    }
    if (!taken_.empty()) {
      state_.stirred = true;
      taken_.clear();
      note_spare();
    }
  }

  /// How many blocks may come alive until it is asked again. To be called when others have, or the budget has changed.
  void note_spare() {
    if constexpr (!faultless) {
      std::uint64_t live = state_.live;
      std::lock_guard lock(inbox_mutex_);
      for (const message& m : inbox_) {
        live += m.what == message::kind::live ? m.range.count : 0;
      }
      spare_ = state_.map.budget() - std::min<std::uint64_t>(live, state_.map.budget());
    }
  }

  void take(message& m) {
    switch (m.what) {
      case message::kind::open_stream:
        state_.launches.open(m.record.stream);
        policy_->on_stream(m.record.stream, m.lookahead);
        break;
      case message::kind::close_stream:
        state_.launches.close(m.record.stream);
        give_back_if_over(m.record.stream);
        break;
      case message::kind::launch:
        take_launch(std::move(m.record));
        break;
      case message::kind::abandon:
        if (const launch_record* record = state_.launches.find(m.last, m.record.stream)) {
          remember_contents(*record);
        }
        break;
      case message::kind::dead:
        take_death(m);
        break;
      case message::kind::live:
        revive(m.range);
        break;
      case message::kind::host_access:
        if (m.mode != access::read) {
          for_each_block(m.range, [&](block_id b) {
            // Contents on the device are on their way to the host then, and the device will report that.
            if (!state_.map[b].copies.at(state_.map.device())) {
              state_.map.write_on_host(b);
            }
          });
        }
        policy_->on_host_access(m.range, m.mode, state_.map);
        break;
      case message::kind::request:
        take_request(m.request);
        break;
    }
  }

  /// Hints that come faster than anything moves are left out.
  void take_request(const command& c) {
    std::deque<command>& requested = lane_of(c.what).requested;
    if (c.what != action::discard && requested.size() >= most_requests) {
      state_.statistics.dropped += c.range.count;
      return;
    }
    requested.push_back(c);
  }

  void take_launch(launch_record&& r) {
    const launch_record& record = state_.launches.issue(std::move(r));
    ++state_.statistics.launches;
    if (options_.observer) {
      options_.observer({.what = device_event::kind::launch_issued, .at = memory_.now(), .record = &record}, record.id);
    }
    std::uint64_t declared = 0;
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) { state_.map.add_user(b, a.mode); });
      declared += a.range.count;
    }
    state_.holds += record.hold ? 1 : 0;
    if constexpr (faultless) {
      demand_.pin(record);  // until it is known to be held back
    }
    if constexpr (backed) {
      take_writes(record);
    }
    end_read_mostly(record);
    if (declared > state_.map.budget() && detail::distinct_blocks(record) > state_.map.budget()) {
      ++state_.statistics.oversized_launches;
      log_once(logged_oversized_, "launch '" + record.name + "' touches more than the budget of " +
                                      std::to_string(state_.map.budget()) +
                                      " blocks; what fits is prefetched and the rest faults (logged once)");
    }
    policy_->on_launch(record, state_.map);
  }

  /// What a launch that was submitted says about contents that the host has.
  ///
  /// A copy to the host that is being made may be stale when it is done. And the contents of a block that the launch
  /// overwrites as a whole are dead where nothing else in flight may touch it: every earlier launch has finished, host
  /// stores that were reported are earlier, and whatever comes later sees what this launch writes. Nothing is given up
  /// by forgetting them while the device has none of them, so no command has to be ordered before the launch.
  void take_writes(const launch_record& record) {
    if (!record.complete) {
      for (const detail::outstanding& o : state_.outward.issued) {
        if (o.what.what == action::clean) {
          for_each_block(o.what.range, [&](block_id b) { state_.notes[b.value].spoiled = true; });
        }
      }
    }
    for (const block_access& a : record.accesses) {
      if (a.mode == access::read) {
        continue;
      }
      for_each_block(a.range, [&](block_id b) {
        detail::block_note& n = state_.notes[b.value];
        n.spoiled = true;
        n.forgotten_by = 0;  // what the host has may be older than what an earlier launch writes
        if (a.mode == access::overwrite && state_.map[b].users == 1 && !incomplete_in_flight() &&
            !state_.map.present(b) && state_.still(b)) {
          n.forgotten_by = state_.map[b].copies.at(location::host()) ? record.id.value : 0;
          state_.map.forget(b);
        }
      });
    }
  }
  /// A launch will not run: what it would have overwritten is what the host has, and the device has room alone.
  void remember_contents(const launch_record& record) {
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) {
        if (state_.notes[b.value].forgotten_by == record.id.value) {
          state_.notes[b.value].forgotten_by = 0;
          state_.map.remember(b);
          leave_if_hollow(b);
        }
      });
    }
  }
  /// What has no contents on the device, and has some on the host, comes again when it has left.
  void leave_if_hollow(block_id b) {
    if (backed && state_.map.hollow(b) && state_.still(b)) {
      state_.outward.requested.push_back(
          {.what = action::drop, .why = reason::requested, .to = location::host(), .range = {b, 1}});
      state_.stirred = true;
    }
  }

  /// What a launch will write is read-mostly no longer, before the launch can begin: the driver takes a write to a
  /// duplicated page for an exception, and serves it page by page.
  void end_read_mostly(const launch_record& record) {
    for (const block_access& a : record.accesses) {
      if (a.mode == access::read) {
        continue;
      }
      for_each_run(
          a.range, [&](block_id b) { return state_.notes[b.value].read_mostly; },
          [&](block_range run) {
            advise(
                {.what = action::advise, .hint = advice::unset_read_mostly, .to = state_.map.device(), .range = run});
          });
    }
  }

  // --- admission ---------------------------------------------------------------------------------------------------

  bool may_begin(launch_id id, stream_id stream, std::size_t outer) {
    if constexpr (faultless) {
      if (demand_.hopeless(id)) {
        const launch_record record = take_back(id, stream);
        throw demand_.refusal(record);
      }
      return demand_.may_begin(id, stream, outer, [this](auto it) { release(it); });
    }
    const auto it = state_.find_held(id);
    const bool held = it != state_.held.end();
    if ((held && it->let_go) || !pressed() || state_.paused() || policy_->ready(id, stream, state_.map)) {
      if (held) {
        release(it);
      }
      return true;
    }
    if (!held) {
      state_.hold_back(*state_.launches.find(id, stream), memory_.now(), outer);
    }
    return false;
  }
  /// A launch that was held back will not be given to the device.
  /// @returns  What it was.
  launch_record take_back(launch_id id, stream_id stream) {
    state_.take_back(state_.find_held(id));
    launch_record record = *state_.launches.finish(id, {}, last_finish_, false);
    remember_contents(record);
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) { state_.map.remove_user(b, a.mode); });
    }
    policy_->on_finish(id, stream, state_.map);
    give_back_if_over(stream);
    if constexpr (faultless) {
      demand_.moved();
    }
    ++state_.statistics.refused_launches;
    if (options_.observer) {
      options_.observer({.what = device_event::kind::launch_refused, .launch = id, .at = memory_.now()}, id);
    }
    state_.stirred = true;
    note_pressure();
    return record;
  }
  /// Something may be missing when a launch begins: what is alive does not fit, or is on its way, or no driver would
  /// bring it.
  [[nodiscard]] bool pressed() const {
    if constexpr (faultless) {
      return !demand_.all_there();
    }
    return backed || state_.oversubscribed() || !state_.inward.idle();
  }
  /// A launch that was held back has to ask until it is let go, also when all fits by then.
  /// Whoever did not ask before is in the inbox: a launch is put there first, and asks then. So whoever is put there
  /// after the inbox was read next has seen that it has to ask.
  void note_pressure() {
    const bool ask = pressed() || !state_.held.empty();
    unread_ = unread_ || (ask && !have_to_ask_.load(std::memory_order_relaxed));
    have_to_ask_.store(ask, std::memory_order_relaxed);
  }
  /// While others execute, a launch that is held back costs no time.
  void release(typename std::vector<detail::held_launch>::iterator it) {
    if (state_.nothing_executes()) {
      const nanoseconds now = memory_.now();
      const nanoseconds since = std::max(it->since, last_finish_);
      state_.statistics.stalled += std::max(now - since, nanoseconds{});
      if (options_.observer && now > since) {
        options_.observer({.what = device_event::kind::launch_released, .at = now, .began = since}, it->id);
      }
    }
    state_.let_go(it);
    note_pressure();
  }
  /// Nothing executes, nothing moves, and all have said what they have to: then nothing will ever get ready.
  void admit_if_stuck() {
    if (!state_.held.empty() && !state_.stirred && state_.nothing_executes() && state_.nothing_moves() &&
        !state_.held.front().let_go) {
      state_.held.front().let_go = true;
      ++state_.statistics.unprepared_launches;
    }
  }

  void revive(block_range range) {
    for_each_block(range, [&](block_id b) { set_liveness(b, liveness::live); });
    policy_->on_live(range, state_.map);
  }
  /// The policy hears of what had been alive until now: contents die once.
  void take_death(const message& m) {
    const auto was_alive = [&](block_id b) { return state_.map[b].life == liveness::live; };
    block_range rest = m.range;
    while (!rest.empty()) {
      const bool died = was_alive(rest.first);
      const std::uint32_t run = count_prefix(rest, [&](block_id b) { return was_alive(b) == died; });
      const block_range part{rest.first, run};
      for_each_block(part, [&](block_id b) {
        set_liveness(b, m.life);
        state_.notes[b.value].dead_after = m.last.value;
      });
      if (died) {
        policy_->on_dead(part, m.last, state_.map);
      }
      advance(rest, run);
    }
  }
  void set_liveness(block_id b, liveness life) {
    state_.live += life == liveness::live ? 1 : 0;
    state_.live -= state_.map[b].life == liveness::live ? 1 : 0;
    state_.note_live();
    state_.map.set_liveness(b, life);
    if constexpr (faultless) {
      if (life == liveness::live) {
        demand_.became_alive(b);
      }
    }
    note_pressure();
  }

  // --- device events -----------------------------------------------------------------------------------------------

  void take(const device_event& e) {
    launch_id launch = e.launch;
    device_event seen = e;
    if (const detail::outstanding* o = options_.observer ? find(e.ticket) : nullptr) {
      seen.why = o->what.why;
      seen.did = o->what.what;
      seen.range = e.range.empty() ? o->what.range : e.range;
    }
    switch (e.what) {
      case device_event::kind::launch_finished:
        take_finish(e);
        break;
      case device_event::kind::fault:
        launch = e.timed ? state_.launches.executing_at(e.at) : launch_id{};
        take_fault(e, launch);
        break;
      case device_event::kind::arrived:
        take_arrival(e);
        break;
      case device_event::kind::departed:
        take_departure(e);
        break;
      case device_event::kind::completed:
        failures_in_a_row_ = 0;
        retire(e.ticket, true);
        break;
      case device_event::kind::failed:
        retire(e.ticket, false, take_failure());
        break;
      case device_event::kind::copied:
        break;
      case device_event::kind::launch_issued:
      case device_event::kind::launch_released:
      case device_event::kind::launch_refused:
        return;  // no memory kind reports them
    }
    if (options_.observer) {
      options_.observer(seen, launch);
    }
  }

  void take_finish(const device_event& e) {
    const std::optional<launch_record> record = state_.launches.finish(e.launch, e.began, e.at, e.timed);
    if (!record) {
      return;
    }
    ++state_.statistics.finished;
    state_.note_live();
    state_.holds -= record->hold ? 1 : 0;
    if constexpr (faultless) {
      demand_.unpin(*record);
    }
    state_.statistics.stalled += e.stalled;
    last_finish_ = e.at;
    if constexpr (detail::may_miss_faults<Memory>) {
      if (!memory_.sees_faults()) {
        if (std::exchange(saw_faults_, false)) {
          say("the fault feed is lost; what launches do not declare is not learned any more");
        }
        take_unseen_faults(*record, e.at);
      }
    }
    for (const block_access& a : record->accesses) {
      for_each_block(a.range, [&](block_id b) {
        state_.map.remove_user(b, a.mode);
        if (a.mode != access::read && state_.map.resident(b)) {
          written(b);
        }
        if (state_.notes[b.value].forgotten_by == record->id.value) {
          state_.notes[b.value].forgotten_by = 0;
        }
        if (std::exchange(state_.notes[b.value].prefetched_at, 0) != 0) {
          ++state_.statistics.prefetches_used;
        }
      });
    }
    if (!record->complete) {
      incomplete_finished_at_ = ++clock_;
      if (host_copies_stay_) {  // it may have written any of them
        state_.map.for_each_least_recently_migrated([&](block_id b) {
          written(b);
          return true;
        });
      }
    }
    policy_->on_finish(record->id, record->stream, state_.map);
    give_back_if_over(record->stream);
  }
  /// A launch wrote the block on the device. Where that has room alone, the launch was abandoned.
  void written(block_id b) {
    if (state_.map.hollow(b)) {
      return;
    }
    const bool newly = !state_.map[b].dirty;
    state_.map.write(b);
    if (newly) {
      note_host_copy(b);
    }
  }
  /// The host's copy may have become of no use.
  void note_host_copy([[maybe_unused]] block_id b) {
    if constexpr (faultless) {
      demand_.note_host_copy(b);
    }
  }

  /// Nobody tells of faults: what a launch declared, and was not there, is there now.
  void take_unseen_faults(const launch_record& record, nanoseconds at) {
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) {
        if (!state_.map.present(b)) {
          take(device_event{.what = device_event::kind::arrived, .why = reason::fault, .range = {b, 1}, .at = at});
        }
      });
    }
  }

  void take_fault(const device_event& e, launch_id launch) {
    ++state_.statistics.faults;
    const block_id b = e.range.first;
    detail::block_note& n = state_.notes[b.value];
    if (state_.map[b].moving == motion::arriving && !n.late) {
      n.late = true;
      ++state_.statistics.prefetches_late;
    }
    policy_->on_fault({b, e.mode, launch, e.at}, state_.map);
  }

  void take_arrival(const device_event& e) {
    const detail::outstanding* o = find(e.ticket);
    const reason why = o != nullptr ? o->what.why : e.why;
    if constexpr (faultless) {
      demand_.moved();
    }
    host_copies_stay_ = host_copies_stay_ || e.host_copy_stays;
    for_each_block(e.range, [&](block_id b) {
      detail::block_note& n = state_.notes[b.value];
      if (!state_.map.resident(b)) {
        count(state_.statistics.in, why, !state_.map[b].copies.empty());
        n.prefetched_at = o != nullptr && why != reason::fault && !n.late ? ++clock_ : 0;
      }
      if (!backed) {
        state_.map.arrive(b, e.host_copy_stays, o != nullptr);
      } else if (state_.map[b].copies.empty() || (o != nullptr && n.room_only)) {
        state_.map.arrive_empty(b);
        leave_if_hollow(b);
      } else {
        state_.map.arrive(b, !state_.map[b].dirty);  // what is dirty was there, and stays so
      }
    });
    policy_->on_migrated(e.range, state_.map.device(), state_.map);
  }

  void take_departure(const device_event& e) {
    const detail::outstanding* o = find(e.ticket);
    const bool discarded = o != nullptr && o->what.what == action::discard;
    if constexpr (faultless) {
      demand_.moved();
    }
    for_each_block(e.range, [&](block_id b) {
      if (!state_.map.resident(b)) {
        return;  // it had not arrived as far as we know: the end of its command settles it
      }
      detail::block_note& n = state_.notes[b.value];
      if (n.prefetched_at > incomplete_finished_at_) {
        ++state_.statistics.prefetches_wasted;
      }
      n.prefetched_at = 0;
      if (discarded) {
        gone(b);
      } else {
        const bool copied = backed && o != nullptr ? o->what.what == action::evict : state_.map[b].dirty;
        count(state_.statistics.out, o != nullptr ? o->what.why : e.why, copied);
        state_.map.depart(b);
      }
    });
    policy_->on_migrated(e.range, location::host(), state_.map);
  }

  /// @returns  Whether the same command may do better next time.
  bool take_failure() {
    if constexpr (faultless) {
      if (demand_.may_try_again()) {
        return true;
      }
    }
    failed("a migration");
    return false;
  }

  /// A command is done, or has failed. Blocks that it did not report stayed where they were.
  /// @param again  It failed for a reason that is gone.
  void retire(std::uint64_t ticket, bool done, bool again = false) {
    for (detail::lane* l : {&state_.inward, &state_.outward, &state_.discards}) {
      const auto it = std::find_if(l->issued.begin(), l->issued.end(),
                                   [ticket](const detail::outstanding& o) { return o.ticket == ticket; });
      if (it == l->issued.end()) {
        continue;
      }
      const command c = it->what;
      l->blocks -= c.range.count;
      l->issued.erase(it);
      if constexpr (faultless) {
        demand_.ended(c, done, again);
      }
      for_each_block(c.range, [&](block_id b) {
        if (state_.notes[b.value].ticket != ticket) {
          return;
        }
        detail::block_note& n = state_.notes[b.value];
        n.ticket = 0;
        if (std::exchange(n.discarding, false) && done) {
          gone(b);
        } else if (state_.map[b].moving == motion::arriving) {
          state_.map.cancel_arriving(b);
        } else if (state_.map[b].moving == motion::cleaning && done) {
          state_.statistics.out.bytes[static_cast<unsigned>(c.why)] += block_.count;
          if (n.spoiled) {
            state_.map.stop_moving(b);
          } else {
            state_.map.clean(b);
          }
        } else {
          state_.map.stop_moving(b);
        }
        if (c.why == reason::keep && done && state_.map.resident(b)) {
          state_.map.touch_migrated(b);
        }
        note_host_copy(b);  // whatever became of the command
      });
      return;
    }
  }

  /// A block's contents have been given up.
  void gone(block_id b) {
    state_.map.discard(b);
    state_.notes[b.value].prefetched_at = 0;
    state_.notes[b.value].discarding = false;
    note_host_copy(b);
    ++state_.statistics.discarded;
  }

  [[nodiscard]] const detail::outstanding* find(std::uint64_t ticket) const {
    if (ticket != 0) {
      for (const detail::lane* l : {&state_.inward, &state_.outward, &state_.discards}) {
        for (const detail::outstanding& o : l->issued) {
          if (o.ticket == ticket) {
            return &o;
          }
        }
      }
    }
    return nullptr;
  }

  // --- plans -------------------------------------------------------------------------------------------------------

  /// Takes the plan over into the queues.
  void enqueue() {
    if (plan_.supersedes) {
      ++plans_;
      for (const command& c : plan_.commands) {
        if (c.what == action::prefetch) {
          for_each_block(c.range, [&](block_id b) { state_.notes[b.value].planned_in = plans_; });
        }
      }
      for (const command& c : state_.inward.planned) {
        cancel(c);
      }
      state_.inward.planned.clear();
      state_.outward.planned.clear();
      state_.discards.planned.clear();
    }
    for (const command& c : plan_.commands) {
      if (c.what == action::clean && !backed) {  // a copy that leaves the device's one is something else there
        state_.statistics.dropped += c.range.count;
      } else if (c.what == action::discard) {
        enqueue_discard(c);
      } else {
        lane_of(c.what).planned.push_back(c);
      }
    }
  }

  /// The law: what no fact calls dead is not even queued.
  void enqueue_discard(command c) {
    block_range rest = c.range;
    while (!rest.empty()) {
      const std::uint32_t dead = count_prefix(rest, [&](block_id b) { return state_.map[b].life != liveness::live; });
      if (dead > 0) {
        c.range = {rest.first, dead};
        state_.discards.planned.push_back(c);
        advance(rest, dead);
      } else {
        ++state_.statistics.refused;
        advance(rest, 1);
      }
    }
  }

  /// A command is forgotten. What the new plan has again was not cancelled.
  void cancel(const command& c) {
    if (c.what == action::prefetch) {
      for_each_block(c.range, [&](block_id b) {
        if (std::exchange(state_.notes[b.value].planned_in, plans_) != plans_) {
          ++state_.statistics.prefetches_cancelled;
        }
      });
    }
  }

  // --- issuing -----------------------------------------------------------------------------------------------------

  void issue() {
    if constexpr (faultless) {
      // Launches that saw all there was in place have not asked, and nothing of theirs may leave.
      if (!(state_.outward.idle() && state_.discards.idle())) {
        demand_.something_leaves();
        note_pressure();
        if (unread_) {
          take_inbox();
        }
      }
    }
    issue_discards();
    issue_outward();
    issue_inward();
  }

  void issue_inward() {
    while (std::deque<command>* queue = waiting(state_.inward)) {
      command& c = queue->front();
      if (c.what == action::advise) {
        advise(c);
        queue->pop_front();
        continue;
      }
      if (c.why != reason::requested && c.why != reason::fault && state_.paused()) {
        ++plans_;
        cancel(c);
        queue->pop_front();
        continue;
      }
      const bool keep = c.why == reason::keep;
      advance(c.range, count_prefix(c.range, [&](block_id b) {
                return state_.map[b].life == liveness::unallocated ||
                       (state_.map.present(b) != keep && !state_.going(b)) || kept_off(b) ||
                       (keep && state_.notes[b.value].ticket != 0);
              }));
      if (c.range.empty()) {
        queue->pop_front();
        continue;
      }
      if (state_.going(c.range.first)) {
        return;  // it can come back when it has left
      }
      if (keep && backed) {  // no driver looks at the order
        state_.map.touch_migrated(c.range.first);
        advance(c.range, 1);
        continue;
      }
      const std::uint32_t most = std::min(c.range.count, keep ? c.range.count : room());
      if (most == 0) {
        if (c.why != reason::requested || !state_.nothing_executes() || !state_.outward.idle() ||
            !state_.discards.idle()) {
          return;  // room comes when something leaves
        }
        state_.statistics.dropped += c.range.count;
        queue->pop_front();
        continue;
      }
      const bool empty = state_.map[c.range.first].copies.empty();
      const bool at_once = backed && empty;  // no copy, so the link does not matter
      if (!at_once && full(state_.inward)) {
        return;
      }
      const std::uint32_t limit = at_once ? most : std::min(most, blocks_left(state_.inward));
      const std::uint32_t run = count_prefix({c.range.first, limit}, [&](block_id b) {
        return state_.map[b].life != liveness::unallocated && !state_.going(b) && !kept_off(b) &&
               state_.map.present(b) == keep && (!keep || state_.notes[b.value].ticket == 0) &&
               (!backed || state_.map[b].copies.empty() == empty);
      });
      const command piece = take_piece(*queue, run);
      if (const std::uint64_t ticket = begin(state_.inward, piece, bring(piece.range, empty), "a prefetch")) {
        for_each_block(piece.range, [&](block_id b) {
          state_.notes[b.value].ticket = ticket;
          state_.notes[b.value].room_only = at_once;
          state_.notes[b.value].late = false;
          if (!keep) {
            state_.map.start_arriving(b);
          }
        });
      }
    }
  }

  /// A copy in two places is of use only where blocks have to leave.
  void advise(const command& c) {
    if (c.range.empty() ||
        (c.hint == advice::set_read_mostly && c.why == reason::learned && !state_.oversubscribed())) {
      return;
    }
    if (!memory_.advise(c.range, c.hint, c.to)) {
      failed("advice");
      return;
    }
    if (c.hint == advice::set_read_mostly || c.hint == advice::unset_read_mostly) {
      for_each_block(c.range,
                     [&](block_id b) { state_.notes[b.value].read_mostly = c.hint == advice::set_read_mostly; });
    }
  }

  void issue_outward() {
    while (std::deque<command>* queue = waiting(state_.outward)) {
      command& c = queue->front();
      if (c.what == action::clean) {
        if (full(state_.outward)) {
          return;
        }
        issue_clean(*queue);
        continue;
      }
      const auto refuses = [&](block_id b) {  // what is being cleaned may be dropped when it is done
        return c.what == action::drop && state_.map.resident(b) && state_.map[b].moving != motion::cleaning &&
               !may_drop(b);
      };
      while (!c.range.empty() && refuses(c.range.first)) {
        ++state_.statistics.refused;
        advance(c.range, 1);
      }
      advance(c.range, count_prefix(c.range, [&](block_id b) { return !state_.map.present(b) || state_.going(b); }));
      if (c.range.empty()) {
        queue->pop_front();
        continue;
      }
      if (const std::uint32_t kept = count_prefix(c.range, [&](block_id b) { return stays_for_now(b, c.why); });
          kept != 0) {
        state_.statistics.dropped += c.why == reason::host ? 0 : kept;
        advance(c.range, kept);
        continue;
      }
      const bool droppable = may_drop(c.range.first);
      const bool at_once = backed && droppable;  // no copy, so the link does not matter
      if (!at_once && full(state_.outward)) {
        return;
      }
      const std::uint32_t limit = at_once ? c.range.count : std::min(c.range.count, blocks_left(state_.outward));
      const std::uint32_t run = count_prefix({c.range.first, limit}, [&](block_id b) {
        return state_.map.resident(b) && state_.still(b) && !held_down(b) && (c.what != action::drop || may_drop(b)) &&
               (!backed || may_drop(b) == droppable);
      });
      if (run == 0) {
        if (refuses(c.range.first)) {
          continue;  // above
        }
        return;  // the arrival or copy will end, and so will the launch
      }
      command piece = take_piece(*queue, run);
      if (at_once) {
        piece.what = action::drop;
      }
      if (const std::uint64_t ticket = begin(state_.outward, piece, send_away(piece), "an eviction")) {
        for_each_block(piece.range, [&](block_id b) {
          state_.notes[b.value].ticket = ticket;
          state_.map.start_leaving(b);
        });
      }
    }
  }

  /// Gives blocks room on the device, with their contents where there are any.
  bool bring(block_range range, bool empty) {
    if constexpr (backed) {
      if (empty) {
        return memory_.populate(range, next_ticket_);
      }
    }
    return memory_.prefetch(range, next_ticket_);
  }
  /// A managed block whose host copy is current leaves without being copied: the driver sees to that.
  bool send_away(const command& c) {
    if constexpr (backed) {
      if (c.what == action::drop) {
        return memory_.drop(c.range, next_ticket_);
      }
    }
    return memory_.evict(c.range, next_ticket_);
  }

  /// Takes one piece off the first command. Blocks that cannot be cleaned now, or need not be, are left out.
  void issue_clean(std::deque<command>& queue) {
    command& c = queue.front();
    advance(c.range, count_prefix(c.range, [&](block_id b) { return !may_clean(b, c.why); }));
    if (c.range.empty()) {
      queue.pop_front();
      return;
    }
    if constexpr (backed) {
      const std::uint32_t run = count_prefix({c.range.first, std::min(c.range.count, blocks_left(state_.outward))},
                                             [&](block_id b) { return may_clean(b, c.why); });
      const command piece = take_piece(queue, run);
      if (const std::uint64_t ticket =
              begin(state_.outward, piece, memory_.clean(piece.range, next_ticket_), "a copy to the host")) {
        for_each_block(piece.range, [&](block_id b) {
          state_.notes[b.value].ticket = ticket;
          state_.notes[b.value].spoiled = false;
          state_.map.start_cleaning(b);
        });
      }
    }
  }

  /// Before contents are given up: from now on nobody revives blocks without the state lock, and who has is heard.
  void announce_discards() {
    if (faultless || state_.discards.idle()) {
      return;
    }
    bool announced = false;
    {
      std::lock_guard lock(inbox_mutex_);
      announced = std::exchange(discards_, true);
    }
    if (!announced) {
      take_inbox();
    }
  }

  /// Discards need no link, so one that waits for a launch does not hold up the others.
  void issue_discards() {
    announce_discards();
    for (; !state_.discards.demanded.empty(); state_.discards.demanded.pop_front()) {
      const block_id b = state_.discards.demanded.front().range.first;
      if (state_.map[b].life != liveness::live && state_.map[b].users == 0 && state_.still(b) &&
          !state_.launches.incomplete_up_to(launch_id{state_.notes[b.value].dead_after})) {
        issue_discard({b, 1}, reason::dead);
      }
    }
    for (; !state_.discards.requested.empty(); state_.discards.requested.pop_front()) {
      block_range rest = state_.discards.requested.front().range;
      while (!rest.empty()) {
        const std::uint32_t run = count_prefix(rest, [&](block_id b) { return idle(b); });
        if (run > 0) {
          issue_discard({rest.first, run}, reason::requested);
        } else {
          ++state_.statistics.dropped;
        }
        advance(rest, std::max(run, 1U));
      }
    }
    for (std::size_t left = state_.discards.planned.size(); left > 0; --left) {
      command c = state_.discards.planned.front();
      state_.discards.planned.pop_front();
      while (!c.range.empty()) {
        advance(c.range, count_prefix(c.range, [&](block_id b) {  // alive again, or nothing there to give up
                  return state_.map[b].life == liveness::live ||
                         (!state_.map.present(b) && state_.map[b].copies.empty());
                }));
        const std::uint32_t run = count_prefix(c.range, [&](block_id b) {
          return state_.map[b].life != liveness::live && state_.map[b].users == 0 && state_.still(b) &&
                 !state_.launches.incomplete_up_to(launch_id{state_.notes[b.value].dead_after});
        });
        if (run == 0 || state_.discards.issued.size() >= options_.commands_in_flight) {
          break;
        }
        issue_discard({c.range.first, run}, c.why);
        advance(c.range, run);
      }
      if (!c.range.empty()) {
        state_.discards.planned.push_back(c);
      }
    }
  }

  void issue_discard(block_range range, reason why) {
    const command c{.what = action::discard, .why = why, .range = range};
    if (const std::uint64_t ticket = begin(state_.discards, c, memory_.discard(range, next_ticket_), "a discard")) {
      for_each_block(range, [&](block_id b) {
        state_.notes[b.value].ticket = ticket;
        state_.notes[b.value].discarding = true;
        if (state_.map.resident(b)) {
          state_.map.start_leaving(b);
        }
      });
    }
  }

  /// Takes the first blocks of the first command, and the command itself when nothing of it is left.
  static command take_piece(std::deque<command>& queue, std::uint32_t blocks) {
    command& c = queue.front();
    command piece = c;
    piece.range.count = blocks;
    advance(c.range, blocks);
    if (c.range.empty()) {
      queue.pop_front();
    }
    return piece;
  }

  /// The queue that a direction works on; null where nothing waits.
  [[nodiscard]] static std::deque<command>* waiting(detail::lane& l) {
    std::deque<command>& queue = l.next();
    return queue.empty() ? nullptr : &queue;
  }
  /// The device has as many commands of this direction as it is given at a time.
  [[nodiscard]] bool full(const detail::lane& l) const {
    return l.issued.size() >= options_.commands_in_flight || blocks_left(l) == 0;
  }
  [[nodiscard]] std::uint32_t blocks_left(const detail::lane& l) const {
    const std::uint64_t most = std::max<std::uint64_t>(1, options_.bytes_in_flight / block_);
    return static_cast<std::uint32_t>(most - std::min(most, l.blocks));
  }

  /// Notes that the device took a command. @returns  Its ticket; 0 where the call failed.
  std::uint64_t begin(detail::lane& l, const command& c, bool taken, const char* what) {
    if (!taken) {
      failed(what);
      return 0;
    }
    l.issued.push_back({next_ticket_, c});
    l.blocks += c.range.count;
    return next_ticket_++;
  }

  void failed(const char* what) {
    ++state_.statistics.failed_calls;
    log_once(logged_failure_,
             std::string(what) + " failed; the program goes on without it (logged once, all are counted)");
    if (++failures_in_a_row_ >= options_.failures_until_pause) {
      failures_in_a_row_ = 0;
      state_.paused_until = state_.statistics.finished + options_.launches_of_pause;
      if (std::has_single_bit(++pauses_)) {  // what goes on failing does not fill the log
        say(std::to_string(options_.failures_until_pause) +
            " commands failed in a row; nothing is prefetched for the next " +
            std::to_string(options_.launches_of_pause) + " launches" +
            (pauses_ == 1 ? "" : " (pause " + std::to_string(pauses_) + "; logged less and less often)"));
      }
    }
  }

  // --- questions ---------------------------------------------------------------------------------------------------

  /// The host is writing the block, or about to.
  [[nodiscard]] bool kept_off([[maybe_unused]] block_id b) const {
    if constexpr (faultless) {
      return demand_.with_host(b);
    }
    return false;
  }
  /// A launch that executes, or that waits for its turn, needs the block where it is.
  [[nodiscard]] bool held_down(block_id b) const {
    if constexpr (faultless) {
      return demand_.held_down(b);
    }
    return state_.launches.executing_on(b);
  }
  /// Blocks that could arrive without any leaving.
  [[nodiscard]] std::uint32_t room() const {
    if constexpr (faultless) {
      return demand_.room();
    }
    return state_.map.room();
  }
  /// It is not worth to wait until the block may leave: a hold keeps it, which ends when the program likes, or who
  /// wants it asks again anyway.
  [[nodiscard]] bool stays_for_now([[maybe_unused]] block_id b, [[maybe_unused]] reason why) const {
    if constexpr (faultless) {
      return demand_.held_by_program(b) || (why == reason::host && demand_.held_down(b));
    }
    return state_.holds != 0 && state_.launches.held_on(b);
  }
  /// No launch in flight and no command may touch the block.
  [[nodiscard]] bool idle(block_id b) const {
    return state_.map[b].users == 0 && state_.still(b) && !incomplete_in_flight();
  }
  [[nodiscard]] bool incomplete_in_flight() const { return state_.launches.incomplete_up_to(state_.launches.last()); }
  /// The device's copy holds nothing that the host has not got. A launch in flight that declares the block and has not
  /// begun will find it missing; one that does not say what it touches may be writing it.
  [[nodiscard]] bool may_drop(block_id b) const {
    const block_state& s = state_.map[b];
    const bool worthless = !s.dirty && (s.copies.at(location::host()) || s.copies.empty());
    return worthless && !(backed && incomplete_in_flight());
  }
  /// Only a launch that is yet to be submitted may write the block, and that would be noticed. For the host, which such
  /// launches may be waiting for, also one that is held back.
  [[nodiscard]] bool may_clean(block_id b, reason why) const {
    const block_state& s = state_.map[b];
    return backed && state_.map.resident(b) && state_.still(b) && s.dirty && s.life == liveness::live &&
           (s.writers == 0 || (why == reason::host && !executes_on(b))) && !incomplete_in_flight();
  }
  /// A launch may execute that declares the block.
  [[nodiscard]] bool executes_on(block_id b) const {
    if constexpr (faultless) {
      return demand_.executed_on(b);
    }
    return true;  // nobody holds launches back until they may
  }
  [[nodiscard]] bool discarding(block_range range) const {
    return std::any_of(state_.discards.issued.begin(), state_.discards.issued.end(),
                       [range](const detail::outstanding& o) { return o.what.range.overlaps(range); }) ||
           std::any_of(state_.discards.requested.begin(), state_.discards.requested.end(),
                       [range](const command& c) { return c.range.overlaps(range); });
  }
  /// Blocks of which no discard is on its way any more may be touched without being prefetched.
  /// @returns  Whether that is so.
  bool renewed(block_range range) {
    if (discarding(range)) {
      return false;
    }
    renew(range);
    return true;
  }
  void renew([[maybe_unused]] block_range range) {
    if constexpr (detail::renews_blocks<Memory>) {
      memory_.renew(range);
    }
  }
  [[nodiscard]] detail::lane& lane_of(action what) {
    switch (what) {
      case action::discard:
        return state_.discards;
      case action::prefetch:
      case action::advise:
        return state_.inward;
      case action::evict:
      case action::drop:
      case action::clean:
        break;
    }
    return state_.outward;
  }

  void choose_depth() {
    std::uint32_t commands = 2;
    bytes size{std::uint64_t{256} << 20};
    if constexpr (detail::chooses_its_depth<Memory>) {
      commands = Memory::commands_in_flight;
      size = Memory::bytes_in_flight;
    }
    if (options_.commands_in_flight == 0) {
      options_.commands_in_flight = commands;
    }
    if (options_.bytes_in_flight.count == 0) {
      options_.bytes_in_flight = size;
    }
  }

  void refresh_budget() {
    std::uint64_t most = options_.budget / block_;
    if (options_.budget.count == 0) {
      // What is on its way holds room in the map, but may not hold memory yet: it counts as not there.
      const bytes available = memory_.free_memory() + block_ * (state_.map.occupied() - state_.map.arriving());
      most = available > options_.headroom ? (available - options_.headroom) / block_ : 0;
    }
    state_.map.set_budget(static_cast<std::uint32_t>(std::min<std::uint64_t>(most, state_.map.size())));
    // Of what others leave, changes of a tenth are worth a line.
    if (options_.budget.count == 0 && state_.map.budget() < budget_said_ - budget_said_ / 10) {
      say("the budget is " + std::to_string((block_ * state_.map.budget()).count) +
          " bytes now: others hold more of the device");
    }
    if (options_.budget.count != 0 || state_.map.budget() < budget_said_ - budget_said_ / 10 ||
        state_.map.budget() > budget_said_ + budget_said_ / 10) {
      budget_said_ = state_.map.budget();
    }
    if constexpr (faultless) {
      demand_.budget_changed();
    }
    note_pressure();
    note_spare();
  }

  void count(traffic& t, reason why, bool copied) const {
    ++t.blocks[static_cast<unsigned>(why)];
    t.bytes[static_cast<unsigned>(why)] += copied ? block_.count : 0;
  }
  void log_once(bool& logged, const std::string& line) {
    if (!std::exchange(logged, true)) {
      say(line);
    }
  }
  void say(const std::string& line) const {
    if (options_.log) {
      options_.log(line);
    }
  }

  Memory& memory_;
  const bytes block_;

  std::mutex inbox_mutex_;
  std::vector<message> inbox_{};
  std::uint32_t next_stream_ = 0;              // the first number that no stream has had
  std::size_t reported_ = 0;                   // since the last pump
  std::atomic<bool> crowded_{false};           // that is too much; written under the inbox lock
  std::vector<stream_id> free_streams_{};      // numbers of streams that are over
  std::uint32_t streams_closing_ = 0;          // closed, and not over as far as is known
  bool discards_ = false;                      // are asked for, planned or on their way
  std::uint64_t spare_ = 0;                    // blocks that may come alive, and all that is fits the budget
  std::atomic<std::uint64_t> last_launch_{0};  // written under the inbox lock
  std::atomic<std::uint64_t> finished_up_to_{0};
  std::atomic<bool> have_to_ask_{false};  // launches, before they are given to the device; written under the state lock
  bool holds_launches_ = false;

  mutable std::mutex state_mutex_;  // everything below
  engine_options options_;
  std::unique_ptr<policy> policy_;
  detail::migration_state state_;
  typename detail::demand_paging_of<Memory>::type demand_;
  plan plan_{};
  std::vector<message> taken_{};
  std::vector<device_event> events_{};
  std::uint64_t next_ticket_ = 1;
  std::uint64_t plans_ = 0;                   // that superseded others
  std::uint64_t clock_ = 0;                   // orders arrivals and finishes
  std::uint64_t incomplete_finished_at_ = 0;  // when a launch finished last that may have used any block
  std::uint32_t failures_in_a_row_ = 0;
  std::uint64_t pauses_ = 0;  // after failures
  std::uint32_t pumps_ = 0;
  nanoseconds last_finish_{};
  bool unread_ = false;             // the inbox, since launches have to ask
  bool host_copies_stay_ = backed;  // blocks may be current both here and on the host
  std::uint32_t budget_said_ = 0;   // the budget when it was last worth a line
  bool saw_faults_ = false;         // a feed told of faults in the beginning
  bool logged_failure_ = false;
  bool logged_oversized_ = false;
};

}  // namespace v0
}  // namespace deepum
