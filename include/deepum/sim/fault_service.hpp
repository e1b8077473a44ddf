#pragma once

#include <deepum/core/fifo.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/device_memory.hpp>
#include <deepum/sim/managed_space.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace deepum {
inline namespace v0 {
namespace sim {

/// Serves the page faults of a device: batch by batch and, in a batch, block by block (Allen & Ge, SC'21).
///
/// Not synchronised: used under the lock of the event loop.
class fault_service {
 public:
  /// Ends the wait for a batch. `served` is false where there is no room.
  using result = std::function<void(bool served)>;

  explicit fault_service(device_memory& of_device) : memory_(of_device) {}

  /// The operation misses pages at its position.
  void fault(walk& w, result resume);

 private:
  struct faulted_block {
    managed_block at{};
    std::uint32_t pages = 0;
    access mode = access::read;
  };
  struct request {
    walk* who = nullptr;
    result resume{};
  };

  /// The largest parts of the block, in powers of two pages, that hold a wanted page and of which more than half is
  /// wanted or there (the driver's density prefetcher).
  [[nodiscard]] static std::uint32_t with_neighbours(std::uint32_t wanted, std::uint32_t there);

  void next_batch();
  /// The pages that the operation misses next, in the order in which it touches them.
  void collect(const walk& w);
  void serve(std::size_t i);
  /// Brings the missing pages of a block that has room.
  void bring_in(std::size_t i);
  /// @param served  Blocks of the batch that came; the others will fault again.
  void end_batch(std::size_t served);

  device_memory& memory_;
  bool serving_ = false;
  fifo<request> requests_;
  sequence<faulted_block> batch_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/fault_service.hpp>  // what it declares
#endif
