#include "cuda/paged_rooms.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/cuda/handles.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace arrivals_test {

using namespace deepum_test;
using deepum::block_access;
using deepum::block_id;
using deepum::cuda::make_stream;

constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();

/// Begins a copy of the block into a chunk of its own.
std::uint64_t begin(paged_rooms& rooms, std::uint32_t b) {
  REQUIRE(rooms.host.give(block_id{b}));
  return rooms.copies.begin(block_id{b}, rooms.device.at(rooms.device.take()), rooms.host.at(block_id{b}),
                            paged_rooms::chunk);
}
std::vector<block_access> reads(std::uint32_t b) { return {{{block_id{b}, 1}, deepum::access::read}}; }

TEST_CASE("copies are numbered in their order, end in it, and are told only up to the one that was asked for") {
  paged_rooms rooms;
  CHECK(begin(rooms, 3) == 1);
  CHECK(begin(rooms, 1) == 2);
  CHECK(rooms.copies.under_way(block_id{3}));
  CHECK_FALSE(rooms.copies.under_way(block_id{0}));
  rooms.copies.await(block_id{1});
  CHECK_FALSE(rooms.copies.take_ended(0).has_value());
  auto ended = rooms.copies.take_ended(1);
  REQUIRE(ended.has_value());
  CHECK(ended->block == block_id{3});
  CHECK_FALSE(rooms.copies.under_way(block_id{3}));
  CHECK(rooms.copies.under_way(block_id{1}));
  CHECK_FALSE(rooms.copies.take_ended(1).has_value());
  ended = rooms.copies.take_ended(all);
  REQUIRE(ended.has_value());
  CHECK(ended->block == block_id{1});
  CHECK_FALSE(rooms.copies.take_ended(all).has_value());
}

TEST_CASE("a queue waits for the copies of its blocks, once, and for none where none is under way") {
  paged_rooms rooms;
  const auto queue = make_stream();
  const auto& context = rooms.gpu_device.context();
  const auto waits = [] { return fake_cuda::calls("cudaStreamWaitEvent"); };
  rooms.copies.order_after(queue.get(), context, reads(0), true);
  rooms.copies.order_after(queue.get(), context, reads(0), false);
  CHECK(waits() == 0);
  (void)begin(rooms, 0);
  (void)begin(rooms, 1);
  rooms.copies.order_after(queue.get(), context, reads(2), true);
  CHECK(waits() == 0);
  rooms.copies.order_after(queue.get(), context, {reads(0)[0], reads(1)[0]}, true);
  CHECK(waits() == 1);
  rooms.copies.order_after(queue.get(), context, reads(2), false);  // it may touch all
  CHECK(waits() == 2);
  rooms.copies.await_all();
  while (rooms.copies.take_ended(all)) {
  }
  rooms.copies.order_after(queue.get(), context, reads(1), false);
  CHECK(waits() == 2);
}

TEST_CASE("a copy that cannot be given to the device has no number, and nothing is under way") {
  paged_rooms rooms;
  for (const char* call : {"cudaEventCreateWithFlags", "cudaMemcpyAsync", "cudaEventRecord"}) {
    CAPTURE(call);
    fake_cuda::fail_call(call, 1, cudaErrorUnknown);
    CHECK(begin(rooms, 0) == 0);
    CHECK_FALSE(rooms.copies.under_way(block_id{0}));
  }
  CHECK(begin(rooms, 0) == 1);
  rooms.copies.await_all();
}

}  // namespace arrivals_test
