#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_record.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/accounting.hpp>
#include <deepum/engine/block_contents.hpp>
#include <deepum/engine/claims.hpp>
#include <deepum/engine/fact_finder.hpp>
#include <deepum/engine/inbox.hpp>
#include <deepum/engine/launch_ends.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/uploads.hpp>
#include <deepum/policy/policy.hpp>

#include <cstddef>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Takes in what the program reports, in the order of the inbox: launches, life and death of contents, what the host
/// touches, requests. Issues nothing: what has to be done goes into the queues.
///
/// Not synchronised: used under the engine's state lock.
class fact_intake {
 public:
  /// All outlive it. @param claims  Where the memory never faults; else null.
  fact_intake(const memory_space& space, records& shared, policy& chooser, block_claims* claims,
              const fact_finder& facts, block_contents& contents, launch_ends& ends, uploads& unfinished,
              accounting& account)
      : memory_(space),
        state_(shared),
        policy_(chooser),
        claims_(claims),
        facts_(facts),
        contents_(contents),
        ends_(ends),
        uploads_(unfinished),
        account_(account) {}

  void apply(message& m);

 private:
  static constexpr std::size_t most_requests = 1024;  // hints of the program that wait in one direction

  void take_launch(launch_record&& r);
  /// What a launch that was submitted says about contents that the host has.
  ///
  /// A copy to the host that is being made may be stale when it is done. And what the launch overwrites as a whole is
  /// forgotten where the law allows. Nothing is given up by that while the device has none of it, so no command has to
  /// be ordered before the launch.
  void take_writes(const launch_record& record);
  /// Blocks that a launch will write are read-mostly no longer, before it can begin: the driver takes a write to a
  /// duplicated page for an exception, and serves it page by page.
  void end_read_mostly(const launch_record& record);
  void revive(block_range range);
  /// The policy hears of what had been alive until now: contents die once.
  void take_death(const message& m);
  void set_liveness(block_id b, liveness life);
  void take_host_access(block_range range, access mode);
  /// Hints that come faster than anything moves are left out.
  void take_request(const queue_entry& asked);

  const memory_space& memory_;
  records& state_;
  policy& policy_;
  block_claims* claims_;
  const fact_finder& facts_;
  block_contents& contents_;
  launch_ends& ends_;
  uploads& uploads_;
  accounting& account_;
  bool logged_oversized_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/fact_intake.hpp>  // what it declares
#endif
