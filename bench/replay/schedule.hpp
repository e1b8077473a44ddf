#pragma once

#include "replay/machine.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace deepum::replay {

/// Under which conditions a schedule was made. The referee is told by its command line; this informs its reader.
struct schedule_header {
  bytes budget{};
  double h2d_gbps = 0.0;
  double d2h_gbps = 0.0;
  nanoseconds copy_latency{};

  friend bool operator==(const schedule_header&, const schedule_header&) = default;
};

/// What one line of a schedule says.
enum class schedule_event : std::uint8_t {
  copy_in,     ///< host to device; room is taken at `start`, contents are usable from `end`
  copy_out,    ///< device to host; room is free at `end`
  copy_clean,  ///< device to host; the device keeps its copy
  drop,        ///< room is freed at `start` without a copy
  make_new,    ///< room is taken at `start` without a copy, for contents that are about to be overwritten
  launch,      ///< runs from `start` to `end`
  move,        ///< any other copy, from or to a neighbour
};

/// Blocks that a launch touches where they are, on the host.
struct schedule_in_place {
  block_range blocks{};
  std::uint64_t in = 0;   ///< bytes that it reads of them
  std::uint64_t out = 0;  ///< bytes that it writes

  friend bool operator==(const schedule_in_place&, const schedule_in_place&) = default;
};

struct schedule_entry {
  schedule_event what = schedule_event::copy_in;
  block_range blocks{};      ///< not of a launch; never empty
  std::uint32_t kernel = 0;  ///< of a launch: its place in the step
  std::uint32_t step = 0;    ///< of a launch
  nanoseconds start{};
  nanoseconds end{};                          ///< of a copy or launch; equal to `start` for the others
  location from = location::device();         ///< of a copy; of a drop: where room is freed
  location to = location::host();             ///< of a copy
  std::uint8_t via = 0;                       ///< of a copy: its route, by number
  afterwards then = afterwards::keep;         ///< of a copy: what the source has when it is over
  std::vector<schedule_in_place> in_place{};  ///< of a launch

  friend bool operator==(const schedule_entry&, const schedule_entry&) = default;
};

struct schedule {
  schedule_header header{};
  std::vector<schedule_entry> entries{};

  friend bool operator==(const schedule&, const schedule&) = default;
};

/// A line of a schedule in format version 1, with the end of the line. It knows no moves.
[[nodiscard]] std::string schedule_line(const schedule_header& header);
[[nodiscard]] std::string schedule_line(const schedule_entry& entry);
/// The same in version 2, which names places and links.
[[nodiscard]] std::string schedule_line(const schedule_entry& entry, const machine& on);

/// Writes a schedule, JSON Lines that the referee checks; packed where the path ends in ".gz".
///
/// A file that was not finished is removed. Not synchronised.
class schedule_writer {
 public:
  /// In format version 1.
  /// @errors  `status::io_failure` where the file cannot be written.
  schedule_writer(const std::string& path, const schedule_header& header);
  /// In version 2. @param on  Where the entries happen; copied.
  schedule_writer(const std::string& path, const machine& on);
  ~schedule_writer();
  schedule_writer(schedule_writer&&) noexcept;
  schedule_writer& operator=(schedule_writer&&) noexcept;

  /// Appends one line. In version 1 copies of one direction come in the order of time and do not overlap.
  /// @errors  `status::io_failure`.
  void write(const schedule_entry& entry);

  /// The schedule is complete. Nothing may be written after it.
  /// @errors  `status::io_failure`: the file is not whole, and is removed.
  void finish();

 private:
  struct file;

  void open(const std::string& path, const std::string& header);

  std::unique_ptr<file> file_;
};

/// Reads a schedule in format version 1. Whether it keeps the rules of the referee is not looked at.
/// @param source  Name of the file, for messages.
/// @errors        `status::bad_format` with the line and the reason.
[[nodiscard]] schedule parse_schedule(std::string_view source, std::string_view text);

/// Reads a schedule from a file, plain or gzip.
/// @errors  As `read_text` and `parse_schedule`.
[[nodiscard]] schedule read_schedule(const std::string& path);

}  // namespace deepum::replay
