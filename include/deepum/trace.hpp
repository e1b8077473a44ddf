#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/tracing/trace_entries.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace deepum {
inline namespace v0 {

/// How a trace is recorded.
struct trace_options {
  std::string name = "deepum";                ///< of the run, for the viewer
  std::size_t events = std::size_t{1} << 18;  ///< kept in memory, at 80 bytes each; older ones are forgotten
  location runs_on = location::device();      ///< the device where launches run
};

/// Records what an arena does, for Perfetto and for the report of a run: launches and their waits by stream, copies,
/// faults, evictions, bytes on the device; what each launch declares, which contents die, and the step that the policy
/// recognises.
///
/// It takes the events of `arena_options::observer`, simulated and real ones alike. The begin of an untimed launch on a
/// real GPU (docs/adr/0006) is drawn at the end of the one before. Copies are drawn one after the other.
///
/// Threads: any. Outlives the arena.
///
///     deepum::trace trace;
///     deepum::arena arena{gpu, {.observer = trace.observer()}};
///     ...
///     trace.save("run.json");
class trace {
 public:
  /// @errors  `status::invalid_argument` where no event is to be kept.
  explicit trace(trace_options chosen = {});
  trace(const trace&) = delete;
  trace& operator=(const trace&) = delete;

  /// What `arena_options::observer` takes. One trace records one arena.
  [[nodiscard]] std::function<void(const device_event&, launch_id)> observer() {
    return [this](const device_event& e, launch_id launch) { see(e, launch); };
  }

  /// Takes an event, for programs whose observer does more than that. Cost: about a microsecond for a launch, well
  /// below that for the others.
  void see(const device_event& e, launch_id launch);

  /// Something of the program's own, a training step for example. Those of one trace follow one another.
  /// @param began, ended  On the clock of the device.
  void span(std::string_view name, nanoseconds began, nanoseconds ended);

  /// Events that were forgotten, because there were more than `trace_options::events`.
  [[nodiscard]] std::uint64_t forgotten() const;

  /// Writes what was recorded.
  /// @errors  `status::io_failure`.
  void save(const std::string& path) const;
  /// Writes several runs into one file, each as a process of its own. Each begins at the time 0.
  /// @errors  `status::io_failure`.
  static void save(const std::string& path, std::span<const trace* const> runs);
  /// Writes the JSON text. The stream says whether that worked.
  static void write(std::ostream& out, std::span<const trace* const> runs);

 private:
  using entry = detail::trace_entry;
  using track = detail::trace_track;

  struct open_launch {
    std::uint32_t name = 0;
    std::uint32_t uses = 0;
    std::uint32_t period = 0;
    std::uint16_t stream = 0;
    nanoseconds issued{};
  };
  /// What one stream did last.
  struct stream_end {
    nanoseconds launch{};
    nanoseconds wait{};
  };

  void see_issue(const device_event& e, launch_id launch);
  void see_launch(const device_event& e);
  void see_refusal(const device_event& e);
  void see_wait(const device_event& e, launch_id launch);
  void keep_wait(entry e);
  void see_copy(const device_event& e, track what, nanoseconds& until);
  /// A device that only holds blocks.
  [[nodiscard]] bool elsewhere(location l) const { return l.is_device() && l != options_.runs_on; }
  /// Of such a device.
  void see_other_place(const device_event& e);

  // Some memory kinds tell what a discard took away, others only that it is done.
  void see_discard(const device_event& e);

  trace_options options_;
  mutable std::mutex mutex_;  // everything below
  detail::trace_entries kept_;
  bytes block_{};  // of the arena
  std::unordered_map<std::uint64_t, open_launch> in_flight_{};
  std::unordered_map<std::uint16_t, stream_end> ends_{};
  nanoseconds copied_in_until_{};
  nanoseconds copied_out_until_{};
  nanoseconds copied_elsewhere_until_{};
};

}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/impl/trace.hpp>  // what it declares
#endif
