#pragma once

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

/// How pinned copies get from one place to another: over one line, or over two of them, block by block. A line is a
/// device's link to the host, or the switch between the devices.
///
/// Not synchronised: used under the lock of its event loop.
class copy_way {
 public:
  /// One line of it.
  struct leg {
    link* line = nullptr;
    const link* opposite = nullptr;  ///< of a link to the host: its other direction; null: between devices
    inlet* into = nullptr;           ///< between devices: where it comes in
  };

  /// @param costs  Of the machine's devices. Outlives it.
  /// @param ends   Without a line: there is one.
  copy_way(const profile& costs, leg begins, leg ends) : costs_(&costs), first_(begins), second_(ends) {}

  /// Sends a block.
  /// @param done  It is there. Called with when it began.
  /// @param next  The next one may be sent: this one has passed the first line, and may be on the second.
  void send(std::function<void(nanoseconds)> done, event_loop::action next) const;

 private:
  void over(const leg& by, event_loop::action then) const;

  const profile* costs_;
  leg first_;
  leg second_;
};

/// The memory of a neighbour.
/// @errors  `status::invalid_argument` where it is none.
[[nodiscard]] DEEPUM_SEPARATE driver& driver_of(device& owner, const neighbour& other);
/// The host and a device, and the neighbours whose links or memory it may use.
[[nodiscard]] DEEPUM_SEPARATE topology places_with(const device& owner, const std::vector<neighbour>& beside);
/// The ways of its routes.
/// @errors  `status::invalid_argument` where a neighbour is none.
[[nodiscard]] DEEPUM_SEPARATE std::vector<copy_way> ways_of(device& owner, const topology& all,
                                                            const std::vector<neighbour>& beside);

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/copy_way.hpp>  // what it declares
#endif
