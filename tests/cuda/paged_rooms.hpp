#pragma once

#include "cuda/fake_gpu.hpp"
#include <deepum/core/block.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/paged/arrivals.hpp>
#include <deepum/cuda/paged/device_chunks.hpp>
#include <deepum/cuda/paged/failure_note.hpp>
#include <deepum/cuda/paged/host_chunks.hpp>
#include <deepum/cuda/paged/launch_view.hpp>
#include <deepum/cuda/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

namespace deepum_test {

/// The resources of paged memory without the thread that works with them: the test does what that would do.
struct paged_rooms {
  static constexpr deepum::bytes chunk{std::uint64_t{2} << 20};
  static constexpr std::uint32_t blocks = 6;

  /// @param most        Chunks that the device could hold.
  /// @param host_limit  See `device_options`.
  explicit paged_rooms(std::uint32_t most = 4, deepum::bytes host_limit = {}, bool host_mapped = false)
      : device(memory, chunk, most, failure),
        host({.memory = memory, .copies = copies, .shown_in = host_mapped ? &view : nullptr, .failure = failure}, chunk,
             blocks, host_limit) {
    copies.open();
  }
  ~paged_rooms() { copies.close(); }
  paged_rooms(const paged_rooms&) = delete;
  paged_rooms& operator=(const paged_rooms&) = delete;

  /// Shows the block to launches, in a chunk of the device. @returns  Its slot.
  std::uint32_t map(std::uint32_t b) {
    const std::uint32_t slot = device.take();
    REQUIRE(slot != deepum::cuda::device_chunks::none);
    CHECK(view.map_device(deepum::block_id{b}, slot, device.memory_of(slot)) == CUDA_SUCCESS);
    return slot;
  }
  /// Where launches find the block.
  [[nodiscard]] std::byte* at(std::uint32_t b) const { return view.addresses().at(b); }

  fake_gpu gpu{};
  deepum::cuda::device gpu_device{0};
  deepum::cuda::virtual_memory memory{0};
  deepum::cuda::failure_note failure{};
  deepum::cuda::arrivals copies{blocks};
  deepum::cuda::launch_view view{memory, chunk, blocks};
  deepum::cuda::device_chunks device;
  deepum::cuda::host_chunks host;
};

}  // namespace deepum_test
