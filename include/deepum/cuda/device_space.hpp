#pragma once

#include <deepum/core/location.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/completion/launch_watch.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/event_mailbox.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

class event;
class launch_log;

/// What both kinds of memory on CUDA have in common: the device, the launches of its streams with the thread that runs
/// the pump, and the mailbox for what the kind's own threads tell.
class device_space : public memory_space {
 public:
  using device_type = device;
  using event_type = event;

  [[nodiscard]] device& owner() const { return owner_; }

  /// @name Events
  /// See `launch_watch`.
  /// @{
  [[nodiscard]] nanoseconds now() const override { return gpu_clock::host_now(); }
  /// Threads: any.
  void poll(std::vector<device_event>& events) override;
  void notify() override { watch_.notify(); }
  void hurry() override { watch_.hurry(); }
  [[nodiscard]] std::uint64_t happened() const override { return watch_.runs(); }
  void wait(std::uint64_t seen, nanoseconds at_most) override { watch_.wait(seen, at_most); }
  void attach(std::function<void()> pump) { watch_.attach(std::move(pump)); }
  /// Returns when the pump has returned for the last time, and no command is under way.
  void detach();
  /// @}

  /// @name For streams
  /// @{
  void add(launch_log& log) { watch_.add(log); }
  /// All its launches have finished.
  void remove(launch_log& log);
  /// A launch has been given to the device.
  void issued(launch_log& log, bool first) { watch_.issued(log, first); }
  [[nodiscard]] bool mark_launches() { return watch_.mark_launches(); }
  [[nodiscard]] bool several_streams() const { return watch_.several_streams(); }
  /// @}

 protected:
  /// @param block  Size of a block.
  /// @errors  `status::device_failure`.
  device_space(const memory_capabilities& can, device& owner, bytes block)
      : memory_space(can, block),
        owner_(owner),
        watch_(owner) {}

  /// What the runtime says, in bytes.
  struct memory_left {
    bytes free{};
    bytes total{};
  };
  /// Nothing where the runtime does not say. Costs a system call, 5 us. Threads: any.
  [[nodiscard]] std::optional<memory_left> device_memory_left() const;

  /// Has the pump take the event, soon. Threads: any.
  void put(const device_event& e);
  /// Returns when no command is under way.
  virtual void wait_for_commands() = 0;

  device& owner_;
  launch_watch watch_;
  event_mailbox happened_{};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/impl/device_space.hpp>  // what it declares
#endif
