#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/contents.hpp>

#include <cstddef>
#include <cstdint>

namespace deepum {
inline namespace v0 {
namespace sim {

/// What the device's and the host's copy of each block of paged memory hold. The device's is at the common addresses
/// where it differs from the host's.
///
/// Not synchronised: used under the lock of the device.
class paged_contents {
 public:
  /// @param bytes_of  Outlives it.
  paged_contents(contents& bytes_of, std::size_t of_arena) : data_(bytes_of), copies_(of_arena, state::garbage) {}

  /// @name The device
  /// @{
  /// It gives its copy up: the host's is seen.
  void give_up(block_id b);
  /// An operation begins. Room that has no contents reads as poison.
  void use(block_id b, access mode);
  /// @}

  /// @name Copies
  /// From where to where. Others are at addresses of their own.
  /// @{
  void host_to_device(block_id b);
  void device_to_host(block_id b);
  void host_to(block_id b, std::byte* other);
  /// @param written_meanwhile  Which bytes were copied is not known: poison.
  void device_to(block_id b, std::byte* other, bool written_meanwhile);
  void to_host(block_id b, const std::byte* other);
  /// The device has room without contents.
  void to_device(block_id b, const std::byte* other);
  /// @}

  /// The host's memory for the block serves another one: its copy is poison.
  void lose_host(block_id b);

 private:
  enum class state : std::uint8_t {
    garbage,  ///< the device has none; the host's is seen
    same,
    newer,  ///< differs, the host's copy is kept beside it
  };

  contents& data_;
  sequence<state> copies_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/paged_contents.hpp>  // what it declares
#endif
