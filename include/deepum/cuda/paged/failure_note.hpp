#pragma once

#include <deepum/cxx20.hpp>

#include <mutex>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Why the last command failed, for people.
///
/// Threads: any.
class failure_note {
 public:
  /// @param host  It failed for want of host memory.
  void set(std::string what, bool host = false) {
    const std::lock_guard lock(mutex_);
    what_ = std::move(what);
    host_ = host;
  }
  [[nodiscard]] std::string what() const {
    const std::lock_guard lock(mutex_);
    return what_;
  }
  [[nodiscard]] bool host_is_full() const {
    const std::lock_guard lock(mutex_);
    return host_;
  }

 private:
  mutable std::mutex mutex_;
  std::string what_{};
  bool host_ = false;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
