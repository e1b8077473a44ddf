#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_record.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/engine_options.hpp>
#include <deepum/engine/inbox.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {
class demand_pager;
class upload_desk;
struct engine_rooms;
}  // namespace detail

/// Orders all migrations of one arena on one device: the pump, and the public calls. docs/architecture.md has the
/// figure.
///
/// Threads report launches and facts through one inbox, so that they have one order (docs/adr/0001). A turn of the pump
/// takes in what happened, asks the policy for plans, closes the gates, reads the inbox once more, dispatches, and lets
/// launches begin that nothing will help. A hint that fails is counted, logged once and rolled back; nothing throws.
///
/// Threads: any, for every public call, `pump` included. Lock order: docs/architecture.md.
class engine {
 public:
  /// @param space    Outlives the engine. Its worker calls `pump`; it must not do so any more when the engine is
  ///                 destroyed.
  /// @param chooser  The policy. Called by one thread at a time.
  engine(memory_space& space, std::unique_ptr<policy> chooser, engine_options chosen);
  ~engine();
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
  /// Whether `check` has nothing to say about a launch. No lock.
  [[nodiscard]] bool surely_fits(const launch_record& record) const;
  /// A launch is about to be issued to the device. Called before it is, and after `check`.
  /// @returns  Its number.
  launch_id report(launch_record&& record);
  /// Both.
  launch_id submit(launch_record&& record);
  /// A launch that was admitted will not run, or not as a whole: what it declared to overwrite is as it was before.
  /// Comes before the launch ends.
  void abandon(launch_id id, stream_id stream);

  /// Whether a launch may be given to the device now (`detail::admission`, docs/adr/0004). The program asks again until
  /// it may, or calls `admit`. Without a lock where all that is alive fits the budget and nothing is given up.
  ///
  /// A launch for which nothing moves and behind nothing that executes is always admitted: what it misses will fault.
  /// On memory that never faults it is admitted when all of it is there.
  /// @param outer  Launches of this arena whose bodies are making it, and which end behind it.
  /// @errors  On memory that never faults: `status::out_of_device_memory`, `status::out_of_host_memory` where it can
  ///          never begin. Then it was taken back.
  [[nodiscard]] bool admitted(launch_id id, stream_id stream, std::size_t outer = 0) {
    return !has_to_ask() || ask_to_begin(id, stream, outer);
  }
  /// Whether `admitted` has to be asked at all. No lock.
  [[nodiscard]] bool has_to_ask() const { return inbox_.launches_ask(); }
  /// A launch has waited too long for the policy. @returns  Whether it is given to the device as it is; else it has to
  /// go on waiting, for what no time-out helps.
  bool admit(launch_id id);
  /// A launch is captured and executes later, if at all: it is not held back any more.
  /// @returns  Whether that is so; else it declares what an upload has not brought yet.
  [[nodiscard]] bool let_pass(launch_id id);

  /// Whether a launch that is held back could be on the device together with others that have not finished.
  /// @param others  Those that are, each with its stream. Cost: nothing where there are none.
  [[nodiscard]] bool fits_beside(launch_id id, stream_id stream,
                                 std::span<const std::pair<launch_id, stream_id>> others);
  /// A launch that has asked and was not admitted will not be given to the device after all. Nothing where it is not
  /// held back any more.
  void withdraw(launch_id id, stream_id stream);

  /// The blocks of a launch that was admitted stay on the device when it has finished, too, until they are let go:
  /// checked mode looks at them there. Nothing on memory that faults.
  void keep(launch_id id, stream_id stream, std::span<const block_access> blocks);
  void release_kept(launch_id id, std::span<const block_access> blocks);

  /// The launch that was submitted last; invalid where there was none.
  [[nodiscard]] launch_id last_launch() const { return inbox_.last_launch(); }
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
  [[nodiscard]] bool crowded() const { return inbox_.crowded(); }
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
  /// Whether it may. Asks for what that takes. @param whole  Blocks of which every byte is overwritten: what they hold
  ///                                                         is given up, where no launch in flight may use it.
  /// @errors  `status::out_of_host_memory`, `status::device_failure` where the blocks cannot get there.
  [[nodiscard]] bool host_may_use(block_range range, access mode, block_range whole = {});
  /// The host has no memory for more blocks: copies of it that the device has too are given up, and blocks that only
  /// the host has go to the device where there is room.
  /// @returns  Whether it is worth to ask for memory again.
  [[nodiscard]] bool relieve_host();
  /// It does not any more.
  void end_host_access(block_range range, access mode);
  /// @}

  /// Uploads: the host overwrites blocks while launches run. `report` with `launch_record::upload` begins one.
  [[nodiscard]] detail::upload_desk& uploads() { return *upload_desk_; }
  /// Whether there may be any that is not over. No lock.
  [[nodiscard]] bool uploading() const { return inbox_.uploading(); }

  /// @name Requests of the program. They go before what the policy plans, and are not forgotten when it plans anew.
  /// @{

  /// Move blocks: to where launches run, or away from there to the host or to a device that only holds blocks. Room is
  /// not made for it: what does not fit when nothing is under way is dropped and counted, and so is what comes while
  /// 1024 requests wait.
  void prefetch(block_range range, location to);
  void advise(block_range range, advice hint, location where);
  /// Give the contents of blocks up. Blocks that a launch in flight may touch are left alone, and counted as dropped.
  /// The memory must not be used before `settled`.
  void discard(block_range range);
  /// @}

  /// Device memory to hold at most. @param budget  0: what is free, less the headroom, refreshed now and then.
  void set_budget(bytes budget);
  /// The same of a neighbour, as far as its owner leaves so much (`memory_space::lendable`); 0: nothing. What is more
  /// than that begins to leave.
  void set_budget(location at, bytes budget);
  /// Whether a place holds no more than its budget. Else the pump is told.
  [[nodiscard]] bool within_budget(location at);
  [[nodiscard]] bytes budget() const;  // no lock
  /// Blocks of the budget that no `arena::hold` keeps.
  [[nodiscard]] std::uint64_t room_of_launches() const;

  /// What has been done so far, up to this moment.
  [[nodiscard]] statistics snapshot();
  [[nodiscard]] std::string_view policy_name() const;

  /// What the policy has learned up to this moment, for the next run of the program. Holds the state lock for as long
  /// as that takes, which is linear in its tables.
  [[nodiscard]] std::vector<std::byte> save_tables();
  /// The policy begins with what an earlier run saved. Called before any stream is opened.
  /// @errors  Those of `deepum::load_tables`; then the policy knows nothing.
  void load_tables(std::span<const std::byte> archive);

  /// Takes what happened, tells the policy, plans, issues. Never waits for the device, never throws.
  void pump();

 private:
  static constexpr unsigned rounds_per_pump = 16;  // plans taken from a policy before the lock is given up
  static constexpr std::uint32_t closed_streams_until_asked = 64;  // whether they are over, before more are numbered

  /// The state lock, held while it lives: what happened is taken in first, and when the lock is given back, urgent
  /// advice has been issued and the gates are worked out.
  class turn;

  [[nodiscard]] bool ask_to_begin(launch_id id, stream_id stream, std::size_t outer);
  /// Plans, where something happened since the last plan.
  /// @returns  What the policy has to work out first, without the lock; null where there is nothing.
  [[nodiscard]] std::unique_ptr<long_work> plan_where_due();
  [[nodiscard]] std::unique_ptr<long_work> plan_and_dispatch();
  /// Takes in what the program and the device report. The device is asked first: whatever it reports of a launch, the
  /// launch itself was in the inbox before.
  void absorb();
  void read_inbox();
  /// Blocks of which no discard is on its way any more may be touched without being prefetched.
  /// @returns  Whether that is so.
  bool repopulated(block_range range);

  memory_space& memory_;
  detail::inbox inbox_;
  std::atomic<std::uint64_t> finished_up_to_{0};
  mutable std::mutex state_mutex_;  // of the rooms
  std::unique_ptr<detail::engine_rooms> rooms_;
  std::unique_ptr<detail::upload_desk> upload_desk_;
  detail::demand_pager* const pager_;  // where the memory never faults; else null
};

}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/engine.hpp>  // what it declares
#endif
