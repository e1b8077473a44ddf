#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_map.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/migration_state.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What a driver does on page faults, for memory that has none (docs/adr/0007): it decides when launches may begin,
/// says what has to move for the oldest one that may not, and which blocks must stay where they are.
///
/// A block stays because of one of three claims on it:
///
/// * a **pin** of each launch that may execute and declares it: it does not leave. An `arena::hold` pins for as long as
///   the program likes;
/// * the launch that is **served** declares it: it does not leave, so that what that launch needs comes together. It is
///   the oldest one that is held back, but for those that only the program can help: by the end of a hold that keeps
///   their room, or of a view that writes what they need. Younger launches do not begin while there is no room for it,
///   so that launches which wait for each other's blocks do not wait for ever;
/// * a **view of the host** that writes it: it does not arrive. No launch begins with it, and before it has what it
///   asked for, launches that are held back give way to it.
///
/// It executes nothing. What has to move it puts into the `demanded` and `requested` queues of the shared state, from
/// which the engine issues them under the same rules as every command: behind what executes, where there is room.
/// Beside those queues it changes the launches that are held, marks blocks as used or written, counts faults, and tells
/// the policy of them.
///
/// Its user, the engine, has it take part in this order:
///
/// 1. `check` before a launch is submitted, and a `pin` once it is known;
/// 2. `may_begin`, again and again until it is so, `hopeless` before that;
/// 3. `serve` and then, when commands have been issued, `settle`, whenever something happened: what launches wait for
///    is asked for there, and what can never begin is found out;
/// 4. `moved` and `ended` for what became of commands, `may_try_again` where one failed;
/// 5. an `unpin` when the launch has finished.
///
/// Threads: under the engine's state lock, except where a member says otherwise.
class demand_paging {
 public:
  /// @param memory, state, chooser  Outlive it.
  demand_paging(memory_space& memory, migration_state& state, policy& chooser)
      : memory_(memory),
        state_(state),
        policy_(chooser),
        block_(memory.block()),
        claims_(state.map.size()) {}
  demand_paging(const demand_paging&) = delete;
  demand_paging& operator=(const demand_paging&) = delete;

  /// @name Launches
  /// @{

  /// It need not be checked. Any thread, without a lock.
  [[nodiscard]] bool surely_fits(const launch_record& record) const;
  /// What a launch declares has to fit, and the host has to be done with it. One that may touch anything declares all
  /// that is alive from now on.
  /// @errors  `status::out_of_device_memory`, `status::invalid_argument` where the host is writing what it touches.
  void check(launch_record& record);
  /// A launch may execute, as far as is known. Until `unpin` what it declares does not leave.
  void pin(const launch_record& record);
  void unpin(const launch_record& record);

  /// Whether a launch that was submitted may be given to the device; then it is not held any more. Else its pins are
  /// taken back, and it is.
  /// @param outer     Launches that it is made within.
  /// @param released  Called with the launch in `state.held`, before it is taken out of there.
  template <class Release>
  bool may_begin(launch_id id, stream_id stream, std::size_t outer, Release&& release) {
    const launch_record* record = state_.launches.find(id, stream);
    expects(record != nullptr, "a launch asks to begin that was not submitted");
    const auto it = state_.find_held(id);
    const bool held = it != state_.held.end();
    // Who came later does not take the room that the one which is served is waiting for.
    if ((!starving_ || served_ >= id.value) && all_of_it_there(*record)) {
      if (held) {
        pin(*record);
      }
      for (const block_access& a : record->accesses) {
        for_each_block(a.range, [&](block_id b) {
          state_.notes[b.value].spoiled = state_.notes[b.value].spoiled || a.mode != access::read;
          map().touch_migrated(b);
        });
      }
      if (held) {
        release(it);
      }
      return true;
    }
    if (!held) {
      unpin(*record);
      state_.hold_back(*record, memory_.now(), outer);
    }
    return false;
  }
  /// Whether a launch will never begin.
  [[nodiscard]] bool hopeless(launch_id id);
  /// Why it will not.
  [[nodiscard]] error refusal(const launch_record& record) const;
  /// @}

  /// @name The host
  /// A read needs contents that are current on the host, a write blocks that are not on the device and stay away from
  /// it.
  /// @{

  /// From now on the host uses the blocks, as soon as it may.
  void begin_host_access(block_range range, access mode);
  /// Whether it may; else what that takes is asked for.
  /// @errors  `status::out_of_host_memory`, `status::device_failure` where that failed again and again.
  [[nodiscard]] bool host_may_use(block_range range, access mode);
  /// The host has no memory for more blocks: copies of it that the device has too are given up, and blocks that only
  /// the host has go to the device where there is room.
  /// @returns  Whether it is worth to ask for memory again.
  [[nodiscard]] bool relieve_host();
  /// The host does not use them any more.
  void end_host_access(block_range range, access mode);
  /// The host's memory for a block may be reclaimed: the device has newer contents or nobody wants any, no view of the
  /// host uses it, nothing is copied to or from it on the way of a command, and no launch in flight counts on what it
  /// held. A copy to the host makes it current again (`memory_space::outdated`).
  [[nodiscard]] bool host_copy_is_worthless(block_id b) const;
  /// Something of that may have become so. The only place that tells the memory.
  void note_host_copy(block_id b);
  /// @}

  /// @name What happens
  /// @{

  /// Fills the `demanded` queues anew: the launch that is served gets what it misses, unless the policy is bringing it,
  /// and what is more than the budget leaves.
  void serve();
  /// Everything has been issued that could be. Where nothing executes and nothing moves, and all have said what they
  /// have to, the launch that is served is not going to get more: first the policy is not waited for any more, and then
  /// it is hopeless.
  void settle();

  /// A block arrived or left, or a launch was taken back: what failed may work now.
  void moved();
  /// A command has ended. What a launch or the host waits for failed again and again: it will not get it.
  /// @param again  It failed for a reason that is gone.
  void ended(const command& c, bool done, bool again);
  /// A command failed. @returns  Whether the same one may do better next time.
  [[nodiscard]] bool may_try_again();

  void became_alive(block_id b) { all_there_ = all_there_ && map().ready(b); }
  /// Blocks are about to leave, or to be given up.
  void something_leaves() { all_there_ = false; }
  /// That of the map has changed.
  void budget_changed();
  /// @}

  /// @name Questions
  /// @{

  /// All that is alive can be used and nothing is going to move: launches may begin without asking.
  [[nodiscard]] bool all_there() const { return all_there_; }
  /// A launch that may execute, or that waits for its turn, needs the block where it is. One that waits gives way to
  /// the host, for which it would have to wait in turn.
  [[nodiscard]] bool held_down(block_id b) const;
  /// Blocks that could arrive without any leaving.
  [[nodiscard]] std::uint32_t room() const;
  /// A launch that declares the block may execute: one that is more than a hold.
  [[nodiscard]] bool executed_on(block_id b) const { return claims_[b.value].pins != claims_[b.value].holds; }
  /// A hold keeps the block on the device for as long as the program likes.
  [[nodiscard]] bool held_by_program(block_id b) const { return claims_[b.value].holds != 0; }
  /// The host is writing the block, or about to.
  [[nodiscard]] bool with_host(block_id b) const { return claims_[b.value].host_writes != 0; }
  /// @}

 private:
  /// Who wants a block to stay where it is.
  struct claims {
    std::uint64_t wanted_by = 0;    // the launch that was served last and declares it
    std::uint32_t pins = 0;         // launches that may execute and declare it
    std::uint32_t holds = 0;        // those of them that are an `arena::hold`
    std::uint32_t host_views = 0;   // through which the host reads or writes it
    std::uint32_t host_writes = 0;  // those through which it writes
  };
  static constexpr std::uint64_t launches_of_shortage = 1024;        // that finish before more memory is tried for
  static constexpr bytes copies_given_up{std::uint64_t{128} << 20};  // of the host, at a time

  [[nodiscard]] block_map& map() { return state_.map; }
  [[nodiscard]] const block_map& map() const { return state_.map; }
  [[nodiscard]] std::string in_bytes(std::uint64_t blocks) const { return std::to_string((block_ * blocks).count); }
  [[nodiscard]] bool host_may_use(block_id b, access mode) const;
  [[nodiscard]] error host_refusal(block_range range) const;
  [[nodiscard]] std::string too_large(const std::string& name, std::uint64_t blocks) const;

  template <class Visit>
  static void for_each_declared(const launch_record& record, Visit&& visit) {
    for (const block_access& a : record.accesses) {
      for_each_block(a.range, visit);
    }
  }

  /// The oldest launch that is held back and that something else than the program can help.
  [[nodiscard]] held_launch* next_served();
  /// Only the end of a hold makes room for a launch, or only the end of a view gives it what it needs.
  [[nodiscard]] bool awaits_program(const launch_record& record) const;

  [[nodiscard]] bool all_of_it_there(const launch_record& record) const;

  /// @param told  The policy knows.
  /// @returns     Blocks that need room.
  std::uint64_t demand(const launch_record& record, bool told);
  /// One command for blocks that follow each other. All that is demanded at a time has the same reason.
  void demand(block_id b, reason why);
  /// All that is alive fits, and did for a while: then all of it is brought, so that no launch has to ask.
  void bring_all();
  /// Blocks that the device takes: the budget, or what fitted when it had no memory for more because others hold it.
  /// That is forgotten after a while, and when nothing else helps: they may have given it back.
  [[nodiscard]] std::uint32_t most_on_device() const;
  /// Least recently used blocks leave until there is room for so many, dead ones first.
  void make_room_for(std::uint64_t missing);

  /// Of blocks that the device has as well; from now on they count as written there.
  /// @returns  Whether there were any.
  bool give_up_host_copies();

  /// When all that is alive, and all that launches in flight declare, can be used and nothing is going to move,
  /// launches need not ask.
  void look_for_all();

  memory_space& memory_;
  migration_state& state_;
  policy& policy_;
  const bytes block_;
  std::vector<claims> claims_;
  std::atomic<std::uint32_t> host_writes_{0};  // host views that write; changed under the lock
  std::atomic<std::uint64_t> budget_now_{0};   // that of the map, for launches; changed under the lock
  std::uint64_t served_ = 0;                   // launch that is held back and gets what it misses
  bool starving_ = false;                      // and there is no room for it yet
  std::uint64_t blocks_of_holds_ = 0;          // that stay until the program ends a hold
  bool all_there_ = false;                     // every block that is alive can be used, and stays
  std::uint32_t fitted_ = 0;                   // blocks, when the device had no memory for more
  std::uint64_t short_until_ = 0;              // finished launches
  failing_wait launch_wait_{};                 // of the launch that is served
  failing_wait host_wait_{};                   // of whoever waits for host access
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/demand_paging.hpp>  // what it declares
#endif
