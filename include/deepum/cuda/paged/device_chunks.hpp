#pragma once

#include <deepum/cuda/paged/chunk_range.hpp>
#include <deepum/cuda/paged/failure_note.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/units.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Chunks of device memory, created as they are needed up to a limit. Each has an address of its own through which it
/// is copied, in its slot.
///
/// Threads: one at a time, but for the limit and the counters: any.
class device_chunks {
 public:
  static constexpr std::uint32_t none = 0xffffffffU;

  /// @param calls, failure  Outlive it.
  /// @param most            Chunks that the device could hold.
  /// @errors  `status::out_of_arena_space`.
  device_chunks(const virtual_memory& calls, bytes chunk, std::uint32_t most, failure_note& failure);
  ~device_chunks();
  device_chunks(const device_chunks&) = delete;
  device_chunks& operator=(const device_chunks&) = delete;

  /// A slot whose chunk holds nothing; `none` where there may not be another one, or the device has no memory.
  [[nodiscard]] std::uint32_t take();
  /// The chunk holds nothing any more.
  void give(std::uint32_t slot);
  /// Whether there are more chunks than the limit allows, and some hold nothing.
  [[nodiscard]] bool has_too_many() const {
    return created() > limit_.load(std::memory_order_relaxed) && !(empty_.empty() && closed_.empty());
  }
  /// Gives those back, as far as the driver takes them. Nothing is being copied into them.
  void trim();

  [[nodiscard]] std::byte* at(std::uint32_t slot) const { return addresses_.at(slot); }
  [[nodiscard]] virtual_memory::handle memory_of(std::uint32_t slot) const { return slots_[slot]; }

  void set_limit(std::uint64_t chunks);
  /// Chunks that there are.
  [[nodiscard]] std::uint32_t created() const { return created_.load(std::memory_order_relaxed); }
  /// Those of them that hold nothing.
  [[nodiscard]] std::uint32_t empty() const { return empty_count_.load(std::memory_order_relaxed); }

 private:
  static constexpr virtual_memory::handle no_memory = 0;

  [[nodiscard]] std::uint32_t create();
  /// Gives the memory of a slot access. @returns  The slot, or `none` where the driver gives it none.
  [[nodiscard]] std::uint32_t open(std::uint32_t slot);
  /// Takes the memory of a slot away; where the driver does not unmap it, the slot is closed.
  void destroy(std::uint32_t slot);

  const virtual_memory& memory_;
  const bytes chunk_;
  chunk_range addresses_;
  failure_note& failure_;
  std::vector<virtual_memory::handle> slots_{};
  std::vector<std::uint32_t> empty_{};   // slots with memory and without contents
  std::vector<std::uint32_t> unused_{};  // slots without memory
  std::vector<std::uint32_t> closed_{};  // slots with memory that may not be mapped or accessible
  std::atomic<std::uint32_t> limit_;
  std::atomic<std::uint32_t> created_{0};
  std::atomic<std::uint32_t> empty_count_{0};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/paged/impl/device_chunks.hpp>  // what it declares
#endif
