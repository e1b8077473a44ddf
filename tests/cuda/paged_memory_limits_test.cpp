// Paged memory where something ends: host memory, device memory, what a driver call or a graph allows.

#include "cuda/paged_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace paged_memory_limits_test {

using namespace paged_program_of_tests;
TEST_CASE("the host finds nothing at the device's addresses, and contents in a view") {
  machine m(16_MiB);
  stream_type s(*m.arena);
  word* const a = m.arena->allocate<word>(words_of(4_MiB));
  s.launch("set", 1, 1, 0, set, deepum::overwrites(a, words_of(4_MiB)), words_of(4_MiB), word{9});
  s.synchronize();
  CHECK_FALSE(fake_cuda::host_may_access(a, 4, access::read));
  {
    const auto view = m.arena->host_write(a, words_of(4_MiB));
    CHECK(view.data() != a);
    CHECK(fake_cuda::host_may_access(view.data(), (4_MiB).count, access::update));
    CHECK(std::count(view.begin(), view.end(), word{9}) == static_cast<std::ptrdiff_t>(view.size()));
    view[7] = 1;
    CHECK(mentions(failure(status::invalid_argument,
                           [&] {
                             s.launch("set", 1, 1, 0, set, deepum::overwrites(a, words_of(4_MiB)), words_of(4_MiB),
                                      word{2});
                           }),
                   "'set'"));
  }
  s.launch("add", 1, 1, 0, add, a, static_cast<const word*>(a), std::uint64_t{1});
  s.synchronize();
  CHECK(m.arena->host_read(a, 8)[0] == 18);
  CHECK(m.arena->host_read(a, 8)[7] == 1);
}

TEST_CASE("device memory that others take makes the budget smaller; what needs more is refused and the arena goes on") {
  machine m(64_MiB, "auto", machine::small_chunks(), 96_MiB);
  stream_type s(*m.arena);
  word* const a = m.arena->allocate<word>(words_of(40_MiB));
  word* const small = m.arena->allocate<word>(words_of(4_MiB));
  fake_cuda::set_foreign_memory(90_MiB);
  const std::string said = failure(status::out_of_device_memory, [&] {
    s.launch("large", 1, 1, 0, set, deepum::overwrites(a, words_of(40_MiB)), words_of(40_MiB), word{1});
  });
  CHECK(mentions(said, "'large'"));
  s.launch("small", 1, 1, 0, set, deepum::overwrites(small, words_of(4_MiB)), words_of(4_MiB), word{3});
  s.synchronize();
  CHECK(m.arena->host_read(small, 1)[0] == 3);
  fake_cuda::set_foreign_memory(0_MiB);
  m.arena->set_budget(64_MiB);
  s.launch("large", 1, 1, 0, set, deepum::overwrites(a, words_of(40_MiB)), words_of(40_MiB), word{2});
  s.synchronize();
  CHECK(m.arena->host_read(a + words_of(40_MiB) - 1, 1)[0] == 2);
}

TEST_CASE("where the host has no memory for what has to leave, the launch is refused and says so") {
  machine m(16_MiB);
  stream_type s(*m.arena);
  word* const a = m.arena->allocate<word>(words_of(12_MiB));
  word* const b = m.arena->allocate<word>(words_of(12_MiB));
  s.launch("first", 1, 1, 0, set, deepum::overwrites(a, words_of(12_MiB)), words_of(12_MiB), word{1});
  s.synchronize();
  fake_cuda::set_host_memory(4_MiB);
  const std::string said = failure(status::out_of_host_memory, [&] {
    s.launch("second", 1, 1, 0, set, deepum::overwrites(b, words_of(12_MiB)), words_of(12_MiB), word{2});
  });
  CHECK(mentions(said, "'second'"));
  CHECK(mentions(said, "host"));
  fake_cuda::set_host_memory(1024_MiB);
  s.launch("second", 1, 1, 0, set, deepum::overwrites(b, words_of(12_MiB)), words_of(12_MiB), word{2});
  s.synchronize();
  CHECK(m.arena->host_read(a, 1)[0] == 1);
  CHECK(m.arena->host_read(b, 1)[0] == 2);
}

TEST_CASE("chunks of the host whose contents the device has newer serve other blocks") {
  device_options o = machine::small_chunks();
  o.host_limit = 34_MiB;
  machine m(24_MiB, "auto", o);
  sweep program(*m.arena);  // 48 MiB: 24 at least are on the host at any time
  for (int i = 0; i < 3; ++i) {
    program.pass();
  }
  program.s.synchronize();
  CHECK(m.arena->memory().host_memory() <= 34_MiB);
  CHECK(program.result() == sweep::expected(3));
  CHECK(fake_cuda::stats().host_handles_peak <= 34_MiB);
}

TEST_CASE("the budget shrinks and grows, and the device's memory with it") {
  machine m(64_MiB);
  sweep program(*m.arena);
  program.pass();
  program.s.synchronize();
  CHECK(m.arena->memory().device_memory() >= 48_MiB);
  m.arena->set_budget(24_MiB);
  program.pass();
  program.s.synchronize();
  CHECK(comes([&] { return m.arena->memory().device_memory() <= 24_MiB; }));
  CHECK(comes([&] { return fake_cuda::stats().device_handles <= 24_MiB; }));
  m.arena->set_budget(64_MiB);
  program.pass();
  CHECK(program.result() == sweep::expected(3));
}

TEST_CASE("what cannot be is refused when the arena is made") {
  const auto made_with = [](const device_options& o, bytes capacity) {
    const deepum::cuda::device device(0, o);
    deepum::cuda::device other(0, o);
    arena_type memory(other, {.capacity = capacity, .device_budget = 64_MiB, .log = {}});
  };
  fake_gpu gpu;
  for (const bytes chunk : {1_MiB, 3_MiB, 64_MiB}) {
    device_options o;
    o.chunk = chunk;
    CHECK(mentions(failure(status::invalid_argument, [&] { made_with(o, 64_MiB); }), "chunk"));
  }
  fake_cuda::set_address_space(32_MiB);
  CHECK(mentions(failure(status::out_of_arena_space, [&] { made_with({}, 64_MiB); }), "capacity"));
  fake_cuda::set_address_space(deepum::bytes{std::uint64_t{1} << 40});
  device_options o;
  o.chunk = 32_MiB;
  const deepum::cuda::device device(0, o);
  deepum::cuda::device other(0, o);
  CHECK(mentions(failure(status::invalid_argument,
                         [&] { arena_type memory(other, {.capacity = 64_MiB, .device_budget = 16_MiB, .log = {}}); }),
                 "block"));
}

TEST_CASE("a graph is one launch with all that its launches touch") {
  machine m(24_MiB);
  stream_type s(*m.arena);
  word* const a = m.arena->allocate<word>(words_of(8_MiB));
  word* const b = m.arena->allocate<word>(words_of(8_MiB));
  word* const c = m.arena->allocate<word>(words_of(8_MiB));
  word* const d = m.arena->allocate<word>(words_of(8_MiB));
  s.memset(c, 0, 8_MiB);
  s.memset(d, 0, 8_MiB);
  s.synchronize();
  const std::uint64_t before = m.arena->statistics().launches;
  auto graph = s.record_graph("step", [&] {
    s.launch("set", 1, 1, 0, set, deepum::overwrites(a, words_of(8_MiB)), words_of(8_MiB), word{1});
    s.launch("set", 1, 1, 0, set, deepum::overwrites(b, words_of(8_MiB)), words_of(8_MiB), word{2});
    s.launch("add", 1, 1, 0, add, b, static_cast<const word*>(a), words_of(8_MiB));
  });
  CHECK(m.arena->statistics().launches == before);
  CHECK(m.arena->memory().device_memory() <= 24_MiB);
  for (int i = 0; i < 3; ++i) {
    s.launch(graph);
    s.launch("add", 1, 1, 0, add, c, static_cast<const word*>(b), words_of(8_MiB));
    s.launch("add", 1, 1, 0, add, d, static_cast<const word*>(c), words_of(8_MiB));
  }
  s.synchronize();
  CHECK(m.arena->statistics().launches == before + 9);
  CHECK(m.arena->host_read(c, 1)[0] == 9);
  CHECK(m.arena->host_read(d, 1)[0] == 18);
  CHECK(m.arena->statistics().fault_feed == "engine");

  // One that does not fit is recorded, and refused when it is launched.
  auto large = s.record_graph("large", [&] {
    for (word* const p : {a, b, c, d}) {
      s.launch("set", 1, 1, 0, set, deepum::overwrites(p, words_of(8_MiB)), words_of(8_MiB), word{1});
    }
  });
  CHECK(mentions(failure(status::out_of_device_memory, [&] { s.launch(large); }), "'large'"));
  // What the program captures by itself would run when nobody knows what it needs.
  fake_cuda::set_capturing(s.native().native(), true);
  CHECK(mentions(
      failure(status::unsupported,
              [&] { s.launch("set", 1, 1, 0, set, deepum::overwrites(a, words_of(8_MiB)), words_of(8_MiB), word{1}); }),
      "record_graph"));
  fake_cuda::set_capturing(s.native().native(), false);
}

TEST_CASE("whichever driver call fails, the program ends with the right result or says why it cannot") {
  const std::uint64_t expected = sweep::expected(2);
  std::uint64_t calls = 0;
  {
    machine m(24_MiB);
    const std::uint64_t before = fake_cuda::stats().calls;
    sweep program(*m.arena);
    program.pass();
    program.pass();
    CHECK(program.result() == expected);
    calls = fake_cuda::stats().calls - before;
  }
  std::uint64_t refused = 0;
  const auto step = static_cast<unsigned>(std::max<std::uint64_t>(1, calls / (sanitized ? 4 : 40)));
  for (unsigned nth = 1; nth < calls; nth += step) {
    CAPTURE(nth);
    machine m(24_MiB);
    sweep program(*m.arena);
    fake_cuda::fail_nth_call_of_any(nth, cudaErrorNotSupported);
    try {
      program.pass();
      program.pass();
      CHECK(program.result() == expected);
    } catch (const deepum::error& e) {
      ++refused;  // a launch, a wait or a record of the program's own
      CHECK(std::string(e.what()) != "");
    }
    CHECK(fake_cuda::stats().taken_in_use == 0);
  }
  CHECK(refused < 20);
}

}  // namespace paged_memory_limits_test
