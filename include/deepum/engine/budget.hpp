#pragma once

#include <deepum/core/location.hpp>
#include <deepum/engine/accounting.hpp>
#include <deepum/engine/demand_pager.hpp>
#include <deepum/engine/engine_options.hpp>
#include <deepum/engine/gates.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// How much of the device the arena may hold: what the program says, or what is free, less the headroom. Of a
/// neighbour: what the program says, as far as its owner leaves it.
///
/// Not synchronised: used under the engine's state lock.
class budget {
 public:
  /// All outlive it. @param pager  Where the memory never faults; else null.
  budget(const memory_space& space, records& shared, demand_pager* pager, gates& pressure, accounting& account,
         const engine_options& chosen)
      : memory_(space),
        state_(shared),
        pager_(pager),
        gates_(pressure),
        account_(account),
        options_(chosen),
        lent_(shared.ledger.places()) {
    for (unsigned l = 0; l != lent_.size(); ++l) {
      lent_[l] = space.places().budget(location::at(l));
    }
  }

  /// Works it out anew. Where no budget is given that costs a system call on a real device.
  void refresh();
  /// The pump runs: what is free is asked for now and then.
  void pumped() {
    if (++pumps_ % pumps_per_refresh != 0) {
      return;
    }
    if (options_.budget.count == 0) {
      refresh();
    }
    refresh_neighbours();
  }
  /// So much may be held at a neighbour from now on.
  void lend(location at, bytes most) {
    lent_[at.index()] = most;
    refresh_neighbours();
  }
  /// Blocks that may be held. No lock.
  [[nodiscard]] std::uint64_t blocks() const { return blocks_.load(std::memory_order_relaxed); }
  /// Asks the neighbours that lend memory how much they have. A system call for each on a real device.
  void refresh_neighbours();

 private:
  static constexpr unsigned pumps_per_refresh = 64;

  const memory_space& memory_;
  records& state_;
  demand_pager* pager_;
  gates& gates_;
  accounting& account_;
  const engine_options& options_;
  std::atomic<std::uint64_t> blocks_{0};  // that of the ledger; changed under the lock
  std::vector<bytes> lent_;               // by place: what the program says
  std::uint32_t pumps_ = 0;
  std::uint32_t said_ = 0;  // the budget when it was last worth a line
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/budget.hpp>  // what it declares
#endif
