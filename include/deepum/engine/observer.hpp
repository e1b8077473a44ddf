#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/engine/device_event.hpp>

#include <functional>

namespace deepum {
inline namespace v0 {

/// Sees every device event with the launch it belongs to (invalid where that is ambiguous), and what the engine adds to
/// them (see `device_event`).
using observer = std::function<void(const device_event&, launch_id)>;

}  // namespace v0
}  // namespace deepum
