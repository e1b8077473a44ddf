#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/engine/host_access.hpp>
#include <deepum/engine/records.hpp>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What becomes of contents: launches write them, they are given up, they are remembered when what was to overwrite
/// them does not run.
///
/// Not synchronised: used under the engine's state lock.
class block_contents {
 public:
  /// @param views  Where the memory never faults; else null. Both outlive it.
  block_contents(records& shared, host_access* views) : state_(shared), host_(views) {}

  /// A launch wrote the block on the device. Where that has room alone, the launch was abandoned.
  void written(block_id b);
  /// The same on the host, where the launch found it.
  void written_in_place(block_id b);
  /// A launch will not run: what it would have overwritten is what the host has, and the device has room alone.
  void remember(const launch_record& record);
  /// A block without contents on the device, and with some on the host, comes again when it has left.
  void leave_if_hollow(block_id b);
  /// The contents have been given up.
  void forgotten(block_id b);
  /// The host's copy may have become of no use.
  void note_home_copy(block_id b) {
    if (host_ != nullptr) {
      host_->note_home_copy(b);
    }
  }

 private:
  records& state_;
  host_access* host_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/engine/impl/block_contents.hpp>  // what it declares
#endif
