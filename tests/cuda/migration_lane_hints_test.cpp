// What a lane does beside moving blocks: duplications, discards, advice.

#include "cuda/lane_bench.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

namespace migration_lane_hints_test {

using namespace lane_bench_of_tests;
TEST_CASE("a read-mostly block is duplicated with its prefetch, leaves without a copy, and comes back duplicated") {
  bench b;
  b.populate(0, 4);
  b.advise(1, 2, advice::set_read_mostly);
  b.inward->wait();
  CHECK_FALSE(b.at(1).read_mostly);  // not before it is brought
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    b.events.clear();
    const std::uint64_t copied = fake_cuda::stats().to_host;
    b.prefetch(0, 4, 1);
    b.settle();
    CHECK(b.places(4) == "dbbd");
    const auto told = b.events.all();
    REQUIRE(event_list::text(told) == "arrived 0+1 #1, arrived 1+2 #1, arrived 3+1 #1, completed #1");
    CHECK_FALSE(told[0].host_copy_stays);
    CHECK(told[1].host_copy_stays);
    CHECK_FALSE(told[2].host_copy_stays);
    b.evict(0, 4, 2);
    b.settle();
    CHECK(b.places(4) == "hhhh");
    CHECK(fake_cuda::stats().to_host == copied + 2);  // the others
  }
}

TEST_CASE("a duplication ends at once: the device's copy goes, is told, and does not come back") {
  bench b;
  b.populate(0, 4);
  b.advise(0, 4, advice::set_read_mostly);
  b.prefetch(0, 4, 1);
  b.settle();
  CHECK(b.places(4) == "bbbb");
  b.events.clear();
  const std::uint64_t copied = fake_cuda::stats().to_host;
  b.inward->end_duplication({block_id{1}, 2});
  CHECK(b.places(4) == "bhhb");
  CHECK(b.events.text() == "departed 1+2");
  CHECK(fake_cuda::stats().to_host == copied);
  b.inward->end_duplication({block_id{1}, 2});
  CHECK(b.events.text() == "departed 1+2");
  b.advise(3, 1, advice::unset_read_mostly);
  b.prefetch(1, 2, 2);
  b.settle();
  CHECK(b.places(4) == "bddh");
}

TEST_CASE("duplications that another thread ends while blocks are brought stay ended") {
  bench b;
  b.populate(0, 8);
  for (int round = 0; round < 200; ++round) {
    b.advise(0, 8, advice::set_read_mostly);
    b.prefetch(0, 8, 1);
    b.inward->end_duplication({block_id{0}, 8});
    b.inward->end_duplication({block_id{0}, 8});
    b.settle();
    b.inward->end_duplication({block_id{0}, 8});
    bool ended = true;
    for (std::uint32_t i = 0; i < 8; ++i) {
      ended = ended && !b.at(i).read_mostly && !b.marks.has(block_id{i}, mark::duplicated);
    }
    REQUIRE(ended);
    b.evict(0, 8, 2);
    b.settle();
  }
}

TEST_CASE("discarded blocks are marked until they are prefetched, and nothing is copied for them") {
  bench b;
  b.populate(0, 4);
  b.prefetch(0, 4, 1);
  b.settle();
  const auto before = fake_cuda::stats();
  b.events.clear();
  b.discard(1, 2, 2);
  b.settle();
  CHECK(b.places(4) == "dDDd");
  CHECK(b.events.text() == "departed 1+2 #2, completed #2");
  CHECK_FALSE(b.marks.has(block_id{0}, mark::discarded));
  CHECK(b.marks.has(block_id{1}, mark::discarded));
  b.evict(1, 1, 3);
  b.prefetch(2, 1, 4);
  b.settle();
  CHECK(b.places(4) == "dhdd");
  CHECK_FALSE(b.marks.has(block_id{1}, mark::discarded));
  CHECK_FALSE(b.marks.has(block_id{2}, mark::discarded));
  CHECK(fake_cuda::stats().to_host == before.to_host);
  CHECK(fake_cuda::stats().to_device == before.to_device);

  b.events.clear();
  fake_cuda::fail_call("cudaMemDiscardBatchAsync", 1, cudaErrorInvalidValue);
  b.discard(0, 1, 5);
  b.settle();
  CHECK(b.events.text() == "failed #5");
  CHECK_FALSE(b.marks.has(block_id{0}, mark::discarded));
}

TEST_CASE("a discard behind prefetches of the same blocks is told behind them") {
  bench b;
  b.hold_inward();
  b.prefetch(0, 2, 1);
  b.discard(0, 2, 2);
  b.prefetch(4, 1, 3);
  REQUIRE(comes([&] { return b.hinted().size() == 1; }));
  b.resume_inward();
  b.settle();
  CHECK(b.events.text() == "arrived 0+2 #1, completed #1, departed 0+2 #2, completed #2, arrived 4+1 #3, completed #3");
  CHECK(b.marks.has(block_id{0}, mark::discarded));
  CHECK(b.places(2) == "DD");
}

TEST_CASE(
    "discarded blocks are repopulated on the host, only when nothing else is to be done, and only if they still are") {
  bench b;
  b.prefetch(0, 24, 1);
  b.settle();
  b.discard(8, 8, 2);
  b.settle();
  b.evict(20, 1, 3);
  b.settle();
  const cudaStream_t s = stream_of_last_hint();
  const std::size_t so_far = prefetches(b.base).size();
  fake_cuda::hold(s);
  b.evict(0, 2, 4);
  REQUIRE(comes([&] { return prefetches(b.base).size() == so_far + 1; }));
  b.outward->repopulate_when_idle({block_id{6}, 8});
  b.evict(4, 2, 5);
  fake_cuda::resume(s);
  REQUIRE(comes([&] { return prefetches(b.base).size() == so_far + 3; }));
  CHECK(prefetches(b.base, so_far) == strings{"0+2>host", "4+2>host", "8+6>host"});
  REQUIRE(comes([&] { return !b.marks.has(block_id{13}, mark::discarded); }));
  CHECK(b.marks.has(block_id{14}, mark::discarded));
  REQUIRE(comes([&] { return b.at(13).on_host; }));
  CHECK(b.places(16) == "hhddhhddhhhhhhDD");
  b.outward->repopulate_when_idle({block_id{8}, 6});  // they are not any more
  b.evict(2, 1, 6);
  b.settle();
  CHECK(prefetches(b.base).size() == so_far + 4);
}

TEST_CASE("advice goes to the driver in the order of the commands, with the place it is about") {
  bench b;
  b.inward->submit({.what = {.blocks = {block_id{0}, 2}},
                    .is_hint = true,
                    .hint = advice::set_preferred_location,
                    .where = {.on_host = true}});
  b.inward->submit({.what = {.blocks = {block_id{1}, 2}},
                    .is_hint = true,
                    .hint = advice::set_accessed_by,
                    .where = {.on_host = false, .device = 0}});
  b.settle();
  CHECK(b.at(0).preferred == cudaCpuDeviceId);
  CHECK(b.at(2).preferred == cudaInvalidDeviceId);
  CHECK_FALSE(b.at(0).accessed_by);
  CHECK(b.at(2).accessed_by);
  CHECK(b.events.text() == "");
}

}  // namespace migration_lane_hints_test
