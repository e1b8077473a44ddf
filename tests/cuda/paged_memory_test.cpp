// Memory that is paged by mapping, on the fake GPU: contents are wrong there when a chunk is mapped too late, unmapped
// too early, or copied in the wrong order.

#include "cuda/paged_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace paged_memory_test {

using namespace paged_program_of_tests;
TEST_CASE("where blocks come and go, little is on its way to the host when one is mapped") {
  // The driver maps no block for a millisecond where copies to the host follow one another without a pause.
  machine m(48_MiB, "auto", machine::small_chunks());
  sweep program(*m.arena, 24);
  fake_cuda::set_delays(7, 500us);
  fake_cuda::set_leaving_time(1ms);
  for (int i = 0; i < (sanitized ? 3 : 6); ++i) {
    program.pass();
  }
  program.s.synchronize();
  const fake_cuda::statistics seen = fake_cuda::stats();
  const std::uint64_t beside = seen.leaving_beside_access / 1_MiB / seen.device_mappings;  // of one mapping, the mean
  CHECK(beside >= 1);
  CHECK(beside <= 5);  // 8 to 11 where all that leaves is given at once
}

TEST_CASE("what leaves pauses now and then, so that the program's own copies to the host get their turn") {
  // A copy of a few bytes waits for as long as copies the same way follow one another without a pause.
  machine m(100_MiB, "um", machine::small_chunks());
  arena_type& memory = *m.arena;
  constexpr bytes size = 96_MiB;
  word* const x = memory.allocate<word>(words_of(size));
  constexpr bytes other = 32_MiB;  // both do not fit, so that what leaves stays away
  word* const y = memory.allocate<word>(words_of(other));
  stream_type s(memory);
  s.launch("set", 1, 1, 0, set, deepum::overwrites(y, words_of(other)), words_of(other), word{3});
  s.launch("set", 1, 1, 0, set, deepum::overwrites(x, words_of(size)), words_of(size), word{3});
  s.synchronize();
  const std::uint64_t before = memory.statistics().out().all_bytes();
  fake_cuda::set_leaving_time(10ms);  // so that the next piece is always there before the last one has ended
  memory.prefetch(x, size, deepum::location::host());
  while (memory.statistics().out().all_bytes() < before + size.count) {
    std::this_thread::sleep_for(1ms);
  }
  const std::uint64_t in_a_row = fake_cuda::stats().leaving_in_a_row / 1_MiB;
  CHECK(in_a_row > 16);
  CHECK(in_a_row <= 64);
}

TEST_CASE("an observer is told of every copy, and when it began") {
  fake_gpu gpu(256_MiB);
  fake_cuda::register_kernel(add);
  deepum::cuda::device device(0, machine::small_chunks());
  std::mutex mutex;
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  bool in_order = true;
  const auto see = [&](const deepum::device_event& e, deepum::launch_id) {
    using kind = deepum::device_event::kind;
    const bool moved = e.what == kind::copied || e.what == kind::departed || e.what == kind::completed;
    if (moved && e.began != deepum::nanoseconds{}) {
      const std::lock_guard lock(mutex);
      (e.what == kind::copied ? in : out) += (2_MiB * e.range.count).count;
      in_order = in_order && e.began <= e.at;
    }
  };
  deepum::statistics s;
  {
    arena_type arena(device,
                     {.capacity = 128_MiB, .device_budget = 32_MiB, .policy = "auto", .log = {}, .observer = see});
    sweep program(arena);
    for (int i = 0; i < 4; ++i) {
      program.pass();
    }
    CHECK(program.result() == sweep::expected(4));
    program.s.synchronize();
    s = arena.statistics();
  }
  CHECK(in == s.in().all_bytes());
  CHECK(out == s.out().all_bytes());
  CHECK(in > 0);
  CHECK(out > 0);
  CHECK(in_order);
}

TEST_CASE("a program that is larger than the budget computes the same under every policy and with every chunk") {
  const std::uint64_t expected = sweep::expected(4);
  for (const bytes chunk : few<bytes>({2_MiB, 4_MiB, 8_MiB}, 1)) {
    for (const char* policy : few<const char*>({"auto", "um", "lru", "deepum"}, 2)) {
      for (const bytes budget : few<bytes>({24_MiB, 32_MiB, 100_MiB}, 1)) {
        CAPTURE(chunk.count);
        CAPTURE(policy);
        CAPTURE(budget.count);
        device_options o;
        o.chunk = chunk;
        machine m(budget, policy, o);
        fake_cuda::set_delays(chunk.count + budget.count, 200us);
        sweep program(*m.arena);
        for (int i = 0; i < 4; ++i) {
          program.pass();
        }
        CHECK(program.result() == expected);
        CHECK(m.arena->statistics().failed_calls == 0);
        CHECK(m.arena->block() == chunk);
        CHECK(m.arena->memory().device_memory() <= budget);
        CHECK(fake_cuda::stats().device_handles_peak <= budget);
        CHECK(fake_cuda::stats().managed_peak.count == 0);
      }
    }
  }
}

TEST_CASE("evicted chunks may stay reachable through the link; then nothing that is touched breaks the device") {
  device_options o = machine::small_chunks();
  o.evicted = deepum::cuda::evicted_chunks::host_mapped;
  machine m(24_MiB, "um", o);  // which moves nothing by itself while the stray launches run
  {
    sweep program(*m.arena);
    program.pass();
    program.pass();
    CHECK(program.result() == sweep::expected(2));
    // What a launch does not declare is slow: here words that have never been on the device, and some that have left.
    word* const fresh = m.arena->allocate<word>(words_of(2_MiB));
    m.arena->host_overwrite(fresh, 1)[0] = 7;
    for (word* const p : {fresh, program.words[0], program.words[5], program.words[11]}) {
      program.s.launch("stray", 1, 1, 0, stray, program.words[3], reinterpret_cast<std::uint64_t>(p));
    }
    program.s.synchronize();
    CHECK(m.arena->host_read(program.words[3], 1)[0] == 1);
  }
  CHECK(m.arena->statistics().failed_calls == 0);
}

TEST_CASE("a launch waits on the device for copies that are on their way, and not for later ones") {
  machine m(16_MiB, "um");
  stream_type s(*m.arena);
  word* const a = m.arena->allocate<word>(words_of(4_MiB));
  word* const b = m.arena->allocate<word>(words_of(4_MiB));
  word* const c = m.arena->allocate<word>(words_of(8_MiB));
  for (word* const p : {a, b}) {
    const auto view = m.arena->host_overwrite(p, words_of(4_MiB));
    std::fill(view.begin(), view.end(), word{5});
  }
  fake_cuda::set_delays(3, 30ms);  // copies are slow: launches are issued long before they end
  for (int i = 0; i < 4; ++i) {
    s.launch("add", 1, 1, 0, add, a, static_cast<const word*>(b), words_of(4_MiB));
    s.launch("set", 1, 1, 0, set, deepum::overwrites(c, words_of(8_MiB)), words_of(8_MiB),
             word{1});  // a and b have to leave
  }
  s.synchronize();
  CHECK(m.arena->host_read(a, 1)[0] == 25);
  CHECK(m.arena->host_read(b, 1)[0] == 5);
}

TEST_CASE("in checked mode what a launch touches and does not declare is found, with the launch's name") {
  machine m(64_MiB, "auto", machine::small_chunks(), 256_MiB, true);
  stream_type s(*m.arena);
  word* const a = m.arena->allocate<word>(words_of(2_MiB));
  word* const b = m.arena->allocate<word>(words_of(2_MiB));
  s.memset(a, 0, 2_MiB);
  s.memset(b, 0, 2_MiB);
  s.launch("declares", 1, 1, 0, add, a, static_cast<const word*>(b), words_of(2_MiB));
  s.synchronize();
  const std::string said = failure(status::device_failure,
                                   [&] { s.launch("hides", 1, 1, 0, stray, a, reinterpret_cast<std::uint64_t>(b)); });
  CHECK(mentions(said, "'hides'"));
  CHECK(mentions(said, "declares"));
}

TEST_CASE("in checked mode what ends meanwhile takes nothing away from the launch that runs alone") {
  machine m(64_MiB, "auto", machine::small_chunks(), 256_MiB, true);
  stream_type s(*m.arena);
  word* const a = m.arena->allocate<word>(words_of(2_MiB));
  word* const b = m.arena->allocate<word>(words_of(2_MiB));
  s.memset(a, 0, 2_MiB);
  s.memset(b, 0, 2_MiB);
  s.call("alone", {deepum::updates(a)}, [&](cudaStream_t) {
    (void)m.arena->hold({deepum::reads(b)});  // begins and ends as a launch does, and runs nothing
    s.native().launch(1, 1, 0, set, a, words_of(2_MiB), word{3});
  });
  s.synchronize();
  CHECK(m.arena->host_read(a, 1)[0] == 3);
}

TEST_CASE("a launch that could not be given to the device has finished, so that nobody waits for it") {
  machine m(8_MiB, "um");
  fake_cuda::set_delays(1, std::chrono::milliseconds(5));
  stream_type s(*m.arena);
  word* const a = m.arena->allocate<word>(words_of(4_MiB));
  word* const b = m.arena->allocate<word>(words_of(6_MiB));
  // It has to wait for the copies of its blocks, as a rule.
  bool failed = false;
  for (int i = 0; i < 50 && !failed; ++i) {
    m.arena->host_write(a, 1)[0] = 1;
    s.launch("set", 1, 1, 0, set, deepum::overwrites(b, words_of(6_MiB)), words_of(6_MiB), word{1});
    s.synchronize();
    fake_cuda::fail_call("cudaStreamWaitEvent", 1, cudaErrorUnknown);
    try {
      s.launch("add", 1, 1, 0, add, a, static_cast<const word*>(a), words_of(4_MiB));
    } catch (const deepum::error& e) {
      CHECK(e.code() == status::device_failure);
      failed = true;
    }
  }
  REQUIRE(failed);
  auto& engine = m.arena->engine();
  for (int i = 0; i < 2000 && !engine.finished(engine.last_launch()); ++i) {
    engine.catch_up();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(engine.finished(engine.last_launch()));
}

TEST_CASE("out of checked mode the same launch breaks the device only where the memory happens to be away") {
  machine m(64_MiB);
  stream_type s(*m.arena);
  word* const a = m.arena->allocate<word>(words_of(2_MiB));
  word* const b = m.arena->allocate<word>(words_of(2_MiB));
  s.memset(b, 0, 2_MiB);
  s.launch("stray", 1, 1, 0, stray, a, reinterpret_cast<std::uint64_t>(b));
  s.synchronize();
  CHECK(m.arena->host_read(b, 1)[0] == 2);
}

}  // namespace paged_memory_test
