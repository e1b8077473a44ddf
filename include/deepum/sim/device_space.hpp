#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/topology.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/copy_threads.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

class stream;
class event;

/// A space on a device as an engine sees it: what both kinds of memory of the simulator have in common.
/// @tparam Space  An `address_space`.
template <class Space>
class device_space : public memory_space, protected Space {
 public:
  using device_type = device;
  using stream_type = stream;
  using event_type = event;

  [[nodiscard]] device& owner() const { return owner_; }
  [[nodiscard]] std::byte* base() const override { return Space::base(); }
  [[nodiscard]] bytes capacity() const override { return Space::capacity(); }
  [[nodiscard]] nanoseconds now() const override { return Space::now(); }
  void poll(std::vector<device_event>& events) override { Space::poll(events); }
  void notify() override { Space::notify(); }
  /// Nothing: the clock stands still while no thread waits, so a thread that waits looks again after each turn.
  [[nodiscard]] std::uint64_t happened() const override { return 0; }
  /// A turn of the clock, as long as a query of the device takes.
  void wait(std::uint64_t /*seen*/, nanoseconds at_most) override {
    notify();
    owner_.host_work(std::min(owner_.properties().host_query, at_most));
  }
  [[nodiscard]] std::unique_ptr<deepum::detail::host_workers> make_workers(
      unsigned how_many, deepum::detail::host_workers::next_job source) override {
    return std::make_unique<copy_threads>(owner_, how_many, std::move(source));
  }
  using Space::attach;
  using Space::contains;
  using Space::detach;

  /// Device memory that is free, whole blocks. Threads: any.
  [[nodiscard]] bytes free_memory() const override {
    const auto lock = Space::loop().lock();
    return block_size * owner_.memory_driver().free_rooms();
  }

  /// For the streams of the simulator.
  [[nodiscard]] address_space& space() { return *this; }

 protected:
  device_space(const memory_capabilities& can, device& owner, bytes capacity, topology all = {})
      : memory_space(can, block_size, std::move(all)),
        Space(owner.loop(), capacity, owner.options().worker, owner.properties().worker_wake_up,
              owner.options().delay_seed),
        owner_(owner) {
    const auto lock = Space::loop().lock();
    owner_.operations().add(*this);
  }
  ~device_space() override {
    const auto lock = Space::loop().lock();
    owner_.operations().remove(*this);
  }

  device& owner_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
