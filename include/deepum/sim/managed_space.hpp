#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/sim/address_space.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace sim {

/// One block as the driver of managed memory sees it.
struct block_record {
  enum class motion : std::uint8_t { none, arriving, leaving };
  enum class preference : std::uint8_t { none, host, device };

  std::uint32_t on_device =
      0;                      ///< pages with a current copy on the device; in neither mask: never written, or discarded
  std::uint32_t on_host = 0;  ///< in both masks: read-mostly copies
  motion moving = motion::none;
  preference preferred = preference::none;
  bool room = false;  ///< a block of device memory belongs to it
  bool read_mostly = false;
  bool accessed_by = false;    ///< the device has a mapping of what is on the host
  bool mapped = false;         ///< the same, because a fault set it up
  std::uint64_t migrated = 0;  ///< place in the order of migration while it has room

  /// Pages that an access with `mode` cannot use on the device as they are.
  [[nodiscard]] std::uint32_t missing(std::uint32_t pages, access mode) const;
};

/// An address range whose blocks the driver moves.
class managed_space : public address_space {
 public:
  using address_space::address_space;

  [[nodiscard]] block_record& operator[](block_id b) { return blocks_[b.value]; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size()); }
  [[nodiscard]] managed_space* managed() override { return this; }

  [[nodiscard]] touch_result touch(const segment& s) override;

 private:
  sequence<block_record> blocks_{capacity() / block_size};
};

/// A block of one of the spaces on a device.
struct managed_block {
  managed_space* space = nullptr;
  block_id block{};

  [[nodiscard]] block_record& record() const { return (*space)[block]; }
  friend bool operator==(const managed_block&, const managed_block&) = default;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/managed_space.hpp>  // what it declares
#endif
