#pragma once

#include <deepum/units.hpp>

#include <chrono>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Failures of what a thread of the program waits for. They end the wait: after some in a row while nothing that could
/// have helped was under way, and after some time whatever else happens.
class failing_wait {
 public:
  static constexpr std::uint32_t most = 64;
  static constexpr nanoseconds longest = std::chrono::seconds(10);  // of the device's clock

  /// @param alone  Nothing executed and nothing moved that could have helped.
  void failed(nanoseconds now, bool alone) {
    since_ = failures_++ == 0 ? now : since_;
    alone_ += alone ? 1 : 0;
    unsatisfiable_ = alone_ >= most || (failures_ >= most && now - since_ >= longest);
  }
  /// Something else moved, so that it may work now.
  void something_moved() {
    alone_ = 0;
    unsatisfiable_ = false;
  }
  void succeeded() { *this = {}; }
  [[nodiscard]] bool failing() const { return failures_ != 0; }
  [[nodiscard]] bool unsatisfiable() const { return unsatisfiable_; }

 private:
  std::uint64_t failures_ = 0;  // since the last success
  std::uint32_t alone_ = 0;     // of them, in a row
  bool unsatisfiable_ = false;
  nanoseconds since_{};
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
