#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/command_queue.hpp>
#include <deepum/sim/device_memory.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/managed_space.hpp>
#include <deepum/sim/profile.hpp>

#include <bit>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE void driver::submit(const device_command& c) {
  const bool inward = c.is_hint || c.what.takes_room();
  (inward ? inward_ : outward_).submit(c);
}

DEEPUM_SEPARATE bool driver::quiet(managed_space& space) const {
  if (inward_.has_any_of(space) || outward_.has_any_of(space)) {
    return false;
  }
  for (std::uint32_t b = 0; b < space.size(); ++b) {
    if (space[block_id{b}].moving != block_record::motion::none) {
      return false;
    }
  }
  return true;
}

DEEPUM_SEPARATE void driver::forget(managed_space& space) {
  for (std::uint32_t b = 0; b < space.size(); ++b) {
    memory_.release({&space, block_id{b}});
  }
  memory_.loop().motion_ended();
}

DEEPUM_SEPARATE void driver::host_access(event_loop::host_call& call, managed_space& space, block_id b,
                                         std::uint32_t pages, access mode) {
  const profile& costs = memory_.costs();
  const managed_block at{&space, b};
  block_record& r = space[b];
  for (;;) {
    call.wait([&] { return r.moving == block_record::motion::none; });
    const bool writes = mode != access::read;
    const std::uint32_t fetch = pages & r.on_device & (writes ? all_pages : ~r.on_host);
    if (fetch == 0) {
      break;
    }
    const bool keep = r.read_mostly && !writes;
    call.spend(costs.host_fault);
    if (r.moving != block_record::motion::none || (pages & r.on_device) == 0) {
      continue;
    }
    bool arrived = false;
    const auto done = [&] { arrived = true; };
    bytes& counter = memory_.counters().out_by_host;
    if (keep) {
      memory_.copy_out(urgency::fault, at, counter, done);
    } else {
      memory_.bring_out(urgency::fault, at, counter, reason::host, 0, done);
    }
    call.wait([&] { return arrived; });
  }
  const std::uint32_t fresh = pages & ~r.on_host & ~r.on_device;
  if (fresh != 0) {
    call.spend(costs.host_populate_block * std::popcount(fresh) / 32);
  }
  // Another thread may have had the turn meanwhile; its access and this one race, as they would on hardware.
  r.on_host |= pages & ~r.on_device;
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
