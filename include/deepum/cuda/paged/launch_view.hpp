#pragma once

#include <deepum/core/block.hpp>
#include <deepum/cuda/paged/chunk_range.hpp>
#include <deepum/cuda/paged/device_chunks.hpp>
#include <deepum/cuda/paged/exclusive_mode.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/units.hpp>

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// What launches find at the arena's addresses, block by block: a chunk of the device; one of the host, where
/// `evicted_chunks::host_mapped` is chosen; or nothing.
///
/// Threads: one that maps chunks of the device; `map_host` and `slot_of`, any.
class launch_view {
 public:
  /// A chunk of the device that the driver did not unmap.
  struct kept_chunk {
    block_id block{};  ///< where it may still be mapped
    std::uint32_t slot = 0;
    CUresult why = CUDA_SUCCESS;  ///< what the driver said
  };

  /// @param calls  Outlives it.
  /// @errors  `status::out_of_arena_space`.
  launch_view(const virtual_memory& calls, bytes chunk, std::uint32_t block_count);
  ~launch_view();
  launch_view(const launch_view&) = delete;
  launch_view& operator=(const launch_view&) = delete;

  [[nodiscard]] const chunk_range& addresses() const { return addresses_; }
  [[nodiscard]] exclusive_mode& exclusive() { return exclusive_; }

  /// Of the chunk of the device that is there; `device_chunks::none`: none is.
  [[nodiscard]] std::uint32_t slot_of(block_id b) const { return slot_of_[b.value].load(std::memory_order_relaxed); }

  /// Shows a chunk of the device in place of what the host has there. Where that fails launches find none of the
  /// device.
  /// @returns  What the driver says. While copies to the host follow one another without a pause, it takes a
  ///           millisecond, else 35 us (docs/adr/0007).
  [[nodiscard]] CUresult map_device(block_id b, std::uint32_t slot, virtual_memory::handle chunk);
  /// Shows nothing in place of the chunk of the device.
  void unmap_device(block_id b);
  /// Shows a chunk of the host, unless one is there or may be there, of either.
  void map_host(block_id b, virtual_memory::handle chunk);

  /// Launches find a chunk of the host there.
  [[nodiscard]] bool shows_host(block_id b) {
    const std::lock_guard lock(mutex_);
    return host_[b.value];
  }

  /// @name Chunks of the device that the driver did not unmap
  /// Nobody else may have them, and their blocks find no others: unmapping one once more would take away what was
  /// mapped there since.
  /// @{
  [[nodiscard]] bool keeps(std::uint32_t slot) const;
  /// What the driver said of one of them; CUDA_SUCCESS: there are none.
  [[nodiscard]] CUresult why_kept() const { return kept_.empty() ? CUDA_SUCCESS : kept_.back().why; }
  /// Tries once more. @returns  Those that are mapped nowhere any more. Cost: a call for each that there is.
  [[nodiscard]] std::vector<kept_chunk> take_kept();
  /// @}

 private:
  /// Shows nothing; where the driver refuses that, the chunk is kept.
  void unmap(block_id b, std::uint32_t slot);
  /// What the driver said of the chunk that it keeps there; CUDA_SUCCESS: there is none.
  [[nodiscard]] CUresult why_kept_at(block_id b) const;

  chunk_range addresses_;
  exclusive_mode exclusive_;
  std::mutex mutex_;
  std::vector<bool> host_;                                 // by block: a chunk of the host is there
  std::unique_ptr<std::atomic<std::uint32_t>[]> slot_of_;  // by block; written under the mutex
  std::vector<kept_chunk> kept_{};                         // written by the thread that maps, under the mutex
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/paged/impl/launch_view.hpp>  // what it declares
#endif
