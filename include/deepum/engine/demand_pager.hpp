#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/claims.hpp>
#include <deepum/engine/fact_finder.hpp>
#include <deepum/engine/failing_wait.hpp>
#include <deepum/engine/held_launches.hpp>
#include <deepum/engine/host_access.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/neighbour_tier.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/uploads.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <cstdint>
#include <string>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The page fault handler for memory that has none (docs/adr/0007): it says when all that a launch declares is there,
/// and what has to move for the launch that is *served*.
///
/// That is the oldest launch held back, but for those that only the program can help, by ending a hold or a view. No
/// younger launch begins while it lacks room. What has to move goes into the `demanded` queues; the dispatcher issues
/// it. Calls for a launch: `check`, `all_of_it_there` until it holds, `begin`; for a turn of the pump: `serve`,
/// `settle`.
///
/// Threads: under the engine's state lock, except where a member says otherwise.
class demand_pager {
 public:
  /// All outlive it.
  demand_pager(memory_space& space, records& shared, policy& chooser, block_claims& claims, const fact_finder& facts,
               host_access& views, neighbour_tier& beside)
      : memory_(space),
        state_(shared),
        policy_(chooser),
        claims_(claims),
        facts_(facts),
        host_(views),
        tier_(beside) {}
  demand_pager(const demand_pager&) = delete;
  demand_pager& operator=(const demand_pager&) = delete;

  /// Launches that wait for one of these are not helped by what moves. @param unfinished  Outlive it.
  void await(const uploads& unfinished) { uploads_ = &unfinished; }

  /// @name Launches
  /// @{

  /// It need not be checked. Any thread, without a lock.
  [[nodiscard]] bool surely_fits(const launch_record& record) const;
  /// The operands of a launch have to fit, and the host has to be done with it. One that may touch anything declares
  /// all that is alive from now on.
  /// @errors  `status::out_of_device_memory`, `status::invalid_argument` where the host is writing what it touches.
  void check(launch_record& record);
  /// Memory for a launch is there: all its blocks, and no older launch is waiting for the room.
  [[nodiscard]] bool all_of_it_there(const launch_record& record) const;
  /// A launch is given to the device.
  void begin(const launch_record& record);
  /// Why a launch will never begin.
  [[nodiscard]] error refusal(const launch_record& record) const;
  /// @}

  /// @name What happens
  /// @{

  /// Fills the `demanded` queues anew: the launch that is served gets what it misses, unless the policy is bringing it,
  /// and what is more than the budget leaves.
  void serve();
  /// Everything has been issued that could be. Where nothing executes and nothing moves, and all have said what they
  /// have to, the launch that is served is not going to get more: first the policy is not waited for any more, and then
  /// it is unsatisfiable.
  void settle();

  /// A block arrived or left, or a launch was taken back: what failed may work now.
  void moved() {
    wait_.something_moved();
    host_.moved();
  }
  /// A command has ended. What a launch waits for failed again and again: it will not get it.
  /// @param again  It failed for a reason that is gone.
  void ended(const transfer& t, bool done, bool again);
  /// A command failed. @returns  Whether the same one may do better next time.
  [[nodiscard]] bool may_try_again();
  /// That of the map has changed.
  void budget_changed();
  /// @}

 private:
  /// Blocks that a launch has to have on the device, each counted once.
  [[nodiscard]] std::uint64_t needed_blocks(const launch_record& record) const;
  /// Launches can touch rows of the block where it is, once the memory has seen to it.
  [[nodiscard]] bool can_be_reached(block_id b) const;
  /// The launch waits for that, and for nothing that moves.
  [[nodiscard]] bool awaits_reach(const launch_record& record) const;
  /// Rows of a launch that does not fit otherwise are touched in place.
  void reach_in_place(const launch_record& record);
  static constexpr std::uint64_t launches_of_shortage = 1024;  // that finish before more memory is tried for

  [[nodiscard]] std::string in_bytes(std::uint64_t blocks) const {
    return std::to_string((state_.ledger.grid().block() * blocks).count);
  }
  [[nodiscard]] std::string too_large(const std::string& name, std::uint64_t blocks) const;
  /// The oldest launch that is held back and that something else than the program can help.
  [[nodiscard]] held_launch* next_served();
  /// Only the end of a hold makes room for a launch, or only the end of a view or of an upload gives it what it needs.
  [[nodiscard]] bool awaits_program(const launch_record& record) const;
  [[nodiscard]] bool complete(const launch_record& record) const;
  /// Room that has no contents leaves first, without a copy: behind it the block arrives with what the host has.
  /// @param notified  The policy knows.
  /// @returns         Blocks that need room.
  std::uint64_t demand(const launch_record& record, bool notified);
  /// One transfer for blocks that follow each other. All that is demanded at a time has the same reason.
  void demand(block_id b, reason why);
  /// All that is alive fits, and did for a while: then all of it is brought, so that no launch has to ask.
  void bring_all();
  /// Least recently used blocks leave until there is room for so many, dead ones first. What was demanded to leave
  /// before makes room, too.
  void make_room_for(std::uint64_t missing);
  void demand_to_leave(block_id b, reason why);
  /// When all that is alive, and all that launches in flight declare, can be used and nothing is going to move,
  /// launches need not ask.
  void look_for_all();

  memory_space& memory_;
  records& state_;
  policy& policy_;
  block_claims& claims_;
  const fact_finder& facts_;
  host_access& host_;
  neighbour_tier& tier_;
  const uploads* uploads_ = nullptr;
  std::atomic<std::uint64_t> budget_now_{0};  // that of the map, for launches; changed under the lock
  bool starving_ = false;                     // there is no room yet for the launch that is served
  failing_wait wait_{};                       // of that launch
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/demand_pager.hpp>  // what it declares
#endif
