#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/memory_kind.hpp>
#include <deepum/error.hpp>
#include <deepum/policy/plan.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace sim {

class stream;
class event;

/// How a command fails that `managed_memory::fail_call` chose.
enum class failure : std::uint8_t {
  at_call,   ///< the call returns false
  half_way,  ///< the call returns true; half of its blocks are done, then it fails
};

/// Managed memory of the simulated GPU: the driver moves blocks on page faults and on command.
///
/// Host and device see the same bytes at the same addresses. Direct access of the host is always correct, but takes no
/// virtual time and moves nothing; `host_access` is how a program says what it touches (docs/adr/0002).
class managed_memory : private managed_space {
 public:
  using device_type = device;
  using stream_type = stream;
  using event_type = event;

  /// @param capacity  Length of the address range, whole blocks. Memory is committed when it is touched.
  /// @errors  `status::invalid_argument`, `status::out_of_host_memory`.
  managed_memory(device& owner, bytes capacity)
      : managed_space(owner.loop(), capacity, owner.options().worker, owner.properties().worker_wake_up,
                      owner.options().delay_seed),
        owner_(owner) {
    const auto lock = loop().lock();
    owner_.operations().add(*this);
  }
  ~managed_memory() override {
    detach();
    event_loop::host_call call(loop());
    call.wait([&] { return owner_.memory_driver().quiet(*this); });
    owner_.memory_driver().forget(*this);
    owner_.operations().remove(*this);
  }

  [[nodiscard]] device& owner() const { return owner_; }
  using address_space::attach;
  using address_space::base;
  using address_space::capacity;
  using address_space::contains;
  using address_space::detach;
  using address_space::notify;
  using address_space::now;
  using address_space::place;
  using address_space::poll;

  /// Device memory that is free, whole blocks. Threads: any.
  [[nodiscard]] bytes free_memory() const {
    const auto lock = loop().lock();
    return block_size * owner_.memory_driver().free_rooms();
  }

  /// @name Commands
  /// Only queued, also when they are called from the pump. Prefetches and advice are carried out in order, and so are
  /// evictions and discards. Every block that is on the device after a prefetch is reported as arrived, also where
  /// nothing had to move; every block that an eviction or a discard took from the device as departed. An eviction of
  /// read-mostly copies ends their duplication until the next prefetch: nothing is copied. Advice reports nothing.
  /// False: the call failed, and no event follows.
  /// @{
  bool prefetch(block_range range, std::uint64_t ticket) {
    return submit({.what = action::prefetch, .range = range, .ticket = ticket});
  }
  bool evict(block_range range, std::uint64_t ticket) {
    return submit({.what = action::evict, .to = location::host(), .range = range, .ticket = ticket});
  }
  bool discard(block_range range, std::uint64_t ticket) {
    return submit({.what = action::discard, .range = range, .ticket = ticket});
  }
  bool advise(block_range range, advice hint, location l) {
    return submit({.what = action::advise, .hint = hint, .to = l, .range = range});
  }
  /// The `nth` command from now on fails (1: the next one). Threads: any.
  void fail_call(std::uint64_t nth, failure how = failure::at_call) {
    const auto lock = loop().lock();
    fail_in_ = nth;
    fail_how_ = how;
  }
  /// @}

  /// The host touches bytes of the range: waits for what moves there, and moves what is on the device to the host,
  /// fault by fault. Takes virtual time. Threads: any but the pump's.
  void host_access(bytes offset, bytes size, access mode) {
    expects(offset + size <= capacity(), "the host touches bytes outside the arena");
    if (size.count == 0) {
      return;
    }
    const block_range range = blocks_of(offset, size);
    event_loop::host_call call(loop());
    for (std::uint32_t b = range.begin_value(); b < range.end_value(); ++b) {
      const std::uint64_t start = b * block_size.count;
      const std::uint64_t from = std::max(offset.count, start) - start;
      const std::uint64_t to = std::min((offset + size).count, start + block_size.count) - start;
      owner_.memory_driver().host_access(call, *this, block_id{b}, pages_of(from, to), mode);
    }
  }

  /// The driver's record of a block, for tests. Threads: any.
  [[nodiscard]] block_record record_of(block_id b) {
    const auto lock = loop().lock();
    return (*this)[b];
  }

  /// For the streams of the simulator.
  [[nodiscard]] address_space& space() { return *this; }

 private:
  bool submit(device_command c) {
    expects(!c.range.empty() && c.range.end_value() <= size(), "a command for blocks outside the arena");
    const auto lock = loop().lock();
    if (fail_in_ != 0 && --fail_in_ == 0) {
      if (fail_how_ == failure::at_call) {
        return false;
      }
      c.stop_at = c.range.count / 2;
    }
    c.space = this;
    owner_.memory_driver().submit(c);
    return true;
  }

  device& owner_;
  std::uint64_t fail_in_ = 0;
  failure fail_how_ = failure::at_call;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
