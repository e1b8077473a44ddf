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

DEEPUM_SEPARATE machine::machine(const profile& rates, const device_options& chosen) {
  if (rates.devices == 0 || (rates.devices > 1 && !(rates.peer > 0))) {
    throw error(status::invalid_argument, "profile '" + rates.name +
                                              "' makes no machine: it needs a device, and a rate between devices "
                                              "where there are several");
  }
  if (rates.host_memory > 0 && rates.pinned > 0) {
    fabric_->host_memory().limit(rates.host_memory / rates.pinned);
  }
  for (unsigned i = 0; i < rates.devices; ++i) {
    devices_.push_back(std::make_unique<device>(fabric_, static_cast<int>(i), rates, chosen));
  }
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
