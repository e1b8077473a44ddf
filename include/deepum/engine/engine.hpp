#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/launch_tracker.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/error.hpp>
#include <deepum/log.hpp>
#include <deepum/policy/plan.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/policy/saved_tables.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <atomic>
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
/// On memory that never faults (`faultless_memory_kind`) a launch begins when all that it declares is there, whatever
/// was predicted, and nothing that a launch which has begun declares leaves before it has finished. The oldest launch
/// that is held back gets what it misses before anything that is planned, at the cost of the least recently used
/// blocks: the policy sees that as faults (docs/adr/0007).
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
        policy_(std::move(chooser)),
        map_(static_cast<std::uint32_t>(memory.capacity() / block_), memory.place(), 0),
        notes_(map_.size()) {
    expects(policy_ != nullptr, "an engine has a policy");
    choose_depth();
    map_.set_backed(backed);
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
  /// @errors           `status::unsupported` after 65536 streams.
  stream_id open_stream(std::optional<std::uint32_t> lookahead) {
    message m{message::kind::open_stream};
    m.lookahead = lookahead;
    {
      std::lock_guard lock(inbox_mutex_);
      if (next_stream_ > 0xffffU) {
        throw error(status::unsupported,
                    "an arena numbers at most 65536 streams in its life: keep streams, do not reopen them");
      }
      m.record.stream = stream_id{static_cast<std::uint16_t>(next_stream_++)};
    }
    const stream_id s = m.record.stream;
    push(std::move(m));
    return s;
  }
  /// Its launches have finished, as far as the device is concerned.
  void close_stream(stream_id s) {
    message m{message::kind::close_stream};
    m.record.stream = s;
    push(std::move(m));
  }

  /// A launch is about to be issued to the device. Called before it is.
  /// @param record  With everything but its number.
  /// @returns       Its number.
  /// @errors        On memory that never faults: `status::out_of_device_memory` where the launch can never begin,
  ///                `status::invalid_argument` where the host is using what it touches. Then it was not submitted.
  launch_id submit(launch_record&& record) {
    if constexpr (faultless) {
      check_footprint(record);
    }
    message m{message::kind::launch};
    m.record = std::move(record);
    return push(std::move(m));
  }

  /// Whether a launch may be given to the device now: the policy brings nothing for it any more (docs/adr/0004). The
  /// program asks again until it may, or calls `admit`. Without a lock where all that is alive fits the budget.
  ///
  /// A launch for which nothing moves and behind nothing that executes is always admitted: what it misses will fault.
  /// On memory that never faults it is admitted when all of it is there.
  /// @errors  On memory that never faults: `status::out_of_device_memory`, `status::out_of_host_memory` where it can
  ///          never begin. Then it was taken back.
  [[nodiscard]] bool admitted(launch_id id, stream_id stream) {
    if (!holds_launches_ || !have_to_ask_.load(std::memory_order_relaxed)) {
      return true;
    }
    {
      std::lock_guard lock(state_mutex_);
      absorb();
      if constexpr (faultless) {
        refuse_if_hopeless(id, stream);
        if (may_begin_with_all(id, stream)) {
          return true;
        }
      } else if (may_begin(id, stream)) {
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
    const auto it = find_held(id);
    if (it == held_.end()) {
      return true;
    }
    if constexpr (faultless) {
      it->let_go = true;  // the policy is not waited for any more
      stirred_ = true;
      return false;
    }
    statistics_.unprepared_launches += it->let_go ? 0 : 1;
    release(it);
    return true;
  }

  /// The launch that was submitted last; invalid where there was none.
  [[nodiscard]] launch_id last_launch() const { return launch_id{last_launch_.load(std::memory_order_acquire)}; }
  /// This launch and all before it, on every stream, are known to have finished.
  [[nodiscard]] launch_id finished_up_to() const { return launch_id{finished_up_to_.load(std::memory_order_acquire)}; }
  [[nodiscard]] bool finished(launch_id id) const { return id <= finished_up_to(); }
  /// @}

  /// @name Facts.
  /// @{

  /// Contents of the blocks matter from now on. Takes the state lock: discards that were not issued are cancelled here.
  /// @returns  False while a discard of one of the blocks is on its way. The memory must not be used before `settled`.
  [[nodiscard]] bool live(block_range range) {
    std::lock_guard lock(state_mutex_);
    absorb();
    for_each_block(range, [&](block_id b) { set_liveness(b, liveness::live); });
    policy_->on_live(range, map_);
    return renewed(range);
  }
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
    for_each_block(range, [&](block_id b) {
      ++notes_[b.value].host_views;
      notes_[b.value].host_writes += mode != access::read ? 1 : 0;
    });
    host_writes_.fetch_add(mode != access::read ? 1 : 0, std::memory_order_relaxed);
    all_there_ = false;
    note_pressure();
    policy_->on_host_access(range, mode, map_);
    stirred_ = true;
  }
  /// Whether it may. Asks for what that takes.
  [[nodiscard]] bool host_may_use(block_range range, access mode)
    requires faultless_memory_kind<Memory>
  {
    {
      std::lock_guard lock(state_mutex_);
      absorb();
      if (bring_to_host(range, mode)) {
        return true;
      }
      stirred_ = true;
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
      if (give_up_host_copies()) {
        return true;
      }
      if (inward_.idle()) {
        std::uint32_t room = map_.room();
        for_each_block({block_id{0}, map_.size()}, [&](block_id b) {
          if (room != 0 && map_[b].life == liveness::live && !map_.present(b) && still(b) &&
              map_[b].copies.at(location::host()) && notes_[b.value].host_views == 0) {
            inward_.requested.push_back(
                {.what = action::prefetch, .why = reason::requested, .to = map_.device(), .range = {b, 1}});
            --room;
          }
        });
      }
      if (inward_.idle()) {
        return false;
      }
      stirred_ = true;
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
      for_each_block(range, [&](block_id b) {
        --notes_[b.value].host_views;
        notes_[b.value].host_writes -= mode != access::read ? 1 : 0;
        if (map_[b].dirty) {
          outdate(b);
        }
      });
      host_writes_.fetch_sub(mode != access::read ? 1 : 0, std::memory_order_relaxed);
      stirred_ = true;
    }
    memory_.notify();
  }
  /// @}

  /// @name Requests of the program. They go before what the policy plans, and are not forgotten when it plans anew.
  /// @{

  /// Move blocks. Room is not made for it: what does not fit when nothing is under way is dropped and counted.
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
      stirred_ = true;
    }
    memory_.notify();
  }
  [[nodiscard]] bytes budget() const {
    std::lock_guard lock(state_mutex_);
    return block_ * map_.budget();
  }

  /// What has been done so far, up to this moment.
  [[nodiscard]] statistics snapshot() {
    std::lock_guard lock(state_mutex_);
    absorb();
    statistics s = statistics_;
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
    deepum::load_tables(*policy_, archive, map_.size(), block_);
  }

  /// Takes what happened, tells the policy, plans, issues. Never waits for the device, never throws.
  void pump() {
    std::lock_guard lock(state_mutex_);
    absorb();
    if (options_.budget.count == 0 && ++pumps_ % pumps_per_refresh == 0) {
      refresh_budget();
    }
    if (std::exchange(stirred_, false)) {
      if constexpr (faultless) {
        serve_oldest();
      }
      plan_and_issue();
    }
    note_pressure();
    if constexpr (faultless) {
      refuse_if_stuck();
    } else {
      admit_if_stuck();
    }
  }

 private:
  void plan_and_issue() {
    for (unsigned round = 0; round < rounds_per_pump; ++round) {
      plan_.clear();
      policy_->plan_next(map_, plan_);
      const bool nothing = plan_.commands.empty() && !plan_.supersedes;
      enqueue();
      issue();
      if (nothing || !inward_.planned.empty() || !outward_.planned.empty()) {
        return;  // what waits is enough until something happens
      }
    }
    stirred_ = true;  // a policy with this much to say goes on at the next pump
  }

  struct message {
    enum class kind : std::uint8_t { open_stream, close_stream, launch, dead, host_access, request };
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

  /// What the engine notes of a block beside its state.
  struct note {
    std::uint64_t ticket = 0;         // of the command that moves it
    std::uint64_t dead_after = 0;     // the last launch that may use it, where it is dead
    std::uint64_t prefetched_at = 0;  // in `clock_`; 0: not by a prefetch, or used since
    std::uint64_t planned_in = 0;     // the last superseding plan that prefetches it, in `plans_`
    bool late = false;                // faulted while its prefetch was under way
    bool discarding = false;          // a discard is on its way
    bool spoiled = false;             // while it is cleaned: a launch may write it, so that it stays dirty
    bool read_mostly = false;         // advised so
    std::uint32_t pins = 0;           // faultless memory: launches that may execute and declare it
    std::uint32_t host_views = 0;     // faultless memory: through which the host reads or writes it
    std::uint32_t host_writes = 0;    // those through which it writes
    std::uint64_t wanted_by = 0;      // faultless memory: the oldest launch that was held back, if it declares it
  };
  struct outstanding {
    std::uint64_t ticket = 0;
    command what{};
  };
  /// A launch that is not given to the device yet.
  struct held_launch {
    launch_id id{};
    nanoseconds since{};
    bool let_go = false;  // whatever it misses; faultless memory: whatever the policy is about to bring
    stream_id stream{};
    bool faulted = false;   // faultless memory: the policy knows what it misses
    bool hopeless = false;  // faultless memory: it will never begin
  };
  /// The commands of one direction: those that wait, and those that the device has.
  struct lane {
    std::deque<command> demanded{};  // by the oldest launch that is held back; made anew whenever something happened
    std::deque<command> requested{};
    std::deque<command> planned{};
    std::vector<outstanding> issued{};
    std::uint64_t blocks = 0;  // in `issued`

    [[nodiscard]] std::deque<command>& next() {
      return !demanded.empty() ? demanded : !requested.empty() ? requested : planned;
    }
    [[nodiscard]] bool idle() const {
      return demanded.empty() && requested.empty() && planned.empty() && issued.empty();
    }
  };

  static constexpr bool backed = backed_memory_kind<Memory>;
  static constexpr bool faultless = faultless_memory_kind<Memory>;
  static constexpr unsigned rounds_per_pump = 16;              // plans taken from a policy before the lock is given up
  static constexpr std::uint32_t failures_until_refusal = 64;  // commands that a launch waits for, and nothing else
  static constexpr std::size_t copies_given_up = 64;           // of the host, at a time
  static constexpr unsigned pumps_per_refresh = 64;  // asking for the free memory is a system call on a real device

  // --- inbox -------------------------------------------------------------------------------------------------------

  /// A launch is numbered here, under the lock, so that numbers are in the order of the inbox.
  launch_id push(message&& m) {
    launch_id id{};
    bool first = false;
    {
      std::lock_guard lock(inbox_mutex_);
      if (m.what == message::kind::launch) {
        id = launch_id{last_launch_.load(std::memory_order_relaxed) + 1};
        m.record.id = id;
        last_launch_.store(id.value, std::memory_order_release);
      }
      first = inbox_.empty();
      inbox_.push_back(std::move(m));
    }
    if (first) {
      memory_.notify();
    }
    return id;
  }

  /// Takes in what the program and the device report. The device is asked first: whatever it reports of a launch, the
  /// launch itself was in the inbox before.
  void absorb() {
    events_.clear();
    memory_.poll(events_);
    take_inbox();
    stirred_ = stirred_ || !events_.empty();
    for (const device_event& e : events_) {
      take(e);
    }
    finished_up_to_.store(launches_.finished_up_to().value, std::memory_order_release);
  }

  void take_inbox() {
    unread_ = false;
    {
      std::lock_guard lock(inbox_mutex_);
      std::swap(inbox_, taken_);
    }
    for (message& m : taken_) {
      take(m);
    }
    stirred_ = stirred_ || !taken_.empty();
    taken_.clear();
  }

  void take(message& m) {
    switch (m.what) {
      case message::kind::open_stream:
        launches_.open(m.record.stream);
        policy_->on_stream(m.record.stream, m.lookahead);
        break;
      case message::kind::close_stream:
        launches_.close(m.record.stream);
        break;
      case message::kind::launch:
        take_launch(std::move(m.record));
        break;
      case message::kind::dead:
        for_each_block(m.range, [&](block_id b) {
          set_liveness(b, m.life);
          notes_[b.value].dead_after = m.last.value;
        });
        policy_->on_dead(m.range, m.last, map_);
        break;
      case message::kind::host_access:
        if (m.mode != access::read) {
          for_each_block(m.range, [&](block_id b) {
            // Contents on the device are on their way to the host then, and the device will report that.
            if (!map_[b].copies.at(map_.device())) {
              map_.write_on_host(b);
            }
          });
        }
        policy_->on_host_access(m.range, m.mode, map_);
        break;
      case message::kind::request:
        lane_of(m.request.what).requested.push_back(m.request);
        break;
    }
  }

  void take_launch(launch_record&& r) {
    const launch_record& record = launches_.issue(std::move(r));
    ++statistics_.launches;
    if (options_.observer) {
      options_.observer({.what = device_event::kind::launch_issued, .at = memory_.now(), .record = &record}, record.id);
    }
    std::uint64_t declared = 0;
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) {
        map_.add_user(b, a.mode);
        notes_[b.value].pins += faultless ? 1 : 0;  // until it is known to be held back
      });
      declared += a.range.count;
    }
    if constexpr (backed) {
      take_writes(record);
    }
    end_read_mostly(record);
    if (declared > map_.budget() && distinct_blocks(record) > map_.budget()) {
      ++statistics_.oversized_launches;
      log_once(logged_oversized_, "launch '" + record.name + "' touches more than the budget of " +
                                      std::to_string(map_.budget()) +
                                      " blocks; what fits is prefetched and the rest faults (logged once)");
    }
    policy_->on_launch(record, map_);
  }

  /// What a launch that was submitted says about contents that the host has.
  ///
  /// A copy to the host that is being made may be stale when it is done. And the contents of a block that the launch
  /// overwrites as a whole are dead where nothing else in flight may touch it: every earlier launch has finished, host
  /// stores that were reported are earlier, and whatever comes later sees what this launch writes. Nothing is given up
  /// by forgetting them while the device has none of them, so no command has to be ordered before the launch.
  void take_writes(const launch_record& record) {
    if (!record.complete) {
      for (const outstanding& o : outward_.issued) {
        if (o.what.what == action::clean) {
          for_each_block(o.what.range, [&](block_id b) { notes_[b.value].spoiled = true; });
        }
      }
    }
    for (const block_access& a : record.accesses) {
      if (a.mode == access::read) {
        continue;
      }
      for_each_block(a.range, [&](block_id b) {
        notes_[b.value].spoiled = true;
        if (a.mode == access::overwrite && map_[b].users == 1 && !incomplete_in_flight() && !map_.present(b) &&
            still(b)) {
          map_.forget(b);
        }
      });
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
          a.range, [&](block_id b) { return notes_[b.value].read_mostly; },
          [&](block_range run) {
            advise({.what = action::advise, .hint = advice::unset_read_mostly, .to = map_.device(), .range = run});
          });
    }
  }

  static std::uint64_t distinct_blocks(const launch_record& record) {
    std::vector<block_range> ranges;
    ranges.reserve(record.accesses.size());
    for (const block_access& a : record.accesses) {
      ranges.push_back(a.range);
    }
    std::sort(ranges.begin(), ranges.end(), [](block_range a, block_range b) { return a.first < b.first; });
    std::uint64_t count = 0;
    std::uint32_t end = 0;
    for (const block_range& r : ranges) {
      const std::uint32_t from = std::max(end, r.begin_value());
      end = std::max(end, r.end_value());
      count += end - std::min(from, end);
    }
    return count;
  }

  // --- admission ---------------------------------------------------------------------------------------------------

  bool may_begin(launch_id id, stream_id stream) {
    const auto it = find_held(id);
    const bool held = it != held_.end();
    if ((held && it->let_go) || !pressed() || statistics_.finished < paused_until_ ||
        policy_->ready(id, stream, map_)) {
      if (held) {
        release(it);
      }
      return true;
    }
    if (!held) {
      held_.push_back({id, memory_.now()});
      stirred_ = true;
    }
    return false;
  }
  /// What is alive does not fit.
  [[nodiscard]] bool oversubscribed() const { return live_ > map_.budget(); }
  /// Something may be missing when a launch begins: what is alive does not fit, or is on its way, or no driver would
  /// bring it.
  [[nodiscard]] bool pressed() const {
    if constexpr (faultless) {
      return !all_there_;
    }
    return backed || oversubscribed() || !inward_.idle();
  }
  /// A launch that was held back has to ask until it is let go, also when all fits by then.
  /// Whoever did not ask before is in the inbox: a launch is put there first, and asks then. So whoever is put there
  /// after the inbox was read next has seen that it has to ask.
  void note_pressure() {
    const bool ask = pressed() || !held_.empty();
    unread_ = unread_ || (ask && !have_to_ask_.load(std::memory_order_relaxed));
    have_to_ask_.store(ask, std::memory_order_relaxed);
  }
  /// Whatever is in flight has not been given to the device.
  [[nodiscard]] bool nothing_executes() const { return launches_.in_flight() == held_.size(); }
  [[nodiscard]] typename std::vector<held_launch>::iterator find_held(launch_id id) {
    return std::find_if(held_.begin(), held_.end(), [id](const held_launch& h) { return h.id == id; });
  }
  /// While others execute, a launch that is held back costs no time.
  void release(typename std::vector<held_launch>::iterator it) {
    if (nothing_executes()) {
      const nanoseconds now = memory_.now();
      const nanoseconds since = std::max(it->since, last_finish_);
      statistics_.stalled += std::max(now - since, nanoseconds{});
      if (options_.observer && now > since) {
        options_.observer({.what = device_event::kind::launch_released, .at = now, .began = since}, it->id);
      }
    }
    held_.erase(it);
    note_pressure();
  }
  /// Nothing executes, nothing moves, and all have said what they have to: then nothing will ever get ready.
  void admit_if_stuck() {
    if (!held_.empty() && !stirred_ && nothing_executes() && inward_.issued.empty() && outward_.issued.empty() &&
        discards_.issued.empty() && !held_.front().let_go) {
      held_.front().let_go = true;
      ++statistics_.unprepared_launches;
    }
  }

  // --- memory that never faults -------------------------------------------------------------------------------------

  /// What a launch declares has to fit, and the host has to be done with it. One that may touch anything declares all
  /// that is alive.
  void check_footprint(launch_record& record) {
    std::uint64_t declared = 0;
    for (const block_access& a : record.accesses) {
      declared += a.range.count;
    }
    if (record.complete && declared <= budget_now_.load(std::memory_order_relaxed) &&
        host_writes_.load(std::memory_order_relaxed) == 0) {
      return;
    }
    std::lock_guard lock(state_mutex_);
    absorb();
    const bool complete = std::exchange(record.complete, true);
    if (!complete) {
      for_each_run(
          {block_id{0}, map_.size()}, [&](block_id b) { return map_[b].life == liveness::live; },
          [&](block_range run) {
            record.accesses.push_back({run, access::update});
          });
    }
    if (const std::uint64_t needed = distinct_blocks(record); needed > map_.budget()) {
      throw error(status::out_of_device_memory,
                  complete
                      ? too_large(record.name, needed)
                      : "launch '" + record.name + "' may touch more than it declares, and all that is allocated, " +
                            std::to_string((block_ * needed).count) + " bytes, does not fit the budget of " +
                            std::to_string((block_ * map_.budget()).count) +
                            "; declare its operands: reads(p, n), updates(p, n), overwrites(p, n)");
    }
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) {
        if (notes_[b.value].host_writes != 0) {
          throw error(status::invalid_argument,
                      "launch '" + record.name + "' touches memory that a host view is writing; end the view first");
        }
      });
    }
  }
  [[nodiscard]] std::string too_large(const std::string& name, std::uint64_t blocks) const {
    return "launch '" + name + "' touches " + std::to_string((block_ * blocks).count) +
           " bytes, counted in whole blocks of " + std::to_string(block_.count) + "; the budget is " +
           std::to_string((block_ * map_.budget()).count) + ": raise it, or launch less at a time";
  }

  [[nodiscard]] bool all_of_it_there(const launch_record& record) const {
    for (const block_access& a : record.accesses) {
      for (std::uint32_t b = a.range.begin_value(); b < a.range.end_value(); ++b) {
        if (!map_.ready(block_id{b}) || notes_[b].host_writes != 0) {
          return false;
        }
      }
    }
    return true;
  }
  bool may_begin_with_all(launch_id id, stream_id stream) {
    const launch_record* record = launches_.find(id, stream);
    expects(record != nullptr, "a launch asks to begin that was not submitted");
    const auto it = find_held(id);
    const bool held = it != held_.end();
    // Who came later does not take the room that the oldest one is waiting for.
    if ((!starving_ || oldest_ >= id.value) && all_of_it_there(*record)) {
      for (const block_access& a : record->accesses) {
        for_each_block(a.range, [&](block_id b) {
          notes_[b.value].pins += held ? 1 : 0;
          map_.touch_migrated(b);
        });
      }
      if (held) {
        release(it);
      }
      return true;
    }
    if (!held) {
      unpin(*record);
      held_.push_back({.id = id, .since = memory_.now(), .stream = stream});
      stirred_ = true;
    }
    return false;
  }
  void unpin(const launch_record& record) {
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) { --notes_[b.value].pins; });
    }
  }

  [[nodiscard]] typename std::vector<held_launch>::iterator oldest_held() {
    return std::min_element(held_.begin(), held_.end(),
                            [](const held_launch& a, const held_launch& b) { return a.id < b.id; });
  }
  /// What a driver does on a page fault: the oldest launch that is held back gets what it misses, unless the policy is
  /// bringing it. And what is more than the budget leaves.
  void serve_oldest() {
    inward_.demanded.clear();
    outward_.demanded.clear();
    starving_ = false;
    oldest_ = 0;
    std::uint64_t missing = 0;
    const auto it = oldest_held();
    if (it != held_.end()) {
      oldest_ = it->id.value;
      const launch_record& record = *launches_.find(it->id, it->stream);
      for (const block_access& a : record.accesses) {
        for_each_block(a.range, [&](block_id b) { notes_[b.value].wanted_by = oldest_; });
      }
      if (distinct_blocks(record) > map_.budget()) {
        it->hopeless = true;
      } else if (it->let_go || !policy_->holds_launches() || statistics_.finished < paused_until_ ||
                 policy_->ready(it->id, it->stream, map_)) {
        missing = demand(record, std::exchange(it->faulted, true));
      }
    }
    if (missing == 0 && live_ <= map_.budget() && inward_.requested.empty() && inward_.planned.empty()) {
      bring_all();
    }
    make_room_for(missing);
  }
  /// @param told  The policy knows.
  /// @returns     Blocks that need room.
  std::uint64_t demand(const launch_record& record, bool told) {
    std::uint64_t missing = 0;
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) {
        if (map_.present(b) && map_[b].moving != motion::leaving) {
          return;
        }
        ++missing;
        if (!told) {
          ++statistics_.faults;
          policy_->on_fault({b, a.mode == access::read ? access::read : access::update, record.id, memory_.now()},
                            map_);
        }
        demand(b, reason::fault);
      });
    }
    return missing;
  }
  /// One command for blocks that follow each other. All that is demanded at a time has the same reason.
  void demand(block_id b, reason why) {
    std::deque<command>& queue = inward_.demanded;
    if (!queue.empty() && queue.back().range.end_value() == b.value) {
      ++queue.back().range.count;
    } else {
      queue.push_back({.what = action::prefetch, .why = why, .to = map_.device(), .range = {b, 1}});
    }
  }
  /// All that is alive fits: then all of it is brought, so that no launch has to ask.
  void bring_all() {
    for_each_block({block_id{0}, map_.size()}, [&](block_id b) {
      if (map_[b].life != liveness::live || map_.present(b) || !still(b) || notes_[b.value].host_views != 0) {
        return;
      }
      demand(b, reason::predicted);
    });
  }
  /// Least recently used blocks leave until there is room for so many, dead ones first.
  void make_room_for(std::uint64_t missing) {
    const std::uint64_t staying = map_.occupied() - map_.leaving() + missing;
    std::uint64_t surplus = staying - std::min<std::uint64_t>(staying, map_.budget());
    for (const bool dead : {true, false}) {
      if (surplus == 0) {
        return;
      }
      map_.for_each_least_recently_migrated([&](block_id b) {
        if ((map_[b].life != liveness::live && map_[b].users == 0) != dead || !still(b) || held_down(b)) {
          return true;
        }
        const command c{.what = dead ? action::discard : action::evict,
                        .why = missing != 0 ? reason::make_room : reason::over_budget,
                        .to = location::host(),
                        .range = {b, 1}};
        (dead ? discards_ : outward_).demanded.push_back(c);
        return --surplus != 0;
      });
    }
    starving_ = surplus != 0 && missing != 0;
  }

  /// Nothing executes, nothing moves, all have said what they have to, and the launch got whatever could be had.
  void refuse_if_stuck() {
    look_for_all();
    if (held_.empty() || stirred_ || !nothing_executes() || !inward_.issued.empty() || !outward_.issued.empty() ||
        !discards_.issued.empty() || host_writes_.load(std::memory_order_relaxed) != 0) {
      return;
    }
    const auto it = oldest_held();
    if (it->let_go && it->faulted) {
      it->hopeless = it->hopeless || !all_of_it_there(*launches_.find(it->id, it->stream));
    } else {
      it->let_go = true;
      stirred_ = true;
    }
  }
  void refuse_if_hopeless(launch_id id, stream_id stream) {
    const auto it = find_held(id);
    if (it == held_.end() || !it->hopeless) {
      return;
    }
    held_.erase(it);
    const std::optional<launch_record> record = launches_.finish(id, {}, last_finish_, false);
    for (const block_access& a : record->accesses) {
      for_each_block(a.range, [&](block_id b) { map_.remove_user(b, a.mode); });
    }
    policy_->on_finish(id, stream, map_);
    failures_of_demand_ = 0;
    stirred_ = true;
    note_pressure();
    const std::uint64_t needed = distinct_blocks(*record);
    if (needed > map_.budget()) {
      throw error(status::out_of_device_memory, too_large(record->name, needed));
    }
    const std::string why = memory_.last_failure();
    throw error(memory_.host_is_full() ? status::out_of_host_memory : status::out_of_device_memory,
                "launch '" + record->name + "' cannot get its memory onto the device: " +
                    (why.empty() ? std::string("nothing that is there may leave") : why));
  }

  /// Of blocks that the device has as well; from now on they count as written there.
  /// @returns  Whether there were any.
  bool give_up_host_copies() {
    std::vector<block_id> found;
    map_.for_each_least_recently_migrated([&](block_id b) {
      if (map_[b].copies.at(map_.device()) && map_[b].copies.at(location::host()) && still(b) &&
          notes_[b.value].host_views == 0) {
        found.push_back(b);
      }
      return true;
    });
    const std::size_t first = found.size() - std::min(found.size(), copies_given_up);  // they stay longest
    for (std::size_t i = first; i < found.size(); ++i) {
      written(found[i]);
    }
    return !found.empty();
  }

  /// @returns  Whether the host may use the blocks now; else what it takes is asked for.
  bool bring_to_host(block_range range, access mode) {
    bool there = true;
    std::deque<command> wanted;
    for_each_block(range, [&](block_id b) {
      const block_state& s = map_[b];
      const bool done = mode == access::read ? !(map_.resident(b) && (s.dirty || s.moving == motion::leaving))
                                             : !map_.present(b) && !notes_[b.value].discarding;
      there = there && done;
      if (!done && map_.resident(b) && still(b)) {
        wanted.push_back({.what = mode == access::read ? action::clean : action::evict,
                          .why = reason::host,
                          .to = location::host(),
                          .range = {b, 1}});
      }
    });
    if (there && mode != access::read) {
      for_each_block(range, [&](block_id b) { map_.write_on_host(b); });
    }
    if (!there && outward_.requested.empty()) {
      outward_.requested = std::move(wanted);
    }
    return there;
  }

  /// When all that is alive can be used and nothing is going to move, launches need not ask.
  void look_for_all() {
    if (all_there_ || oversubscribed() || !held_.empty() || !inward_.idle() || !outward_.idle() || !discards_.idle() ||
        map_.occupied() > map_.budget()) {
      return;
    }
    for (std::uint32_t b = 0; b < map_.size(); ++b) {
      if (notes_[b].host_writes != 0 || (map_[block_id{b}].life == liveness::live && !map_.ready(block_id{b}))) {
        return;
      }
    }
    all_there_ = true;
    note_pressure();
  }

  void set_liveness(block_id b, liveness life) {
    live_ += life == liveness::live ? 1 : 0;
    live_ -= map_[b].life == liveness::live ? 1 : 0;
    map_.set_liveness(b, life);
    all_there_ = all_there_ && (life != liveness::live || map_.ready(b));
    note_pressure();
  }

  // --- device events -----------------------------------------------------------------------------------------------

  void take(const device_event& e) {
    launch_id launch = e.launch;
    device_event seen = e;
    if (const outstanding* o = options_.observer ? find(e.ticket) : nullptr) {
      seen.why = o->what.why;
      seen.did = o->what.what;
      seen.range = e.range.empty() ? o->what.range : e.range;
    }
    switch (e.what) {
      case device_event::kind::launch_finished:
        take_finish(e);
        break;
      case device_event::kind::fault:
        launch = e.timed ? launches_.executing_at(e.at) : launch_id{};
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
      case device_event::kind::launch_issued:
      case device_event::kind::launch_released:
        return;  // no memory kind reports them
    }
    if (options_.observer) {
      options_.observer(seen, launch);
    }
  }

  void take_finish(const device_event& e) {
    const std::optional<launch_record> record = launches_.finish(e.launch, e.began, e.at, e.timed);
    if (!record) {
      return;
    }
    ++statistics_.finished;
    statistics_.stalled += e.stalled;
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
        map_.remove_user(b, a.mode);
        notes_[b.value].pins -= faultless ? 1 : 0;
        if (a.mode != access::read && map_.resident(b)) {
          written(b);
        }
        if (std::exchange(notes_[b.value].prefetched_at, 0) != 0) {
          ++statistics_.prefetches_used;
        }
      });
    }
    if (!record->complete) {
      incomplete_finished_at_ = ++clock_;
      if (host_copies_stay_) {  // it may have written any of them
        map_.for_each_least_recently_migrated([&](block_id b) {
          if (!map_[b].dirty) {
            map_.write(b);
          }
          return true;
        });
      }
    }
    policy_->on_finish(record->id, record->stream, map_);
  }
  /// A launch wrote the block on the device.
  void written(block_id b) {
    const bool outdated = !map_[b].dirty;
    map_.write(b);
    if (outdated) {
      outdate(b);
    }
  }
  /// The host's copy is of no use any more.
  void outdate(block_id b) {
    if constexpr (faultless) {
      if (notes_[b.value].host_views == 0) {
        memory_.outdated({b, 1});
      }
    }
  }

  /// Nobody tells of faults: what a launch declared, and was not there, is there now.
  void take_unseen_faults(const launch_record& record, nanoseconds at) {
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, [&](block_id b) {
        if (!map_.present(b)) {
          take(device_event{.what = device_event::kind::arrived, .why = reason::fault, .range = {b, 1}, .at = at});
        }
      });
    }
  }

  void take_fault(const device_event& e, launch_id launch) {
    ++statistics_.faults;
    const block_id b = e.range.first;
    note& n = notes_[b.value];
    if (map_[b].moving == motion::arriving && !n.late) {
      n.late = true;
      ++statistics_.prefetches_late;
    }
    policy_->on_fault({b, e.mode, launch, e.at}, map_);
  }

  void take_arrival(const device_event& e) {
    const outstanding* o = find(e.ticket);
    const reason why = o != nullptr ? o->what.why : e.why;
    failures_of_demand_ = 0;
    host_copies_stay_ = host_copies_stay_ || e.host_copy_stays;
    for_each_block(e.range, [&](block_id b) {
      note& n = notes_[b.value];
      if (!map_.resident(b)) {
        count(statistics_.in, why, !map_[b].copies.empty());
        n.prefetched_at = o != nullptr && !n.late ? ++clock_ : 0;
      }
      if (!backed) {
        map_.arrive(b, e.host_copy_stays, o != nullptr);
      } else if (map_[b].copies.empty()) {
        map_.arrive_empty(b);
      } else {
        map_.arrive(b, !map_[b].dirty);  // what is dirty was there, and stays so
      }
    });
    policy_->on_migrated(e.range, map_.device(), map_);
  }

  void take_departure(const device_event& e) {
    const outstanding* o = find(e.ticket);
    const bool discarded = o != nullptr && o->what.what == action::discard;
    failures_of_demand_ = 0;
    for_each_block(e.range, [&](block_id b) {
      if (!map_.resident(b)) {
        return;  // it had not arrived as far as we know: the end of its command settles it
      }
      note& n = notes_[b.value];
      if (n.prefetched_at > incomplete_finished_at_) {
        ++statistics_.prefetches_wasted;
      }
      n.prefetched_at = 0;
      if (discarded) {
        gone(b);
      } else {
        const bool copied = backed && o != nullptr ? o->what.what == action::evict : map_[b].dirty;
        count(statistics_.out, o != nullptr ? o->what.why : e.why, copied);
        map_.depart(b);
      }
    });
    policy_->on_migrated(e.range, location::host(), map_);
  }

  /// @returns  Whether the same command may do better next time.
  bool take_failure() {
    if constexpr (faultless) {
      if (memory_.host_is_full() && give_up_host_copies()) {
        stirred_ = true;
        return true;
      }
    }
    failed("a migration");
    return false;
  }

  /// A command is done, or has failed. Blocks that it did not report stayed where they were.
  /// @param again  It failed for a reason that is gone.
  void retire(std::uint64_t ticket, bool done, bool again = false) {
    for (lane* l : {&inward_, &outward_, &discards_}) {
      const auto it = std::find_if(l->issued.begin(), l->issued.end(),
                                   [ticket](const outstanding& o) { return o.ticket == ticket; });
      if (it == l->issued.end()) {
        continue;
      }
      const command c = it->what;
      l->blocks -= c.range.count;
      l->issued.erase(it);
      if constexpr (faultless) {
        note_end_of_demand(c, done || again);
      }
      for_each_block(c.range, [&](block_id b) {
        if (notes_[b.value].ticket != ticket) {
          return;
        }
        note& n = notes_[b.value];
        n.ticket = 0;
        if (std::exchange(n.discarding, false) && done) {
          gone(b);
        } else if (map_[b].moving == motion::arriving) {
          map_.cancel_arriving(b);
        } else if (map_[b].moving == motion::cleaning && done) {
          statistics_.out.bytes[static_cast<unsigned>(c.why)] += block_.count;
          if (n.spoiled) {
            map_.stop_moving(b);
            outdate(b);
          } else {
            map_.clean(b);
          }
        } else {
          map_.stop_moving(b);
        }
        if (c.why == reason::keep && done && map_.resident(b)) {
          map_.touch_migrated(b);
        }
      });
      return;
    }
  }

  /// What a launch waits for failed again and again, and nothing was under way that could have helped: it will not get
  /// it.
  void note_end_of_demand(const command& c, bool done) {
    if (done) {
      failures_of_demand_ = 0;
    } else if ((c.why == reason::fault || c.why == reason::make_room) && nothing_executes() && inward_.issued.empty() &&
               outward_.issued.empty() && ++failures_of_demand_ >= failures_until_refusal) {
      for (held_launch& h : held_) {
        h.hopeless = h.hopeless || h.id.value == oldest_;
      }
    }
  }

  /// A block's contents have been given up.
  void gone(block_id b) {
    map_.discard(b);
    outdate(b);
    notes_[b.value].prefetched_at = 0;
    notes_[b.value].discarding = false;
    ++statistics_.discarded;
  }

  [[nodiscard]] const outstanding* find(std::uint64_t ticket) const {
    if (ticket != 0) {
      for (const lane* l : {&inward_, &outward_, &discards_}) {
        for (const outstanding& o : l->issued) {
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
          for_each_block(c.range, [&](block_id b) { notes_[b.value].planned_in = plans_; });
        }
      }
      for (const command& c : inward_.planned) {
        cancel(c);
      }
      inward_.planned.clear();
      outward_.planned.clear();
      discards_.planned.clear();
    }
    for (const command& c : plan_.commands) {
      if (c.what == action::clean && !backed) {  // a copy that leaves the device's one is something else there
        statistics_.dropped += c.range.count;
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
      const std::uint32_t dead = count_prefix(rest, [&](block_id b) { return map_[b].life != liveness::live; });
      if (dead > 0) {
        c.range = {rest.first, dead};
        discards_.planned.push_back(c);
        advance(rest, dead);
      } else {
        ++statistics_.refused;
        advance(rest, 1);
      }
    }
  }

  /// A command is forgotten. What the new plan has again was not cancelled.
  void cancel(const command& c) {
    if (c.what == action::prefetch) {
      for_each_block(c.range, [&](block_id b) {
        if (std::exchange(notes_[b.value].planned_in, plans_) != plans_) {
          ++statistics_.prefetches_cancelled;
        }
      });
    }
  }

  // --- issuing -----------------------------------------------------------------------------------------------------

  void issue() {
    if constexpr (faultless) {
      // Launches that saw all there was in place have not asked, and nothing of theirs may leave.
      if (!(outward_.idle() && discards_.idle())) {
        all_there_ = false;
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
    while (std::deque<command>* queue = waiting(inward_)) {
      command& c = queue->front();
      if (c.what == action::advise) {
        advise(c);
        queue->pop_front();
        continue;
      }
      if (c.why != reason::requested && c.why != reason::fault && statistics_.finished < paused_until_) {
        ++plans_;
        cancel(c);
        queue->pop_front();
        continue;
      }
      const bool keep = c.why == reason::keep;
      advance(c.range, count_prefix(c.range, [&](block_id b) {
                return map_[b].life == liveness::unallocated || (map_.present(b) != keep && !going(b)) ||
                       with_host(b) || (keep && notes_[b.value].ticket != 0);
              }));
      if (c.range.empty()) {
        queue->pop_front();
        continue;
      }
      if (going(c.range.first)) {
        return;  // it can come back when it has left
      }
      if (keep && backed) {  // no driver looks at the order
        map_.touch_migrated(c.range.first);
        advance(c.range, 1);
        continue;
      }
      const std::uint32_t most = std::min(c.range.count, keep ? c.range.count : map_.room());
      if (most == 0) {
        if (c.why != reason::requested || !nothing_executes() || !outward_.idle() || !discards_.idle()) {
          return;  // room comes when something leaves
        }
        statistics_.dropped += c.range.count;
        queue->pop_front();
        continue;
      }
      const bool empty = map_[c.range.first].copies.empty();
      const bool at_once = backed && empty;  // no copy, so the link does not matter
      if (!at_once && full(inward_)) {
        return;
      }
      const std::uint32_t limit = at_once ? most : std::min(most, blocks_left(inward_));
      const std::uint32_t run = count_prefix({c.range.first, limit}, [&](block_id b) {
        return map_[b].life != liveness::unallocated && !going(b) && !with_host(b) && map_.present(b) == keep &&
               (!keep || notes_[b.value].ticket == 0) && (!backed || map_[b].copies.empty() == empty);
      });
      const command piece = take_piece(*queue, run);
      if (const std::uint64_t ticket = begin(inward_, piece, bring(piece.range, empty), "a prefetch")) {
        for_each_block(piece.range, [&](block_id b) {
          notes_[b.value].ticket = ticket;
          notes_[b.value].late = false;
          if (!keep) {
            map_.start_arriving(b);
          }
        });
      }
    }
  }

  /// A copy in two places is of use only where blocks have to leave.
  void advise(const command& c) {
    if (c.range.empty() || (c.hint == advice::set_read_mostly && c.why == reason::learned && !oversubscribed())) {
      return;
    }
    if (!memory_.advise(c.range, c.hint, c.to)) {
      failed("advice");
      return;
    }
    if (c.hint == advice::set_read_mostly || c.hint == advice::unset_read_mostly) {
      for_each_block(c.range, [&](block_id b) { notes_[b.value].read_mostly = c.hint == advice::set_read_mostly; });
    }
  }

  void issue_outward() {
    while (std::deque<command>* queue = waiting(outward_)) {
      command& c = queue->front();
      if (c.what == action::clean) {
        if (full(outward_)) {
          return;
        }
        issue_clean(*queue);
        continue;
      }
      const auto refuses = [&](block_id b) {  // what is being cleaned may be dropped when it is done
        return c.what == action::drop && map_.resident(b) && map_[b].moving != motion::cleaning && !may_drop(b);
      };
      while (!c.range.empty() && refuses(c.range.first)) {
        ++statistics_.refused;
        advance(c.range, 1);
      }
      advance(c.range, count_prefix(c.range, [&](block_id b) { return !map_.present(b) || going(b); }));
      if (c.range.empty()) {
        queue->pop_front();
        continue;
      }
      const bool droppable = may_drop(c.range.first);
      const bool at_once = backed && droppable;  // no copy, so the link does not matter
      if (!at_once && full(outward_)) {
        return;
      }
      const std::uint32_t limit = at_once ? c.range.count : std::min(c.range.count, blocks_left(outward_));
      const std::uint32_t run = count_prefix({c.range.first, limit}, [&](block_id b) {
        return map_.resident(b) && still(b) && !held_down(b) && (c.what != action::drop || may_drop(b)) &&
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
      if (const std::uint64_t ticket = begin(outward_, piece, send_away(piece), "an eviction")) {
        for_each_block(piece.range, [&](block_id b) {
          notes_[b.value].ticket = ticket;
          map_.start_leaving(b);
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
    advance(c.range, count_prefix(c.range, [&](block_id b) { return !may_clean(b); }));
    if (c.range.empty()) {
      queue.pop_front();
      return;
    }
    if constexpr (backed) {
      const std::uint32_t run = count_prefix({c.range.first, std::min(c.range.count, blocks_left(outward_))},
                                             [&](block_id b) { return may_clean(b); });
      const command piece = take_piece(queue, run);
      if (const std::uint64_t ticket =
              begin(outward_, piece, memory_.clean(piece.range, next_ticket_), "a copy to the host")) {
        for_each_block(piece.range, [&](block_id b) {
          notes_[b.value].ticket = ticket;
          notes_[b.value].spoiled = false;
          map_.start_cleaning(b);
        });
      }
    }
  }

  /// Discards need no link, so one that waits for a launch does not hold up the others.
  void issue_discards() {
    for (; !discards_.demanded.empty(); discards_.demanded.pop_front()) {
      const block_id b = discards_.demanded.front().range.first;
      if (map_[b].life != liveness::live && map_[b].users == 0 && still(b) &&
          !launches_.incomplete_up_to(launch_id{notes_[b.value].dead_after})) {
        issue_discard({b, 1}, reason::dead);
      }
    }
    for (; !discards_.requested.empty(); discards_.requested.pop_front()) {
      block_range rest = discards_.requested.front().range;
      while (!rest.empty()) {
        const std::uint32_t run = count_prefix(rest, [&](block_id b) { return idle(b); });
        if (run > 0) {
          issue_discard({rest.first, run}, reason::requested);
        } else {
          ++statistics_.dropped;
        }
        advance(rest, std::max(run, 1U));
      }
    }
    for (std::size_t left = discards_.planned.size(); left > 0; --left) {
      command c = discards_.planned.front();
      discards_.planned.pop_front();
      while (!c.range.empty()) {
        advance(c.range, count_prefix(c.range, [&](block_id b) {  // alive again, or nothing there to give up
                  return map_[b].life == liveness::live || (!map_.present(b) && map_[b].copies.empty());
                }));
        const std::uint32_t run = count_prefix(c.range, [&](block_id b) {
          return map_[b].life != liveness::live && map_[b].users == 0 && still(b) &&
                 !launches_.incomplete_up_to(launch_id{notes_[b.value].dead_after});
        });
        if (run == 0 || discards_.issued.size() >= options_.commands_in_flight) {
          break;
        }
        issue_discard({c.range.first, run}, c.why);
        advance(c.range, run);
      }
      if (!c.range.empty()) {
        discards_.planned.push_back(c);
      }
    }
  }

  void issue_discard(block_range range, reason why) {
    const command c{.what = action::discard, .why = why, .range = range};
    if (const std::uint64_t ticket = begin(discards_, c, memory_.discard(range, next_ticket_), "a discard")) {
      for_each_block(range, [&](block_id b) {
        notes_[b.value].ticket = ticket;
        notes_[b.value].discarding = true;
        if (map_.resident(b)) {
          map_.start_leaving(b);
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
  [[nodiscard]] static std::deque<command>* waiting(lane& l) {
    std::deque<command>& queue = l.next();
    return queue.empty() ? nullptr : &queue;
  }
  /// The device has as many commands of this direction as it is given at a time.
  [[nodiscard]] bool full(const lane& l) const {
    return l.issued.size() >= options_.commands_in_flight || blocks_left(l) == 0;
  }
  [[nodiscard]] std::uint32_t blocks_left(const lane& l) const {
    const std::uint64_t most = std::max<std::uint64_t>(1, options_.bytes_in_flight / block_);
    return static_cast<std::uint32_t>(most - std::min(most, l.blocks));
  }

  /// Notes that the device took a command. @returns  Its ticket; 0 where the call failed.
  std::uint64_t begin(lane& l, const command& c, bool taken, const char* what) {
    if (!taken) {
      failed(what);
      return 0;
    }
    l.issued.push_back({next_ticket_, c});
    l.blocks += c.range.count;
    return next_ticket_++;
  }

  void failed(const char* what) {
    ++statistics_.failed_calls;
    log_once(logged_failure_,
             std::string(what) + " failed; the program goes on without it (logged once, all are counted)");
    if (++failures_in_a_row_ >= options_.failures_until_pause) {
      failures_in_a_row_ = 0;
      paused_until_ = statistics_.finished + options_.launches_of_pause;
      say(std::to_string(options_.failures_until_pause) +
          " commands failed in a row; nothing is prefetched for the next " +
          std::to_string(options_.launches_of_pause) + " launches");
    }
  }

  // --- questions ---------------------------------------------------------------------------------------------------

  /// The host is writing the block, or about to.
  [[nodiscard]] bool with_host(block_id b) const { return faultless && notes_[b.value].host_writes != 0; }
  /// A launch that executes, or that waits for its turn, needs the block where it is.
  [[nodiscard]] bool held_down(block_id b) const {
    if constexpr (faultless) {
      const note& n = notes_[b.value];
      // A launch that waits gives way to the host, which it would wait for again.
      return n.pins != 0 || (n.wanted_by != 0 && n.wanted_by == oldest_ && n.host_writes == 0);
    }
    return launches_.executing_on(b);
  }
  /// The block is leaving the device, or its contents are being given up: it can come back when that is over.
  [[nodiscard]] bool going(block_id b) const { return map_[b].moving == motion::leaving || notes_[b.value].discarding; }
  /// No command is moving the block.
  [[nodiscard]] bool still(block_id b) const { return map_[b].moving == motion::none && !notes_[b.value].discarding; }
  /// No launch in flight and no command may touch the block.
  [[nodiscard]] bool idle(block_id b) const { return map_[b].users == 0 && still(b) && !incomplete_in_flight(); }
  [[nodiscard]] bool incomplete_in_flight() const { return launches_.incomplete_up_to(launches_.last()); }
  /// The device's copy holds nothing that the host has not got. A launch in flight that declares the block and has not
  /// begun will find it missing; one that does not say what it touches may be writing it.
  [[nodiscard]] bool may_drop(block_id b) const {
    const block_state& s = map_[b];
    const bool worthless = !s.dirty && (s.copies.at(location::host()) || s.copies.empty());
    return worthless && !(backed && incomplete_in_flight());
  }
  /// Only a launch that is yet to be submitted may write the block, and that would be noticed.
  [[nodiscard]] bool may_clean(block_id b) const {
    const block_state& s = map_[b];
    return backed && map_.resident(b) && still(b) && s.dirty && s.life == liveness::live && s.writers == 0 &&
           !incomplete_in_flight();
  }
  [[nodiscard]] bool discarding(block_range range) const {
    return std::any_of(discards_.issued.begin(), discards_.issued.end(),
                       [range](const outstanding& o) { return o.what.range.overlaps(range); }) ||
           std::any_of(discards_.requested.begin(), discards_.requested.end(),
                       [range](const command& c) { return c.range.overlaps(range); });
  }
  /// Blocks of which no discard is on its way any more may be touched without being prefetched.
  /// @returns  Whether that is so.
  bool renewed(block_range range) {
    if (discarding(range)) {
      return false;
    }
    if constexpr (detail::renews_blocks<Memory>) {
      memory_.renew(range);
    }
    return true;
  }
  [[nodiscard]] lane& lane_of(action what) {
    switch (what) {
      case action::discard:
        return discards_;
      case action::prefetch:
      case action::advise:
        return inward_;
      case action::evict:
      case action::drop:
      case action::clean:
        break;
    }
    return outward_;
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
      const std::uint64_t held = (map_.occupied() - std::min<std::uint64_t>(map_.occupied(), inward_.blocks));
      const bytes available = memory_.free_memory() + block_ * held;
      most = available > options_.headroom ? (available - options_.headroom) / block_ : 0;
    }
    map_.set_budget(static_cast<std::uint32_t>(std::min<std::uint64_t>(most, map_.size())));
    // Of what others leave, changes of a tenth are worth a line.
    if (options_.budget.count == 0 && map_.budget() < budget_said_ - budget_said_ / 10) {
      say("the budget is " + std::to_string((block_ * map_.budget()).count) +
          " bytes now: others hold more of the device");
    }
    if (options_.budget.count != 0 || map_.budget() < budget_said_ - budget_said_ / 10 ||
        map_.budget() > budget_said_ + budget_said_ / 10) {
      budget_said_ = map_.budget();
    }
    if constexpr (faultless) {
      memory_.set_limit(map_.budget());
      budget_now_.store(map_.budget(), std::memory_order_relaxed);
      all_there_ = all_there_ && map_.occupied() <= map_.budget();
    }
    note_pressure();
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
  std::uint32_t next_stream_ = 0;
  std::atomic<std::uint64_t> last_launch_{0};  // written under the inbox lock
  std::atomic<std::uint64_t> finished_up_to_{0};
  std::atomic<bool> have_to_ask_{false};  // launches, before they are given to the device; written under the state lock
  bool holds_launches_ = false;
  std::atomic<std::uint32_t> host_writes_{0};  // host views that write, on faultless memory; under the state lock
  std::atomic<std::uint64_t> budget_now_{0};   // that of the map, for launches; written under the state lock

  mutable std::mutex state_mutex_;  // everything below
  engine_options options_;
  std::unique_ptr<policy> policy_;
  block_map map_;
  launch_tracker launches_{};
  std::vector<note> notes_;
  lane inward_{};
  lane outward_{};
  lane discards_{};
  statistics statistics_{};
  plan plan_{};
  std::vector<message> taken_{};
  std::vector<device_event> events_{};
  std::uint64_t next_ticket_ = 1;
  std::uint64_t plans_ = 0;                   // that superseded others
  std::uint64_t clock_ = 0;                   // orders arrivals and finishes
  std::uint64_t incomplete_finished_at_ = 0;  // when a launch finished last that may have used any block
  std::uint64_t paused_until_ = 0;            // finished launches before which the policy's prefetches are left out
  std::uint32_t failures_in_a_row_ = 0;
  std::uint32_t pumps_ = 0;
  std::vector<held_launch> held_{};       // in the order in which they asked
  std::uint64_t live_ = 0;                // blocks with contents that matter
  std::uint64_t oldest_ = 0;              // faultless memory: the oldest launch that is held back
  bool starving_ = false;                 // faultless memory: and there is no room for it yet
  std::uint32_t failures_of_demand_ = 0;  // in a row
  bool all_there_ = false;                // faultless memory: every block that is alive can be used, and stays
  nanoseconds last_finish_{};
  bool stirred_ = false;            // something happened that the policy has not been asked about
  bool unread_ = false;             // the inbox, since launches have to ask
  bool host_copies_stay_ = backed;  // blocks may be current both here and on the host
  std::uint32_t budget_said_ = 0;   // the budget when it was last worth a line
  bool saw_faults_ = false;         // a feed told of faults in the beginning
  bool logged_failure_ = false;
  bool logged_oversized_ = false;
};

}  // namespace v0
}  // namespace deepum
