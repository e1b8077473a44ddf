#pragma once

#include <deepum/core/block.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/active_walks.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/managed_space.hpp>

#include <algorithm>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE void active_walks::end(const walk& w) {
  erase_if(poison_later_, [&](const auto& entry) {
    if (entry.first != &w) {
      return false;
    }
    entry.second.space->data().poison(entry.second.block);
    return true;
  });
  erase(active_, &w);
}

DEEPUM_SEPARATE const walk* active_walks::with(const address_space& space, block_id b) const {
  const auto found = std::find_if(active_.begin(), active_.end(), [&](const walk* w) { return w->touches(space, b); });
  return found == active_.end() ? nullptr : *found;
}

DEEPUM_SEPARATE void active_walks::poison(managed_block b) {
  b.space->data().poison(b.block);
  for (const walk* w : active_) {
    if (w->touches(*b.space, b.block)) {
      poison_later_.emplace_back(w, b);
    }
  }
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
