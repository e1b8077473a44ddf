// An arena on memory that never faults: nothing but the engine brings what a launch declares.

#include "support/bulk.hpp"
#include "support/failure.hpp"
#include "support/test_scale.hpp"
#include <deepum/arena.hpp>
#include <deepum/sim/device.hpp>
#include <deepum/sim/kernel.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/stream.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace paged_arena_test {

using namespace deepum;
using namespace deepum::literals;
namespace bulk = deepum_test::bulk;
using deepum_test::failure;
using deepum_test::few;
using deepum_test::mentions;
using word = std::uint32_t;
using arena_type = arena<sim::paged_memory>;
using stream_type = stream<sim::paged_memory>;

constexpr std::size_t words_per_block = (2_MiB).count / sizeof(word);
constexpr std::size_t stride = 16;  // of words that a launch adds

const sim::kernel add{[](word* a, const word* b, std::size_t n) { bulk::add(a, b, n, stride); },
                      [](sim::work& w, word* a, const word* b, std::size_t n) {
                        w.reads(b, n * sizeof(word)).updates(a, n * sizeof(word)).flops(1e8);
                      }};
const sim::kernel set{[](word* a, std::size_t n, word v) { bulk::fill(a, n, v); },
                      [](sim::work& w, word* a, std::size_t n, word) { w.overwrites(a, n * sizeof(word)).flops(1e8); }};
/// Writes more than its argument says.
const sim::kernel stray{[](word* a, std::uint64_t other) {
                          *a = 1;
                          *reinterpret_cast<word*>(other) = 2;
                        },
                        [](sim::work& w, word* a, std::uint64_t other) {
                          w.updates(a, sizeof(word)).updates(reinterpret_cast<word*>(other), sizeof(word));
                        }};

struct machine {
  explicit machine(bytes budget, std::string policy = "auto", bytes memory = 512_MiB)
      : gpu(sim::find_profile("h200_pcie5"), {.memory = memory}),
        made(std::make_unique<arena_type>(gpu, arena_options{.capacity = 256_MiB,
                                                             .device_budget = budget,
                                                             .headroom = 4_MiB,
                                                             .policy = std::move(policy),
                                                             .log = [this](std::string_view line) { log += line; }})) {}
  [[nodiscard]] arena_type& memory() { return *made; }

  sim::device gpu;
  std::string log;
  std::unique_ptr<arena_type> made;
};

/// Buffers of four blocks each, and passes over them, forward and back. @returns  What the buffers hold in the end.
struct sweep {
  static constexpr std::size_t buffers = 10;
  static constexpr std::size_t n = 4 * words_per_block;

  explicit sweep(machine& m) : memory(m.memory()), s(memory) {
    for (std::size_t i = 0; i < buffers; ++i) {
      words.push_back(memory.allocate<word>(n));
      const auto view = memory.host_overwrite(words.back(), n);
      std::iota(view.begin(), view.end(), static_cast<word>(i));
    }
  }
  void pass() {
    for (std::size_t i = 0; i + 1 < buffers; ++i) {
      s.launch("add", 1, 1, 0, add, words[i], static_cast<const word*>(words[i + 1]), n);
    }
    for (std::size_t i = buffers - 1; i > 0; --i) {
      s.launch("add", 1, 1, 0, add, words[i], static_cast<const word*>(words[i - 1]), n);
    }
  }
  [[nodiscard]] std::vector<word> result() {
    s.synchronize();
    std::vector<word> all;
    for (const word* p : words) {
      const auto view = memory.host_read(p, n);
      all.insert(all.end(), view.begin(), view.end());
    }
    return all;
  }
  [[nodiscard]] static std::vector<word> expected(int passes) {
    std::vector<std::vector<word>> b(buffers, std::vector<word>(n));
    for (std::size_t i = 0; i < buffers; ++i) {
      std::iota(b[i].begin(), b[i].end(), static_cast<word>(i));
    }
    const auto step = [&](std::size_t to, std::size_t from) {
      for (std::size_t k = 0; k < n; k += stride) {
        b[to][k] += b[from][k];
      }
    };
    std::vector<word> all;
    for (int p = 0; p < passes; ++p) {
      for (std::size_t i = 0; i + 1 < buffers; ++i)
        step(i, i + 1);
      for (std::size_t i = buffers - 1; i > 0; --i)
        step(i, i - 1);
    }
    for (const auto& x : b)
      all.insert(all.end(), x.begin(), x.end());
    return all;
  }

  arena_type& memory;
  stream_type s;
  std::vector<word*> words;
};

TEST_CASE("a program that is larger than the budget computes the same under every policy") {
  const std::vector<word> expected = sweep::expected(5);
  for (const char* policy : few<const char*>({"auto", "um", "lru", "deepum", "ideal"}, 2)) {
    for (const bytes budget : few<bytes>({24_MiB, 16_MiB, 48_MiB, 100_MiB}, 1)) {
      CAPTURE(policy);
      CAPTURE(budget.count);
      machine m(budget, policy);
      sweep program(m);
      for (int i = 0; i < 5; ++i) {
        program.pass();
      }
      CHECK(program.result() == expected);
      const statistics s = m.memory().statistics();
      CHECK(s.failed_calls == 0);
      CHECK(s.unprepared_launches == 0);
      if (budget >= 100_MiB) {
        CHECK(s.out().all_bytes() <= (80_MiB).count);  // for the result alone
      }
    }
  }
}

TEST_CASE("what a launch misses is told to the policy as faults; one that plans ahead sees few of them") {
  std::uint64_t faults[2] = {};
  for (const bool ahead : {false, true}) {
    machine m(32_MiB, ahead ? "auto" : "um");
    sweep program(m);
    program.pass();
    program.pass();
    program.pass();
    program.s.synchronize();
    const std::uint64_t before = m.memory().statistics().faults;
    program.pass();
    program.s.synchronize();
    faults[ahead] = m.memory().statistics().faults - before;
  }
  CHECK(faults[0] >= 40);
  CHECK(faults[1] <= faults[0] / 10);
}

TEST_CASE("a launch that is larger than the budget is refused with its name before anything is issued") {
  machine m(16_MiB);
  stream_type s(m.memory());
  word* const large = m.memory().allocate<word>(9 * words_per_block);
  word* const small = m.memory().allocate<word>(words_per_block);
  const std::string said = failure(status::out_of_device_memory, [&] {
    s.launch("too much", 1, 1, 0, set, overwrites(large, 9 * words_per_block), 9 * words_per_block, word{1});
  });
  CHECK(mentions(said, "'too much'"));
  CHECK(mentions(said, std::to_string((18_MiB).count)));
  CHECK(mentions(said, std::to_string((16_MiB).count)));
  CHECK(m.memory().statistics().launches == 0);
  // The arena goes on.
  s.launch("set", 1, 1, 0, set, overwrites(small, words_per_block), words_per_block, word{7});
  s.synchronize();
  CHECK(m.memory().host_read(small, 1)[0] == 7);
}

TEST_CASE("copies and fills larger than the budget go through in pieces") {
  machine m(16_MiB);
  stream_type s(m.memory());
  constexpr std::size_t n = 20 * words_per_block + 77;
  word* const a = m.memory().allocate<word>(n);
  word* const b = m.memory().allocate<word>(n);
  std::vector<word> host(n);
  std::iota(host.begin(), host.end(), 5U);
  s.memcpy(a, host.data(), bytes{n * sizeof(word)});
  s.memset(b, 0, bytes{n * sizeof(word)});
  s.memcpy(b, a, bytes{n * sizeof(word)});
  std::vector<word> back(n);
  s.memcpy(back.data(), b, bytes{n * sizeof(word)});
  s.synchronize();
  CHECK(back == host);
}

TEST_CASE("copies and fills go through under a budget of a few blocks, wherever they begin") {
  for (const bytes budget : {2_MiB, 4_MiB, 6_MiB, 8_MiB}) {
    CAPTURE(budget.count);
    machine m(budget);
    stream_type s(m.memory());
    constexpr std::size_t n = 3 * words_per_block;
    word* const a = m.memory().allocate<word>(n + 2 * words_per_block);
    word* const b = m.memory().allocate<word>(n + 2 * words_per_block);
    word* const from = a + 100;
    word* const to = b + words_per_block - 77;
    std::vector<word> host(n);
    std::iota(host.begin(), host.end(), 5U);
    s.memcpy(from, host.data(), bytes{n * sizeof(word)});
    s.memset(to - 5, 7, bytes{(n + 10) * sizeof(word)});
    s.memcpy(to, from, bytes{n * sizeof(word)});
    s.memcpy(from + 20, from + n - 50, bytes{50 * sizeof(word)});  // within one block or between two
    std::vector<word> back(n);
    s.memcpy(back.data(), to, bytes{n * sizeof(word)});
    s.synchronize();
    CHECK(back == host);
    CHECK(m.memory().host_read(to - 1, 1)[0] == 0x07070707);
    CHECK(m.memory().host_read(to + n, 1)[0] == 0x07070707);
    CHECK(m.memory().host_read(from + 20, 50)[49] == host[n - 1]);
  }
}

TEST_CASE("where arenas share a device, one that cannot have more makes room among its own blocks") {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 100_MiB});
  for (const char* policy : {"um", "auto"}) {
    CAPTURE(policy);
    arena_type mine(gpu, {.capacity = 256_MiB, .device_budget = 96_MiB, .policy = policy, .log = {}});
    arena_type other(gpu, {.capacity = 256_MiB, .device_budget = 96_MiB, .policy = policy, .log = {}});
    stream_type s(mine);
    stream_type t(other);
    std::vector<word*> words;
    for (std::size_t i = 0; i < 60; ++i) {
      words.push_back(mine.allocate<word>(words_per_block));
    }
    for (std::size_t i = 0; i < 47; ++i) {
      s.launch("set", 1, 1, 0, set, words[i], words_per_block, static_cast<word>(i));
    }
    s.synchronize();
    word* const theirs = other.allocate<word>(3 * words_per_block);
    t.launch("set", 1, 1, 0, set, theirs, 3 * words_per_block, word{1});  // nothing is free now
    t.synchronize();
    for (int round = 0; round < 2; ++round) {
      for (std::size_t i = 0; i < 60; ++i) {
        s.launch("set", 1, 1, 0, set, words[i], words_per_block / 2, static_cast<word>(i));
      }
    }
    s.synchronize();
    for (std::size_t i = 0; i < 60; ++i) {
      CHECK(mine.host_read(words[i], words_per_block)[1] == i);
    }
    CHECK(mine.host_read(words[3], words_per_block)[words_per_block - 1] == 3);
    CHECK(other.host_read(theirs, 1)[0] == 1);
  }
}

TEST_CASE("what a launch waited for is no prefetch that was of use") {
  machine m(16_MiB, "um");
  sweep program(m);
  program.pass();
  program.pass();
  program.s.synchronize();
  const statistics s = m.memory().statistics();
  CHECK(s.faults > 100);
  CHECK(s.prefetches_used == 0);
  CHECK(s.prefetches_wasted == 0);
}

TEST_CASE("a launch that may touch anything gets all that is alive, or is refused") {
  machine m(16_MiB);
  stream_type s(m.memory());
  word* const a = m.memory().allocate<word>(2 * words_per_block);
  word* const b = m.memory().allocate<word>(2 * words_per_block);
  s.memset(b, 0, 4_MiB);
  s.call("anything", {}, [&](sim::stream& q) { q.launch(1, 1, 0, stray, a, reinterpret_cast<std::uint64_t>(b)); });
  s.synchronize();
  CHECK(m.memory().host_read(b, 1)[0] == 2);
  word* const more = m.memory().allocate<word>(5 * words_per_block);
  const std::string said = failure(status::out_of_device_memory, [&] {
    s.call("anything", {}, [&](sim::stream& q) { q.launch(1, 1, 0, stray, a, reinterpret_cast<std::uint64_t>(b)); });
  });
  CHECK(mentions(said, "'anything'"));
  CHECK(mentions(said, "declare"));
  m.memory().deallocate(more);
}

TEST_CASE("a kernel that touches what it did not declare breaks the device, and is named") {
  machine m(8_MiB, "um");
  stream_type s(m.memory());
  word* const a = m.memory().allocate<word>(words_per_block);
  word* const b = m.memory().allocate<word>(words_per_block);
  s.memset(a, 0, 2_MiB);
  s.synchronize();
  // What fits is brought without being asked for, so something else has to be in the way.
  word* const other = m.memory().allocate<word>(3 * words_per_block);
  s.memset(other, 0, 6_MiB);
  s.synchronize();
  s.launch("stray", 1, 1, 0, stray, a, reinterpret_cast<std::uint64_t>(b));
  try {
    s.synchronize();
    FAIL_CHECK("nothing was thrown");
  } catch (const std::exception& e) {
    CHECK(mentions(e.what(), "not mapped"));
  }
}

TEST_CASE("while a view writes, launches that touch the memory are refused; while one reads, they are not") {
  machine m(16_MiB);
  stream_type s(m.memory());
  word* const a = m.memory().allocate<word>(words_per_block);
  s.launch("set", 1, 1, 0, set, overwrites(a, words_per_block), words_per_block, word{3});
  s.synchronize();
  {
    const auto view = m.memory().host_write(a, 10);
    CHECK(view[9] == 3);
    view[9] = 4;
    const std::string said = failure(status::invalid_argument, [&] {
      s.launch("set", 1, 1, 0, set, overwrites(a, words_per_block), words_per_block, word{5});
    });
    CHECK(mentions(said, "'set'"));
    CHECK(mentions(said, "view"));
    // What shares the block waits for the end of the view, too, and is told so; copies are the way around it.
    word* const beside = m.memory().allocate<word>(10);
    word* const sharing = m.memory().allocate<word>(10);
    const auto other = m.memory().host_write(beside, 10);
    const std::string shared = failure(status::invalid_argument, [&] {
      s.launch("set", 1, 1, 0, set, overwrites(sharing, 10), std::size_t{10}, word{5});
    });
    CHECK(mentions(shared, std::to_string((2_MiB).count)));
    CHECK(mentions(shared, "stream::memcpy"));
  }
  {
    const auto view = m.memory().host_read(a, 10);
    CHECK(view[9] == 4);
    s.launch("set", 1, 1, 0, set, overwrites(a, words_per_block), words_per_block, word{6});
    s.synchronize();
  }
  CHECK(m.memory().host_read(a, 10)[9] == 6);
}

TEST_CASE("where all that is alive fits, it is brought once and launches do not wait any more") {
  machine m(100_MiB);
  sweep program(m);
  program.pass();
  program.s.synchronize();
  const statistics before = m.memory().statistics();
  program.pass();
  program.pass();
  program.s.synchronize();
  const statistics after = m.memory().statistics() - before;
  CHECK(after.faults == 0);
  CHECK(after.in().all_bytes() + after.out().all_bytes() == 0);
  CHECK(after.stalled.count() == 0);
}

TEST_CASE("blocks are written back ahead of need where the program does not choose otherwise" *
          doctest::skip(deepum_test::thread_sanitized)) {
  for (const bool ahead : {true, false}) {
    CAPTURE(ahead);
    sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB});
    arena_type memory(gpu, {.capacity = 256_MiB, .device_budget = 32_MiB, .tuning = {.write_back = ahead}, .log = {}});
    stream_type s(memory);
    std::vector<word*> words;
    for (int i = 0; i < 10; ++i) {
      words.push_back(memory.allocate<word>(4 * words_per_block));
    }
    for (int step = 0; step < 8; ++step) {
      for (int i = 0; i < 10; ++i) {
        s.launch("set", 1, 1, 0, set, overwrites(words[static_cast<std::size_t>(i)], 4 * words_per_block),
                 4 * words_per_block, word{1});
        if (i % 2 == 0) {
          s.launch("add", 1, 1, 0, add, words[static_cast<std::size_t>(i)], static_cast<const word*>(words[0]),
                   words_per_block);
        }
      }
      for (int i = 9; i >= 0; --i) {
        s.launch("add", 1, 1, 0, add, words[0], static_cast<const word*>(words[static_cast<std::size_t>(i)]),
                 words_per_block);
      }
    }
    s.synchronize();
    CHECK((memory.statistics().out().bytes_for(reason::write_back) != 0) == ahead);
  }
}

/// What steady steps move, in the clock of the simulated device.
struct steady_step {
  double in_rate = 0;   // bytes a second
  double out_rate = 0;  // bytes a second
  bytes in{};
};

// A sweep over equal parts, each launch on the next one, with all launches of a step issued ahead.
template <class Kernel>
steady_step steady_sweep(const Kernel& kernel, int parts, bytes part, bytes budget) {
  sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = budget + 16_MiB}};
  arena_type arena(gpu, {.capacity = part * static_cast<std::uint64_t>(parts + 1), .device_budget = budget});
  stream_type s(arena);
  std::vector<std::byte*> all;
  for (int i = 0; i != parts; ++i) {
    all.push_back(arena.allocate<std::byte>(part.count));
  }
  statistics before;
  nanoseconds began{};
  for (int step = 0; step != 6; ++step) {
    if (step == 5) {
      before = arena.statistics();
      began = gpu.now();
    }
    for (std::byte* p : all) {
      s.launch("sweep", 1, 1, 0, kernel, p, part.count);
    }
    s.synchronize();
  }
  const statistics did = arena.statistics() - before;
  const double seconds = static_cast<double>((gpu.now() - began).count()) / 1e9;
  return {static_cast<double>(did.in().all_bytes()) / seconds, static_cast<double>(did.out().all_bytes()) / seconds,
          bytes{did.in().all_bytes()}};
}

TEST_CASE("a sweep that writes keeps both directions of the link busy" * doctest::skip(deepum_test::thread_sanitized)) {
  const sim::kernel write{[](std::byte*, std::uint64_t) {},
                          [](sim::work& w, std::byte* p, std::uint64_t n) { w.updates(p, n).flops(1e8); }};
  const double link = sim::find_profile("h200_pcie5").pinned_both;
  const steady_step s = steady_sweep(write, 24, 16_MiB, 256_MiB);
  CHECK(s.in_rate > 0.9 * link);
  CHECK(s.out_rate > 0.9 * link);
}

TEST_CASE("a sweep that reads and computes brings little more than has to come, however much is issued ahead" *
          doctest::skip(deepum_test::thread_sanitized)) {
  // A launch computes for 0.35 ms, in which the link could bring it: what does not fit comes while the rest computes.
  const sim::kernel read{[](const std::byte*, std::uint64_t) {},
                         [](sim::work& w, const std::byte* p, std::uint64_t n) { w.reads(p, n).flops(1.7e10); }};
  const steady_step s = steady_sweep(read, 24, 16_MiB, 256_MiB);
  const bytes rest = 16_MiB * (24 - 15);  // where fifteen stay, and one place is for the others
  CHECK(s.in.count <= rest.count * 11 / 10);
}

TEST_CASE("a program may bring a policy of its own") {
  sim::device gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB});
  std::uint32_t asked = 0;
  arena_type memory(gpu, {.capacity = 256_MiB,
                          .device_budget = 32_MiB,
                          .tuning = {.lookahead = 7},
                          .make_policy =
                              [&](const policy_options& o) {
                                asked = *o.lookahead;
                                return make_policy("lru", o);
                              },
                          .log = {}});
  CHECK(asked == 7);
  CHECK(memory.policy_name() == "lru");
}

TEST_CASE("the budget can shrink and grow while the program runs") {
  machine m(100_MiB);
  sweep program(m);
  program.pass();
  m.memory().set_budget(20_MiB);
  program.pass();
  program.s.synchronize();
  (void)m.memory().statistics();
  CHECK(m.gpu.counters().out_by_command.count > 0);
  CHECK(m.memory().memory().free_memory() >= 512_MiB - 20_MiB);
  m.memory().set_budget(90_MiB);
  program.pass();
  CHECK(program.result() == sweep::expected(3));
}

TEST_CASE("where others take the device's memory the program is told, and goes on when they give it back") {
  machine m(40_MiB, "auto", 64_MiB);
  stream_type s(m.memory());
  word* const a = m.memory().allocate<word>(8 * words_per_block);
  m.gpu.set_foreign_memory(60_MiB);
  const std::string said = failure(status::out_of_device_memory, [&] {
    s.launch("set", 1, 1, 0, set, overwrites(a, 8 * words_per_block), 8 * words_per_block, word{1});
  });
  CHECK(mentions(said, "'set'"));
  m.gpu.set_foreign_memory(0_MiB);
  m.memory().set_budget(40_MiB);
  s.launch("set", 1, 1, 0, set, overwrites(a, 8 * words_per_block), 8 * words_per_block, word{2});
  s.synchronize();
  CHECK(m.memory().host_read(a + 8 * words_per_block - 1, 1)[0] == 2);
}

TEST_CASE("what is held stays on the device, so that launches of several streams can wait for each other") {
  machine m(20_MiB);
  stream_type s(m.memory());
  stream_type t(m.memory());
  word* const a = m.memory().allocate<word>(4 * words_per_block);
  word* const b = m.memory().allocate<word>(4 * words_per_block);
  word* const c = m.memory().allocate<word>(4 * words_per_block);
  {
    const auto kept = m.memory().hold({updates(a), updates(b)});
    const std::uint64_t before = m.memory().statistics().faults;
    for (int i = 0; i < 5; ++i) {
      s.launch("set", 1, 1, 0, set, overwrites(a, 4 * words_per_block), 4 * words_per_block, word{1});
      t.launch("set", 1, 1, 0, set, overwrites(b, 4 * words_per_block), 4 * words_per_block, word{2});
    }
    s.synchronize();
    t.synchronize();
    CHECK(m.memory().statistics().faults == before);
    failure(status::out_of_device_memory, [&] { (void)m.memory().hold({updates(a), updates(b), updates(c)}); });
  }
  s.launch("set", 1, 1, 0, set, overwrites(c, 4 * words_per_block), 4 * words_per_block, word{3});
  s.synchronize();
  CHECK(m.memory().host_read(a, 1)[0] == 1);
  CHECK(m.memory().host_read(b, 1)[0] == 2);
  CHECK(m.memory().host_read(c, 1)[0] == 3);
}

}  // namespace paged_arena_test
