#include "cuda/paged_rooms.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace device_chunks_test {

using namespace deepum_test;
using deepum::cuda::device_chunks;

TEST_CASE("chunks are created up to the limit, and an empty one is taken before another is made") {
  paged_rooms rooms;
  rooms.device.set_limit(2);
  const std::uint32_t a = rooms.device.take();
  const std::uint32_t b = rooms.device.take();
  CHECK(a != b);
  CHECK(rooms.device.at(a) != rooms.device.at(b));
  CHECK(rooms.device.take() == device_chunks::none);
  CHECK(rooms.failure.what() == "all 2 chunks of the budget are in use");
  CHECK_FALSE(rooms.failure.host_is_full());
  rooms.device.give(a);
  CHECK(rooms.device.empty() == 1);
  CHECK(rooms.device.take() == a);
  CHECK(rooms.device.empty() == 0);
  CHECK(fake_cuda::calls("cuMemCreate") == 2);
}

TEST_CASE("empty chunks beyond the limit are given back, those with contents stay, and slots are used again") {
  paged_rooms rooms;
  std::uint32_t slots[3];
  for (std::uint32_t& s : slots) {
    s = rooms.device.take();
  }
  rooms.device.set_limit(1);
  CHECK_FALSE(rooms.device.has_too_many());  // all have contents
  rooms.device.give(slots[0]);
  rooms.device.give(slots[1]);
  CHECK(rooms.device.has_too_many());
  rooms.device.trim();
  CHECK(rooms.device.created() == 1);
  CHECK(rooms.device.empty() == 0);
  CHECK(fake_cuda::stats().device_handles == paged_rooms::chunk);
  rooms.device.set_limit(100);  // more than the device could hold
  for (int i = 0; i < 3; ++i) {
    CHECK(rooms.device.take() < 4);
  }
  CHECK(rooms.device.take() == device_chunks::none);
}

TEST_CASE("where a call of the driver fails there is no chunk, nothing is left, and the note says why") {
  paged_rooms rooms;
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    CAPTURE(call);
    fake_cuda::fail_call(call, 1, cudaErrorMemoryAllocation);
    CHECK(rooms.device.take() == device_chunks::none);
    CHECK(rooms.device.created() == 0);
    CHECK(fake_cuda::stats().device_handles.count == 0);
  }
  CHECK(rooms.failure.what() == "a chunk of the device could not be made accessible");
  CHECK(rooms.device.take() != device_chunks::none);
}

TEST_CASE("an empty chunk that cannot be unmapped is given back later") {
  paged_rooms rooms;
  const std::uint32_t a = rooms.device.take();
  const std::uint32_t b = rooms.device.take();
  rooms.device.give(a);
  rooms.device.give(b);
  rooms.device.set_limit(0);
  fake_cuda::refuse_calls("cuMemUnmap", 1, 2, cudaErrorUnknown);
  rooms.device.trim();
  CHECK(rooms.device.created() == 1);
  CHECK(rooms.device.empty() == 0);
  CHECK(rooms.device.has_too_many());
  rooms.device.trim();
  CHECK(rooms.device.created() == 0);
  CHECK(fake_cuda::stats().device_handles.count == 0);
}

TEST_CASE("an empty chunk that could not be unmapped is used again where it is mapped, and else made anew") {
  for (const bool mapped : {true, false}) {
    CAPTURE(mapped);
    paged_rooms rooms;
    rooms.device.give(rooms.device.take());
    rooms.device.set_limit(0);
    fake_cuda::refuse_calls("cuMemUnmap", mapped ? 1 : 2, 2, cudaErrorUnknown);
    if (!mapped) {
      fake_cuda::fail_call("cuMemUnmap", 1, cudaErrorUnknown);  // it does it nevertheless
    }
    rooms.device.trim();
    CHECK(rooms.device.created() == 1);
    fake_cuda::forget_failures();
    rooms.device.set_limit(1);
    CHECK((rooms.device.take() != device_chunks::none) == mapped);
    CHECK((mapped || rooms.device.take() != device_chunks::none));
    CHECK(rooms.device.created() == 1);
    CHECK(fake_cuda::calls("cuMemCreate") == (mapped ? 1 : 2));
  }
}

TEST_CASE("a chunk that neither becomes accessible nor can be unmapped is the next one that is taken") {
  paged_rooms rooms;
  rooms.device.set_limit(1);
  fake_cuda::fail_call("cuMemSetAccess", 1, cudaErrorMemoryAllocation);
  fake_cuda::refuse_calls("cuMemUnmap", 1, 2, cudaErrorUnknown);
  CHECK(rooms.device.take() == device_chunks::none);
  CHECK(rooms.device.created() == 1);
  CHECK(rooms.device.empty() == 0);
  CHECK(rooms.device.take() != device_chunks::none);
  CHECK(rooms.device.take() == device_chunks::none);
  CHECK(fake_cuda::calls("cuMemCreate") == 1);
}

}  // namespace device_chunks_test
