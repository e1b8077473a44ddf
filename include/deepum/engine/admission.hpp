#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/engine/accounting.hpp>
#include <deepum/engine/block_contents.hpp>
#include <deepum/engine/claims.hpp>
#include <deepum/engine/demand_pager.hpp>
#include <deepum/engine/fact_finder.hpp>
#include <deepum/engine/gates.hpp>
#include <deepum/engine/held_launches.hpp>
#include <deepum/engine/launch_ends.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/uploads.hpp>
#include <deepum/policy/policy.hpp>

#include <cstddef>
#include <span>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Decides when a launch begins (docs/adr/0004): when facts, memory and policy all allow it.
///
/// Facts: the device gives up nothing that the launch declares, the host writes none of it, and no upload of it that
/// was submitted before is unfinished; this is waited for without a limit. Memory: where it never faults, all that the
/// launch declares is on the device. Policy: it is bringing nothing for the launch; it alone may be skipped.
///
/// Not synchronised: used under the engine's state lock.
class admission {
 public:
  /// All outlive it. @param claims, pager  Where the memory never faults; else null.
  admission(const memory_space& space, records& shared, policy& chooser, block_claims* claims, demand_pager* pager,
            const fact_finder& facts, const gates& pressure, block_contents& contents, launch_ends& ends,
            uploads& unfinished, accounting& account)
      : memory_(space),
        state_(shared),
        policy_(chooser),
        claims_(claims),
        pager_(pager),
        facts_(facts),
        gates_(pressure),
        contents_(contents),
        ends_(ends),
        uploads_(unfinished),
        account_(account) {}

  /// Whether a launch that was submitted may be given to the device. Then it is not held back any more, else it is.
  /// @param outer  Launches that it is made within.
  /// @errors       On memory that never faults, where it can never begin; where an upload of what it needs has failed.
  ///               Then it was taken back.
  [[nodiscard]] bool try_begin(launch_id id, stream_id stream, std::size_t outer);
  /// The policy is not waited for any more. @returns  Whether the launch begins with that.
  bool skip_policy(launch_id id);
  /// The launch executes later, if at all: nothing but uploads is waited for. @returns  Whether none is.
  [[nodiscard]] bool let_pass(launch_id id);
  /// A launch that is held back will not be given to the device. @returns  What it was.
  launch_record take_back(launch_id id, stream_id stream);
  /// Whether it could be on the device together with others that have not finished.
  [[nodiscard]] bool fits_beside(launch_id id, stream_id stream,
                                 std::span<const std::pair<launch_id, stream_id>> others) const;
  /// Everything has been issued that could be. Where nothing executes and nothing moves, and all have said what they
  /// have to, nothing will ever get ready: then the policy is not waited for.
  void settle();

 private:
  [[nodiscard]] bool may_begin(const launch_record& record, const held_launch* held) const;
  [[nodiscard]] bool facts_allow(const launch_record& record) const;
  [[nodiscard]] bool memory_allows(const launch_record& record) const;
  [[nodiscard]] bool policy_allows(const launch_record& record) const;
  void hold_back(const launch_record& record, std::size_t outer);
  /// While others execute, a launch that is held back costs no time.
  void release(held_launches::iterator it);

  const memory_space& memory_;
  records& state_;
  policy& policy_;
  block_claims* claims_;
  demand_pager* pager_;
  const fact_finder& facts_;
  const gates& gates_;
  block_contents& contents_;
  launch_ends& ends_;
  uploads& uploads_;
  accounting& account_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/admission.hpp>  // what it declares
#endif
