#pragma once

#include <deepum/arena/allocation_table.hpp>
#include <deepum/arena/back.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/units.hpp>

#include <chrono>
#include <cstddef>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Brings contents to where the host finds them, and waits for that: on memory that faults at their own addresses, else
/// at others.
///
/// Threads: every call, any thread, none of them under the arena's lock.
class host_contents {
 public:
  /// @param of       Outlives it.
  /// @param checked  The arena is in checked mode.
  host_contents(arena_back& of, bool checked) : back_(of), guarded_(checked && !of.faults()) {}

  /// The host uses the bytes from now on: on memory that never faults until `give_back`.
  /// @returns  Where it finds them.
  /// @errors   `status::out_of_host_memory`; those of `engine::host_may_use`; that of a device that has failed.
  [[nodiscard]] std::byte* bring(byte_span where, access mode);
  /// It does not any more.
  void give_back(byte_span where, access mode);

 private:
  static constexpr nanoseconds longest_shortage = std::chrono::seconds(10);  // of host memory

  /// Waits until the host may use bytes that never fault. @returns  Where it finds them.
  [[nodiscard]] std::byte* await(byte_span where, access mode);

  /// Blocks whose old contents nobody needs.
  [[nodiscard]] block_range overwritten(byte_span where, access mode) const;

  arena_back& back_;
  const bool guarded_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/arena/impl/host_contents.hpp>  // what it declares
#endif
