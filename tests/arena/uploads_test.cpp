// Uploads on the simulated GPU, in virtual time, on both kinds of memory: one test for each way in which an upload can
// go wrong (docs/adr/0021).

#include "support/failure.hpp"
#include "support/test_scale.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace uploads_test {

using namespace deepum;
using namespace deepum::literals;
using namespace std::chrono_literals;
using deepum::access;  // not the one of <unistd.h>
using deepum_test::failure;
using deepum_test::mentions;
using word = std::uint32_t;

constexpr std::size_t words_of(bytes size) { return size.count / sizeof(word); }
constexpr std::size_t block_words = words_of(2_MiB);

/// How many elements are not `first`, `first` + 1, ...
inline std::size_t wrong(const word* x, std::size_t n, word first) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < n; ++i) {
    found += x[i] != static_cast<word>(first + i) ? 1 : 0;
  }
  return found;
}
/// Adds the number of wrong elements to `out`. Takes `flops`.
const sim::kernel check{[](word* out, const word* x, std::size_t n, word first, double /*flops*/) {
                          *out += static_cast<word>(wrong(x, n, first));
                        },
                        [](sim::work& w, word* out, const word* x, std::size_t n, word, double flops) {
                          w.reads(x, n * sizeof(word)).updates(out, sizeof(word)).flops(flops);
                        }};
const sim::kernel fill{
    [](word* x, std::size_t n, word first) { std::iota(x, x + n, first); },
    [](sim::work& w, word* x, std::size_t n, word) { w.overwrites(x, n * sizeof(word)).flops(1e6); }};
const sim::kernel busy{[](word* x, double) { ++*x; },
                       [](sim::work& w, word* x, double flops) { w.updates(x, sizeof(word)).flops(flops); }};
/// Reads what it finds through a pointer in memory.
const sim::kernel check_found{
    [](word* out, word* const* at, std::size_t n, word first) { *out += static_cast<word>(wrong(*at, n, first)); },
    [](sim::work& w, word* out, word* const* at, std::size_t n, word) {
      w.reads(at, sizeof(word*)).reads(*at, n * sizeof(word)).updates(out, sizeof(word));
    }};
constexpr double short_kernel = 1e6;
constexpr double ten_milliseconds = 4e11;  // about

template <class Memory>
struct program {
  explicit program(bytes budget = 192_MiB, std::string policy = "auto", std::uint64_t seed = 0,
                   upload_options uploads = {}, bytes host_limit = {})
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 512_MiB, .delay_seed = seed, .host_limit = host_limit}),
        memory(gpu, {.capacity = 512_MiB,
                     .device_budget = budget,
                     .headroom = 4_MiB,
                     .policy = std::move(policy),
                     .uploads = uploads,
                     .log = [this](std::string_view line) { log += line; }}),
        s(memory),
        errors(memory.template allocate<word>(1)) {
    memory.host_overwrite(errors, 1)[0] = 0;
  }
  /// Elements that launches found wrong so far.
  [[nodiscard]] word wrong_elements() { return memory.host_read(errors, 1)[0]; }
  void expect(const word* x, std::size_t n, word first, double flops = short_kernel) {
    s.launch("check", 1, 1, 0, check, updates(errors, 1), reads(x, n), n, first, flops);
  }

  std::string log;
  sim::device gpu;
  arena<Memory> memory;
  stream<Memory> s;
  word* errors;
};

std::vector<word> numbers(std::size_t n, word first) {
  std::vector<word> made(n);
  std::iota(made.begin(), made.end(), first);
  return made;
}

/// A file that ends with the test.
struct temporary_file {
  explicit temporary_file(const std::vector<word>& contents) : stream(std::tmpfile()) {
    REQUIRE(stream != nullptr);
    REQUIRE(std::fwrite(contents.data(), sizeof(word), contents.size(), stream) == contents.size());
    std::fflush(stream);
  }
  ~temporary_file() { std::fclose(stream); }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  [[nodiscard]] file at(std::uint64_t offset) const { return {fileno(stream), offset}; }
  std::FILE* stream;
};

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

TEST_CASE_TEMPLATE("nothing stale is seen after a hold of more than a second", Memory, sim::paged_memory,
                   sim::managed_memory) {
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

TEST_CASE_TEMPLATE("bytes beside an upload keep what they hold", Memory, sim::paged_memory, sim::managed_memory) {
  program<Memory> p;
  word* const before = p.memory.template allocate<word>(1000);
  auto* const small = p.memory.template allocate<std::uint8_t>(3);
  word* const after = p.memory.template allocate<word>(1000);
  word* const large = p.memory.template allocate<word>(5 * block_words);
  p.s.launch("fill", 1, 1, 0, fill, overwrites(before, 1000), std::size_t{1000}, word{10});
  p.s.launch("fill", 1, 1, 0, fill, overwrites(after, 1000), std::size_t{1000}, word{20});
  p.s.launch("fill", 1, 1, 0, fill, overwrites(large, 5 * block_words), 5 * block_words, word{30});
  const std::uint8_t three[] = {1, 2, 3};
  p.s.upload(small, three, 3);
  const std::vector<word> source = numbers(3 * block_words, 500);
  const std::size_t skip = block_words / 2 + 3;  // neither its beginning nor its end lies between blocks
  p.s.upload(large + skip, source.data(), source.size());
  p.expect(before, 1000, 10);
  p.expect(after, 1000, 20);
  p.expect(large, skip, 30);
  p.expect(large + skip, source.size(), 500);
  const std::size_t end = skip + source.size();
  p.expect(large + end, 5 * block_words - end, static_cast<word>(30 + end));
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  const auto found = p.memory.host_read(small, 3);
  CHECK(std::equal(found.begin(), found.end(), three));
  CHECK(p.memory.statistics().uploaded == 2);
}

TEST_CASE_TEMPLATE("the last block of an allocation that has it alone is written as a whole", Memory, sim::paged_memory,
                   sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = block_words + block_words / 2 + 7;
  word* const x = p.memory.template allocate<word>(n);
  const std::vector<word> source = numbers(n, 3);
  p.s.upload(x, source.data(), n);
  p.expect(x, n, 3);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  CHECK(p.memory.statistics().uploaded == 2);
}

TEST_CASE_TEMPLATE("an upload from a file reads it where the bytes are to be", Memory, sim::paged_memory,
                   sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 6 * block_words;
  const temporary_file source(numbers(n + 100, 0));
  word* const x = p.memory.template allocate<word>(n);
  (void)p.s.upload(x, source.at(100 * sizeof(word)), n);
  p.expect(x, n, 100);
  (void)p.s.upload(x + 5, source.at(0), n - 9);  // ends within blocks
  p.expect(x + 5, n - 9, 0);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

TEST_CASE_TEMPLATE("what a file does not hold fails the launches that need it, and nothing else", Memory,
                   sim::paged_memory, sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 6 * block_words;
  const temporary_file source(numbers(4 * block_words + 1, 0));
  word* const x = p.memory.template allocate<word>(n);
  const upload coming = p.s.upload(x, source.at(0), n);
  p.expect(x, 4 * block_words, 0);
  const std::string said = failure(status::io_failure, [&] { p.expect(x, n, 0); });
  CHECK(mentions(said, "launch 'check' needs what an upload could not bring"));
  CHECK(mentions(said, "ends at byte"));
  CHECK(coming.failed());
  CHECK(coming.written().reached());
  CHECK(mentions(failure(status::io_failure, [&] { (void)p.memory.host_read(x, n); }), "the host needs"));
  p.expect(x, 4 * block_words, 0);
  p.s.launch("fill", 1, 1, 0, fill, overwrites(x, n), n, word{9});
  p.expect(x, n, 9);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  // Another upload brings it as well, and so does new memory in its place.
  (void)p.s.upload(x, source.at(0), n);
  const std::vector<word> whole = numbers(n, 4);
  p.s.upload(x, whole.data(), n);
  p.expect(x, n, 4);
  p.s.synchronize();
  (void)p.s.upload(x, source.at(0), n);
  p.s.synchronize();
  p.memory.deallocate(x);
  word* const y = p.memory.template allocate<word>(n);
  p.s.launch("fill", 1, 1, 0, fill, y, n, word{9});  // an update
  p.expect(y, n, 9);
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

TEST_CASE_TEMPLATE("the host sees what was uploaded, and does not upload where it is writing", Memory,
                   sim::paged_memory, sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = 8 * block_words;
  word* const x = p.memory.template allocate<word>(n);
  const std::vector<word> source = numbers(n, 1);
  (void)p.s.upload(x, borrowed(source.data()), n);
  CHECK(wrong(p.memory.host_read(x, n).data(), n, 1) == 0);
  (void)p.s.upload(x, borrowed(source.data()), n);
  p.memory.host_write(x, n)[3] = 77;
  CHECK(p.memory.host_read(x, n)[3] == 77);
  CHECK(p.memory.host_read(x, n)[4] == 5);
  if constexpr (arena<Memory>::host_uses_other_addresses) {
    const auto view = p.memory.host_write(x, 1);
    CHECK(mentions(failure(status::invalid_argument, [&] { p.s.upload(x, source.data(), n); }), "end the view first"));
  }
  p.s.upload(x, source.data(), n);
  p.expect(x, n, 1);
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

TEST_CASE("nothing of what an upload overwrites is copied out first, nor of what the host overwrites") {
  program<sim::paged_memory> p;
  constexpr std::size_t n = 16 * block_words;
  word* const x = p.memory.allocate<word>(n);
  p.s.launch("fill", 1, 1, 0, fill, overwrites(x, n), n, word{1});
  p.s.synchronize();
  const std::uint64_t before = p.memory.statistics().out().all_bytes();
  p.s.upload(x, numbers(n, 5).data(), n);
  p.expect(x, n, 5);
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  CHECK(p.memory.statistics().out().all_bytes() <= before + (2_MiB).count);  // that of the number of wrong elements
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

TEST_CASE_TEMPLATE("a copy from pageable memory goes the same way, and keeps its meaning", Memory, sim::paged_memory,
                   sim::managed_memory) {
  program<Memory> p;
  constexpr std::size_t n = words_of(8_MiB);
  word* const x = p.memory.template allocate<word>(n);
  for (word round = 0; round < 3; ++round) {
    std::vector<word> source = numbers(n, round);
    p.s.memcpy(x, source.data(), bytes{n * sizeof(word)});
    std::fill(source.begin(), source.end(), word{0});
    p.expect(x, n, round);
  }
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
  CHECK(p.memory.statistics().uploads == 3);
  const std::vector<word> source = numbers(n, 9);
  (void)p.s.memcpy_and_wait(x, source.data(), bytes{n * sizeof(word)});
  CHECK(wrong(p.memory.host_read(x, n).data(), n, 9) == 0);
}

TEST_CASE("where the host has little memory, uploads get it when others give theirs up") {
  program<sim::paged_memory> p(24_MiB, "auto", 0, {}, 10_MiB);
  constexpr std::size_t n = words_of(4_MiB);
  std::vector<word*> all;
  for (word i = 0; i < 6; ++i) {
    all.push_back(p.memory.allocate<word>(n));
    p.s.upload(all.back(), numbers(n, i).data(), n);
  }
  for (word i = 0; i < 5; ++i) {
    p.expect(all[i], n, i);
  }
  p.s.synchronize();
  CHECK(p.wrong_elements() == 0);
}

}  // namespace uploads_test
