#pragma once

#include <deepum/cxx20.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The most that a number has been while the last launches ran: at least `window` of them, at most twice as many.
class recent_peak {
 public:
  static constexpr std::uint64_t window = 8192;  // more than a step has, as a rule

  /// @param finished  Launches so far. Called for each of them, and whenever the number has changed.
  void see(std::uint64_t number, std::uint64_t finished) {
    if (finished - began_ >= window) {
      before_ = std::exchange(latest_, 0);
      began_ = finished;
    }
    latest_ = std::max(latest_, number);
  }
  [[nodiscard]] std::uint64_t value() const { return std::max(before_, latest_); }

 private:
  std::uint64_t latest_ = 0;  // since `began_`
  std::uint64_t before_ = 0;  // in the window before
  std::uint64_t began_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
