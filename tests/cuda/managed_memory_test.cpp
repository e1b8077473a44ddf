#include "cuda/fake_cuda.hpp"
#include "cuda/fake_driver_feed.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/test_scale.hpp"
#include "support/transfers.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace managed_memory_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using deepum::advice;
using deepum::block_id;
using deepum::block_range;
using deepum::device_event;
using deepum::location;
using kind = deepum::device_event::kind;

static_assert(deepum::memory_kind<deepum::cuda::managed_memory>);
static_assert(!deepum::paged_memory_kind<deepum::cuda::managed_memory>);

void add(std::uint32_t* to, const std::uint32_t* from, std::uint64_t n) {
  device_touch(from, n * 4, deepum::access::read);
  device_touch(to, n * 4, deepum::access::update);
  for (std::uint64_t i = 0; i < n; ++i)
    to[i] += from[i];
}

TEST_CASE("a loop computes the same under every policy and stays inside its budget") {
  fake_cuda::register_kernel(add);
  for (const char* policy : few<const char*>({"auto", "um", "lru", "deepum"}, 2)) {
    CAPTURE(policy);
    {
      deepum::cuda::device gpu{0};
      deepum::arena arena{gpu, {.capacity = 64_MiB, .device_budget = 24_MiB, .policy = policy, .log = {}}};
      deepum::stream stream{arena};
      constexpr std::uint64_t n = (4U << 20U) / 4;
      std::vector<std::uint32_t*> x;
      for (std::uint32_t i = 0; i < 12; ++i) {
        x.push_back(arena.allocate<std::uint32_t>(n));
        stream.memset(x.back(), 0, deepum::bytes{n * 4});
      }
      const std::vector<std::uint32_t> ones(n, 1);
      stream.memcpy(x[0], ones.data(), deepum::bytes{n * 4});
      for (int step = 0; step < 5; ++step) {
        for (std::size_t i = 1; i < x.size(); ++i)
          stream.launch("add", 1, 1, 0, add, x[i], x[i - 1], n);
      }
      stream.synchronize();
      std::vector<std::uint32_t> last(n);
      stream.memcpy(last.data(), x.back(), deepum::bytes{n * 4});
      stream.synchronize();
      CHECK(last[0] == 1365);
      CHECK(last[n - 1] == last[0]);
      const deepum::statistics s = arena.statistics();
      CHECK(s.finished == s.launches);
    }
    CHECK(fake_cuda::reset() == "");
  }
}

// --- The memory kind, without an arena. ---

void touch(const std::byte* p, std::size_t n, access mode) { device_touch(p, n, mode); }

/// Memory of so many blocks, and what it reports.
struct bench {
  explicit bench(std::uint32_t blocks, deepum::bytes device_memory = 1_GiB, bool feed = false,
                 deepum::cuda::migration_context migrations = deepum::cuda::migration_context::own)
      : gpu(device_memory),
        device(0, {.migrations = migrations, .faults = deepum::cuda::fault_source::none},
               feed ? driver.maker() : deepum::cuda::fault_feed_maker{}),
        memory(device, deepum::block_size * blocks) {
    fake_cuda::register_kernel(touch);
    fake_cuda::set_fault_delay(std::chrono::microseconds(100));  // a launch outlasts `gpu_clock::lateness`
  }
  void poll() { memory.poll(events); }
  /// Waits until so many commands have ended.
  bool ended(std::size_t commands) {
    return comes([&] {
      poll();
      return static_cast<std::size_t>(std::count_if(events.begin(), events.end(), [](const device_event& e) {
               return e.what == kind::completed || e.what == kind::failed;
             })) >= commands;
    });
  }
  [[nodiscard]] std::byte* at(std::uint32_t block) const { return memory.base() + block * deepum::block_size.count; }
  [[nodiscard]] bool on_device(std::uint32_t block) const { return fake_cuda::block_at(at(block)).on_device; }

  fake_gpu gpu;
  fake_driver_feed driver;
  deepum::cuda::device device;
  deepum::cuda::managed_memory memory;
  std::vector<device_event> events{};
};

TEST_CASE("every command ends once, completed or failed, and the blocks are where the events say") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    constexpr std::uint32_t blocks = 96;
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
    bench b(blocks);
    if (seed % 2 == 0) {
      fake_cuda::set_delays(seed, std::chrono::microseconds(100));
    }
    std::vector<bool> there(blocks, false);
    there[0] = b.on_device(0);
    std::uint64_t ticket = 0;
    for (int round = 0; round < 15; ++round) {
      // Commands of a round are for different blocks: the two directions have no order.
      b.events.clear();
      const std::uint64_t first = ticket + 1;
      if (below(3) == 0) {
        fake_cuda::fail_call("cudaMemPrefetchAsync", 1 + below(4), cudaErrorInvalidValue);
      }
      for (std::uint32_t from = 0; from < blocks;) {
        const block_range range{block_id{from}, std::min(1 + below(20), blocks - from)};
        switch (below(4)) {
          case 0:
            CHECK(deepum_test::prefetch(b.memory, range, ++ticket));
            break;
          case 1:
            CHECK(deepum_test::evict(b.memory, range, ++ticket));
            break;
          case 2:
            CHECK(deepum_test::discard(b.memory, range, ++ticket));
            break;
          default:
            break;
        }
        from = range.end_value() + below(3);
      }
      REQUIRE(b.ended(ticket + 1 - first));
      std::map<std::uint64_t, int> ends;
      for (const device_event& e : b.events) {
        if (e.what == kind::completed || e.what == kind::failed) {
          ++ends[e.ticket];
        } else {
          REQUIRE((e.what == kind::arrived || e.what == kind::departed));
          CHECK(e.ticket >= first);
          CHECK(ends[e.ticket] == 0);  // before its end
          for (std::uint32_t i = e.range.begin_value(); i != e.range.end_value(); ++i) {
            there[i] = e.what == kind::arrived;
          }
        }
      }
      CHECK(ends.size() == ticket + 1 - first);
      CHECK(std::all_of(ends.begin(), ends.end(), [](const auto& end) { return end.second == 1; }));
    }
    // A discard leaves the contents' place to the driver; what counts is that they are worth nothing.
    bool right = true;
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const auto block = fake_cuda::block_at(b.at(i));
      right = right && (block.on_device == there[i] || block.discarded);
    }
    CHECK(right);
    CHECK(b.memory.fault_feed() == "none");
    CHECK_FALSE(b.memory.sees_faults());
  }
}

TEST_CASE("two evictions move at a time, and one where migrations share the program's context") {
  using deepum::cuda::migration_context;
  for (const migration_context migrations : {migration_context::own, migration_context::shared}) {
    const bool own = migrations == migration_context::own;
    CAPTURE(own);
    bench b(16, 1_GiB, false, migrations);
    (void)deepum_test::prefetch(b.memory, {block_id{0}, 16}, 1);
    REQUIRE(b.ended(1));
    (void)deepum_test::evict(b.memory, {block_id{0}, 1}, 2);
    REQUIRE(b.ended(2));
    const cudaStream_t held = stream_of_last_hint();
    fake_cuda::hold(held);
    (void)deepum_test::evict(b.memory, {block_id{4}, 4}, 3);
    (void)deepum_test::evict(b.memory, {block_id{8}, 4}, 4);
    if (own) {
      CHECK(b.ended(3));
      CHECK(b.events.back().ticket == 4);
      CHECK_FALSE(b.on_device(8));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      b.poll();
      CHECK(b.events.back().ticket == 2);
    }
    CHECK(b.on_device(4));
    fake_cuda::resume(held);
    CHECK(b.ended(4));
    CHECK_FALSE(b.on_device(4));
  }
}

TEST_CASE("each event goes to one of those who poll") {
  bench b(64);
  constexpr std::uint64_t commands = 400;
  std::atomic<bool> over{false};
  std::vector<std::vector<device_event>> seen(4);
  std::vector<std::thread> threads;
  for (auto& mine : seen) {
    threads.emplace_back([&] {
      while (!over) {
        b.memory.poll(mine);
      }
      b.memory.poll(mine);
    });
  }
  for (std::uint64_t t = 1; t <= commands; ++t) {
    const block_range range{block_id{static_cast<std::uint32_t>(t % 64)}, 1};
    (void)(t % 2 == 0 ? deepum_test::prefetch(b.memory, range, t) : deepum_test::evict(b.memory, range, t));
  }
  b.memory.detach();  // which waits for the commands
  over = true;
  for (std::thread& t : threads) {
    t.join();
  }
  std::map<std::uint64_t, int> ends;
  for (const auto& mine : seen) {
    for (const device_event& e : mine) {
      ends[e.ticket] += e.what == kind::completed ? 1 : 0;
    }
  }
  CHECK(ends.size() == commands);
  CHECK(std::all_of(ends.begin(), ends.end(), [](const auto& end) { return end.second == 1; }));
}

TEST_CASE("the pump runs when it is notified and when something happens, and not after detach") {
  bench b(4);
  std::atomic<std::uint64_t> runs{0};
  std::atomic<std::uint64_t> completed{0};
  const auto pump = [&] {
    std::vector<device_event> events;
    b.memory.poll(events);
    for (const device_event& e : events) {
      completed += e.what == kind::completed ? 1 : 0;
    }
    ++runs;
  };
  for (int round = 0; round < 3; ++round) {
    b.memory.attach(pump);
    const std::uint64_t before = runs;
    b.memory.notify();
    CHECK(comes([&] { return runs > before; }));
    const std::uint64_t done = completed;
    (void)deepum_test::prefetch(b.memory, {block_id{1}, 1}, 1);
    CHECK(comes([&] { return completed == done + 1; }));
    b.memory.detach();
    const std::uint64_t last = runs;
    b.memory.notify();
    (void)deepum_test::evict(b.memory, {block_id{1}, 1}, 2);
    b.memory.detach();
    CHECK(runs == last);
    std::vector<device_event> events;
    b.memory.poll(events);
  }
  b.memory.attach(pump);
  b.memory.attach([&] { ++runs; });  // in its place
  b.memory.detach();
}

TEST_CASE("a launch is looked for while it runs, and its end wakes nobody up late") {
  bench b(4);
  deepum::cuda::stream s(b.memory);
  std::atomic<std::uint64_t> finished{0};
  b.memory.attach([&] {
    std::vector<device_event> events;
    b.memory.poll(events);
    for (const device_event& e : events) {
      finished += e.what == kind::launch_finished ? 1 : 0;
    }
  });
  for (std::uint64_t i = 1; i <= 20; ++i) {
    s.begin(deepum::launch_id{i});
    s.launch({1, 1, 1}, {1, 1, 1}, 0, touch, b.at(0), std::size_t{1}, access::read);
    s.end(deepum::launch_id{i});
    CHECK(comes([&] { return finished == i; }));
  }
  b.memory.detach();
}

TEST_CASE("free memory follows what others take, and is never more than there is") {
  bench b(32, 64_MiB);
  CHECK(b.memory.free_memory() <= 64_MiB);
  CHECK(b.memory.free_memory() >= 62_MiB);
  (void)deepum_test::prefetch(b.memory, {block_id{0}, 16}, 1);
  REQUIRE(b.ended(1));
  CHECK(b.memory.free_memory() == 32_MiB);
  (void)deepum_test::evict(b.memory, {block_id{0}, 16}, 2);
  REQUIRE(b.ended(2));
  CHECK(b.memory.free_memory() == 64_MiB);
  fake_cuda::set_foreign_memory(64_MiB);
  CHECK(b.memory.free_memory() == 0_MiB);  // nothing of what the blocks had is left
  fake_cuda::fail_call("cudaMemGetInfo", 1, cudaErrorInvalidValue);
  fake_cuda::set_foreign_memory(0_MiB);
  CHECK(b.memory.free_memory() == 0_MiB);
  CHECK(b.memory.free_memory() == 64_MiB);
}

TEST_CASE("what the host touches comes to the host before the call returns") {
  bench b(16);
  (void)deepum_test::prefetch(b.memory, {block_id{0}, 16}, 1);
  REQUIRE(b.ended(1));
  b.events.clear();
  b.memory.host_access(3_MiB, 4_MiB, access::read);  // blocks 1 to 3
  CHECK(b.on_device(0));
  for (std::uint32_t i = 1; i <= 3; ++i) {
    CHECK_FALSE(b.on_device(i));
  }
  CHECK(b.on_device(4));
  b.memory.host_access(0_MiB, 0_MiB, access::update);
  b.poll();
  REQUIRE(b.events.size() == 1);
  CHECK(event_list::text(b.events) == "departed 1+3");
  CHECK(b.events[0].why == deepum::reason::host);
}

TEST_CASE("the host reads duplicated blocks where they are, and ends the duplication where it writes") {
  bench b(8);
  host_touch(b.at(0), 8 * deepum::block_size.count, access::update);
  (void)b.memory.advise({block_id{0}, 8}, advice::set_read_mostly, location::device());
  (void)deepum_test::prefetch(b.memory, {block_id{0}, 8}, 1);
  REQUIRE(b.ended(1));
  b.memory.host_access(0_MiB, 16_MiB, access::read);
  CHECK(b.on_device(0));
  b.memory.host_access(2_MiB, 2_MiB, access::update);
  CHECK(b.on_device(0));
  CHECK_FALSE(b.on_device(1));
  CHECK_FALSE(fake_cuda::block_at(b.at(1)).read_mostly);
  (void)b.memory.advise({block_id{4}, 2}, advice::unset_read_mostly, location::device());
  CHECK_FALSE(fake_cuda::block_at(b.at(5)).read_mostly);  // at once
  CHECK(fake_cuda::block_at(b.at(6)).read_mostly);
}

TEST_CASE("repopulated blocks are those that were discarded, and they are on the host then") {
  bench b(40);
  (void)deepum_test::prefetch(b.memory, {block_id{0}, 40}, 1);
  REQUIRE(b.ended(1));
  (void)deepum_test::discard(b.memory, {block_id{2}, 36}, 2);
  REQUIRE(b.ended(2));
  b.memory.repopulate({block_id{0}, 30});
  CHECK(comes([&] {
    for (std::uint32_t i = 2; i < 30; ++i) {
      if (fake_cuda::block_at(b.at(i)).discarded) {
        return false;
      }
    }
    return true;
  }));
  CHECK(b.on_device(0));
  CHECK(b.on_device(1));
  for (std::uint32_t i = 30; i < 38; ++i) {
    CHECK(fake_cuda::block_at(b.at(i)).discarded);
  }
  CHECK(b.on_device(39));
}

TEST_CASE("a fault is told with its block, before the end of its launch, and as an arrival") {
  bench b(8, 1_GiB, true);
  REQUIRE(b.memory.sees_faults());
  {
    deepum::cuda::stream s(b.memory);
    s.begin(deepum::launch_id{1});
    s.launch({1, 1, 1}, {1, 1, 1}, 0, touch, b.at(3) + 5000, deepum::block_size.count, access::update);  // and 4
    s.end(deepum::launch_id{1});
    s.synchronize();
    b.poll();
    CHECK(event_list::text(b.events) == "fault 3+1, arrived 3+1, fault 4+1, arrived 4+1, finished");
    for (const device_event& e : b.events) {
      CHECK((e.what == kind::launch_finished || e.mode == access::update || e.what == kind::arrived));
    }
  }
  CHECK(b.memory.lost_faults() == 0);
}

TEST_CASE("launches that were over at unknown times are told before the faults, which are nobody's then") {
  bench b(8, 1_GiB, true);
  {
    deepum::cuda::stream s(b.memory);
    const auto launch = [&](std::uint64_t id) {
      s.begin(deepum::launch_id{id});
      s.launch({1, 1, 1}, {1, 1, 1}, 0, touch, b.at(static_cast<std::uint32_t>(id)), std::size_t{1}, access::read);
      s.end(deepum::launch_id{id});
    };
    launch(1);  // timed
    for (int i = 0; i < 5000; ++i) {
      (void)b.memory.time_launches();
    }
    launch(2);
    launch(3);
    s.synchronize();
    b.poll();
    CHECK(event_list::text(b.events) ==
          "finished, finished, finished, fault 1+1, arrived 1+1, fault 2+1, arrived 2+1, fault 3+1, arrived 3+1");
    b.events.clear();
    launch(4);  // timed again, since there were faults
    s.synchronize();
    b.poll();
    CHECK(event_list::text(b.events) == "fault 4+1, arrived 4+1, finished");
  }
}

TEST_CASE("polling on a thread that captures spoils no capture") {
  bench b(4);
  deepum::cuda::stream s(b.memory);
  s.begin(deepum::launch_id{1});
  s.launch({1, 1, 1}, {1, 1, 1}, 0, touch, b.at(0), std::size_t{1}, access::read);
  s.end(deepum::launch_id{1});
  s.synchronize();
  fake_cuda::set_capturing(s.native(), true);
  s.begin(deepum::launch_id{2});
  s.launch({1, 1, 1}, {1, 1, 1}, 0, touch, b.at(0), std::size_t{1}, access::read);
  s.end(deepum::launch_id{2});
  b.poll();
  CHECK(event_list::text(b.events) == "finished");
  CHECK(fake_cuda::stats().capture_violations == 0);
  CHECK(fake_cuda::stats().captured == 1);
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 1) == cudaErrorStreamCaptureUnsupported);  // the thread's mode is as it was
  fake_cuda::set_capturing(s.native(), false);
  b.poll();
  CHECK(event_list::text(b.events) == "finished, finished");
}

}  // namespace managed_memory_test
