#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/engine_options.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/statistics.hpp>

#include <cstdint>
#include <string>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Counts traffic and failures, tells observers, and writes lines for people.
///
/// Not synchronised: used under the engine's state lock.
class accounting {
 public:
  /// @param shared, chosen  Outlive it.
  accounting(records& shared, const engine_options& chosen) : state_(shared), options_(chosen) {}

  /// A block got or gave up room. @param way     The route by which it came or went; `route::none`: by none.
  ///                              @param copied  Its contents crossed the links.
  void count(std::uint8_t way, reason why, bool copied) const;
  /// A block was copied, and neither got nor gave up room.
  void count_copy(std::uint8_t way, reason why) const;
  /// A call or a command failed. Many in a row pause what policies prefetch.
  void failed(const char* what);
  void command_completed() { failures_in_a_row_ = 0; }

  [[nodiscard]] bool observed() const { return options_.observer != nullptr; }
  void notify(const device_event& e, launch_id launch) const;

  void log(const std::string& line) const {
    if (options_.log) {
      options_.log(line);
    }
  }
  void log_once(bool& logged, const std::string& line) const;

 private:
  records& state_;
  const engine_options& options_;
  std::uint32_t failures_in_a_row_ = 0;
  std::uint64_t pauses_ = 0;
  bool logged_failure_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/accounting.hpp>  // what it declares
#endif
