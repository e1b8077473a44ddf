#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace deepum {
inline namespace v0 {

/// How a trace is recorded.
struct trace_options {
  std::string name = "deepum";                ///< of the run, for the viewer
  std::size_t events = std::size_t{1} << 18;  ///< kept in memory, at 80 bytes each; older ones are forgotten
  bytes block = block_size;                   ///< what a block of the arena has
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
  enum class track : std::uint8_t {
    span,
    launch,
    refused,
    wait,
    fault,
    arrived,
    departed,
    copied,
    cleaned,
    elsewhere,
    died
  };

  struct entry {
    track what = track::span;
    access mode = access::read;
    reason why = reason::fault;
    location from = location::any();  // of the transfer, like the next three
    location to = location::any();
    afterwards then = afterwards::keep;
    payload contents = payload::current;
    bool commanded = false;  // else the driver or the host did it
    bool copied = false;
    bool timed = true;
    std::uint16_t stream = 0;
    std::uint32_t name = 0;
    block_range range{};
    std::uint32_t changed =
        0;                     // of those blocks, the ones that came or left with it; a fault may bring the rest of one
    std::uint32_t uses = 0;    // of a launch: the number of its list of blocks
    std::uint32_t period = 0;  // of a launch: of the step that it was recognised in
    std::uint64_t launch = 0;
    nanoseconds began{};
    nanoseconds at{};
    nanoseconds stalled{};
  };
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

  /// Texts that come again and again, by number. Number 0 stands for those that came when it was full.
  class numbered_texts {
   public:
    explicit numbered_texts(const std::string& one_too_many) : numbers_{{one_too_many, 0}}, texts_{one_too_many} {}
    [[nodiscard]] std::uint32_t number_of(std::string_view text);
    [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }

   private:
    static constexpr std::size_t most = 65536;
    std::map<std::string, std::uint32_t, std::less<>> numbers_;
    std::vector<std::string> texts_;
  };

  // --- recording ---------------------------------------------------------------------------------------------------

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

  void keep(const entry& e);
  /// What an event does to the blocks that are on the device. @returns  How many came or left.
  static std::uint32_t apply(const entry& e, std::vector<bool>& resident);

  // --- writing -----------------------------------------------------------------------------------------------------

  class writer;

  static constexpr std::int64_t spans_row = 1;
  static constexpr std::int64_t faults_row = 2;
  static constexpr std::int64_t in_row = 3;
  static constexpr std::int64_t out_row = 4;
  static constexpr std::int64_t evictions_row = 5;
  static constexpr std::int64_t elsewhere_row = 6;
  static std::int64_t launches_row(std::uint16_t stream) { return 10 + 2 * std::int64_t{stream}; }
  static std::int64_t waits_row(std::uint16_t stream) { return 11 + 2 * std::int64_t{stream}; }

  template <class Visit>
  void for_each(Visit&& visit) const;

  void write_run(writer& file, int process) const;

  void write_names(writer& file, int process, const std::set<std::uint16_t>& streams) const;
  void write_uses(writer& file, int process, const std::set<std::uint32_t>& lists) const;
  void write_residency(writer& file, int process, nanoseconds at, std::uint64_t blocks) const;
  /// What was on the device when the oldest event that is kept happened.
  void write_blocks_before(writer& file, int process) const;
  static void begin_instant(writer& file, int process, std::int64_t row, std::string_view name,
                            std::string_view category, nanoseconds at);
  static void begin_slice(writer& file, int process, std::int64_t row, std::string_view name, std::string_view category,
                          nanoseconds at, nanoseconds length);
  /// @param changed  Of the blocks, those that count: statistics count each copy of a block once, too.
  void write_range(writer& file, block_range range, std::uint32_t changed) const;

  void write_entry(writer& file, int process, const entry& e, nanoseconds origin) const;
  /// Where a copy came from and went to, where that is not between the host and the device where launches run.
  static void write_link(writer& file, const entry& e);

  trace_options options_;
  mutable std::mutex mutex_;  // everything below
  sequence<entry> ring_{};
  std::size_t next_ = 0;  // the oldest one, once the ring is full
  std::uint64_t forgotten_ = 0;
  std::vector<bool> resident_{};         // by block, now
  std::vector<bool> resident_before_{};  // before the oldest event
  std::unordered_map<std::uint64_t, open_launch> in_flight_{};
  std::unordered_map<std::uint16_t, stream_end> ends_{};
  nanoseconds copied_in_until_{};
  nanoseconds copied_out_until_{};
  nanoseconds copied_elsewhere_until_{};
  numbered_texts names_{"(one name too many)"};
  numbered_texts uses_{"[]"};  // of launches, as they are written: [first block, blocks, access] each
};

}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/impl/trace.hpp>  // what it declares
#endif
