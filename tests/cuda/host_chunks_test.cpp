#include "cuda/paged_rooms.hpp"
#include <deepum/core/block.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace host_chunks_test {

using namespace deepum_test;
using deepum::block_id;
using deepum::block_range;

TEST_CASE("a block gets a chunk of the host once, at an address of its own") {
  paged_rooms rooms;
  CHECK_FALSE(rooms.host.has(block_id{2}));
  CHECK(rooms.host.give(block_id{2}));
  CHECK(rooms.host.give(block_id{2}));
  CHECK(rooms.host.has(block_id{2}));
  CHECK_FALSE(rooms.host.has(block_id{1}));
  CHECK(rooms.host.held() == paged_rooms::chunk);
  CHECK(fake_cuda::host_may_access(rooms.host.at(block_id{2}), paged_rooms::chunk.count, deepum::access::update));
  CHECK(rooms.host.at(block_id{3}) == rooms.host.at(block_id{2}) + paged_rooms::chunk.count);
}

TEST_CASE("at the limit a chunk whose contents are of no use serves another block; one that is needed again does not") {
  paged_rooms rooms(4, 2 * paged_rooms::chunk);
  CHECK(rooms.host.give(block_id{0}));
  CHECK(rooms.host.give(block_id{1}));
  CHECK_FALSE(rooms.host.give(block_id{2}));
  CHECK(rooms.failure.host_is_full());
  rooms.host.mark_stale({block_id{0}, 2});
  CHECK(rooms.host.give(block_id{0}));  // needed again
  CHECK(rooms.host.give(block_id{2}));
  CHECK_FALSE(rooms.host.has(block_id{1}));
  CHECK_FALSE(rooms.host.give(block_id{3}));
  CHECK(rooms.host.held() == 2 * paged_rooms::chunk);
}

TEST_CASE("a chunk that is being copied to the device is not taken away") {
  paged_rooms rooms(4, paged_rooms::chunk);
  CHECK(rooms.host.give(block_id{0}));
  const std::uint32_t slot = rooms.device.take();
  const std::uint64_t copy =
      rooms.copies.begin(block_id{0}, rooms.device.at(slot), rooms.host.at(block_id{0}), paged_rooms::chunk);
  rooms.host.mark_stale({block_id{0}, 1});
  CHECK_FALSE(rooms.host.give(block_id{1}));
  rooms.copies.await(block_id{0});
  CHECK(rooms.copies.take_ended(copy).has_value());
  CHECK(rooms.host.give(block_id{1}));
}

TEST_CASE("where it is asked for, launches find the host's chunk while the device has none") {
  paged_rooms rooms(4, 2 * paged_rooms::chunk, true);
  CHECK(rooms.host.give(block_id{0}));
  std::memset(rooms.host.at(block_id{0}), 7, 1);
  CHECK(*rooms.at(0) == std::byte{7});
  const std::uint32_t slot = rooms.map(0);
  CHECK(*rooms.at(0) == static_cast<std::byte>(fake_cuda::poison));
  rooms.view.unmap_device(block_id{0});
  rooms.device.give(slot);
  rooms.host.show(block_id{0});
  CHECK(*rooms.at(0) == std::byte{7});
  CHECK(rooms.host.give(block_id{1}));
  rooms.host.mark_stale({block_id{0}, 2});
  CHECK_FALSE(rooms.host.give(block_id{2}));  // launches may use what is stale
}

TEST_CASE("where a call of the driver fails the block has no chunk, and nothing is left") {
  paged_rooms rooms;
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    CAPTURE(call);
    fake_cuda::fail_call(call, 1, cudaErrorMemoryAllocation);
    CHECK_FALSE(rooms.host.give(block_id{0}));
    CHECK(rooms.failure.host_is_full());
    CHECK(rooms.host.held().count == 0);
    CHECK(fake_cuda::stats().host_handles.count == 0);
  }
  CHECK(rooms.host.give(block_id{0}));
}

TEST_CASE("a stale chunk that cannot be unmapped serves nobody else, and its own block only where it is mapped") {
  for (const bool mapped : {true, false}) {
    CAPTURE(mapped);
    paged_rooms rooms(4, paged_rooms::chunk);
    CHECK(rooms.host.give(block_id{0}));
    rooms.host.mark_stale({block_id{0}, 1});
    fake_cuda::refuse_calls("cuMemUnmap", mapped ? 1 : 2, 2, cudaErrorUnknown);
    if (!mapped) {
      fake_cuda::fail_call("cuMemUnmap", 1, cudaErrorUnknown);  // it does it nevertheless
    }
    CHECK_FALSE(rooms.host.give(block_id{1}));
    CHECK_FALSE(rooms.host.has(block_id{0}));
    fake_cuda::forget_failures();
    CHECK(rooms.host.give(block_id{0}) == mapped);
    CHECK((mapped || rooms.host.give(block_id{0})));
    std::memset(rooms.host.at(block_id{0}), 7, 1);
    CHECK(rooms.host.held() == paged_rooms::chunk);
  }
}

TEST_CASE("a chunk that neither becomes accessible nor can be unmapped has no contents, and serves later") {
  for (const bool another : {false, true}) {
    CAPTURE(another);
    paged_rooms rooms(4, paged_rooms::chunk);
    fake_cuda::fail_call("cuMemSetAccess", 1, cudaErrorMemoryAllocation);
    fake_cuda::refuse_calls("cuMemUnmap", 1, 2, cudaErrorUnknown);
    CHECK_FALSE(rooms.host.give(block_id{0}));
    CHECK_FALSE(rooms.host.has(block_id{0}));
    CHECK(rooms.host.held() == paged_rooms::chunk);
    const block_id next{another ? 1U : 0U};
    CHECK(rooms.host.give(next));
    CHECK(rooms.host.has(next));
    std::memset(rooms.host.at(next), 7, 1);
    CHECK(rooms.host.held() == paged_rooms::chunk);
    CHECK(fake_cuda::calls("cuMemCreate") == 1);
  }
}

}  // namespace host_chunks_test
