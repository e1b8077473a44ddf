#include "replay/gpu.hpp"

#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace gpu_test {

using namespace deepum;
using namespace deepum::replay;

constexpr nanoseconds ns(std::int64_t n) { return nanoseconds{n}; }
constexpr block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

// A block takes 1000 ns in and 2000 ns out, and each copy 100 ns more.
constexpr double block_bytes = 2097152.0;
constexpr link_costs costs{block_bytes / 1000, block_bytes / 2000, nanoseconds{100}, nanoseconds{50}};

/// A device, and what it did, in words.
struct bench {
  bench(std::uint32_t room, bool keeps_home_copy, link_costs how = costs)
      : device(32, one_device(room * block_size, how), keeps_home_copy,
               [this](const schedule_entry& e) { entries.push_back(e); }) {
    for (std::uint32_t b = 0; b != 16; ++b) {
      device.put_on_host(block_id{b});  // the blocks from 16 on are new
    }
  }

  void launch(block_set reads, block_set writes, std::int64_t duration = 500) {
    touched.push_back({.reads = std::move(reads), .writes = std::move(writes), .fresh = {}});
    const block_set all = touched.back().all();
    device.launch({.id = launch_id{++launches},
                   .touched = &touched.back(),
                   .all = all,
                   .duration = ns(duration),
                   .kernel = static_cast<std::uint32_t>(launches - 1)});
  }
  void start(transfer t, std::uint64_t ticket) {
    t.from = t.to == location::device() ? location::host() : location::device();
    t.via = device.places().cheapest(t.from, t.to);
    device.start(t, ticket);
  }
  void prefetch(block_range r, std::uint64_t ticket) {
    start(transfer::prefetch(location::device(), reason::issued, r), ticket);
  }
  void populate(block_range r, std::uint64_t ticket) {
    start(transfer::populate(location::device(), reason::issued, r), ticket);
  }
  void evict(block_range r, std::uint64_t ticket) {
    start(transfer::evict(location::host(), reason::make_room, r), ticket);
  }
  void clean(block_range r, std::uint64_t ticket) { start(transfer::clean(reason::write_back, r), ticket); }
  void drop(block_range r, std::uint64_t ticket) { start(transfer::drop(reason::make_room, r), ticket); }
  void discard(block_range r, std::uint64_t ticket) { start(transfer::discard(reason::dead, r), ticket); }
  void settle() {
    while (!device.quiet()) {
      device.run_next();
    }
    device.poll(events);
  }
  [[nodiscard]] static std::string word(schedule_event e) {
    constexpr const char* words[] = {"in", "out", "clean", "drop", "new", "launch"};
    return words[static_cast<unsigned>(e)];
  }
  /// As "in 3+2 0-2100; launch 2100-2600".
  [[nodiscard]] std::string story() const {
    std::string text;
    for (const schedule_entry& e : entries) {
      text += (text.empty() ? "" : "; ") + word(e.what);
      if (e.what != schedule_event::launch) {
        text += ' ' + std::to_string(e.blocks.first.value) +
                (e.blocks.count != 1 ? '+' + std::to_string(e.blocks.count) : std::string{});
      }
      text += ' ' + std::to_string(e.start.count()) +
              (e.end != e.start ? '-' + std::to_string(e.end.count()) : std::string{});
    }
    return text;
  }
  [[nodiscard]] std::size_t count(device_event::kind what, std::uint64_t ticket) const {
    return static_cast<std::size_t>(std::count_if(
        events.begin(), events.end(), [&](const device_event& e) { return e.what == what && e.ticket == ticket; }));
  }

  std::vector<schedule_entry> entries{};
  std::vector<device_event> events{};
  std::deque<touched_blocks> touched{};
  std::uint64_t launches = 0;
  gpu device;
};

using kind = device_event::kind;

TEST_CASE("a launch begins when all its blocks are there") {
  bench m(8, true);
  m.launch({blocks(0, 2), blocks(4)}, {});
  m.prefetch(blocks(0, 2), 1);
  m.prefetch(blocks(4), 2);
  m.settle();
  CHECK(m.story() == "in 0+2 0-2100; in 4 2100-3200; launch 3200-3700");
  CHECK(m.count(kind::completed, 1) == 1);
  CHECK(m.count(kind::completed, 2) == 1);
  const std::vector<executed_launch> finished = m.device.take_finished();
  REQUIRE(finished.size() == 1);
  CHECK(finished[0].began == ns(3200));
  CHECK(finished[0].ended == ns(3700));
}

TEST_CASE("copies of one direction come one at a time, and the directions do not wait for each other") {
  bench m(8, true);
  m.prefetch(blocks(0, 3), 1);
  m.settle();
  m.launch({}, {blocks(0, 2)});
  m.settle();
  m.entries.clear();
  m.evict(blocks(0), 2);
  m.clean(blocks(1), 3);
  m.prefetch(blocks(8), 4);
  m.prefetch(blocks(9), 5);
  m.settle();
  CHECK(m.story() == "out 0 3600-5700; in 8 3600-4700; in 9 4700-5800; clean 1 5700-7800");
}

TEST_CASE("faults are served one after another, after their latency, and before the next copy") {
  bench m(8, true);
  m.prefetch(blocks(10), 1);
  m.prefetch(blocks(11), 2);
  m.launch({blocks(0), blocks(5)}, {blocks(16)});
  m.settle();
  // The second prefetch has to wait for the fault that was due in the meantime.
  CHECK(m.story() == "in 10 0-1100; in 0 1100-2200; in 11 2200-3300; in 5 3300-4400; new 16 4450; launch 4450-4950");
  CHECK(m.count(kind::fault, 0) == 3);
  CHECK(m.count(kind::arrived, 0) == 3);
}

TEST_CASE("a fault drives out the least recently migrated block that the launch does not use") {
  const auto run = [](bool keeps_home_copy, bool written) {
    bench m(3, keeps_home_copy);
    m.prefetch(blocks(0, 3), 1);
    m.settle();
    if (written) {
      m.launch({}, {blocks(1)});
      m.settle();
    }
    m.entries.clear();
    m.launch({blocks(0), blocks(8)}, {});
    m.settle();
    return m.story();
  };
  CHECK(run(true, false) == "drop 1 3150; in 8 3150-4250; launch 4250-4750");  // the host has it
  CHECK(run(true, true) == "out 1 3650-5750; in 8 5750-6850; launch 6850-7350");
  CHECK(run(false, false) == "out 1 3150-5250; in 8 5250-6350; launch 6350-6850");  // in one place only
}

TEST_CASE("none of its blocks leaves while a launch runs, and commands for them are completed when it has ended") {
  bench m(8, true);
  m.prefetch(blocks(0, 4), 1);
  m.settle();
  m.entries.clear();
  m.launch({blocks(0)}, {blocks(1)}, 500);
  m.evict(blocks(0, 3), 2);
  m.drop(blocks(0), 3);
  m.clean(blocks(1), 4);
  m.discard(blocks(1), 5);
  m.device.poll(m.events);
  for (std::uint64_t ticket = 2; ticket != 6; ++ticket) {
    CHECK(m.count(kind::completed, ticket) == 0);
  }
  m.settle();
  CHECK(m.story() == "launch 4100-4600; out 2 4100-6200; clean 1 6200-8300");  // which had to wait for the link
  for (std::uint64_t ticket = 2; ticket != 6; ++ticket) {
    CHECK(m.count(kind::completed, ticket) == 1);
  }
}

TEST_CASE("a launch that has faulted keeps what it has got") {
  bench m(4, true);
  m.prefetch(blocks(0, 2), 1);
  m.settle();
  m.entries.clear();
  m.launch({blocks(0), blocks(5)}, {});
  m.drop(blocks(0), 2);
  m.drop(blocks(1), 3);
  m.settle();
  CHECK(m.story() == "drop 1 2100; in 5 2150-3250; launch 3250-3750");
  CHECK(m.count(kind::completed, 2) == 1);
}

TEST_CASE("a launch that writes a block waits for the copy that cleans it, one that reads it does not") {
  for (const bool writes : {false, true}) {
    bench m(4, true);
    m.prefetch(blocks(0), 1);
    m.settle();
    m.clean(blocks(0), 2);
    writes ? m.launch({}, {blocks(0)}) : m.launch({blocks(0)}, {});
    m.settle();
    CHECK(m.story() == (writes ? "in 0 0-1100; clean 0 1100-3200; launch 3200-3700"
                               : "in 0 0-1100; clean 0 1100-3200; launch 1100-1600"));
  }
}

TEST_CASE("room is taken and given up without a copy at once, but for room that was only just taken") {
  bench m(3, true);
  m.populate(blocks(16, 2), 1);
  m.prefetch(blocks(17, 2), 2);  // the second of them is new too
  m.prefetch(blocks(20), 3);     // there is no room for it
  CHECK(m.story() == "new 16+2 0; new 18 0");
  m.discard(blocks(16), 4);
  CHECK(m.entries.size() == 2);
  m.settle();
  m.drop(blocks(17, 2), 5);
  CHECK(m.story() == "new 16+2 0; new 18 0; drop 16 1000; drop 17+2 1000");
  m.settle();
  CHECK(m.device.free_rooms() == 3);
  for (std::uint64_t ticket = 1; ticket != 6; ++ticket) {
    CHECK(m.count(kind::completed, ticket) == 1);
  }
}

TEST_CASE("what finds no room is completed when something has ended, and not before") {
  bench m(2, true);
  m.prefetch(blocks(0), 1);
  m.populate(blocks(16, 2), 2);
  m.device.poll(m.events);
  CHECK(m.count(kind::completed, 2) == 0);
  m.settle();
  CHECK(m.count(kind::completed, 2) == 1);
  CHECK(m.story() == "in 0 0-1100; new 16 0");
}

TEST_CASE("commands for blocks that are away, or there already, are completed at once") {
  bench m(4, true);
  m.evict(blocks(0, 2), 1);
  m.clean(blocks(0, 2), 2);
  m.drop(blocks(0, 2), 3);
  m.device.poll(m.events);
  CHECK(m.count(kind::completed, 1) + m.count(kind::completed, 2) + m.count(kind::completed, 3) == 3);
  m.prefetch(blocks(0, 2), 4);
  m.settle();
  m.prefetch(blocks(0, 2), 5);
  m.device.poll(m.events);
  CHECK(m.count(kind::completed, 5) == 1);
  CHECK(m.entries.size() == 1);
}

TEST_CASE("launches run in order, and stalls are counted from when one could have begun") {
  bench m(4, true);
  m.launch({blocks(0)}, {});
  m.launch({blocks(0)}, {});
  CHECK(m.device.queued() == 2);
  m.settle();
  CHECK(m.device.queued() == 0);
  CHECK(m.story() == "in 0 50-1150; launch 1150-1650; launch 1650-2150");
  std::vector<nanoseconds> stalls;
  for (const device_event& e : m.events) {
    if (e.what == kind::launch_finished) stalls.push_back(e.stalled);
  }
  CHECK(stalls == std::vector<nanoseconds>{ns(1150), ns(0)});
}

TEST_CASE("the pump runs once for all that it was notified of") {
  bench m(4, true);
  int pumps = 0;
  m.device.attach([&] { ++pumps; });
  m.device.notify();
  m.device.notify();
  m.settle();
  CHECK(pumps == 1);
  m.prefetch(blocks(0), 1);
  m.settle();
  CHECK(pumps == 2);  // it arrived, and the command was completed
}

TEST_CASE("a prefetch waits while a fault waits for room") {
  bench m(3, true);
  m.prefetch(blocks(0, 3), 1);
  m.settle();
  m.launch({}, {blocks(0, 3)});
  m.settle();
  m.launch({blocks(0), blocks(8)}, {});
  while (m.entries.back().what != schedule_event::copy_out) {
    m.device.run_next();
  }
  m.prefetch(blocks(9), 2);
  m.settle();
  const auto at = [&](kind what, block_range range, std::uint64_t ticket) {
    return std::find_if(m.events.begin(), m.events.end(), [&](const device_event& e) {
      return e.what == what && e.ticket == ticket && (range.empty() || e.range == range);
    });
  };
  CHECK(at(kind::arrived, blocks(8), 0) < at(kind::completed, {}, 2));
  CHECK(at(kind::completed, {}, 2) != m.events.end());
}

TEST_CASE("what the host has is dropped for a fault when the link is free for it, and not before") {
  bench m(3, true);
  for (std::uint32_t b = 0; b != 3; ++b) {
    m.prefetch(blocks(b), 1 + b);
  }
  while (m.entries.size() != 3) {
    m.device.run_next();
  }
  m.launch({blocks(8)}, {});
  m.settle();
  CHECK(m.story() == "in 0 0-1100; in 1 1100-2200; in 2 2200-3300; drop 0 3300; in 8 3300-4400; launch 4400-4900");
}

}  // namespace gpu_test
