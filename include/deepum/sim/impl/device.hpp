#pragma once

#include <deepum/core/block.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/executor.hpp>
#include <deepum/sim/fabric.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <memory>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE device::device(const profile& rates, const device_options& chosen)
    : device(std::make_shared<fabric>(), 0, rates, chosen) {}

DEEPUM_SEPARATE device::device(std::shared_ptr<fabric> shared, int ordinal, const profile& rates,
                               const device_options& chosen)
    : fabric_(std::move(shared)),
      profile_(with(rates, chosen)),
      options_(chosen),
      driver_(fabric_->loop(), profile_, &fabric_->host_memory()),
      executor_(*fabric_, ordinal, driver_, profile_) {}

DEEPUM_SEPARATE device::~device() = default;

DEEPUM_SEPARATE nanoseconds device::now() const {
  const auto lock = loop().lock();
  return loop().now();
}

DEEPUM_SEPARATE device_counters device::counters() const {
  const auto lock = loop().lock();
  return driver_.counters();
}

DEEPUM_SEPARATE void device::set_foreign_memory(bytes size) {
  const auto lock = loop().lock();
  driver_.set_foreign(size);
}

DEEPUM_SEPARATE profile device::with(profile p, const device_options& options) {
  if (options.memory.count != 0) {
    p.memory = options.memory;
  }
  if (p.memory < block_size) {
    throw error(status::invalid_argument, "the memory of a device has to hold a block of 2 MiB at least, not " +
                                              std::to_string(p.memory.count) + " bytes");
  }
  return p;
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
