#include "cuda/paged_rooms.hpp"
#include <deepum/core/block.hpp>
#include <deepum/cuda/paged/command.hpp>
#include <deepum/cuda/paged/departures.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

namespace departures_test {

using namespace deepum_test;
using deepum::block_id;
using deepum::block_range;
using deepum::cuda::departures;
using deepum::cuda::paged_command;

struct leaving {
  explicit leaving(deepum::bytes host_limit = {}) : rooms(6, host_limit) {
    out.open();
    for (std::uint32_t b = 0; b < paged_rooms::blocks; ++b) {
      std::memset(rooms.device.at(rooms.map(b)), static_cast<int>(b + 1), paged_rooms::chunk.count);
    }
  }
  ~leaving() { out.close(); }
  leaving(const leaving&) = delete;
  leaving& operator=(const leaving&) = delete;

  /// Until nothing waits or moves. @returns  The pieces.
  std::vector<departures::piece> finish() {
    std::vector<departures::piece> all;
    CHECK(comes([&] {
      out.keep_sending(false);
      auto ended = out.take_ended();
      all.insert(all.end(), std::make_move_iterator(ended.begin()), std::make_move_iterator(ended.end()));
      return out.idle() && !out.has_ended_some();
    }));
    return all;
  }

  paged_rooms rooms;
  departures out{{.device = rooms.device,
                  .host = rooms.host,
                  .view = rooms.view,
                  .incoming = rooms.copies,
                  .failure = rooms.failure},
                 paged_rooms::chunk};
};

TEST_CASE("what leaves is copied to the host's chunks, command by command") {
  leaving gpu;
  gpu.out.add({deepum::transfer::evict(deepum::location::host(), deepum::reason::make_room, {block_id{0}, 3}), 1});
  gpu.out.add({deepum::transfer::clean(deepum::reason::write_back, {block_id{4}, 1}), 2});
  const auto pieces = gpu.finish();
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0].part == block_range{block_id{0}, 3});
  CHECK(pieces[0].what.ticket == 1);
  CHECK(pieces[1].part == block_range{block_id{4}, 1});
  for (const auto& p : pieces) {
    CHECK(p.last);
    CHECK(p.ok);
    CHECK(p.began > deepum::nanoseconds{});
  }
  for (const std::uint32_t b : {0U, 1U, 2U, 4U}) {
    CHECK(*gpu.rooms.host.at(block_id{b}) == static_cast<std::byte>(b + 1));
  }
  CHECK_FALSE(gpu.rooms.host.has(block_id{3}));
}

TEST_CASE("where the host has memory for a part of a command that part is copied, and then the command fails") {
  leaving gpu(2 * paged_rooms::chunk);
  gpu.out.add({deepum::transfer::evict(deepum::location::host(), deepum::reason::make_room, {block_id{1}, 4}), 1});
  const auto pieces = gpu.finish();
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].part == block_range{block_id{1}, 2});
  CHECK(pieces[0].last);
  CHECK_FALSE(pieces[0].ok);
  CHECK(gpu.rooms.failure.host_is_full());
  CHECK(*gpu.rooms.host.at(block_id{2}) == std::byte{3});
}

TEST_CASE("a copy that fails takes nothing away: the command fails with no blocks") {
  leaving gpu;
  for (const char* call : {"cudaMemcpyAsync", "cudaEventCreateWithFlags", "cudaEventRecord"}) {
    CAPTURE(call);
    fake_cuda::fail_call(call, 1, cudaErrorUnknown);
    gpu.out.add({deepum::transfer::evict(deepum::location::host(), deepum::reason::make_room, {block_id{0}, 2}), 1});
    const auto pieces = gpu.finish();
    REQUIRE(pieces.size() == 1);
    CHECK(pieces[0].part.empty());
    CHECK(pieces[0].last);
    CHECK_FALSE(pieces[0].ok);
    CHECK(gpu.rooms.failure.what() == "a copy to the host failed");
  }
  gpu.out.add({deepum::transfer::evict(deepum::location::host(), deepum::reason::make_room, {block_id{0}, 2}), 1});
  CHECK(gpu.finish().at(0).ok);
}

}  // namespace departures_test
