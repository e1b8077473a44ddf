#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/completion/launch_log.hpp>
#include <deepum/cuda/current_device.hpp>
#include <deepum/cuda/device_space.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/separate.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

DEEPUM_SEPARATE void device_space::poll(std::vector<device_event>& events) {
  const std::lock_guard lock(watch_.mutex());
  const own_calls calls(owner_.context());
  happened_.take(events);
  (void)watch_.take_launched();
  watch_.note_in_flight(watch_.collect(events, [](std::size_t) {}));
}

DEEPUM_SEPARATE void device_space::detach() {
  watch_.detach();
  wait_for_commands();
}

DEEPUM_SEPARATE void device_space::remove(launch_log& log) {
  const own_calls calls(owner_.context());
  std::vector<device_event> events;
  watch_.remove(log, events);
  for (const device_event& e : events) {
    put(e);
  }
}

DEEPUM_SEPARATE std::optional<device_space::memory_left> device_space::device_memory_left() const {
  const own_calls calls(owner_.context());
  std::size_t free = 0;
  std::size_t total = 0;
  if (!succeeded(cudaMemGetInfo(&free, &total))) {
    return std::nullopt;
  }
  return memory_left{bytes{free}, bytes{total}};
}

DEEPUM_SEPARATE void device_space::put(const device_event& e) {
  happened_.put(e);
  watch_.hurry();
}

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
