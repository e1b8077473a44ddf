#include "cuda/paged_rooms.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace launch_view_test {

using namespace deepum_test;
using deepum::block_id;
using deepum::block_range;
using deepum::cuda::device_chunks;

/// Whether a launch may touch the block: on the fake GPU a copy from where it may not is refused.
bool admits(const paged_rooms& rooms, std::uint32_t b) {
  static std::byte to;
  const bool ok = cudaMemcpyAsync(&to, rooms.at(b), 1, cudaMemcpyDefault, nullptr) == cudaSuccess;
  (void)cudaGetLastError();
  return ok;
}

TEST_CASE("a launch finds the chunk that is mapped, with its contents, and nothing after it was unmapped") {
  paged_rooms rooms;
  CHECK(rooms.view.slot_of(block_id{1}) == device_chunks::none);
  CHECK_FALSE(admits(rooms, 1));
  const std::uint32_t slot = rooms.map(1);
  CHECK(rooms.view.slot_of(block_id{1}) == slot);
  CHECK(admits(rooms, 1));
  CHECK_FALSE(admits(rooms, 0));
  std::memset(rooms.device.at(slot), 9, 1);
  CHECK(*rooms.at(1) == std::byte{9});
  rooms.view.unmap_device(block_id{1});
  CHECK(rooms.view.slot_of(block_id{1}) == device_chunks::none);
  CHECK_FALSE(admits(rooms, 1));
}

std::vector<std::uint32_t> slots_of(const std::vector<deepum::cuda::launch_view::kept_chunk>& chunks) {
  std::vector<std::uint32_t> slots;
  for (const deepum::cuda::launch_view::kept_chunk& c : chunks) {
    slots.push_back(c.slot);
  }
  return slots;
}

TEST_CASE("where the driver refuses a mapping or its access nothing is there, and it can be tried again") {
  paged_rooms rooms;
  const std::uint32_t slot = rooms.device.take();
  for (const char* call : {"cuMemMap", "cuMemSetAccess"}) {
    CAPTURE(call);
    fake_cuda::fail_call(call, 1, cudaErrorMemoryAllocation);
    CHECK(rooms.view.map_device(block_id{0}, slot, rooms.device.memory_of(slot)) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(rooms.view.slot_of(block_id{0}) == device_chunks::none);
  }
  CHECK(rooms.view.map_device(block_id{0}, slot, rooms.device.memory_of(slot)) == CUDA_SUCCESS);
}

TEST_CASE("a chunk that the driver does not unmap is kept until it does, and its block finds no other") {
  paged_rooms rooms;
  const std::uint32_t slot = rooms.map(1);
  const std::uint32_t other = rooms.device.take();
  CHECK(rooms.view.why_kept() == CUDA_SUCCESS);
  fake_cuda::refuse_calls("cuMemUnmap", 1, 4, cudaErrorUnknown);
  rooms.view.unmap_device(block_id{1});
  CHECK(rooms.view.slot_of(block_id{1}) == device_chunks::none);
  CHECK(rooms.view.keeps(slot));
  CHECK_FALSE(rooms.view.keeps(other));
  CHECK(rooms.view.why_kept() == CUDA_ERROR_UNKNOWN);
  CHECK(rooms.view.map_device(block_id{1}, other, rooms.device.memory_of(other)) == CUDA_ERROR_UNKNOWN);
  CHECK(rooms.view.take_kept().empty());
  CHECK(slots_of(rooms.view.take_kept()) == std::vector<std::uint32_t>{slot});
  CHECK(rooms.view.map_device(block_id{1}, other, rooms.device.memory_of(other)) == CUDA_SUCCESS);
  // One that reports an error and has done it all the same.
  fake_cuda::fail_call("cuMemUnmap", 1, cudaErrorUnknown);
  rooms.view.unmap_device(block_id{1});
  CHECK_FALSE(rooms.view.keeps(other));
  CHECK_FALSE(admits(rooms, 1));
}

TEST_CASE("a chunk that the driver unmaps and says it does not takes nothing away from what comes to its block") {
  for (const bool shown : {false, true}) {
    CAPTURE(shown);
    paged_rooms rooms(4, {}, shown);
    const std::uint32_t slot = rooms.map(1);
    const std::uint32_t other = rooms.device.take();
    // It does so each of the four times that it is asked, and so nothing is mapped there.
    for (int call = 0; call < 4; ++call) {
      fake_cuda::fail_call("cuMemUnmap", 1, cudaErrorUnknown);
    }
    rooms.view.unmap_device(block_id{1});
    CHECK(rooms.view.keeps(slot));
    CHECK_FALSE(admits(rooms, 1));
    CHECK(rooms.host.give(block_id{1}));
    CHECK(rooms.view.take_kept().empty());
    CHECK(rooms.view.map_device(block_id{1}, other, rooms.device.memory_of(other)) == CUDA_ERROR_UNKNOWN);
    CHECK_FALSE(admits(rooms, 1));
    CHECK(slots_of(rooms.view.take_kept()) == std::vector<std::uint32_t>{slot});
    rooms.host.show(block_id{1});
    CHECK(admits(rooms, 1) == shown);
    CHECK(rooms.view.map_device(block_id{1}, other, rooms.device.memory_of(other)) == CUDA_SUCCESS);
    CHECK(rooms.view.take_kept().empty());
    CHECK(admits(rooms, 1));
  }
}

TEST_CASE("a chunk that is mapped in vain and cannot be unmapped is kept until it can") {
  paged_rooms rooms;
  const std::uint32_t slot = rooms.device.take();
  fake_cuda::fail_call("cuMemSetAccess", 1, cudaErrorMemoryAllocation);
  fake_cuda::refuse_calls("cuMemUnmap", 1, 4, cudaErrorUnknown);
  CHECK(rooms.view.map_device(block_id{0}, slot, rooms.device.memory_of(slot)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(rooms.view.slot_of(block_id{0}) == device_chunks::none);
  CHECK(rooms.view.keeps(slot));
  CHECK(rooms.view.take_kept().empty());
  CHECK(slots_of(rooms.view.take_kept()) == std::vector<std::uint32_t>{slot});
  CHECK_FALSE(rooms.view.keeps(slot));
  CHECK(rooms.view.map_device(block_id{0}, slot, rooms.device.memory_of(slot)) == CUDA_SUCCESS);
}

TEST_CASE("a chunk of the host that cannot be unmapped is not replaced by one of the device") {
  paged_rooms rooms(4, {}, true);
  CHECK(rooms.host.give(block_id{0}));
  std::memset(rooms.host.at(block_id{0}), 7, 1);
  const std::uint32_t slot = rooms.device.take();
  fake_cuda::refuse_calls("cuMemUnmap", 1, 2, cudaErrorUnknown);
  CHECK(rooms.view.map_device(block_id{0}, slot, rooms.device.memory_of(slot)) == CUDA_ERROR_UNKNOWN);
  CHECK_FALSE(rooms.view.keeps(slot));
  CHECK(*rooms.at(0) == std::byte{7});
  CHECK(rooms.view.map_device(block_id{0}, slot, rooms.device.memory_of(slot)) == CUDA_SUCCESS);
  CHECK(*rooms.at(0) == static_cast<std::byte>(fake_cuda::poison));
}

TEST_CASE("in exclusive mode a block is accessible from the first launch that was let in to the end of the last") {
  paged_rooms rooms;
  rooms.view.exclusive().turn_on();
  rooms.map(0);
  rooms.map(1);
  const std::vector<deepum::block_access> one{{{block_id{0}, 1}, deepum::access::read}};
  const std::vector<deepum::block_access> both{{{block_id{0}, 2}, deepum::access::update}};
  CHECK_FALSE(admits(rooms, 0));
  rooms.view.exclusive().let_in(one);
  CHECK(admits(rooms, 0));
  CHECK_FALSE(admits(rooms, 1));
  rooms.view.exclusive().let_in(both);
  rooms.view.exclusive().keep_out(one);
  CHECK(admits(rooms, 0));
  CHECK(admits(rooms, 1));
  rooms.view.exclusive().keep_out(both);
  CHECK_FALSE(admits(rooms, 0));
  CHECK_FALSE(admits(rooms, 1));
}

}  // namespace launch_view_test
