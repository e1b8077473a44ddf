#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/cuda/handles.hpp>
#include <deepum/units.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

class primary_context;

/// Copies to the device that are on their way, each of one block. They end in the order in which they began; what
/// launches wait for is here.
///
/// Threads: one that copies; `under_way` and `order_after`, any.
class arrivals {
 public:
  /// One that has ended.
  struct ended {
    block_id block{};
    nanoseconds began{};
  };

  explicit arrivals(std::uint32_t block_count);
  arrivals(const arrivals&) = delete;
  arrivals& operator=(const arrivals&) = delete;

  /// On the thread that copies, with the device current: before the first copy, and after the last one. A stream that
  /// cannot be made makes copies fail.
  void open() { stream_ = try_make_stream(); }
  void close();

  /// @returns  The number of the copy: 1, 2, 3, ...; 0 where it failed, and then nothing is on its way.
  [[nodiscard]] std::uint64_t begin(block_id b, std::byte* to, const std::byte* from, bytes size);
  /// Takes the first copy, if it is done and its number at most this.
  [[nodiscard]] std::optional<ended> take_ended(std::uint64_t up_to);
  /// Returns when no copy of the block is under way.
  void await(block_id b);
  /// Returns when none is under way, of all.
  void await_all();

  /// Whether the block is being copied.
  [[nodiscard]] bool under_way(block_id b) const {
    return number_[b.value].load(std::memory_order_acquire) > ended_.load(std::memory_order_acquire);
  }
  /// Work put into `queue` from now on comes behind the copies of these blocks. Costs no call where none is under
  /// way, else one.
  /// @param complete  False: behind all copies.
  /// @errors  `status::device_failure`.
  void order_after(cudaStream_t queue, const primary_context& context, const std::vector<block_access>& blocks,
                   bool complete);

 private:
  struct copy {
    std::uint64_t number = 0;
    unique_event copied{};
    block_id block{};
    nanoseconds began{};
  };

  unique_stream stream_{};
  event_pool events_{};
  std::mutex mutex_;  // of `copies_`
  std::deque<copy> copies_{};
  std::unique_ptr<std::atomic<std::uint64_t>[]> number_;  // by block: of its last copy
  std::atomic<std::uint64_t> last_{0};
  std::atomic<std::uint64_t> ended_{0};  // all copies up to this one are done
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/paged/impl/arrivals.hpp>  // what it declares
#endif
