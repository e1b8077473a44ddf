// What random programs in lockstep have found, each as short as it can be said.

#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace found_by_programs_test {

using namespace deepum;
using word = std::uint32_t;

constexpr std::size_t words_of_a_block = block_size.count / sizeof(word);

const sim::kernel set_first{[](word* a, word, word value) { a[0] = value; },
                            [](sim::work& w, word* a, word n, word) { w.updates(a, n * sizeof(word)); }};

const sim::kernel copy_first_of_part{[](word* to, const word* from, std::size_t, std::size_t at) { to[0] = from[at]; },
                                     [](sim::work& w, word* to, const word* from, std::size_t n, std::size_t) {
                                       w.reads(from, n * sizeof(word));
                                       w.updates(to, sizeof(word));
                                     }};

TEST_CASE("a launch must not read what was given up beside what it writes itself") {
  sim::device gpu;
  arena memory(gpu, {.capacity = 16_MiB, .device_budget = 16_MiB, .log = {}});
  stream s(memory);
  word* const a = memory.allocate<word>(1000);
  s.launch("set", 1, 1, 0, set_first, a, word{1}, word{7});
  memory.mark_inactive(a, bytes{1000 * sizeof(word)});
  const auto nothing = [](sim::stream&) {};
  CHECK_THROWS_AS(s.call("both", {overwrites(a, 10), reads(a, 1000)}, nothing), error);
  CHECK_THROWS_AS(s.call("both", {overwrites(a + 10, 10), reads(a, 20)}, nothing), error);
  CHECK_NOTHROW(s.call("both", {overwrites(a, 10), overwrites(a + 10, 990), reads(a, 1000)}, nothing));
}

TEST_CASE("the end of an allocation is given up without a byte of the next one") {
  sim::device gpu;
  arena memory(gpu, {.capacity = 16_MiB, .device_budget = 16_MiB, .log = {}});
  stream s(memory);
  std::array<word*, 3> all{};
  for (word*& a : all) {
    a = memory.allocate<word>(1000);
    s.launch("set", 1, 1, 0, set_first, a, word{1}, word{7});
  }
  s.synchronize();
  for (word* const a : all) {
    memory.mark_inactive(a + 935, bytes{65 * sizeof(word)});
  }
  for (word* const a : all) {
    CHECK(memory.host_read(a, 935)[0] == 7);
    CHECK_THROWS_AS((void)memory.host_read(a, 936), error);
  }
}

TEST_CASE("a hint for memory that is held keeps no view of other memory waiting") {
  sim::device gpu;
  arena<sim::paged_memory> memory(gpu, {.capacity = 32_MiB, .device_budget = 16_MiB, .policy = "um", .log = {}});
  stream s(memory);
  word* const held = memory.allocate<word>(words_of_a_block);
  word* const other = memory.allocate<word>(words_of_a_block);
  s.launch("set", 1, 1, 0, set_first, updates(other, words_of_a_block), word{1}, word{7});
  s.synchronize();
  {
    const auto residency = memory.hold({updates(held)});
    memory.prefetch(held, block_size, location::host());
    const auto view = memory.host_write(other, 1);
    CHECK(view[0] == 7);
  }
  CHECK(memory.statistics().dropped == 1);
}

TEST_CASE("a launch may read memory of which a part was given up, whatever it finds there") {
  for (const char* policy : {"auto", "deepum", "lru", "um"}) {
    CAPTURE(policy);
    sim::device gpu;
    arena<sim::paged_memory> memory(gpu, {.capacity = 32_MiB, .device_budget = 16_MiB, .policy = policy, .log = {}});
    stream s(memory);
    constexpr std::size_t n = 3 * words_of_a_block;
    word* const a = memory.allocate<word>(n);
    word* const b = memory.allocate<word>(1000);
    memory.mark_inactive(a, bytes{n * sizeof(word)});
    for (word i = 0; i < 3; ++i) {  // all that is in use comes, and launches need not ask for it any more
      s.launch("set", 1, 1, 0, set_first, overwrites(a + 2 * words_of_a_block, words_of_a_block), word{1}, i);
      s.launch("set", 1, 1, 0, set_first, overwrites(b, 1000), word{1}, i);
      s.synchronize();
      gpu.host_work(std::chrono::milliseconds(1));
    }
    s.launch("copy first", 1, 1, 0, copy_first_of_part, b, static_cast<const word*>(a), n, 2 * words_of_a_block);
    CHECK_NOTHROW(s.synchronize());
    CHECK(memory.host_read(b, 1)[0] == 2);
  }
}

TEST_CASE("contents that are dead keep no memory of the host from those that are alive") {
  for (const char* policy : {"auto", "deepum", "lru", "um"}) {
    CAPTURE(policy);
    sim::device gpu(sim::find_profile("h200_pcie5"), {.host_limit = 8_MiB});
    arena<sim::paged_memory> memory(gpu, {.capacity = 32_MiB, .device_budget = 16_MiB, .policy = policy, .log = {}});
    stream s(memory);
    constexpr std::size_t n = 4 * words_of_a_block;
    word* const dead = memory.allocate<word>(n);
    memory.host_overwrite(dead, n)[0] = 1;
    memory.mark_inactive(dead, bytes{n * sizeof(word)});
    word* const alive = memory.allocate<word>(n);
    s.launch("set", 1, 1, 0, set_first, overwrites(alive, n), word{n}, word{7});
    s.synchronize();
    CHECK(memory.host_read(alive, n)[0] == 7);
  }
}

TEST_CASE("memory of the host that dead contents have just given up is there for a view") {
  for (const char* policy : {"auto", "deepum", "lru", "um"}) {
    CAPTURE(policy);
    sim::device gpu(sim::find_profile("h200_pcie5"), {.host_limit = 8_MiB});
    arena<sim::paged_memory> memory(gpu, {.capacity = 32_MiB, .device_budget = 4_MiB, .policy = policy, .log = {}});
    stream s(memory);
    constexpr std::size_t n = 4 * words_of_a_block;
    word* const dead = memory.allocate<word>(n);
    memory.host_overwrite(dead, n)[0] = 1;
    word* const used = memory.allocate<word>(n / 2);  // fills the device, so that nothing can go there
    word* const fresh = memory.allocate<word>(n);
    memory.deallocate(dead);
    s.launch("set", 1, 1, 0, set_first, overwrites(used, n / 2), word{n / 2}, word{7});
    s.synchronize();
    CHECK_NOTHROW((void)memory.host_read(fresh, n));
  }
}

TEST_CASE("a launch within a call that can never get its memory is refused, and one that can gets it without delay") {
  for (const char* policy : {"auto", "deepum", "lru", "um"}) {
    CAPTURE(policy);
    sim::device gpu;
    arena<sim::paged_memory> memory(gpu, {.capacity = 32_MiB, .device_budget = 6_MiB, .policy = policy, .log = {}});
    stream s(memory);
    stream other(memory);
    std::array<word*, 4> all{};
    for (word*& a : all) {
      a = memory.allocate<word>(words_of_a_block);
      s.launch("set", 1, 1, 0, set_first, updates(a, words_of_a_block), word{1}, word{7});
    }
    s.synchronize();
    const nanoseconds before = gpu.now();
    s.call("outer", {updates(all[0]), updates(all[1])}, [&](sim::stream&) {
      other.launch("inner", 1, 1, 0, set_first, updates(all[2], words_of_a_block), word{1}, word{8});
      CHECK_THROWS_AS(
          other.call("too much beside the outer one", {updates(all[2]), updates(all[3])}, [](sim::stream&) {}), error);
    });
    s.synchronize();
    other.synchronize();
    CHECK(gpu.now() - before < std::chrono::milliseconds(100));
    CHECK(memory.host_read(all[2], 1)[0] == 8);
  }
}

TEST_CASE("a fault on a full device takes the room of contents that are dead, and copies nothing out") {
  for (const char* policy : {"auto", "deepum", "lru"}) {  // under um the driver knows nothing of deaths
    CAPTURE(policy);
    std::atomic<unsigned> copied_out{0};
    sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 8_MiB});
    arena memory(gpu, {.capacity = 32_MiB,
                       .device_budget = 8_MiB,
                       .policy = policy,
                       .log = {},
                       .observer = [&](const device_event& e, launch_id) {
                         copied_out +=
                             e.what == device_event::kind::departed && e.began != nanoseconds{} ? e.range.count : 0;
                       }});
    stream s(memory);
    word* const hidden = memory.allocate<word>(2 * words_of_a_block);
    {
      const auto view = memory.host_overwrite(hidden, 2 * words_of_a_block);
      view[0] = view[words_of_a_block] = 7;
    }
    std::array<word*, 4> all{};
    for (word*& a : all) {
      a = memory.allocate<word>(words_of_a_block);
      s.launch("set", 1, 1, 0, set_first, overwrites(a, words_of_a_block), word{words_of_a_block}, word{1});
    }
    s.synchronize();
    memory.deallocate(all[0]);
    memory.deallocate(all[1]);
    gpu.host_work(std::chrono::milliseconds(1));
    for (const std::size_t at : {std::size_t{0}, words_of_a_block}) {  // one declares nothing of what it reads
      s.call("hidden", {updates(all[3])}, [&](sim::stream& native) {
        native.launch(1, 1, 0, copy_first_of_part, all[3], static_cast<const word*>(hidden + at), words_of_a_block,
                      std::size_t{0});
      });
      s.synchronize();
    }
    CHECK(copied_out == 0);
    CHECK(memory.host_read(all[3], 1)[0] == 7);
  }
}

}  // namespace found_by_programs_test
