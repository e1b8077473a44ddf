#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/managed_space.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE std::uint32_t block_record::missing(std::uint32_t pages, access mode) const {
  std::uint32_t missing = pages & ~on_device;
  if (accessed_by || mapped) {
    missing &= ~on_host;
  }
  if (mode != access::read) {
    missing |= pages & on_device & on_host;  // the copies have to become one first
  }
  return missing;
}

DEEPUM_SEPARATE touch_result managed_space::touch(const segment& s) {
  const block_record& r = blocks_[s.block.value];
  if (r.moving == block_record::motion::leaving) {
    return touch_result::moving;
  }
  if (r.missing(s.pages, s.mode) != 0) {
    return r.moving == block_record::motion::arriving ? touch_result::moving : touch_result::missing;
  }
  return (s.pages & ~r.on_device) != 0 ? touch_result::remote : touch_result::ready;
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
