#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_record.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/policy/policy.hpp>
#include <deepum/units.hpp>

#include <array>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The memory of neighbours, as a place between the device and the host (docs/adr/0019): where blocks go that leave the
/// device, and what a neighbour gives up.
///
/// A block goes to a neighbour while that has room, the nearest one with most of it, and else to the host. Nothing is
/// driven out for it but what nobody has fetched for long: where a step recurs, what is there the longest is needed
/// first. Room comes from what costs no copy: older contents, dead ones, and those that the device has too. While the
/// link has nothing else to do, contents are copied to the host, so that they can be given up without one. What is more
/// than the budget of the place leaves it, what needs no copy first.
///
/// A policy that names the places itself (`policy::places_blocks`) is left alone in that; giving back stays.
///
/// Not synchronised: used under the engine's state lock. Where no neighbour lends memory a call looks at the number of
/// places, and it takes no memory.
class neighbour_tier {
 public:
  /// Both outlive it.
  neighbour_tier(const records& shared, const policy& chooser) : state_(shared), policy_(chooser) {}

  /// Whether a neighbour lends memory, or has not got it back yet.
  [[nodiscard]] bool lends() const;
  /// Room at the neighbours is worked out anew; what is asked for already has its part of it.
  void begin();
  /// Where a block is to go that leaves the device. Takes room for it, until `begin`.
  [[nodiscard]] location place_for(block_id b);
  /// It has older contents there, which have to go first.
  [[nodiscard]] bool has_to_release(block_id b, location at) const {
    return !at.is_host() && state_.ledger.state(b, at) == copy_state::stale;
  }
  /// Writes the neighbours into a plan for what it lets go to the host, and appends what neighbours give up.
  void complete(plan& made);

 private:
  static constexpr bytes given_back_at_once = 128_MiB;
  static constexpr bytes kept_free = 128_MiB;    // at most, of what costs no copy
  static constexpr bytes written_back = 32_MiB;  // at once
  static constexpr std::uint32_t looks = 2048;  // at blocks, in one call, for what can be written back or has grown old

  /// What is known of a neighbour beside the ledger.
  struct place {
    std::uint32_t left = 0;       // room that nothing is planned for
    std::uint32_t cursor = 0;     // the block that is looked at next for a copy to the host
    std::uint32_t fruitless = 0;  // looks in a row that found none
    std::uint64_t seen = 0;       // migrations to it by the first of those
    std::uint64_t searched = 0;   // migrations to the device, when nothing was found that costs no copy
  };

  template <class Visit>
  void for_each_lender(Visit&& visit) const;
  void redirect(plan& made);
  /// Nothing waits that takes room from a neighbour.
  [[nodiscard]] bool is_settled(location at, bool supersedes) const;
  void give_back(location at, std::uint32_t count, plan& made) const;
  void free_room(location at, plan& made);
  void write_back(location at, plan& made);
  /// Its room at the neighbour can be given up, and needs no copy to be.
  [[nodiscard]] bool is_free(block_id b, location at, bool for_owner) const;
  void let_go(block_id b, location at, reason why, plan& made) const;
  /// Blocks that have gone to the host since the beginning: while many do, what stays at a neighbour grows old.
  [[nodiscard]] std::uint64_t passed_by() const;

  const records& state_;
  const policy& policy_;
  std::array<place, location::limit> places_{};
  sequence<std::uint64_t> entered_{};  // by block: what had passed by when it went to a neighbour last
  sequence<transfer> redirected_{};    // of the plan being completed; kept for its memory
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/neighbour_tier.hpp>  // what it declares
#endif
