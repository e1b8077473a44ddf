// Whose fault it was: launches that are queued far ahead, and the faults that a feed tells of later.

#include "cuda/fake_driver_feed.hpp"
#include "cuda/fake_gpu.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace attribution_test {

using namespace deepum_test;
using namespace deepum::literals;
using namespace std::chrono_literals;
using deepum::access;  // not the one of POSIX
using deepum::device_event;
using deepum::launch_id;

/// Computes a while before and behind its accesses, as real ones do.
void touch(const std::byte* p, std::size_t n) {
  std::this_thread::sleep_for(2ms);  // longer than the calibration may be wrong here
  device_touch(p, n, access::read);
  std::this_thread::sleep_for(100us);
}
/// Touches, and runs until the gate is opened.
void touch_and_wait(const std::byte* p, std::size_t n, std::atomic<int>* begun, std::atomic<bool>* gate) {
  device_touch(p, n, access::read);
  ++*begun;
  while (!gate->load()) {
    std::this_thread::sleep_for(10us);
  }
}
void nothing() {}

/// What the observer of an arena is told of faults.
struct fault_log {
  void see(const device_event& e, launch_id launch) {
    if (e.what == device_event::kind::fault) {
      const std::lock_guard lock(mutex);
      of_block[e.range.first.value].push_back(launch);
    }
  }
  std::mutex mutex{};
  std::map<std::uint32_t, std::vector<launch_id>> of_block{};
};

struct bench {
  using feed = std::unique_ptr<deepum::cuda::fault_feed>;
  /// @param wrap  Makes the arena's feed of the driver's.
  explicit bench(const std::function<feed(feed)>& wrap = {}) {
    fake_cuda::register_kernel(touch);
    fake_cuda::register_kernel(touch_and_wait);
    fake_cuda::register_kernel(nothing);
    fake_cuda::set_clock_offset(11h);
    fake_cuda::set_fault_delay(100us);
    deepum::cuda::fault_feed_maker maker = driver.maker();
    if (wrap) {
      maker = [this, wrap](std::byte* base, deepum::bytes size) { return wrap(driver.open(base, size)); };
    }
    device.emplace(0, deepum::cuda::device_options{}, std::move(maker));
    arena.emplace(*device,
                  deepum::arena_options{.capacity = 512_MiB,
                                        .device_budget = 512_MiB,
                                        .policy = "um",
                                        .log = {},
                                        .observer = [this](const device_event& e, launch_id l) { log.see(e, l); }});
    memory = arena->allocate<std::byte>((500_MiB).count);
    const auto offset = arena->offset_of(memory);
    first_block = static_cast<std::uint32_t>(*offset / deepum::block_size) + 1;  // the first one has been faulted on
  }

  [[nodiscard]] const std::byte* at(std::uint32_t block) const {
    return memory + (block + 1) * deepum::block_size.count;
  }
  /// The launches to which the faults of a block were attributed. Asks for what happened up to now.
  [[nodiscard]] std::vector<launch_id> of(std::uint32_t block) {
    (void)arena->statistics();
    const std::lock_guard lock(log.mutex);
    return log.of_block[first_block + block];
  }

  fake_gpu gpu;
  fake_driver_feed driver;
  fault_log log;
  std::optional<deepum::cuda::device> device;
  std::optional<deepum::arena<deepum::cuda::managed_memory>> arena;
  std::byte* memory = nullptr;
  std::uint32_t first_block = 0;
};
using stream = deepum::stream<deepum::cuda::managed_memory>;
using ids = std::vector<launch_id>;

TEST_CASE("of hundreds of launches that are queued ahead each gets its own faults, also when they are told late") {
  using wrap = std::function<bench::feed(bench::feed)>;
  const wrap late = [](bench::feed f) { return std::make_unique<late_feed>(std::move(f), 20); };
  // Launches end, and the next ones fault, between the looks for the one and for the other.
  const wrap slow = [](bench::feed f) { return std::make_unique<slow_feed>(std::move(f), 5ms); };
  for (const auto& [name, feed] : {std::pair<const char*, wrap>{"driver", {}}, {"late", late}, {"slow", slow}}) {
    CAPTURE(name);
    CHECK(succeeds([&, name = name, &feed = feed] {
      bench b(feed);
      stream s(*b.arena);
      fake_cuda::hold(s.native().native());
      std::vector<launch_id> launched;
      constexpr std::uint32_t launches = 200;
      for (std::uint32_t i = 0; i < launches; ++i) {
        launched.push_back(s.launch("touch", 1, 1, 0, touch, b.at(i), std::size_t{1}));
      }
      CHECK(b.arena->statistics().faults == 0);
      fake_cuda::resume(s.native().native());
      s.synchronize();
      CHECK(b.arena->statistics().faults == launches);
      CHECK(b.arena->statistics().lost_faults == 0);
      CHECK(b.arena->statistics().fault_feed == name);
      std::uint32_t right = 0;
      for (std::uint32_t i = 0; i < launches; ++i) {
        right += b.of(i) == ids{launched[i]} ? 1 : 0;
      }
      return right == launches;
    }));
  }
}

TEST_CASE("while launches of two streams execute, their faults belong to nobody") {
  CHECK(succeeds([] {
    bench b;
    stream s(*b.arena);
    stream t(*b.arena);
    std::atomic<int> begun{0};
    std::atomic<bool> gate{false};
    s.launch("wait", 1, 1, 0, touch_and_wait, b.at(0), std::size_t{1}, &begun, &gate);
    t.launch("wait", 1, 1, 0, touch_and_wait, b.at(1), std::size_t{1}, &begun, &gate);
    REQUIRE(comes([&] { return begun == 2; }));
    std::this_thread::sleep_for(2ms);
    const launch_id second = t.launch("touch", 1, 1, 0, touch, b.at(2), std::size_t{1});
    gate = true;
    s.synchronize();
    t.synchronize();
    // The first to fault may have been alone then.
    const ids nobody{launch_id{}};
    bool right = b.of(0) == nobody || b.of(1) == nobody;
    // By then the other stream had nothing left.
    right = right && b.of(2) == ids{second};

    // One after the other, on two streams: each its own.
    std::vector<std::pair<std::uint32_t, launch_id>> launched;
    for (std::uint32_t i = 10; i < 20; ++i) {
      stream& here = i % 2 == 0 ? s : t;
      launched.emplace_back(i, here.launch("touch", 1, 1, 0, touch, b.at(i), std::size_t{1}));
      here.synchronize();
    }
    for (const auto& [block, launch] : launched) {
      right = right && b.of(block) == ids{launch};
    }
    return right;
  }));
}

TEST_CASE("launches of two streams that are queued ahead never get each other's faults") {
  CHECK(succeeds([] {
    bench b;
    stream s(*b.arena);
    stream t(*b.arena);
    fake_cuda::hold(s.native().native());
    fake_cuda::hold(t.native().native());
    std::vector<launch_id> launched;
    for (std::uint32_t i = 0; i < 100; ++i) {
      launched.push_back((i % 2 == 0 ? s : t).launch("touch", 1, 1, 0, touch, b.at(i), std::size_t{1}));
    }
    fake_cuda::resume(s.native().native());
    fake_cuda::resume(t.native().native());
    s.synchronize();
    t.synchronize();
    bool right = true;
    for (std::uint32_t i = 0; i < 100; ++i) {
      const ids found = b.of(i);
      REQUIRE(found.size() == 1);
      right = right && (!found[0].valid() || found[0] == launched[i]);
    }
    return right;
  }));
}

TEST_CASE("launches that are not timed any more get their own faults or none; a fault has them timed again") {
  CHECK(succeeds([] {
    bench b;
    stream s(*b.arena);
    // Longer than launches are timed after the last fault.
    for (int i = 0; i < 4200; ++i) {
      s.launch("nothing", 1, 1, 0, nothing);
    }
    s.synchronize();
    (void)b.arena->statistics();
    fake_cuda::hold(s.native().native());
    std::vector<launch_id> launched;
    for (std::uint32_t i = 0; i < 60; ++i) {
      launched.push_back(s.launch("touch", 1, 1, 0, touch, b.at(i), std::size_t{1}));
    }
    fake_cuda::resume(s.native().native());
    s.synchronize();
    bool right = true;
    for (std::uint32_t i = 0; i < 60; ++i) {
      const ids found = b.of(i);
      right = right && (found == ids{launched[i]} || found == ids{launch_id{}});
    }
    const launch_id later = s.launch("touch", 1, 1, 0, touch, b.at(100), std::size_t{1});
    s.synchronize();
    right = right && b.of(100) == ids{later};
    return right;
  }));
}

// --- What is learned from them. ---

/// A table that the launch finds through a number: none of its blocks can be seen from the arguments.
void gather(std::uint32_t* out, const std::uint32_t* index, std::uint32_t n, std::uint64_t table) {
  device_touch(index, n * 4, access::read);
  device_touch(out, n * 4, access::update);
  const auto* words = reinterpret_cast<const std::uint32_t*>(table);
  std::this_thread::sleep_for(200us);
  for (std::uint32_t i = 0; i < n; ++i) {
    device_touch(words + index[i], 4, access::read);
    out[i] += words[index[i]];
  }
  std::this_thread::sleep_for(50us);
}
void sweep(std::byte* p, std::uint64_t n, int value) {
  device_touch(p, n, access::update);
  for (std::uint64_t i = 0; i < n; i += deepum::block_size.count) {
    p[i] = static_cast<std::byte>(value);
  }
  std::this_thread::sleep_for(1ms);
}

/// @returns  Faults of the gather, step by step.
std::vector<std::uint64_t> run_gathers(const char* policy, bool with_feed) {
  const fake_gpu gpu(32_MiB);
  const fake_driver_feed driver;
  fake_cuda::register_kernel(gather);
  fake_cuda::register_kernel(sweep);
  fake_cuda::set_fault_delay(50us);
  deepum::cuda::device device(0, {.faults = deepum::cuda::fault_source::none},
                              with_feed ? driver.maker() : deepum::cuda::fault_feed_maker{});
  deepum::arena arena(device, {.capacity = 160_MiB, .device_budget = 28_MiB, .policy = policy, .log = {}});
  constexpr std::uint32_t n = 5;
  constexpr std::uint32_t words_per_block = (2_MiB).count / 4;
  auto* const table = arena.allocate<std::uint32_t>(16 * words_per_block);
  auto* const index = arena.allocate<std::uint32_t>((2_MiB).count / 4);
  auto* const out = arena.allocate<std::uint32_t>((2_MiB).count / 4);
  constexpr std::uint64_t part = (8_MiB).count;
  auto* const other = arena.allocate<std::byte>(4 * part);  // with it there is more than the device has
  {
    const auto view = arena.host_overwrite(index, n);
    const auto values = arena.host_overwrite(table, std::size_t{16} * words_per_block);
    for (std::uint32_t i = 0; i < n; ++i) {
      view[i] = (i * 7 % 16) * words_per_block + 100 + i;  // five blocks, scattered
      values[view[i]] = 1000 + i;
    }
  }
  std::vector<std::uint64_t> faults;
  {
    deepum::stream s(arena, {.lookahead = 1});
    s.memset(out, 0, 2_MiB);
    for (int step = 0; step < 6; ++step) {
      const std::uint64_t before = fake_cuda::stats().faults;
      s.launch("gather", 1, 1, 0, gather, out, static_cast<const std::uint32_t*>(index), n,
               reinterpret_cast<std::uint64_t>(table));
      s.synchronize();
      faults.push_back(fake_cuda::stats().faults - before);
      for (int i = 0; i < 4; ++i) {
        s.launch("sweep", 1, 1, 0, sweep, other + static_cast<std::uint64_t>(i) * part, part, i);
        s.synchronize();
        (void)arena.statistics();
        std::this_thread::sleep_for(5ms);  // what is planned for the gather has the time to move
      }
    }
    const auto result = arena.host_read(out, n);
    for (std::uint32_t i = 0; i < n; ++i) {
      CHECK(result[i] == 6 * (1000 + i));
    }
  }
  return faults;
}

TEST_CASE("scattered blocks that a launch reaches through an index array are prefetched after two launches") {
  CHECK(succeeds([] {
    const std::vector<std::uint64_t> faults = run_gathers("auto", true);
    CHECK(faults[0] >= 5);
    return faults[2] + faults[3] + faults[4] + faults[5] == 0;
  }));
}

TEST_CASE("as published, they are prefetched as soon as the launches before them have recurred") {
  CHECK(succeeds([] {
    const std::vector<std::uint64_t> faults = run_gathers("deepum", true);
    CHECK(faults[0] >= 5);
    return faults[4] + faults[5] == 0;
  }));
}

TEST_CASE("without a feed the same program is correct") {
  for (const char* policy : {"um", "deepum", "auto"}) {
    CAPTURE(policy);
    const std::vector<std::uint64_t> faults = run_gathers(policy, false);
    CHECK(faults[0] >= 5);  // later ones are the driver's affair: nobody else knows where the launch reaches
  }
}

}  // namespace attribution_test
