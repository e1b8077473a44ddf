#pragma once

#include <deepum/core/block.hpp>
#include <deepum/cuda/paged/arrivals.hpp>
#include <deepum/cuda/paged/chunk_range.hpp>
#include <deepum/cuda/paged/failure_note.hpp>
#include <deepum/cuda/paged/launch_view.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Chunks of host memory, pinned and beside the device, at most one for each block. Each has an address of its own, by
/// block, for copies and for the host. They are created as they are needed and kept; where no more may be had, one
/// whose contents are of no use serves another block.
///
/// Threads: any.
class host_chunks {
 public:
  /// What it works with. All of it outlives it.
  struct surroundings {
    const virtual_memory& memory;
    const arrivals& copies;
    launch_view* shown_in;  ///< where launches find them; nullptr: nowhere
    failure_note& failure;
    launch_view* in_place = nullptr;  ///< where launches find those that are in place; nullptr: none may be
  };

  /// @param most  Host memory to hold at most; 0: what the host gives.
  /// @errors  `status::out_of_arena_space`.
  host_chunks(const surroundings& with, bytes chunk, std::uint32_t block_count, bytes most);
  ~host_chunks();
  host_chunks(const host_chunks&) = delete;
  host_chunks& operator=(const host_chunks&) = delete;

  /// The block needs a chunk from now on. @returns  Whether it has one.
  [[nodiscard]] bool give(block_id b);
  [[nodiscard]] bool has(block_id b);
  /// Their chunks may serve other blocks, until they are needed again.
  void mark_stale(block_range range);
  /// Launches find the block's chunk, if it has one, unless they find one of the device.
  void show(block_id b);
  /// From now on they find the block's chunk while it is not on the device, or not any more. @returns  Whether the
  /// block has one.
  bool set_in_place(block_id b, bool on);
  [[nodiscard]] bool is_in_place(block_id b) const { return in_place_[b.value].load(std::memory_order_relaxed); }

  [[nodiscard]] std::byte* at(block_id b) const { return addresses_.at(b.value); }
  [[nodiscard]] bytes held() const { return chunk_ * created_.load(std::memory_order_relaxed); }

 private:
  using handle = virtual_memory::handle;
  static constexpr handle no_memory = 0;

  /// @param lock  Is not held while the driver makes a chunk, so that several threads can have one each made.
  [[nodiscard]] handle create(std::unique_lock<std::mutex>& lock);
  /// A chunk whose contents are of no use: the device has newer ones, or none are wanted.
  [[nodiscard]] handle take_outdated();
  void show_locked(block_id b);
  /// Where launches find the block; nullptr: nowhere.
  [[nodiscard]] launch_view* view_of(block_id b) const {
    return with_.shown_in != nullptr ? with_.shown_in : is_in_place(b) ? with_.in_place : nullptr;
  }

  const surroundings with_;
  const bytes chunk_;
  const bytes limit_;
  chunk_range addresses_;
  std::mutex mutex_;
  /// The block has a chunk that can be used.
  [[nodiscard]] bool has_locked(block_id b) const { return chunks_[b.value] != no_memory && !closed_[b.value]; }

  std::vector<handle> chunks_;    // by block
  std::vector<bool> being_made_;  // by block: a thread is having a chunk made for it
  std::condition_variable made_{};
  std::unique_ptr<std::atomic<bool>[]> in_place_;  // by block
  std::vector<bool> closed_;  // by block: there is a chunk, that may not be mapped or accessible, without contents
  std::uint32_t taken_last_ = 0;
  std::unique_ptr<std::atomic<bool>[]> stale_;  // by block
  std::atomic<std::uint32_t> created_{0};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/paged/impl/host_chunks.hpp>  // what it declares
#endif
