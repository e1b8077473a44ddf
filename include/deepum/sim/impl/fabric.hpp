#pragma once

#include <deepum/separate.hpp>
#include <deepum/sim/executor.hpp>
#include <deepum/sim/fabric.hpp>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE address_space* fabric::space_of(const void* p) const {
  for (const executor* e : executors_) {
    if (address_space* const space = e->space_of(p)) {
      return space;
    }
  }
  return nullptr;
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
