#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/managed_space.hpp>

#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

/// The operations that a device executes, and what becomes of contents that are given up under them.
///
/// Not synchronised: used under the lock of the event loop.
class active_walks {
 public:
  void begin(const walk& w) { active_.push_back(&w); }
  /// Contents discarded under the operation are lost, and with it what the operation wrote there.
  void end(const walk& w);
  /// The one that touches the block; nullptr: none.
  [[nodiscard]] const walk* with(const address_space& space, block_id b) const;

  /// The contents of the block are lost now, and again when those end that touch it.
  void poison(managed_block b);

 private:
  sequence<const walk*> active_;
  sequence<std::pair<const walk*, managed_block>> poison_later_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/active_walks.hpp>  // what it declares
#endif
