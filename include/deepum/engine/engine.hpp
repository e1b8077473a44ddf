#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/demand_paging.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/migration_state.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/error.hpp>
#include <deepum/log.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

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
/// Where the host keeps its copy (`memory_capabilities::keeps_home_copy`) what a block costs depends on its contents:
/// what has none gets room without a copy, and what the host has a current copy of gives its room up without one. A
/// block is cleaned only while no launch in flight may write it, and is clean only if none was submitted meanwhile.
///
/// On memory that never faults (`memory_capabilities::faults`) `detail::demand_paging` takes the driver's place: a
/// launch begins when all that it declares is there, and gets what it misses before anything that is planned.
///
/// Hints may fail: that is counted, logged once and rolled back, and nothing throws.
///
/// Threads: every public call may be made by any thread, `pump` included. Lock order: see docs/architecture.md.
class engine {
 public:
  /// @param memory   Outlives the engine. Its worker calls `pump`; it must not do so any more when the engine is
  ///                 destroyed.
  /// @param chooser  The policy. Called by one thread at a time.
  engine(memory_space& memory, std::unique_ptr<policy> chooser, engine_options options);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  /// @name Launches. Cost: one push under the inbox lock.
  /// @{

  /// @param lookahead  Degree N of lookahead for this stream; nothing: the policy's own.
  /// @returns          Its number. One that a closed stream had is given out again when all launches of that one have
  ///                   finished and the policy has been told.
  /// @errors           `status::unsupported` where 65536 streams are open.
  stream_id open_stream(std::optional<std::uint32_t> lookahead);
  /// Its launches have finished, as far as the device is concerned.
  void close_stream(stream_id s);

  /// Whether a launch can begin at all. Comes before `report`.
  /// @param record  With everything but its number. Where it may touch anything, on memory that never faults, all that
  ///                is alive becomes its operands.
  /// @errors        On memory that never faults: `status::out_of_device_memory` where the launch can never begin,
  ///                `status::invalid_argument` where the host is using what it touches.
  void check(launch_record& record);
  /// A launch is about to be issued to the device. Called before it is, and after `check`.
  /// @returns  Its number.
  launch_id report(launch_record&& record);
  /// Both.
  launch_id submit(launch_record&& record);
  /// A launch that was admitted will not run, or not as a whole: what it declared to overwrite is as it was before.
  /// Comes before the launch ends.
  void abandon(launch_id id, stream_id stream);

  /// Whether a launch may be given to the device now: the policy brings nothing for it any more (docs/adr/0004). The
  /// program asks again until it may, or calls `admit`. Without a lock where all that is alive fits the budget.
  ///
  /// A launch for which nothing moves and behind nothing that executes is always admitted: what it misses will fault.
  /// On memory that never faults it is admitted when all of it is there.
  /// @param outer  Launches of this arena whose bodies are making it, and which end behind it.
  /// @errors  On memory that never faults: `status::out_of_device_memory`, `status::out_of_host_memory` where it can
  ///          never begin. Then it was taken back.
  [[nodiscard]] bool admitted(launch_id id, stream_id stream, std::size_t outer = 0) {
    return !holds_launches_ || !have_to_ask_.load(std::memory_order_relaxed) || ask_to_begin(id, stream, outer);
  }
  /// A launch has waited too long. @returns  Whether it is given to the device as it is; else it has to go on waiting.
  bool admit(launch_id id);

  /// Whether a launch that is held back could be on the device together with others that have not finished.
  /// @param others  Those that are, each with its stream. Cost: nothing where there are none.
  [[nodiscard]] bool fits_beside(launch_id id, stream_id stream,
                                 std::span<const std::pair<launch_id, stream_id>> others);
  /// A launch that has asked and was not admitted will not be given to the device after all. Nothing where it is not
  /// held back any more.
  void withdraw(launch_id id, stream_id stream);

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
  [[nodiscard]] bool tell_live(block_range range);
  /// So much has been reported since the last `pump` that the program should wait for the next one: the memory for what
  /// is reported, and for what a policy notes of it until it plans, is bounded. Pumps come whatever the device does. No
  /// lock.
  [[nodiscard]] bool crowded() const { return crowded_.load(std::memory_order_relaxed); }
  /// Takes in what happened up to now, so that `finished` and `admitted` know of it; plans nothing.
  void catch_up();
  /// No discard of these blocks is on its way.
  [[nodiscard]] bool settled(block_range range);
  /// The blocks hold nothing of value any more, as a whole.
  /// @param how   `unallocated` or `inactive`.
  /// @param last  The last launch that may still use them.
  void dead(block_range range, liveness how, launch_id last);
  /// The host is about to read or write the blocks of a memory kind where it uses the same addresses.
  void host_access(block_range range, access mode);
  /// @}

  /// @name The host on memory that never faults
  /// A read needs contents that are current on the host, a write blocks that are not on the device and stay away from
  /// it.
  /// @{

  /// From now on the host uses the blocks, as soon as it may.
  void begin_host_access(block_range range, access mode);
  /// Whether it may. Asks for what that takes.
  /// @errors  `status::out_of_host_memory`, `status::device_failure` where the blocks cannot get there.
  [[nodiscard]] bool host_may_use(block_range range, access mode);
  /// The host has no memory for more blocks: copies of it that the device has too are given up, and blocks that only
  /// the host has go to the device where there is room.
  /// @returns  Whether it is worth to ask for memory again.
  [[nodiscard]] bool relieve_host();
  /// It does not any more.
  void end_host_access(block_range range, access mode);
  /// @}

  /// @name Requests of the program. They go before what the policy plans, and are not forgotten when it plans anew.
  /// @{

  /// Move blocks. Room is not made for it: what does not fit when nothing is under way is dropped and counted, and so
  /// is what comes while 1024 requests wait.
  void prefetch(block_range range, location to);
  void advise(block_range range, advice hint, location where);
  /// Give the contents of blocks up. Blocks that a launch in flight may touch are left alone, and counted as dropped.
  /// The memory must not be used before `settled`.
  void discard(block_range range);
  /// @}

  /// Device memory to hold at most. @param budget  0: what is free, less the headroom, refreshed now and then.
  void set_budget(bytes budget);
  [[nodiscard]] bytes budget() const;

  /// What has been done so far, up to this moment.
  [[nodiscard]] statistics snapshot();
  [[nodiscard]] std::string_view policy_name() const { return policy_->name(); }

  /// What the policy has learned up to this moment, for the next run of the program. Holds the state lock for as long
  /// as that takes, which is linear in its tables.
  [[nodiscard]] std::vector<std::byte> save_tables();
  /// The policy begins with what an earlier run saved. Called before any stream is opened.
  /// @errors  Those of `deepum::load_tables`; then the policy knows nothing.
  void load_tables(std::span<const std::byte> archive);

  /// Takes what happened, tells the policy, plans, issues. Never waits for the device, never throws.
  void pump();

 private:
  static std::unique_ptr<policy> checked(std::unique_ptr<policy> chooser);

  void plan_and_issue();

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

  static constexpr unsigned rounds_per_pump = 16;     // plans taken from a policy before the lock is given up
  static constexpr unsigned pumps_per_refresh = 64;   // asking for the free memory is a system call on a real device
  static constexpr std::size_t most_requests = 1024;  // hints of the program that wait in one direction
  static constexpr std::size_t most_messages = 4096;  // between two pumps, before the program waits
  static constexpr std::uint32_t most_streams = 1U << 16U;         // that `stream_id` can tell apart
  static constexpr std::uint32_t closed_streams_until_asked = 64;  // whether they are over, before more are numbered

  // --- inbox -------------------------------------------------------------------------------------------------------

  /// A launch is numbered here, under the lock, so that numbers are in the order of the inbox.
  launch_id push(message&& m);
  /// @param closing  Nothing is found where so many closed streams still have their numbers and no other has been given
  ///                 back: numbers stay small, and so does all that is kept by them.
  std::optional<stream_id> take_stream_number(std::uint32_t closing);
  /// The number of a stream is free when the stream has been closed and nothing of it is in flight.
  void give_back_if_over(stream_id s);
  /// @returns  Whether no block is given up before this has been read, and launches need not wait for room because of
  ///           it.
  bool push_live(block_range range);
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
  static bool asks_for_discard(const message& m);

  /// Takes in what the program and the device report. The device is asked first: whatever it reports of a launch, the
  /// launch itself was in the inbox before.
  void absorb();
  void take_inbox();

  /// How many blocks may come alive until it is asked again. To be called when others have, or the budget has changed.
  void note_spare();
  void take(message& m);

  /// Hints that come faster than anything moves are left out.
  void take_request(const command& c);
  void take_launch(launch_record&& r);

  /// What a launch that was submitted says about contents that the host has.
  ///
  /// A copy to the host that is being made may be stale when it is done. And the contents of a block that the launch
  /// overwrites as a whole are dead where nothing else in flight may touch it: every earlier launch has finished, host
  /// stores that were reported are earlier, and whatever comes later sees what this launch writes. Nothing is given up
  /// by forgetting them while the device has none of them, so no command has to be ordered before the launch.
  void take_writes(const launch_record& record);
  /// A launch will not run: what it would have overwritten is what the host has, and the device has room alone.
  void remember_contents(const launch_record& record);
  /// What has no contents on the device, and has some on the host, comes again when it has left.
  void leave_if_hollow(block_id b);

  /// What a launch will write is read-mostly no longer, before the launch can begin: the driver takes a write to a
  /// duplicated page for an exception, and serves it page by page.
  void end_read_mostly(const launch_record& record);

  // --- admission ---------------------------------------------------------------------------------------------------

  bool ask_to_begin(launch_id id, stream_id stream, std::size_t outer);
  bool may_begin(launch_id id, stream_id stream, std::size_t outer);
  /// A launch that was held back will not be given to the device.
  /// @returns  What it was.
  launch_record take_back(launch_id id, stream_id stream);
  /// Something may be missing when a launch begins: what is alive does not fit, or is on its way, or no driver would
  /// bring it.
  [[nodiscard]] bool pressed() const;
  /// A launch that was held back has to ask until it is let go, also when all fits by then.
  /// Whoever did not ask before is in the inbox: a launch is put there first, and asks then. So whoever is put there
  /// after the inbox was read next has seen that it has to ask.
  void note_pressure();
  /// While others execute, a launch that is held back costs no time.
  void release(std::vector<detail::held_launch>::iterator it);
  /// Nothing executes, nothing moves, and all have said what they have to: then nothing will ever get ready.
  void admit_if_stuck();

  void revive(block_range range);
  /// The policy hears of what had been alive until now: contents die once.
  void take_death(const message& m);
  void set_liveness(block_id b, liveness life);

  // --- device events -----------------------------------------------------------------------------------------------

  void take(const device_event& e);
  void take_finish(const device_event& e);
  /// A launch wrote the block on the device. Where that has room alone, the launch was abandoned.
  void written(block_id b);
  /// The host's copy may have become of no use.
  void note_host_copy(block_id b);

  /// Nobody tells of faults: what a launch declared, and was not there, is there now.
  void take_unseen_faults(const launch_record& record, nanoseconds at);
  void take_fault(const device_event& e, launch_id launch);
  void take_arrival(const device_event& e);
  void take_departure(const device_event& e);

  /// @returns  Whether the same command may do better next time.
  bool take_failure();

  /// A command is done, or has failed. Blocks that it did not report stayed where they were.
  /// @param again  It failed for a reason that is gone.
  void retire(std::uint64_t ticket, bool done, bool again = false);

  /// A block's contents have been given up.
  void gone(block_id b);

  [[nodiscard]] const detail::outstanding* find(std::uint64_t ticket) const;

  // --- plans -------------------------------------------------------------------------------------------------------

  /// Takes the plan over into the queues.
  void enqueue();

  /// The law: what no fact calls dead is not even queued.
  void enqueue_discard(command c);

  /// A command is forgotten. What the new plan has again was not cancelled.
  void cancel(const command& c);

  // --- issuing -----------------------------------------------------------------------------------------------------

  void issue();

  void issue_inward();

  /// A copy in two places is of use only where blocks have to leave.
  void advise(const command& c);

  void issue_outward();

  /// Gives blocks room on the device, with their contents where there are any.
  bool bring(block_range range, bool empty);
  /// A managed block whose host copy is current leaves without being copied: the driver sees to that.
  bool send_away(const command& c);

  /// Takes one piece off the first command. Blocks that cannot be cleaned now, or need not be, are left out.
  void issue_clean(std::deque<command>& queue);

  /// Before contents are given up: from now on nobody revives blocks without the state lock, and who has is heard.
  void announce_discards();

  /// Discards need no link, so one that waits for a launch does not hold up the others.
  void issue_discards();

  void issue_discard(block_range range, reason why);

  /// Takes the first blocks of the first command, and the command itself when nothing of it is left.
  static command take_piece(std::deque<command>& queue, std::uint32_t blocks);

  /// The queue that a direction works on; null where nothing waits.
  [[nodiscard]] static std::deque<command>* waiting(detail::lane& l);
  /// The device has as many commands of this direction as it is given at a time.
  [[nodiscard]] bool full(const detail::lane& l) const;
  [[nodiscard]] std::uint32_t blocks_left(const detail::lane& l) const;

  /// Notes that the device took a command. @returns  Its ticket; 0 where the call failed.
  std::uint64_t begin(detail::lane& l, const command& c, bool taken, const char* what);

  void failed(const char* what);

  // --- questions ---------------------------------------------------------------------------------------------------

  /// The host is writing the block, or about to.
  [[nodiscard]] bool kept_off(block_id b) const;
  /// A launch that executes, or that waits for its turn, needs the block where it is.
  [[nodiscard]] bool held_down(block_id b) const;
  /// Blocks that could arrive without any leaving.
  [[nodiscard]] std::uint32_t room() const;
  /// It is not worth to wait until the block may leave: a hold keeps it, which ends when the program likes, or who
  /// wants it asks again anyway.
  [[nodiscard]] bool stays_for_now(block_id b, reason why) const;
  /// No launch in flight and no command may touch the block.
  [[nodiscard]] bool idle(block_id b) const;
  [[nodiscard]] bool incomplete_in_flight() const { return state_.launches.incomplete_up_to(state_.launches.last()); }
  /// The device's copy holds nothing that the host has not got. A launch in flight that declares the block and has not
  /// begun will find it missing; one that does not say what it touches may be writing it.
  [[nodiscard]] bool may_drop(block_id b) const;
  /// Only a launch that is yet to be submitted may write the block, and that would be noticed. For the host, which such
  /// launches may be waiting for, also one that is held back.
  [[nodiscard]] bool may_clean(block_id b, reason why) const;
  /// A launch may execute that declares the block.
  [[nodiscard]] bool executes_on(block_id b) const;
  [[nodiscard]] bool discarding(block_range range) const;
  /// Blocks of which no discard is on its way any more may be touched without being prefetched.
  /// @returns  Whether that is so.
  bool renewed(block_range range);
  [[nodiscard]] detail::lane& lane_of(action what);

  void refresh_budget();

  void count(traffic& t, reason why, bool copied) const;
  void log_once(bool& logged, const std::string& line);
  void say(const std::string& line) const;

  memory_space& memory_;
  const bytes block_;
  const bool keeps_home_copy_;

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
  std::optional<detail::demand_paging> demand_{};  // where the memory never faults
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
  bool unread_ = false;            // the inbox, since launches have to ask
  bool host_copies_stay_;          // blocks may be current both here and on the host
  std::uint32_t budget_said_ = 0;  // the budget when it was last worth a line
  bool saw_faults_;                // a feed told of faults in the beginning
  bool logged_failure_ = false;
  bool logged_oversized_ = false;
};

}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/admission.hpp>
#include <deepum/engine/impl/dispatcher.hpp>
#include <deepum/engine/impl/engine.hpp>
#include <deepum/engine/impl/event_intake.hpp>
#include <deepum/engine/impl/inbox.hpp>
#endif
