#include "cuda/fake_gpu.hpp"
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/managed/block_marks.hpp>
#include <deepum/cuda/managed/migration_lane.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace migration_lane_test {

using namespace deepum_test;
using deepum::access;  // not the one of POSIX
using deepum::advice;
using deepum::block_id;
using deepum::block_range;
using deepum::device_event;
using deepum::location;
using deepum::reason;
using deepum::transfer;
using deepum::cuda::mark;
using deepum::cuda::migration;
using deepum::cuda::migration_context;
using deepum::cuda::migration_lane;
using strings = std::vector<std::string>;

constexpr std::uint32_t blocks = 256;

void nothing() {}

/// Managed memory with a lane for each direction.
struct bench {
  explicit bench(migration_context migrations = migration_context::own)
      : device(0, {.migrations = migrations}),
        marks(blocks) {
    void* p = nullptr;
    REQUIRE(cudaMallocManaged(&p, blocks * deepum::block_size.count, cudaMemAttachGlobal) == cudaSuccess);
    base = static_cast<std::byte*>(p);
    open();
  }
  ~bench() {
    resume_inward();  // a test that has failed
    close();
    (void)cudaFree(base);
  }
  bench(const bench&) = delete;
  bench& operator=(const bench&) = delete;

  void open() {
    for (auto* lane : {&inward, &outward}) {
      *lane = std::make_unique<migration_lane>(device, base, marks, [this](const device_event& e) { events.add(e); });
    }
  }
  void close() {
    inward.reset();
    outward.reset();
  }

  static migration command(transfer what, std::uint32_t first, std::uint32_t count, std::uint64_t ticket) {
    what.blocks = {block_id{first}, count};
    return {.what = what, .ticket = ticket};
  }
  void prefetch(std::uint32_t first, std::uint32_t count, std::uint64_t ticket) const {
    inward->submit(command(transfer::prefetch(location::device(), reason::predicted), first, count, ticket));
  }
  void evict(std::uint32_t first, std::uint32_t count, std::uint64_t ticket) const {
    outward->submit(command(transfer::evict(location::host(), reason::requested), first, count, ticket));
  }
  void discard(std::uint32_t first, std::uint32_t count, std::uint64_t ticket) const {
    inward->submit(command(transfer::discard(reason::dead), first, count, ticket));
  }
  void advise(std::uint32_t first, std::uint32_t count, advice hint) const {
    inward->submit({.what = {.blocks = {block_id{first}, count}}, .is_hint = true, .hint = hint});
  }
  void settle() const {
    inward->wait();
    outward->wait();
  }
  /// Has the host write blocks, so that there is something to move.
  void populate(std::uint32_t first, std::uint32_t count) const {
    host_touch(base + first * deepum::block_size.count, count * deepum::block_size.count, access::update);
  }
  [[nodiscard]] fake_cuda::block at(std::uint32_t block) const {
    return fake_cuda::block_at(base + block * deepum::block_size.count);
  }
  /// The first blocks: d, h, b (both) or -; capitals for what is discarded.
  [[nodiscard]] std::string places(std::uint32_t count) const {
    std::string s;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto b = at(i);
      const char c = b.on_device ? (b.on_host ? 'b' : 'd') : (b.on_host ? 'h' : '-');
      s += b.discarded && c != '-' ? static_cast<char>(c - 32) : c;
    }
    return s;
  }
  /// No more of the inward lane's streams begins, which prefetches of the last blocks find out. Then as if nothing had
  /// happened.
  void hold_inward() {
    for (std::uint32_t i = 0; i != migration_lane::pieces_in_flight; ++i) {
      prefetch(blocks - 1 - 2 * i, 1, 0);
      inward->wait();
      held.push_back(stream_of_last_hint());
    }
    events.clear();
    hints_before = prefetches(base).size();
    for (const cudaStream_t s : held) {
      fake_cuda::hold(s);
    }
  }
  void resume_inward() {
    for (const cudaStream_t s : std::exchange(held, {})) {
      fake_cuda::resume(s);
    }
  }
  [[nodiscard]] strings hinted() const { return prefetches(base, hints_before); }

  fake_gpu gpu;
  deepum::cuda::device device;
  std::byte* base = nullptr;
  deepum::cuda::block_marks marks;
  event_list events;
  std::size_t hints_before = 0;
  std::vector<cudaStream_t> held{};
  std::unique_ptr<migration_lane> inward;
  std::unique_ptr<migration_lane> outward;
};

TEST_CASE("commands that follow one another are merged up to 64 MiB, and each is told by itself") {
  bench b;
  b.hold_inward();
  b.prefetch(200, 1, 1);
  b.prefetch(210, 1, 2);
  b.prefetch(220, 1, 3);
  REQUIRE(comes([&] { return b.hinted().size() == 3; }));
  for (std::uint32_t i = 0; i < 10; ++i) {
    b.prefetch(i * 7, 7, 10 + i);
  }
  b.prefetch(80, 2, 20);  // not adjacent
  b.prefetch(75, 5, 21);  // adjacent, but not behind it
  b.resume_inward();
  b.settle();
  CHECK(b.hinted() == strings{"200+1>device", "210+1>device", "220+1>device", "0+32>device", "32+32>device",
                              "64+6>device", "80+2>device", "75+5>device"});
  CHECK(b.events.text() ==
        "arrived 200+1 #1, completed #1, arrived 210+1 #2, completed #2, arrived 220+1 #3, completed #3, "
        "arrived 0+7 #10, arrived 7+7 #11, arrived 14+7 #12, arrived 21+7 #13, arrived 28+4 #14, completed #10, "
        "completed #11, completed #12, "
        "completed #13, arrived 32+3 #14, arrived 35+7 #15, arrived 42+7 #16, arrived 49+7 #17, arrived 56+7 #18, "
        "arrived 63+1 #19, completed #14, completed #15, completed #16, completed #17, completed #18, "
        "arrived 64+6 #19, completed #19, arrived 80+2 #20, completed #20, arrived 75+5 #21, completed #21");
}

TEST_CASE("a long command is cut, and its pieces are told as they come") {
  bench b;
  b.prefetch(0, 100, 5);
  b.settle();
  CHECK(prefetches(b.base) == strings{"0+32>device", "32+32>device", "64+32>device", "96+4>device"});
  CHECK(b.events.text() == "arrived 0+32 #5, arrived 32+32 #5, arrived 64+32 #5, arrived 96+4 #5, completed #5");
  b.events.clear();
  b.evict(0, 40, 6);
  b.settle();
  CHECK(prefetches(b.base, 4) == strings{"0+16>host", "16+16>host", "32+8>host"});
  CHECK(b.events.text() == "departed 0+16 #6, departed 16+16 #6, departed 32+8 #6, completed #6");
  CHECK(fake_cuda::stats().device_blocks == 60);
}

TEST_CASE("to the device three pieces move, each in a stream that was idle; no fourth one is given to the driver") {
  bench b;
  b.hold_inward();
  b.prefetch(0, 128, 1);
  REQUIRE(comes([&] { return b.hinted().size() == 3; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(b.hinted() == strings{"0+32>device", "32+32>device", "64+32>device"});
  CHECK(std::set<cudaStream_t>(b.held.begin(), b.held.end()).size() == 3);
  CHECK(b.inward->load() == 1);
  CHECK(b.events.text() == "");
  b.resume_inward();
  b.settle();
  CHECK(b.inward->load() == 0);
  CHECK(b.hinted().size() == 4);
}

TEST_CASE("the two directions do not wait for each other") {
  bench b;
  b.prefetch(0, 4, 1);
  b.settle();
  b.hold_inward();
  b.prefetch(10, 1, 2);
  b.evict(0, 4, 3);
  b.outward->wait();
  CHECK(b.events.text() == "departed 0+4 #3, completed #3");
  b.resume_inward();
}

TEST_CASE("a call that fails, fails its own command and no other, whichever it is") {
  for (const bool inward : {true, false}) {
    for (const char* name : {"cudaMemPrefetchAsync", "cudaStreamQuery", "cudaStreamSynchronize"}) {
      const std::string called = name;
      if (called == (inward ? "cudaStreamSynchronize" : "cudaStreamQuery")) {
        continue;
      }
      CAPTURE(called);
      CAPTURE(inward);
      for (unsigned nth = 1; nth <= 5; ++nth) {
        CAPTURE(nth);
        bench b;
        if (!inward) {
          b.prefetch(0, 10, 99);
          b.settle();
        }
        b.events.clear();
        fake_cuda::fail_call(name, nth, cudaErrorInvalidValue);
        for (std::uint32_t i = 0; i < 5; ++i) {
          inward ? b.prefetch(i * 2, 1, 1 + i) : b.evict(i * 2, 1, 1 + i);
        }
        b.settle();
        std::string expected;
        unsigned failures = 0;
        std::array<bool, 6> failed{};
        for (const device_event& e : b.events.all()) {
          if (e.what == device_event::kind::failed) {
            failed.at(e.ticket) = true;
            ++failures;
          }
        }
        CHECK(failures == 1);
        if (called != "cudaStreamQuery") {  // which is asked as often as it takes
          CHECK(failed.at(nth));
        }
        for (std::uint64_t t = 1; t <= 5; ++t) {
          const std::string i = std::to_string((t - 1) * 2);
          const std::string n = std::to_string(t);
          expected += expected.empty() ? "" : ", ";
          expected += failed.at(t) ? "failed #" + n
                                   : (inward ? "arrived " : "departed ") + i + "+1 #" + n + ", completed #" + n;
        }
        CHECK(b.events.text() == expected);
      }
    }
  }
}

TEST_CASE("of a command whose piece fails the other pieces move, and it has failed") {
  bench b;
  fake_cuda::fail_call("cudaMemPrefetchAsync", 2, cudaErrorMemoryAllocation);
  b.prefetch(0, 96, 1);
  b.settle();
  CHECK(b.events.text() == "arrived 0+32 #1, arrived 64+32 #1, failed #1");
  CHECK(b.places(1) == "d");
  CHECK_FALSE(b.at(40).on_device);
  b.events.clear();
  fake_cuda::fail_call("cudaMemPrefetchAsync", 1, cudaErrorMemoryAllocation);
  b.evict(0, 32, 2);
  b.evict(64, 1, 3);
  b.settle();
  CHECK(b.events.text() == "departed 16+16 #2, failed #2, departed 64+1 #3, completed #3");
}

TEST_CASE("all commands of a merged piece that fails have failed") {
  bench b;
  b.hold_inward();
  b.prefetch(200, 1, 1);
  b.prefetch(210, 1, 2);
  b.prefetch(220, 1, 6);
  REQUIRE(comes([&] { return b.hinted().size() == 3; }));
  b.prefetch(0, 2, 3);
  b.prefetch(2, 2, 4);
  b.prefetch(10, 1, 5);
  fake_cuda::fail_call("cudaMemPrefetchAsync", 1, cudaErrorInvalidValue);
  b.resume_inward();
  b.settle();
  CHECK(b.events.text() ==
        "arrived 200+1 #1, completed #1, arrived 210+1 #2, completed #2, arrived 220+1 #6, completed #6, failed #3, "
        "failed #4, arrived 10+1 #5, completed #5");
}

TEST_CASE("what managed memory cannot do fails, and the lane goes on") {
  bench b;
  b.inward->submit(bench::command(transfer::clean(reason::write_back), 0, 1, 1));
  b.outward->submit(bench::command(transfer::clean(reason::write_back), 0, 1, 2));
  b.prefetch(0, 1, 3);
  b.inward->wait();
  b.outward->wait();
  const std::string told = b.events.text();
  for (const char* part : {"failed #1", "failed #2", "arrived 0+1 #3", "completed #3"}) {
    CHECK(told.find(part) != std::string::npos);
  }
}

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

TEST_CASE("a lane that ends carries out what it was given") {
  for (const migration_context migrations : {migration_context::own, migration_context::shared}) {
    bench b(migrations);
    CHECK(b.inward->has_context() == (migrations == migration_context::own));
    fake_cuda::set_delays(3, std::chrono::microseconds(200));
    for (std::uint32_t i = 0; i < 60; ++i) {
      b.prefetch(i * 2, 1, 1 + i);
    }
    b.inward->repopulate_when_idle({block_id{0}, 4});
    b.close();
    std::size_t completed = 0;
    for (const device_event& e : b.events.all()) {
      completed += e.what == device_event::kind::completed ? 1 : 0;
    }
    CHECK(completed == 60);
    CHECK(fake_cuda::stats().device_blocks == 60);
  }
}

TEST_CASE("where no context can be made, lanes use the program's") {
  bench b;
  b.close();
  fake_cuda::set_refuse_contexts(true);
  b.open();
  CHECK_FALSE(b.inward->has_context());
  b.prefetch(0, 1, 1);
  b.evict(0, 1, 2);
  b.settle();
  CHECK(b.events.all().size() == 4);
}

TEST_CASE("a lane that cannot be made leaves nothing behind and the thread on its device") {
  for (const migration_context migrations : {migration_context::own, migration_context::shared}) {
    for (unsigned nth = 1; nth <= migration_lane::pieces_in_flight; ++nth) {
      const fake_gpu gpu;
      const deepum::cuda::device device(0, {.migrations = migrations});
      deepum::cuda::block_marks marks(1);
      fake_cuda::fail_call("cudaStreamCreateWithFlags", nth, cudaErrorMemoryAllocation);
      CHECK_THROWS_AS(migration_lane(device, nullptr, marks, [](const device_event&) {}), deepum::error);
      cudaStream_t s = nullptr;
      CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
      void (*const kernel)() = nothing;
      fake_cuda::register_kernel(kernel);
      std::array<void*, 1> none{};
      CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(1), dim3(1), none.data(), 0, s) ==
            cudaSuccess);
      CHECK(cudaStreamDestroy(s) == cudaSuccess);
    }
  }
}

}  // namespace migration_lane_test
