#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/neighbour.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/executor.hpp>
#include <deepum/sim/fabric.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

/// How pinned copies get from the host to a device, or back: over its own link, or over that of a neighbour and the
/// switch between the devices, block by block.
///
/// Not synchronised: used under the lock of the event loop.
class copy_way {
 public:
  /// @param host_link  Of the device over whose link it leads.
  /// @param beside     The number of that device; negative: the owner itself.
  copy_way(device& owner, driver& host_link, int beside, bool inward)
      : owner_(&owner),
        host_link_(&host_link),
        beside_(beside),
        inward_(inward) {}

  [[nodiscard]] bool inward() const { return inward_; }

  /// Sends a block.
  /// @param done  It is there. Called with when it began.
  /// @param next  The next one may be sent: this one has passed the first line, and may be on the second.
  void send(std::function<void(nanoseconds)> done, event_loop::action next) const;

 private:
  void over_host_link(event_loop::action then) const;
  void between_devices(event_loop::action then) const;

  device* owner_;
  driver* host_link_;
  int beside_;
  bool inward_;
};

/// The host and a device, and the neighbours whose links it may use. None of these holds blocks.
[[nodiscard]] DEEPUM_SEPARATE topology places_with(const device& owner, const std::vector<neighbour>& beside);
/// The ways of its routes between host and device. Other routes are never taken: they have the way of the device
/// itself.
/// @errors  `status::invalid_argument` where a neighbour is none.
[[nodiscard]] DEEPUM_SEPARATE std::vector<copy_way> ways_of(device& owner, const topology& all,
                                                            const std::vector<neighbour>& beside);

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/copy_way.hpp>  // what it declares
#endif
