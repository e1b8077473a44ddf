#pragma once

#include <deepum/core/topology.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum::replay {

/// What moving blocks costs on a GPU with one link each way.
struct link_costs {
  double h2d_gbps = 50.8;           ///< 10^9 bytes a second
  double d2h_gbps = 50.8;           ///< 10^9 bytes a second
  nanoseconds copy_latency{2'000};  ///< of each copy, whatever its length
  nanoseconds fault_latency{0};     ///< from a page fault to the copy that serves it
  /// Both directions work while a launch's faults are served: while one block comes, the victim of the next one leaves.
  /// Else one follows the other.
  bool fault_overlap = false;
  double both_gbps = 0;            ///< both directions together, where that is less than the sum; 0: the sum
  bool driver_makes_room = false;  ///< as `machine` has it
};

/// What links carry together at most.
struct link_cap {
  std::vector<std::uint8_t> links{};  ///< by number
  double gbps = 0;
};

/// The machine of a replay: device 0 computes, the others hold blocks or pass them on.
struct machine {
  topology places{};                 ///< rates in 10^9 bytes a second
  std::vector<std::string> names{};  ///< of the links, by number
  std::vector<link_cap> caps{};
  bytes budget{};                   ///< of device 0
  nanoseconds copy_latency{2'000};  ///< of each copy, whatever its length
  nanoseconds fault_latency{0};     ///< as `link_costs` has it
  bool fault_overlap = false;
  /// Managed memory: a copy to the device that finds no room is no reason to leave it out. The least recently migrated
  /// block that the launch at the head does not use leaves, and then the other one comes, as the driver does it.
  bool driver_makes_room = false;
  /// Useful 10^9 bytes a second of rows that launches touch in place, from rows of so many bytes on, ascending. Empty:
  /// they touch none.
  std::vector<std::pair<std::uint32_t, double>> row_rates{};

  /// How fast rows of this size are touched in place; 0: it is not known.
  [[nodiscard]] double row_rate(std::uint32_t row_bytes) const {
    double rate = 0;
    for (const auto& [from, gbps] : row_rates) {
      rate = from <= row_bytes && gbps > rate ? gbps : rate;
    }
    return rate;
  }
  /// Rows from which on the rate is the highest; 0: none are touched in place.
  [[nodiscard]] std::uint32_t shortest_row() const;
  /// Of the routes from one place to another together, in 10^9 bytes a second: what one link each would have to do
  /// to be as good while nothing else moves. No link is counted for more than it has.
  [[nodiscard]] double rate(location from, location to) const;
};

/// A device with one link each way.
[[nodiscard]] machine one_device(bytes budget, const link_costs& costs);

/// Reads a machine as the referee of schedules does: budgets by device, links with rates, routes over one or two of
/// them, caps on sums of links, and the rates of rows that are touched in place.
///
/// A route over two links goes through a place between. Where the file does not name that place, because no route ends
/// there, it is a device that holds nothing.
/// @param source  Name of the file, for messages.
/// @errors        `status::bad_format` with the reason.
[[nodiscard]] machine parse_machine(std::string_view source, std::string_view text);

/// The same of a file.
/// @errors  As `read_text` and `parse_machine`.
[[nodiscard]] machine read_machine(const std::string& path);

}  // namespace deepum::replay
