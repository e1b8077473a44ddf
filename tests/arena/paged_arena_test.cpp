// An arena on memory that never faults: nothing but the engine brings what a launch declares.

#include "arena/paged_program.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace paged_arena_test {

using namespace paged_sweeps_of_tests;
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
