// Uploads on the simulated GPU, in virtual time, on both kinds of memory: one test for each way in which the order of
// uploads and launches can go wrong (docs/adr/0021).

#include "arena/upload_program.hpp"

#include <doctest/doctest.h>

namespace uploads_test {

using namespace upload_program_of_tests;

TEST_CASE_TEMPLATE("an upload returns when its source has been read, and launches on other memory run meanwhile",
                   Memory, sim::paged_memory, sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = words_of(64_MiB);
  word* const x = p.memory.template allocate<word>(n);
  word* const y = p.memory.template allocate<word>(1);
  p.s.launch("busy", 1, 1, 0, busy, y, short_kernel);
  p.s.synchronize();
  {
    std::vector<word> source = numbers(n, 7);
    const nanoseconds before = p.gpu.now();
    p.s.upload(x, source.data(), n);
    const nanoseconds blocked = p.gpu.now() - before;
    CHECK(blocked <= nanoseconds{(64_MiB).count / 45});  // 45 GB/s
    std::fill(source.begin(), source.end(), word{0});    // and it is freed, too
  }
  p.expect(x, n, 7);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  const std::vector<word> next = numbers(n, 8);
  const nanoseconds before = p.gpu.now();
  const upload coming = p.s.upload(x, borrowed(next.data()), n);
  CHECK(p.gpu.now() - before <= 20us);
  CHECK_FALSE(coming.source_read().reached());
  p.s.launch("busy", 1, 1, 0, busy, y, short_kernel);
  CHECK_FALSE(coming.written().reached());
  CHECK(p.gpu.now() - before <= 300us);  // all of it takes more than a millisecond
  coming.source_read().wait();
  CHECK(coming.source_read().reached());
  p.expect(x, n, 8);
  p.s.synchronize();
  CHECK(coming.written().reached());
  CHECK_FALSE(coming.failed());
  CHECK(p.wrong_elements() == 0);
  CHECK(p.memory.statistics().uploads == 2);
  CHECK(p.memory.statistics().uploaded == 64);
}

TEST_CASE_TEMPLATE("a launch that reads the first block of an upload begins after that block", Memory,
                   sim::paged_memory, sim::managed_memory) {
  program<Memory> p(192_MiB, "auto", 0, {.threads = 1});
  constexpr std::size_t n = words_of(48_MiB);
  word* const x = p.memory.template allocate<word>(n);
  const std::vector<word> source = numbers(n, 1);
  const upload coming = p.s.upload(x, borrowed(source.data()), n);
  p.expect(x, block_words, 1);
  CHECK(p.memory.statistics().uploaded <= 2);
  p.expect(x + 23 * block_words, block_words, 1 + 23 * block_words);  // what a launch waits for goes first
  CHECK(p.memory.statistics().uploaded <= 8);
  p.s.synchronize();
  CHECK(p.memory.statistics().uploaded == 24);
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("two uploads take turns: a launch on the first block of each begins after four blocks at most",
                   Memory, sim::paged_memory, sim::managed_memory) {
  program<Memory> p(192_MiB, "auto", 0, {.threads = 1});
  constexpr std::size_t n = words_of(16_MiB);
  word* const x = p.memory.template allocate<word>(n);
  word* const y = p.memory.template allocate<word>(n);
  const std::vector<word> source = numbers(n, 1);
  (void)p.s.upload(x, borrowed(source.data()), n);
  (void)p.s.upload(y, borrowed(source.data()), n);
  // Without a launch that waits: so that nothing but the turns decides.
  p.gpu.host_work(1ms);
  const std::uint64_t after = p.memory.statistics().uploaded;
  CHECK(after >= 3);
  CHECK(after <= 5);
  const nanoseconds before = p.gpu.now();
  p.expect(x, block_words, 1);
  p.expect(y, block_words, 1);
  CHECK(p.gpu.now() - before < 300us);  // both were there, and are fetched
  CHECK(p.memory.statistics().uploaded <= after + 2);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("nothing stale is seen: under every policy, resident or not, whatever the delays", Memory,
                   sim::paged_memory, sim::managed_memory) {
  constexpr std::size_t n = 2 * block_words;
  for (const char* policy : {"auto", "um", "lru", "deepum", "ideal", "off"}) {
    for (const bytes budget : {6_MiB, 64_MiB}) {
      for (std::uint64_t seed = 1; seed <= deepum_test::scaled(1); ++seed) {
        CAPTURE(policy);
        CAPTURE(budget.count);
        CAPTURE(seed);
        program<Memory> p(budget, policy, seed);
        word* const x = p.memory.template allocate<word>(n);
        word* const y = p.memory.template allocate<word>(n);
        std::vector<word> source(n);
        for (word round = 0; round < 6; ++round) {
          std::iota(source.begin(), source.end(), round);
          p.s.upload(x, source.data(), n);
          if (round % 3 == 0) {  // elsewhere in between
            p.s.launch("fill", 1, 1, 0, fill, overwrites(y, n), n, round);
          }
          p.expect(x, n, round);
        }
        p.s.synchronize();
        CHECK(p.wrong_elements() == 0);
      }
    }
  }
}

TEST_CASE_TEMPLATE("nothing stale is seen after a hold of more than a second", Memory, sim::managed_memory) {
  // Where memory faults, launches wait a second for their policy and no longer.
  for (const char* policy : {"um"}) {
    program<Memory> p(64_MiB, policy);
    constexpr std::size_t n = 2 * block_words;
    word* const x = p.memory.template allocate<word>(n);
    stream<Memory> other(p.memory);
    p.s.launch("fill", 1, 1, 0, fill, overwrites(x, n), n, word{1});
    p.s.synchronize();
    // More than a second, for which the upload has to wait.
    p.s.launch("check", 1, 1, 0, check, updates(p.errors, 1), reads(x, n), n, word{1}, 130 * ten_milliseconds);
    const std::vector<word> source = numbers(n, 100);
    const nanoseconds before = p.gpu.now();
    other.upload(x, source.data(), n);
    CHECK(p.gpu.now() - before < 10ms);  // it has been read
    word* const found = p.memory.template allocate<word>(1);
    other.launch("check", 1, 1, 0, check, overwrites(found, 1), reads(x, n), n, word{100}, short_kernel);
    CHECK(p.gpu.now() - before > 1020ms);
    other.synchronize();
    p.s.synchronize();
    CHECK(p.wrong_elements() == 0);
  }
}

TEST_CASE_TEMPLATE("what launches still read stays as it is until they have finished", Memory, sim::paged_memory,
                   sim::managed_memory) {
  for (const bytes staged : {256_MiB, 4_MiB}) {  // more than all, and a part of it
    for (const bytes budget : {64_MiB, 12_MiB}) {
      CAPTURE(staged.count);
      CAPTURE(budget.count);
      program<Memory> p(budget, "auto", 0, {.staged = staged});
      constexpr std::size_t n = 4 * block_words;
      word* const x = p.memory.template allocate<word>(n);
      p.s.launch("fill", 1, 1, 0, fill, overwrites(x, n), n, word{1});
      for (word round = 0; round < 2; ++round) {
        p.expect(x, n, 1 + round, ten_milliseconds);
        std::vector<word> source = numbers(n, 2 + round);
        const nanoseconds before = p.gpu.now();
        p.s.upload(x, source.data(), n);
        if (staged > bytes{n * sizeof(word)}) {
          CHECK(p.gpu.now() - before < 2ms);  // the launch takes longer
        }
        std::fill(source.begin(), source.end(), word{0});
      }
      p.expect(x, n, 3);
      p.s.synchronize();
      CHECK(p.wrong_elements() == 0);
    }
  }
}

TEST_CASE_TEMPLATE("uploads to the same memory come in the order of issue", Memory, sim::paged_memory,
                   sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 8 * block_words;
  word* const x = p.memory.template allocate<word>(n);
  std::vector<std::vector<word>> sources;
  for (word i = 0; i < 5; ++i) {
    sources.push_back(numbers(n, i));
  }
  for (const std::vector<word>& source : sources) {
    (void)p.s.upload(x, borrowed(source.data()), n);
  }
  p.expect(x, n, 4);
  (void)p.s.upload(x, borrowed(sources[1].data()), n / 2);
  p.expect(x, n / 2, 1);
  p.expect(x + n / 2, n / 2, static_cast<word>(4 + n / 2));
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("a budget of two blocks is enough for an upload of many and launches on each in reverse order",
                   Memory, sim::paged_memory, sim::managed_memory) {
  for (const char* policy : {"auto", "um"}) {
    program<Memory> p(4_MiB, policy);
    constexpr std::size_t blocks = 30;
    word* const x = p.memory.template allocate<word>(blocks * block_words);
    const std::vector<word> source = numbers(blocks * block_words, 0);
    (void)p.s.upload(x, borrowed(source.data()), source.size());
    for (std::size_t b = blocks; b-- != 0;) {
      p.expect(x + b * block_words, block_words, static_cast<word>(b * block_words));
    }
    p.s.synchronize();
    CHECK(p.wrong_elements() == 0);
  }
}

TEST_CASE_TEMPLATE("memory that is given back while it is uploaded is reused when the upload is over", Memory,
                   sim::paged_memory, sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 6 * block_words;
  const std::vector<word> source = numbers(n, 1);
  for (word round = 0; round < 2; ++round) {
    word* const x = p.memory.template allocate<word>(n);
    const upload coming = p.s.upload(x, borrowed(source.data()), n);
    p.memory.deallocate(x);
    word* const y = p.memory.template allocate<word>(n);
    p.s.launch("fill", 1, 1, 0, fill, overwrites(y, n), n, 50 + round);
    p.expect(y, n, 50 + round);
    coming.written().wait();
    p.expect(y, n, 50 + round);
    p.memory.deallocate(y);
  }
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("a launch that may touch anything waits for all uploads before it", Memory, sim::paged_memory,
                   sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 6 * block_words;
  word* const x = p.memory.template allocate<word>(n);
  word** const at = p.memory.template allocate<word*>(1);
  p.memory.host_overwrite(at, 1)[0] = x;
  for (word round = 0; round < 2; ++round) {
    const std::vector<word> source = numbers(n, round);
    (void)p.s.upload(x, borrowed(source.data()), n);
    p.s.launch("found", 1, 1, 0, check_found, updates(p.errors, 1), static_cast<word* const*>(at), n, round);
    p.s.upload(x, numbers(n, 1000).data(), n);  // waits for the launch
    p.expect(x, n, 1000);
    p.s.synchronize();
  }
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE("an upload while an arena::hold keeps its memory does not wait for the end of the hold") {
  program<sim::paged_memory> p;
  constexpr std::size_t n = 4 * block_words;
  word* const x = p.memory.allocate<word>(n);
  p.s.launch("fill", 1, 1, 0, fill, overwrites(x, n), n, word{1});
  {
    const auto held = p.memory.hold({reads(x, n)});
    p.s.upload(x, numbers(n, 5).data(), n);
    p.expect(x, n, 5);
    p.s.synchronize();
  }
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("a step that recurs is still planned where each begins with an upload", Memory, sim::paged_memory) {
  program<Memory> p(12_MiB);
  constexpr std::size_t n = block_words;
  std::vector<word*> layers;
  for (int i = 0; i < 10; ++i) {
    layers.push_back(p.memory.template allocate<word>(n));
    p.s.launch("fill", 1, 1, 0, fill, overwrites(layers.back(), n), n, word{0});
  }
  word* const x = p.memory.template allocate<word>(n);
  const std::vector<word> batch = numbers(n, 1);
  statistics before;
  for (int step = 0; step < 12; ++step) {
    p.s.upload(x, batch.data(), n);
    p.expect(x, n, 1);
    for (const word* layer : layers) {
      p.expect(layer, n, 0, ten_milliseconds / 100);
    }
    if (step == 7) {
      before = p.memory.statistics();
    }
  }
  p.s.synchronize();
  const statistics late = p.memory.statistics() - before;
  CHECK(late.policy.mispredicted == 0);
  CHECK(late.policy.predicted >= 40);
  CHECK(p.wrong_elements() == 0);
}

}  // namespace uploads_test
