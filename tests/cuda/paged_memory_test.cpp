// Memory that is paged by mapping, on the fake GPU: contents are wrong there when a chunk is mapped too late, unmapped
// too early, or copied in the wrong order.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include "support/test_scale.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace paged_memory_test {

using namespace deepum_test;
using namespace deepum::literals;
using namespace std::chrono_literals;
using deepum::access;  // not the one of POSIX
using deepum::bytes;
using deepum::status;
using deepum::cuda::device_options;
using arena_type = deepum::arena<deepum::cuda::paged_memory>;
using stream_type = deepum::stream<deepum::cuda::paged_memory>;
using word = std::uint32_t;

void add(word* a, const word* b, std::uint64_t n) {
  device_touch(b, n * sizeof(word), access::read);
  device_touch(a, n * sizeof(word), access::update);
  for (std::uint64_t i = 0; i < n; i += 64) {
    a[i] += b[i];
  }
}
void set(word* a, std::uint64_t n, word value) {
  device_touch(a, n * sizeof(word), access::overwrite);
  std::fill_n(a, n, value);
}
/// Writes where none of its arguments says.
void stray(word* a, std::uint64_t other) {
  device_touch(a, sizeof(word), access::update);
  *a = 1;
  device_touch(reinterpret_cast<word*>(other), sizeof(word), access::update);
  *reinterpret_cast<word*>(other) = 2;
}

struct machine {
  explicit machine(bytes budget, const char* policy = "auto", device_options options = small_chunks(),
                   bytes memory = 256_MiB, bool checked = false)
      : gpu(memory),
        device(std::in_place, 0, std::move(options)) {
    fake_cuda::register_kernel(add);
    fake_cuda::register_kernel(set);
    fake_cuda::register_kernel(stray);
    arena.emplace(*device, deepum::arena_options{.capacity = 128_MiB,
                                                 .device_budget = budget,
                                                 .headroom = 4_MiB,
                                                 .policy = policy,
                                                 .checked = checked,
                                                 .log = {}});
  }
  static device_options small_chunks() {
    device_options o;
    o.chunk = 2_MiB;
    return o;
  }

  fake_gpu gpu;
  std::optional<deepum::cuda::device> device;
  std::optional<arena_type> arena;
};

constexpr std::uint64_t words_of(bytes size) { return size.count / sizeof(word); }

/// Passes over buffers, forward and back.
struct sweep {
  static constexpr std::size_t buffers = 12;
  static constexpr std::uint64_t n = words_of(4_MiB);

  explicit sweep(arena_type& a, std::size_t count = buffers) : memory(a), s(a) {
    for (std::size_t i = 0; i < count; ++i) {
      words.push_back(memory.allocate<word>(n));
      const auto view = memory.host_overwrite(words.back(), n);
      std::iota(view.begin(), view.end(), static_cast<word>(i));
    }
  }
  void pass() {
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      s.launch("add", 1, 1, 0, add, words[i], static_cast<const word*>(words[i + 1]), n);
    }
    for (std::size_t i = words.size() - 1; i > 0; --i) {
      s.launch("add", 1, 1, 0, add, words[i], static_cast<const word*>(words[i - 1]), n);
    }
  }
  /// A sum of all the words.
  [[nodiscard]] std::uint64_t result() {
    s.synchronize();
    std::uint64_t sum = 0;
    for (const word* p : words) {
      for (const word w : memory.host_read(p, n)) {
        sum = sum * 31 + w;
      }
    }
    return sum;
  }
  [[nodiscard]] static std::uint64_t expected(int passes) {
    std::vector<std::vector<word>> b(buffers, std::vector<word>(n));
    for (std::size_t i = 0; i < buffers; ++i) {
      std::iota(b[i].begin(), b[i].end(), static_cast<word>(i));
    }
    const auto step = [&](std::size_t to, std::size_t from) {
      for (std::size_t k = 0; k < n; k += 64) {
        b[to][k] += b[from][k];
      }
    };
    for (int p = 0; p < passes; ++p) {
      for (std::size_t i = 0; i + 1 < buffers; ++i)
        step(i, i + 1);
      for (std::size_t i = buffers - 1; i > 0; --i)
        step(i, i - 1);
    }
    std::uint64_t sum = 0;
    for (const auto& x : b) {
      for (const word w : x)
        sum = sum * 31 + w;
    }
    return sum;
  }

  arena_type& memory;
  stream_type s;
  std::vector<word*> words;
};

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

}  // namespace paged_memory_test
