#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_grid.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE managed_memory::managed_memory(device& owner, bytes capacity) : device_space(traits, owner, capacity) {}

DEEPUM_SEPARATE managed_memory::~managed_memory() {
  detach();
  event_loop::host_call call(loop());
  call.wait([&] { return owner_.memory_driver().quiet(*this); });
  owner_.memory_driver().forget(*this);
}

DEEPUM_SEPARATE bool managed_memory::start(const transfer& what, std::uint64_t ticket) {
  return !what.cleans() && submit({.what = what, .range = what.blocks, .ticket = ticket});
}

DEEPUM_SEPARATE bool managed_memory::advise(block_range range, advice hint, location l) {
  return submit({.what = {.to = l}, .hint = hint, .is_hint = true, .range = range});
}

DEEPUM_SEPARATE void managed_memory::fail_call(std::uint64_t nth, failure how) {
  const auto lock = loop().lock();
  fail_in_ = nth;
  fail_how_ = how;
}

DEEPUM_SEPARATE void managed_memory::host_access(bytes offset, bytes size, access mode) {
  expects(offset + size <= capacity(), "the host touches bytes outside the arena");
  if (size.count == 0) {
    return;
  }
  const block_range range = um_grid.blocks_of(offset, size);
  event_loop::host_call call(loop());
  for (const block_id b : range) {
    const std::uint64_t start = b.value * block_size.count;
    const std::uint64_t from = std::max(offset.count, start) - start;
    const std::uint64_t to = std::min((offset + size).count, start + block_size.count) - start;
    owner_.memory_driver().host_access(call, *this, b, pages_of(from, to), mode);
  }
}

DEEPUM_SEPARATE std::byte* managed_memory::fill_address(bytes offset, bytes size) {
  const auto lock = loop().lock();
  for (const block_id b : um_grid.blocks_of(offset, size)) {
    block_record& r = (*this)[b];
    r.on_host |= all_pages & ~r.on_device;
  }
  return base() + offset.count;
}

DEEPUM_SEPARATE block_record managed_memory::record_of(block_id b) {
  const auto lock = loop().lock();
  return (*this)[b];
}

DEEPUM_SEPARATE bool managed_memory::submit(device_command c) {
  expects(!c.range.empty() && c.range.end_value() <= size(), "a command for blocks outside the arena");
  const auto lock = loop().lock();
  if (fail_in_ != 0 && --fail_in_ == 0) {
    if (fail_how_ == failure::at_call) {
      return false;
    }
    c.stop_at = c.range.count / 2;
  }
  c.space = this;
  owner_.memory_driver().submit(c);
  return true;
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
