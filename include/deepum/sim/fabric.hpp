#pragma once

#include <deepum/core/sequence.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/link.hpp>
#include <deepum/sim/shared_lines.hpp>

#include <cstdint>
#include <map>

namespace deepum {
inline namespace v0 {
namespace sim {

class executor;
struct stream_state;

/// What the devices of one machine share: the virtual clock, the lines between devices, the host's memory, and the
/// streams that wait for an event, of whichever device.
///
/// Not synchronised: used under the lock of the event loop.
class fabric {
 public:
  fabric() = default;
  fabric(const fabric&) = delete;
  fabric& operator=(const fabric&) = delete;

  [[nodiscard]] event_loop& loop() { return loop_; }

  void add(executor& of_device) { executors_.push_back(&of_device); }
  void remove(executor& of_device) { erase(executors_, &of_device); }
  [[nodiscard]] const sequence<executor*>& executors() const { return executors_; }

  /// What a device sends to others goes out here, whoever gets it: a switch connects all of them.
  [[nodiscard]] link& out_of(int device) { return outlets_.try_emplace(device, loop_).first->second; }
  /// And comes in here, whoever sent it.
  [[nodiscard]] inlet& into(int device) { return inlets_[device]; }
  /// Under the devices' links to the host.
  [[nodiscard]] host_bandwidth& host_memory() { return host_memory_; }

  /// Streams are numbered over all devices.
  [[nodiscard]] std::uint64_t next_stream() { return ++streams_; }
  /// By number: those that have come to wait for an event.
  [[nodiscard]] std::map<std::uint64_t, stream_state*>& waiting() { return waiting_; }

 private:
  event_loop loop_{};
  sequence<executor*> executors_{};
  std::map<int, link> outlets_{};  // by device
  std::map<int, inlet> inlets_{};
  host_bandwidth host_memory_{};
  std::uint64_t streams_ = 0;
  std::map<std::uint64_t, stream_state*> waiting_{};
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
