// What the program says of its contents: they die at once, they live again where they are used again, and a launch that
// says something wrong is refused before anything has happened. On both kinds of memory.

#include "support/bulk.hpp"
#include "support/failure.hpp"
#include "support/test_scale.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace facts_test {

using namespace deepum;
using namespace deepum::literals;
namespace bulk = deepum_test::bulk;
using deepum_test::failure;
using deepum_test::few;
using deepum_test::mentions;

constexpr std::size_t in_block = (2_MiB).count / sizeof(float);

const sim::kernel set{
    [](float* a, std::size_t n, float v) { bulk::fill(a, n, v); },
    [](sim::work& w, float* a, std::size_t n, float) { w.overwrites(a, n * sizeof(float)).flops(1e8); }};
const sim::kernel add{[](float* a, const float* b, std::size_t n) { bulk::add(a, b, n); },
                      [](sim::work& w, float* a, const float* b, std::size_t n) {
                        w.reads(b, n * sizeof(float)).updates(a, n * sizeof(float)).flops(1e8);
                      }};

template <class Memory>
struct machine {
  explicit machine(bytes budget, std::string policy = "auto", bytes capacity = 256_MiB)
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 128_MiB}),
        memory(gpu, {.capacity = capacity,
                     .device_budget = budget,
                     .policy = std::move(policy),
                     .log = [this](std::string_view line) { log += std::string(line) + "\n"; }}) {}

  [[nodiscard]] float first(const float* p) { return memory.host_read(p, 1)[0]; }
  void fill(float* p, std::size_t n, float v) { std::ranges::fill(memory.host_overwrite(p, n), v); }

  sim::device gpu;
  std::string log;
  arena<Memory> memory;
};

#define BOTH_KINDS sim::managed_memory, sim::paged_memory

/// Bytes that are copied out while a tensor takes the place of one that is of no value any more.
template <class Memory>
std::uint64_t copied_out(const char* policy, bool freed, bool in_flight) {
  constexpr std::size_t n = 12 * in_block;
  machine<Memory> m(24_MiB, policy);
  stream s(m.memory);
  float* const old = m.memory.template allocate<float>(n);
  float* const x = m.memory.template allocate<float>(n);
  s.launch("set", 1, 1, 0, set, overwrites(old, n), n, 1.F);
  if (!in_flight) {
    s.synchronize();
  }
  freed ? m.memory.deallocate(old) : m.memory.mark_inactive(old, bytes{n * sizeof(float)});
  const statistics before = m.memory.statistics();
  for (int i = 0; i < 3; ++i) {
    s.launch("set", 1, 1, 0, set, overwrites(x, n), n, 2.F);
  }
  s.synchronize();
  const std::uint64_t moved = (m.memory.statistics() - before).out().all_bytes();
  CHECK(m.first(x) == 2.F);
  return moved;
}

TEST_CASE_TEMPLATE("what was freed does not move, also while launches may use it", Memory, BOTH_KINDS) {
  for (const char* policy : few<const char*>({"auto", "um", "lru", "deepum"}, 2)) {
    CAPTURE(policy);
    for (const bool in_flight : {true, false}) {
      const std::uint64_t moved = copied_out<Memory>(policy, true, in_flight);
      CHECK(moved == copied_out<Memory>(policy, false, in_flight));
      // Demand paging by the driver knows of nothing that is dead.
      CHECK((moved == 0) != (policy == std::string("um") && !paged_memory_kind<Memory>));
    }
  }
}

TEST_CASE_TEMPLATE("memory that was given up is in use again where a launch writes it, under every policy", Memory,
                   BOTH_KINDS) {
  for (const char* policy : few<const char*>({"auto", "um", "lru", "deepum"}, 2)) {
    CAPTURE(policy);
    machine<Memory> m(16_MiB, policy);
    stream s(m.memory);
    constexpr std::size_t n = 3 * in_block;
    float* const x = m.memory.template allocate<float>(n);
    float* const y = m.memory.template allocate<float>(n);
    float* const sum = m.memory.template allocate<float>(n);
    m.fill(sum, n, 0.F);
    for (int step = 1; step <= 12; ++step) {
      const auto v = static_cast<float>(step);
      s.launch("set x", 1, 1, 0, set, overwrites(x, n), n, v);
      s.launch("add", 1, 1, 0, add, sum, reads(x, n), n);
      m.memory.mark_inactive(x, bytes{n * sizeof(float)});
      s.launch("set y", 1, 1, 0, set, overwrites(y, n), n, v);
      s.launch("add", 1, 1, 0, add, sum, reads(y, n), n);
      m.memory.mark_inactive(y, bytes{n * sizeof(float)});
    }
    s.synchronize();
    CHECK(m.first(sum) == 2.F * 78.F);
    CHECK(m.log.empty());
  }
}

TEST_CASE_TEMPLATE("a launch brings exactly the bytes back that it names", Memory, BOTH_KINDS) {
  machine<Memory> m(64_MiB);
  stream s(m.memory);
  constexpr std::size_t n = 4 * in_block;
  float* const x = m.memory.template allocate<float>(n);
  m.fill(x, n, 1.F);
  m.memory.mark_inactive(x, bytes{n * sizeof(float)});
  s.launch("set", 1, 1, 0, set, overwrites(x, in_block), in_block, 2.F);
  s.synchronize();
  CHECK(m.first(x) == 2.F);
  failure(status::invalid_argument, [&] { (void)m.memory.host_read(x + in_block, 1); });
  CHECK(m.memory.host_read(x, in_block).size() == in_block);
}

TEST_CASE_TEMPLATE("what was given up is not read", Memory, BOTH_KINDS) {
  machine<Memory> m(64_MiB);
  stream s(m.memory);
  constexpr std::size_t n = 2 * in_block;
  float* const x = m.memory.template allocate<float>(n);
  float* const y = m.memory.template allocate<float>(n);
  m.fill(x, n, 1.F);
  m.fill(y, n, 1.F);
  m.memory.mark_inactive(x + in_block, 2_MiB);
  const std::uint64_t launches = m.memory.statistics().launches;
  // A size that reaches into it is wrong; a pointer to all of it may mean the other half.
  const std::string text =
      failure(status::invalid_argument, [&] { s.launch("sized", 1, 1, 0, add, y, reads(x, n), n); });
  CHECK(mentions(text, "'sized'"));
  CHECK(mentions(text, "mark_inactive"));
  CHECK(m.memory.statistics().launches == launches);
  s.launch("all of it", 1, 1, 0, add, y, static_cast<const float*>(x), in_block);
  m.memory.mark_inactive(x, 2_MiB);
  failure(status::invalid_argument,
          [&] { s.launch("all of it", 1, 1, 0, add, y, static_cast<const float*>(x), in_block); });
  CHECK(mentions(failure(status::invalid_argument, [&] { (void)m.memory.host_read(x, 1); }), "the host reads"));
  failure(status::invalid_argument, [&] { s.memcpy(y, x, 1_MiB); });
  // What is written again can be read again.
  s.memcpy(x, y, 2_MiB);
  s.synchronize();
  CHECK(m.first(x) == 2.F);
  m.fill(x + in_block, in_block, 7.F);
  s.launch("sized", 1, 1, 0, add, y, reads(x, n), n);
  s.synchronize();
  CHECK(m.first(y + in_block) == 8.F);
}

TEST_CASE_TEMPLATE("a copy that is made in pieces is refused as a whole", Memory, BOTH_KINDS) {
  machine<Memory> m(16_MiB);
  stream s(m.memory);
  constexpr std::size_t n = 8 * in_block;
  float* const x = m.memory.template allocate<float>(n);
  float* const y = m.memory.template allocate<float>(n);
  m.fill(x, n, 1.F);
  m.fill(y, n, 2.F);
  m.memory.mark_inactive(x + 6 * in_block, 4_MiB);
  failure(status::invalid_argument, [&] { s.memcpy(y, x, bytes{n * sizeof(float)}); });
  s.synchronize();
  CHECK(m.first(y) == 2.F);
}

TEST_CASE_TEMPLATE("an update of what was given up is logged once by name", Memory, BOTH_KINDS) {
  machine<Memory> m(64_MiB);
  stream s(m.memory);
  float* const x = m.memory.template allocate<float>(in_block);
  float* const y = m.memory.template allocate<float>(in_block);
  m.fill(y, in_block, 1.F);
  for (int i = 0; i < 2; ++i) {
    m.memory.mark_inactive(x, 2_MiB);
    s.launch("accumulate", 1, 1, 0, add, updates(x, in_block), reads(y, in_block), in_block);
  }
  s.synchronize();
  CHECK(std::ranges::count(m.log, '\n') == 1);
  CHECK(mentions(m.log, "'accumulate'"));
  CHECK(mentions(m.log, "overwrites(p, n)"));
}

TEST_CASE_TEMPLATE("an operand that reaches past its allocation, or names free memory, is refused", Memory,
                   BOTH_KINDS) {
  machine<Memory> m(64_MiB);
  stream s(m.memory);
  float* const x = m.memory.template allocate<float>(in_block);
  float* const next = m.memory.template allocate<float>(in_block);
  m.fill(next, in_block, 3.F);
  const std::string past = failure(status::invalid_argument,
                                   [&] { s.launch("past", 1, 1, 0, set, overwrites(x, 2 * in_block), in_block, 1.F); });
  CHECK(mentions(past, "'past'"));
  CHECK(mentions(past, "beyond their allocation"));
  s.synchronize();
  CHECK(m.first(next) == 3.F);
  m.memory.deallocate(x);
  for (const operand& o : std::array<operand, 2>{overwrites(x, 1), reads(x)}) {
    CHECK(mentions(failure(status::foreign_pointer, [&] { s.call("free", {o}, [](sim::stream&) {}); }), "'free'"));
  }
  // What only looks like a pointer is no fault of the program.
  s.call("guessed", {operand{.address = x, .declared = false, .guessed = true}}, [](sim::stream&) {});
  CHECK(m.log.empty());
  // A pointer that the kernel may not even use.
  const sim::kernel unused{[](float*, float* a) { *a = 1.F; },
                           [](sim::work& w, float*, float* a) { w.updates(a, sizeof(float)); }};
  for (int i = 0; i < 2; ++i) {
    s.launch("dangling", 1, 1, 0, unused, x, next);
  }
  s.synchronize();
  CHECK(std::ranges::count(m.log, '\n') == 1);
  CHECK(mentions(m.log, "'dangling'"));
}

TEST_CASE_TEMPLATE("memory that was given back is allocated again while something is held", Memory, BOTH_KINDS) {
  machine<Memory> m(16_MiB, "auto", 8_MiB);
  stream s(m.memory);
  float* x = m.memory.template allocate<float>(2 * in_block);
  float* const kept = m.memory.template allocate<float>(in_block);
  const auto hold = m.memory.hold({updates(kept, in_block)});
  for (int i = 0; i < 4; ++i) {
    s.launch("set", 1, 1, 0, set, overwrites(x, 2 * in_block), 2 * in_block, 1.F);
    m.memory.deallocate(x);
    x = m.memory.template allocate<float>(2 * in_block);
  }
  s.synchronize();
}

TEST_CASE_TEMPLATE("within a call, allocate waits for earlier launches and not for the call", Memory, BOTH_KINDS) {
  machine<Memory> m(16_MiB, "auto", 8_MiB);
  stream s(m.memory);
  float* x = m.memory.template allocate<float>(3 * in_block);
  s.launch("set", 1, 1, 0, set, overwrites(x, 3 * in_block), 3 * in_block, 1.F);
  m.memory.deallocate(x);
  float* const other = m.memory.template allocate<float>(in_block);
  s.call("outer", {updates(other, in_block)}, [&](sim::stream&) {
    x = m.memory.template allocate<float>(3 * in_block);  // of the launch before
    m.memory.deallocate(x);
    const std::string text =
        failure(status::out_of_arena_space, [&] { (void)m.memory.template allocate<float>(3 * in_block); });
    CHECK(mentions(text, "stream::call"));
  });
  s.synchronize();
  CHECK(m.memory.template allocate<float>(3 * in_block) == x);
}

TEST_CASE_TEMPLATE("other threads launch while one waits for memory", Memory, BOTH_KINDS) {
  machine<Memory> m(16_MiB, "auto", 8_MiB);
  stream s(m.memory);
  float* const x = m.memory.template allocate<float>(3 * in_block);
  float* const other = m.memory.template allocate<float>(in_block / 2);
  std::atomic<bool> waiting = false;
  std::atomic<bool> launched = false;
  std::thread second;
  // The call ends when the other thread has launched; until then its launch, and what was freed in it, is in flight.
  s.call("outer", {updates(x, 3 * in_block)}, [&](sim::stream&) {
    m.memory.deallocate(x);
    second = std::thread([&] {
      waiting = true;
      m.memory.deallocate(m.memory.template allocate<float>(3 * in_block));
    });
    while (!waiting) {
      std::this_thread::yield();
    }
    std::thread([&] {
      stream mine(m.memory);
      mine.launch("set", 1, 1, 0, set, overwrites(other, in_block / 2), in_block / 2, 5.F);
      launched = true;
      mine.synchronize();
    }).join();
  });
  second.join();
  s.synchronize();
  CHECK(launched);
  CHECK(m.first(other) == 5.F);
}

TEST_CASE_TEMPLATE("a call that throws, or that is refused, gives up nothing", Memory, BOTH_KINDS) {
  machine<Memory> m(8_MiB, "um");
  stream s(m.memory);
  constexpr std::size_t n = 2 * in_block;
  float* const x = m.memory.template allocate<float>(n);
  float* const y = m.memory.template allocate<float>(n);
  m.fill(x, n, 1.F);
  m.fill(y, n, 2.F);
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(s.call("throws", {overwrites(x, n)}, [](sim::stream&) { throw std::runtime_error("no"); }),
                    std::runtime_error);
    s.launch("add", 1, 1, 0, add, updates(y, n), reads(x, n), n);  // finds what x held
  }
  s.synchronize();
  CHECK(m.first(y) == 5.F);
  CHECK(m.first(x) == 1.F);
  if constexpr (paged_memory_kind<Memory>) {
    float* const large = m.memory.template allocate<float>(8 * in_block);
    m.fill(large, 8 * in_block, 4.F);
    failure(status::out_of_device_memory,
            [&] { s.launch("large", 1, 1, 0, set, overwrites(large, 8 * in_block), 8 * in_block, 0.F); });
    CHECK(m.first(large) == 4.F);
  }
}

}  // namespace facts_test
