#pragma once

#include <deepum/engine/device_event.hpp>

#include <mutex>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// What the threads of a memory kind tell of, until the pump takes it: first in, first out.
///
/// Threads: any.
class event_mailbox {
 public:
  void put(const device_event& e) {
    const std::lock_guard lock(mutex_);
    events_.push_back(e);
  }
  /// Appends what was put in since the last call.
  void take(std::vector<device_event>& events) {
    const std::lock_guard lock(mutex_);
    events.insert(events.end(), events_.begin(), events_.end());
    events_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<device_event> events_{};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
