#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/sim/contents.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace sim {

/// Memory of a neighbour that holds blocks of an arena, with bytes of its own.
///
/// Not synchronised: used under the lock of the event loop.
class lent_memory {
 public:
  /// @param rooms      Of the neighbour. Outlives it.
  /// @param of_arena   Its capacity.
  /// @param left_free  Left to the neighbour's owner.
  lent_memory(driver& rooms, bytes of_arena, bytes left_free)
      : rooms_(rooms),
        reserve_(left_free),
        bytes_(of_arena),
        copies_(of_arena / block_size) {}
  lent_memory(const lent_memory&) = delete;
  lent_memory& operator=(const lent_memory&) = delete;
  ~lent_memory() {
    for (std::uint32_t b = 0; b != copies_.size(); ++b) {
      if (copies_[b].held) {
        rooms_.give_room();
      }
    }
  }

  /// What could be lent now beside what is.
  [[nodiscard]] bytes free() const {
    const bytes all = block_size * rooms_.free_rooms();
    return all > reserve_ ? all - reserve_ : bytes{};
  }
  [[nodiscard]] bool holds(block_id b) const { return copies_[b.value].held; }
  /// Takes memory for the blocks: for all of them or for none. @returns  Whether it has.
  [[nodiscard]] bool take(block_range range) {
    if (rooms_.free_rooms() < range.count) {
      return false;
    }
    for (const block_id b : range) {
      expects(!holds(b), "a neighbour gets memory for a block that it holds already");
      (void)rooms_.take_room(urgency::command, {});
      copies_[b.value].held = true;
      bytes_.poison(b);
    }
    return true;
  }
  void give(block_range range) {
    for (const block_id b : range) {
      expects(holds(b), "a neighbour gives a block up that it does not hold");
      expects(copies_[b.value].moving == 0, "a neighbour gives a block up that is being copied");
      copies_[b.value].held = false;
      bytes_.empty(b);
      rooms_.give_room();
    }
  }
  [[nodiscard]] std::byte* at(block_id b) {
    expects(holds(b), "a block is copied that the neighbour does not hold");
    return bytes_.base() + b.value * block_size.count;
  }
  /// A copy from or to it is queued, or has ended.
  void begin_copy(block_id b) { ++copies_[b.value].moving; }
  void end_copy(block_id b) { --copies_[b.value].moving; }

 private:
  struct copy {
    bool held = false;
    std::uint32_t moving = 0;
  };

  driver& rooms_;
  bytes reserve_;
  contents bytes_;
  sequence<copy> copies_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
