#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/claims.hpp>
#include <deepum/engine/fact_finder.hpp>
#include <deepum/engine/failing_wait.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The host on memory that never faults: a read needs contents that are current on the host, a write needs blocks that
/// are not on the device and stay away from it. And the host's own memory: which of its copies may go.
///
/// Not synchronised: used under the engine's state lock.
class host_access {
 public:
  /// All outlive it.
  host_access(memory_space& space, records& shared, policy& chooser, block_claims& claims, const fact_finder& facts)
      : memory_(space),
        state_(shared),
        policy_(chooser),
        claims_(claims),
        facts_(facts) {}

  /// From now on the host uses the blocks, as soon as it may.
  void begin(block_range range, access mode);
  /// Whether it may; else what that takes is asked for.
  /// @errors  `status::out_of_host_memory`, `status::device_failure` where that failed again and again.
  [[nodiscard]] bool may_use(block_range range, access mode);
  /// The host has no memory for more blocks: copies of it that the device has too are given up, and blocks that only
  /// the host has go to the device where there is room.
  /// @returns  Whether it is worth to ask for memory again.
  [[nodiscard]] bool relieve();
  /// The host does not use them any more.
  void end(block_range range, access mode);

  /// Something has happened that may have made the host's copy worthless. The only place that tells the memory.
  void note_home_copy(block_id b);
  /// Of blocks that the device has as well; from now on they count as written there. And of contents that are dead,
  /// which some policies leave where they are: they are forgotten, once the device has been told.
  /// @returns  Whether there were any.
  bool give_up_home_copies();

  /// A block arrived or left: what failed may work now.
  void moved() { wait_.something_moved(); }
  /// A command that was made for the host has ended.
  void ended(bool done);

 private:
  static constexpr bytes copies_given_up{std::uint64_t{128} << 20};  // at a time

  [[nodiscard]] bool may_use(block_id b, access mode) const;
  /// Asks for dead contents to be forgotten that the host alone has. @returns  Whether some are being forgotten.
  bool forget_dead();
  [[nodiscard]] error refusal(block_range range) const;

  memory_space& memory_;
  records& state_;
  policy& policy_;
  block_claims& claims_;
  const fact_finder& facts_;
  failing_wait wait_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/host_access.hpp>  // what it declares
#endif
