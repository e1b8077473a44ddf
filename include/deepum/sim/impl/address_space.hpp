#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/worker.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE bool walk::touches(const address_space& space, block_id b) const {
  for (const segment& s : segments) {
    if (s.space == &space && s.block == b) {
      return true;
    }
  }
  return false;
}

DEEPUM_SEPARATE address_space::address_space(event_loop& loop, bytes capacity, worker_mode mode, nanoseconds wake_up,
                                             std::uint64_t random_seed)
    : loop_(loop),
      contents_(capacity),
      worker_(loop, mode, wake_up, random_seed) {}

DEEPUM_SEPARATE address_space::~address_space() = default;

DEEPUM_SEPARATE bool address_space::contains(const void* p) const {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const auto start = reinterpret_cast<std::uintptr_t>(base());
  return address >= start && address - start < capacity().count;
}

DEEPUM_SEPARATE void address_space::attach(std::function<void()> pump) { worker_.attach(std::move(pump)); }

DEEPUM_SEPARATE void address_space::detach() { worker_.detach(); }

DEEPUM_SEPARATE void address_space::notify() {
  const auto lock = loop_.lock();
  worker_.wake();
}

DEEPUM_SEPARATE nanoseconds address_space::now() const {
  const auto lock = loop_.lock();
  return loop_.now();
}

DEEPUM_SEPARATE void address_space::poll(std::vector<device_event>& events) {
  const auto lock = loop_.lock();
  events.insert(events.end(), events_.begin(), events_.end());
  events_.clear();
}

DEEPUM_SEPARATE void address_space::emit(device_event event) {
  event.at = loop_.now();
  using kind = device_event::kind;
  if (!events_.empty() && (event.what == kind::arrived || event.what == kind::departed)) {
    device_event& last = events_.back();
    if (last.what == event.what && last.ticket == event.ticket && last.why == event.why &&
        last.host_copy_stays == event.host_copy_stays && last.range.end_value() == event.range.begin_value() &&
        (last.began == nanoseconds{}) == (event.began == nanoseconds{})) {
      last.range.count += event.range.count;
      last.at = event.at;
      worker_.wake();
      return;
    }
  }
  events_.push_back(event);
  worker_.wake();
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
