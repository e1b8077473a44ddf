#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/error.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/device_space.hpp>
#include <deepum/sim/driver.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

/// How a command fails that `managed_memory::fail_call` chose.
enum class failure : std::uint8_t {
  at_call,   ///< the call returns false
  half_way,  ///< the call returns true; half of its blocks are done, then it fails
};

/// Managed memory of the simulated GPU: the driver moves blocks on page faults and on command.
///
/// Host and device see the same bytes at the same addresses. Direct access of the host is always correct, but takes no
/// virtual time and moves nothing; `host_access` is how a program says what it touches (docs/adr/0002).
class managed_memory final : public device_space<managed_space> {
 public:
  static constexpr memory_capabilities traits{.shortest_row = bytes{128}};

  /// @param capacity  Length of the address range, whole blocks. Memory is committed when it is touched.
  /// @errors  `status::invalid_argument`, `status::out_of_host_memory`.
  managed_memory(device& owner, bytes capacity);
  ~managed_memory() override;

  /// @name Commands
  /// Only queued, also when they are called from the pump. Prefetches and advice are carried out in order, and so are
  /// evictions and discards. Every block that is on the device after a prefetch is reported as arrived, also where
  /// nothing had to move; every block that an eviction or a discard took from the device as departed. An eviction of
  /// read-mostly copies ends their duplication until the next prefetch: nothing is copied. Advice reports nothing.
  /// False: the call failed, and no event follows.
  /// @{
  bool start(const transfer& what, std::uint64_t ticket) override;
  bool advise(block_range range, advice hint, location l) override;
  /// The `nth` command from now on fails (1: the next one). Threads: any.
  void fail_call(std::uint64_t nth, failure how = failure::at_call);
  /// @}

  /// The host touches bytes of the range: waits for what moves there, and moves what is on the device to the host,
  /// fault by fault. Takes virtual time. Threads: any but the pump's.
  void host_access(bytes offset, bytes size, access mode) override;

  /// The host has pages for the blocks from now on. Takes no time: that is the copy's. Threads: any.
  [[nodiscard]] std::byte* fill_address(bytes offset, bytes size) override;

  /// The driver's record of a block, for tests. Threads: any.
  [[nodiscard]] block_record record_of(block_id b);

 private:
  bool submit(device_command c);

  std::uint64_t fail_in_ = 0;
  failure fail_how_ = failure::at_call;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/managed_memory.hpp>  // what it declares
#endif
