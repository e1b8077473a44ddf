#pragma once

#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/machine.hpp>
#include <deepum/sim/profile.hpp>

#include <memory>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE machine::machine(const profile& p, const device_options& options) {
  if (p.devices == 0 || (p.devices > 1 && !(p.peer > 0))) {
    throw error(status::invalid_argument, "profile '" + p.name +
                                              "' makes no machine: it needs a device, and a rate between devices "
                                              "where there are several");
  }
  for (unsigned i = 0; i < p.devices; ++i) {
    devices_.push_back(std::make_unique<device>(fabric_, static_cast<int>(i), p, options));
  }
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
