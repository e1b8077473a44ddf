#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// A page fault of the GPU, as a feed tells it.
struct fault_sample {
  std::uintptr_t address = 0;
  access mode = access::read;  ///< read or update
  nanoseconds at{};            ///< on the feed's own clock, which runs at the rate of every other
};

/// Where the faults of the GPU are learned from.
///
/// Threads: one at a time.
class fault_feed {
 public:
  fault_feed() = default;
  fault_feed(const fault_feed&) = delete;
  fault_feed& operator=(const fault_feed&) = delete;
  virtual ~fault_feed() = default;

  /// For messages and statistics.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Appends the faults since the last call, oldest first. Never waits for the device.
  virtual void take(std::vector<fault_sample>& out) = 0;
  /// As `take`, when no launch is in flight: with all that is known, whatever it costs to ask.
  virtual void take_all(std::vector<fault_sample>& out) { take(out); }
  /// Whether faults may be told only after the launch that had them has ended.
  [[nodiscard]] virtual bool late() const { return false; }
  /// Whether it still tells what happens. Once false, always false.
  [[nodiscard]] virtual bool alive() const = 0;
  /// Faults that happened and were not told.
  [[nodiscard]] virtual std::uint64_t lost() const = 0;
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
