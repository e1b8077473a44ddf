// Several simulated GPUs on one host.

#include <deepum/arena.hpp>
#include <deepum/error.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/machine.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace machine_test {

using namespace deepum;
using namespace std::chrono_literals;
using deepum::access;  // not the one of <unistd.h>

const auto add = sim::kernel(
    "add", [](std::uint32_t* a, std::uint32_t n) { *a += n; },
    [](sim::work& w, std::uint32_t* a, std::uint32_t) { w.updates(a, block_size.count).flops(1e9); });

/// A profile whose devices take 1 ms for `add`, and links a round time.
sim::profile round_numbers() {
  sim::profile p = sim::find_profile("2x_h200_nvlink");
  p.peak_flops = 1e12;
  p.flops_efficiency = 1;
  p.slowdown_beside_copy = 1;
  return p;
}

/// Managed memory on a device of the machine, and a stream.
struct side {
  side(sim::device& gpu, std::uint32_t blocks) : memory(gpu, block_size * blocks), stream(memory) {}
  [[nodiscard]] std::uint32_t* at(std::uint32_t block) const {
    return reinterpret_cast<std::uint32_t*>(memory.base() + block * block_size.count);
  }
  void fill(std::uint32_t block, std::uint32_t value) {
    memory.host_access(block_size * block, block_size, access::overwrite);
    *at(block) = value;
  }
  sim::managed_memory memory;
  sim::stream stream;
};

TEST_CASE("the machine has the profile's devices, each with memory, and one clock") {
  sim::machine m;
  REQUIRE(m.size() == 2);
  CHECK(m[0].ordinal() == 0);
  CHECK(m[1].ordinal() == 1);
  m[1].host_work(5us);
  m.host_work(1us);
  CHECK(m[0].now() == 6us);
  CHECK(m.now() == 6us);
  m[0].set_foreign_memory(m[0].properties().memory);
  const sim::managed_memory full(m[0], block_size);
  const sim::managed_memory empty(m[1], block_size);
  CHECK(full.free_memory().count == 0);
  CHECK(empty.free_memory() == m[1].properties().memory);
}

TEST_CASE("a profile of several devices without a link between them makes no machine") {
  sim::profile p = sim::find_profile("2x_h200_nvlink");
  p.peer = 0;
  CHECK_THROWS_AS(sim::machine{p}, error);
  p.devices = 1;
  CHECK(sim::machine(p).size() == 1);
}

TEST_CASE("devices compute and move at the same time, each over its own link to the host") {
  const auto time_of = [](unsigned devices) {
    sim::machine m(round_numbers());
    std::vector<std::unique_ptr<side>> sides;
    for (unsigned d = 0; d < devices; ++d) {
      sides.push_back(std::make_unique<side>(m[d], 64));
      sides.back()->memory.host_access({}, block_size * 64, access::update);
    }
    const nanoseconds before = m.now();
    for (auto& s : sides) {
      deepum_test::prefetch(s->memory, {block_id{0}, 64}, 1);
      s->stream.launch(1U, 1U, 0, add, s->at(63), 1U);
    }
    for (auto& s : sides) {
      s->stream.synchronize();
    }
    return m.now() - before;
  };
  const nanoseconds one = time_of(1);
  CHECK(one > 1ms);
  CHECK(time_of(2) <= one + 10us);  // what the host calls take
}

TEST_CASE("what one device evicts to make room is its own") {
  sim::machine m(round_numbers(), {.memory = block_size * 2});
  side a(m[0], 4);
  side b(m[1], 4);
  b.fill(0, 1);
  b.stream.launch(1U, 1U, 0, add, b.at(0), 1U);
  b.stream.synchronize();
  for (std::uint32_t i = 0; i < 4; ++i) {
    a.fill(i, i);
    a.stream.launch(1U, 1U, 0, add, a.at(i), 1U);
  }
  a.stream.synchronize();
  CHECK(m[0].counters().driver_evictions == 2);
  CHECK(m[1].counters().driver_evictions == 0);
  CHECK(b.memory.record_of(block_id{0}).on_device == sim::all_pages);
  CHECK(*b.at(0) == 2);
}

TEST_CASE("a stream waits for an event of another device's stream") {
  sim::machine m(round_numbers());
  side a(m[0], 1);
  side b(m[1], 1);
  a.fill(0, 0);
  b.fill(0, 0);
  sim::event done;
  a.stream.launch(1U, 1U, 0, add, a.at(0), 1U);
  a.stream.record(done);
  b.stream.wait(done);
  b.stream.launch(1U, 1U, 0, add, b.at(0), 1U);
  const nanoseconds before = m.now();
  b.stream.synchronize();
  CHECK(m.now() - before > 2ms);  // one after the other
  CHECK(done.done());
  CHECK(*a.at(0) == 1);
  CHECK(*b.at(0) == 1);
}

TEST_CASE("a copy between devices goes over the link between them, in both directions at a time, and not to the host") {
  sim::machine m(round_numbers());
  side a(m[0], 128);
  side b(m[1], 128);
  const bytes size = block_size * 64;
  a.fill(0, 7);
  b.fill(64, 9);
  deepum_test::prefetch(a.memory, {block_id{0}, 128}, 1);
  deepum_test::prefetch(b.memory, {block_id{0}, 128}, 1);
  m.host_work(100ms);
  const auto host_traffic = [&] {
    bytes all{};
    for (unsigned d = 0; d < 2; ++d) {
      const sim::device_counters c = m[d].counters();
      all += c.in_by_fault + c.in_by_command + c.in_remote + c.out_by_driver + c.out_by_command + c.out_by_host;
    }
    return all;
  };
  const bytes before = host_traffic();
  const nanoseconds start = m.now();
  a.stream.copy(b.at(0), a.at(0), size.count);
  b.stream.copy(a.at(64), b.at(64), size.count);
  a.stream.synchronize();
  b.stream.synchronize();
  const nanoseconds one_way = sim::time_at(size, 390e9);
  CHECK(m.now() - start >= one_way);
  CHECK(m.now() - start < one_way + 20us);
  CHECK(host_traffic() == before);
  CHECK(m[0].counters().to_peers + m[1].counters().to_peers == size + size);
  CHECK(*b.at(0) == 7);
  CHECK(*a.at(64) == 9);
}

/// Time in which all copies are over: each from the first device to the second one of its pair.
nanoseconds time_of_copies(sim::machine& m, const std::vector<std::pair<unsigned, unsigned>>& pairs, bytes size) {
  const auto count = static_cast<std::uint32_t>(size / block_size);
  std::vector<std::unique_ptr<side>> from;
  std::vector<std::unique_ptr<side>> to;
  for (const auto& [a, b] : pairs) {
    from.push_back(std::make_unique<side>(m[a], count));
    to.push_back(std::make_unique<side>(m[b], count));
    deepum_test::prefetch(from.back()->memory, {block_id{0}, count}, 1);
    deepum_test::prefetch(to.back()->memory, {block_id{0}, count}, 1);
  }
  m.host_work(100ms);
  const nanoseconds start = m.now();
  for (std::size_t i = 0; i != pairs.size(); ++i) {
    from[i]->stream.copy(to[i]->at(0), from[i]->at(0), size.count);
  }
  for (auto& f : from) {
    f->stream.synchronize();
  }
  return m.now() - start;
}

TEST_CASE("a device sends to all others together, and gets from all together, what one line carries") {
  sim::profile four = round_numbers();
  four.devices = 4;
  const bytes size = block_size * 64;
  const nanoseconds one_way = sim::time_at(size, four.peer);
  const auto lasts = [&](const std::vector<std::pair<unsigned, unsigned>>& pairs, double times) {
    sim::machine m(four);
    const nanoseconds time = time_of_copies(m, pairs, size);
    CHECK(static_cast<double>(time.count()) ==
          doctest::Approx(times * static_cast<double>(one_way.count())).epsilon(0.06));
  };
  lasts({{0, 1}, {2, 3}}, 1);
  lasts({{0, 1}, {1, 2}, {2, 3}, {3, 0}}, 1);
  lasts({{0, 1}, {0, 2}, {0, 3}}, 3);
  lasts({{1, 0}, {2, 0}, {3, 0}}, 3);
}

TEST_CASE("where more links to the host work than its memory feeds, each is slower") {
  const auto time_of = [](double host_memory) {
    sim::profile four = round_numbers();
    four.devices = 4;
    four.host_memory = host_memory;
    sim::machine m(four);
    std::vector<std::unique_ptr<sim::paged_memory>> memories;
    for (unsigned d = 0; d != 4; ++d) {
      memories.push_back(std::make_unique<sim::paged_memory>(m[d], block_size * 64));
    }
    for (auto& memory : memories) {
      transfer t = transfer::prefetch(location::device(), reason::issued, {block_id{0}, 64});
      CHECK(memory->start(t, 1));
    }
    const nanoseconds start = m.now();
    nanoseconds last{};
    for (unsigned done = 0; done != 4;) {
      m.host_work(10us);
      std::vector<device_event> events;
      for (auto& memory : memories) {
        memory->poll(events);
      }
      for (const device_event& e : events) {
        done += e.what == device_event::kind::completed ? 1 : 0;
        last = m.now();
      }
    }
    return static_cast<double>((last - start).count());
  };
  const double free = time_of(0);
  CHECK(time_of(4 * 55.5e9) == doctest::Approx(free).epsilon(0.02));
  CHECK(time_of(2 * 55.5e9) == doctest::Approx(2 * free).epsilon(0.05));
}

TEST_CASE("a copy between devices brings what is on the host to its device first") {
  sim::machine m(round_numbers());
  side a(m[0], 2);
  side b(m[1], 2);
  a.fill(0, 5);
  b.stream.copy(b.at(1), a.at(0), block_size.count);
  b.stream.synchronize();
  CHECK(*b.at(1) == 5);
  CHECK(m[0].counters().in_by_fault == block_size);
  CHECK(a.memory.record_of(block_id{0}).on_device == sim::all_pages);
  CHECK(b.memory.record_of(block_id{1}).on_device == sim::all_pages);
}

TEST_CASE("what is discarded on one device under a copy of another is lost") {
  sim::machine m(round_numbers());
  side a(m[0], 1);
  side b(m[1], 1);
  a.fill(0, 5);
  deepum_test::prefetch(a.memory, {block_id{0}, 1}, 1);
  m.host_work(1ms);
  b.stream.copy(a.at(0), b.at(0), block_size.count);
  deepum_test::discard(a.memory, {block_id{0}, 1}, 2);
  b.stream.synchronize();
  m.host_work(1ms);
  CHECK(*a.at(0) == 0xdbdbdbdbU);
}

TEST_CASE("a kernel that touches another device's arena fails, and its device alone") {
  sim::machine m(round_numbers());
  side a(m[0], 1);
  side b(m[1], 1);
  b.stream.launch(1U, 1U, 0, add, a.at(0), 1U);
  try {
    b.stream.synchronize();
    FAIL("it did not fail");
  } catch (const error& e) {
    CHECK(std::string(e.what()).find("on device 1 touches an arena of device 0") != std::string::npos);
  }
  a.stream.launch(1U, 1U, 0, add, a.at(0), 1U);
  CHECK_NOTHROW(a.stream.synchronize());
}

/// Arenas on both devices, each with more than there is room for; what is computed on one goes to the other.
template <class Memory>
void two_arenas() {
  constexpr std::uint32_t operands = 8;
  const auto scale = sim::kernel(
      "scale", [](std::uint32_t* a, std::uint32_t by) { *a *= by; },
      [](sim::work& w, std::uint32_t* a, std::uint32_t) { w.updates(a, block_size.count).flops(1e8); });
  sim::machine m(round_numbers(), {.memory = block_size * 6});
  arena<Memory> first(m[0], {.capacity = block_size * 64, .headroom = {}, .log = {}});
  arena<Memory> second(m[1], {.capacity = block_size * 64, .headroom = {}, .log = {}});
  stream<Memory> s(first);
  stream<Memory> t(second);
  std::vector<std::uint32_t*> x;
  std::vector<std::uint32_t*> y;
  constexpr std::uint64_t words = block_size.count / 4;
  for (std::uint32_t i = 0; i < operands; ++i) {
    x.push_back(first.template allocate<std::uint32_t>(words));
    y.push_back(second.template allocate<std::uint32_t>(words));
    first.host_write(x[i], words)[0] = i + 1;
    second.host_write(y[i], words)[0] = 100 * (i + 1);
  }
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < operands; ++i) {
      s.launch("scale", 1, 1, 0, scale, x[i], 2U);
      t.launch("scale", 1, 1, 0, scale, y[i], 3U);
    }
  }
  s.synchronize();
  t.synchronize();
  for (std::uint32_t i = 0; i < operands; ++i) {
    CHECK(first.host_read(x[i], words)[0] == 8 * (i + 1));
    CHECK(second.host_read(y[i], words)[0] == 2700 * (i + 1));
  }
  for (unsigned d = 0; d < 2; ++d) {
    CHECK(m[d].counters().launches == 3 * operands);
  }
}

TEST_CASE("two arenas on two devices, of managed memory") { two_arenas<sim::managed_memory>(); }
TEST_CASE("two arenas on two devices, of paged memory") { two_arenas<sim::paged_memory>(); }

/// What was computed on one device goes to an arena on the other, by a stream of either, and is used there.
template <class Memory>
void copies_between_arenas() {
  constexpr std::uint64_t words = block_size.count / 4;
  for (const bool by_target : {false, true}) {
    CAPTURE(by_target);
    sim::machine m(round_numbers(), {.memory = block_size * 6});
    arena<Memory> first(m[0], {.capacity = block_size * 64, .headroom = {}, .log = {}});
    arena<Memory> second(m[1], {.capacity = block_size * 64, .headroom = {}, .log = {}});
    stream<Memory> s(first);
    stream<Memory> t(second);
    std::uint32_t* const x = first.template allocate<std::uint32_t>(words);
    std::uint32_t* const y = second.template allocate<std::uint32_t>(words);
    first.host_write(x, words)[0] = 1;
    second.host_write(y, words)[0] = 50;
    s.launch("add", 1, 1, 0, add, x, 2U);
    s.synchronize();
    (by_target ? t : s).memcpy(y, x, block_size);
    (by_target ? t : s).synchronize();
    t.launch("add", 1, 1, 0, add, y, 4U);
    t.synchronize();
    CHECK(second.host_read(y, words)[0] == 7);
    CHECK(first.host_read(x, words)[0] == 3);
  }
}
TEST_CASE("memcpy between arenas on two devices, of managed memory") { copies_between_arenas<sim::managed_memory>(); }
TEST_CASE("memcpy between arenas on two devices, of paged memory") { copies_between_arenas<sim::paged_memory>(); }

}  // namespace machine_test
