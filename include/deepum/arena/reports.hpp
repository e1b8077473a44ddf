#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/units.hpp>

#include <functional>
#include <memory>
#include <string_view>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What an arena leaves behind where the environment asks for it: its statistics (DEEPUM_STATISTICS) and a trace of
/// what it did (DEEPUM_TRACE), as JSON. Each arena of a process has files of its own: run.json, run.2.json and so on.
///
/// Nothing is recorded where nothing is asked for. Threads: one, but for the observer.
class arena_reports {
 public:
  using observer = std::function<void(const device_event&, launch_id)>;

  /// @param log  Hears of files that cannot be written, now and in the end. May be empty.
  explicit arena_reports(const std::function<void(std::string_view)>& log);
  ~arena_reports();
  arena_reports(const arena_reports&) = delete;
  arena_reports& operator=(const arena_reports&) = delete;

  /// The program's observer, and behind it the trace where there is to be one. Used while this lives.
  /// @param policy  The name of its policy: the trace is called after it.
  [[nodiscard]] observer observed(observer own, std::string_view policy);
  /// Whether `write` is of use.
  [[nodiscard]] bool wanted() const { return files_ != nullptr; }
  /// Writes what is asked for. No event comes any more.
  void write(const statistics& last) noexcept;

 private:
  struct files;
  std::unique_ptr<files> files_;  // none where nothing is asked for
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/reports.hpp>  // what it declares
#endif
