// Memory that never faults, on a real GPU: chunks that are copied and mapped beside kernels, and what the host finds in
// views. Nothing here takes managed memory. What may end the context, or the process, runs in a process of its own.

#include "alone.hpp"
#include "kernels.hpp"
#include "property/arena_run.hpp"
#include "property/random_program.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/error.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace deepum::literals;
using deepum::bytes;
using deepum::overwrites;
using deepum::reads;
using deepum::updates;
using deepum::cuda::evicted_chunks;
using gpu_alone::child_result;
using gpu_alone::is_child;
using gpu_alone::run_alone;
using gpu_alone::say;
using arena_type = deepum::arena<deepum::cuda::paged_memory>;
using stream_type = deepum::stream<deepum::cuda::paged_memory>;
using word = std::uint32_t;

constexpr std::uint64_t words_of(bytes size) { return size.count / sizeof(word); }

struct machine {
  machine(bytes chunk, bytes budget, const std::string& policy = "auto",
          evicted_chunks evicted = evicted_chunks::unmapped, bool checked = false)
      : gpu(0, {.chunk = chunk, .evicted = evicted}),
        arena(gpu, {.capacity = 1_GiB,
                    .device_budget = budget,
                    .policy = policy,
                    .checked = checked,
                    .log = [](std::string_view) {}}) {}

  deepum::cuda::device gpu;
  arena_type arena;
};

/// Buffers of 12 MiB and a little; each is updated from the one before it, again and again.
class ring {
 public:
  static constexpr std::size_t buffers = 10;
  static constexpr std::uint64_t n = words_of(12_MiB) + 77;

  explicit ring(arena_type& memory) : memory_(memory), stream_(memory) {
    for (word i = 0; i < buffers; ++i) {
      words_.push_back(memory_.allocate<word>(n));
      stream_.launch("fill", 256, 256, 0, gpu_kernels::fill, overwrites(words_.back(), n), i, 7U, n);
    }
  }
  void turn() {
    for (std::size_t i = 0; i < buffers; ++i) {
      stream_.launch("mix", 256, 256, 0, gpu_kernels::mix, words_[i], reads(words_[(i + buffers - 1) % buffers]), n);
    }
  }
  void synchronize() { stream_.synchronize(); }
  /// Waits, and compares all contents, as the host finds them in views, with what the host computes.
  /// @returns  How many words are wrong.
  std::uint64_t wrong(int turns) {
    stream_.synchronize();
    const std::vector<std::vector<word>> expected = computed(turns);
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < buffers; ++i) {
      const auto view = memory_.host_read(words_[i], n);
      for (std::uint64_t k = 0; k < n; ++k) {
        count += view[k] != expected[i][k] ? 1U : 0U;
      }
    }
    return count;
  }

 private:
  static std::vector<std::vector<word>> computed(int turns) {
    std::vector<std::vector<word>> x(buffers, std::vector<word>(n));
    for (word i = 0; i < buffers; ++i) {
      for (std::uint64_t k = 0; k < n; ++k) {
        x[i][k] = i + static_cast<word>(k) * 7U;
      }
    }
    for (int t = 0; t < turns; ++t) {
      for (std::size_t i = 0; i < buffers; ++i) {
        const std::vector<word>& from = x[(i + buffers - 1) % buffers];
        for (std::uint64_t k = 0; k < n; ++k) {
          x[i][k] = x[i][k] * 3 + from[k];
        }
      }
    }
    return x;
  }

  arena_type& memory_;
  stream_type stream_;
  std::vector<word*> words_{};
};

void enqueue_mix(cudaStream_t q, word* to, const word* from, std::uint64_t n) {
  std::array<void*, 3> arguments{&to, &from, &n};
  deepum::cuda::check(
      cudaLaunchKernel(reinterpret_cast<const void*>(&gpu_kernels::mix), dim3{64}, dim3{256}, arguments.data(), 0, q),
      "cudaLaunchKernel");
}

// --- Contents --------------------------------------------------------------------------------------------------------

TEST_CASE("paged memory: contents are right over budget, with every size of chunk") {
  for (const bytes chunk : {2_MiB, 16_MiB, 32_MiB}) {
    for (const std::string policy : {"um", "auto"}) {
      CAPTURE(chunk.count);
      CAPTURE(policy);
      machine m(chunk, 64_MiB, policy);  // of 120 MiB, or more where chunks are larger
      ring program(m.arena);
      for (int i = 0; i < 4; ++i) {
        program.turn();
      }
      CHECK(program.wrong(4) == 0);
      const deepum::statistics s = m.arena.statistics();
      CHECK(s.failed_calls == 0);
      CHECK(s.out().all_bytes() > 0);
      CHECK(m.arena.block() == chunk);
      CHECK(m.arena.memory().device_memory() <= 64_MiB);
      MESSAGE(policy, ", chunks of ", chunk.count >> 20U, " MiB: MiB in ", s.in().all_bytes() >> 20U, ", out ",
              s.out().all_bytes() >> 20U, ", on the host ", m.arena.memory().host_memory().count >> 20U);
    }
  }
}

TEST_CASE("paged memory: contents are right under the other policies, and where all of it fits") {
  using setting = std::pair<std::string, bytes>;
  for (const auto& [policy, budget] :
       {setting{"lru", 64_MiB}, setting{"deepum", 64_MiB}, setting{"auto", 1_GiB}, setting{"ideal", 1_GiB}}) {
    CAPTURE(policy);
    CAPTURE(budget.count);
    machine m(16_MiB, budget, policy);
    ring program(m.arena);
    for (int i = 0; i < 3; ++i) {
      program.turn();
    }
    CHECK(program.wrong(3) == 0);
    CHECK(m.arena.statistics().failed_calls == 0);
  }
}

// --- The host --------------------------------------------------------------------------------------------------------

TEST_CASE("alone: the host uses chunks beside the device through views" * doctest::skip()) {
  if (!is_child()) {
    return;
  }
  for (const bytes chunk : {2_MiB, 16_MiB, 32_MiB}) {
    const std::string with = " with chunks of " + std::to_string(chunk.count >> 20U) + " MiB";
    machine m(chunk, 64_MiB);
    stream_type s(m.arena);
    const std::uint64_t n = words_of(40_MiB);  // several chunks, one of them in part
    word* const x = m.arena.allocate<word>(n);
    word* const y = m.arena.allocate<word>(words_of(48_MiB));
    {
      const auto view = m.arena.host_overwrite(x, n);
      CHECK(view.data() != x);
      say("the host writes to " + std::to_string(n) + " words of a view" + with);
      for (std::uint64_t i = 0; i < n; ++i) {
        view[i] = static_cast<word>(i) * 5U;
      }
    }
    say("a kernel reads and writes what the host wrote" + with);
    s.launch("mix", 256, 256, 0, gpu_kernels::mix, x, static_cast<const word*>(x), n);  // four times as much
    s.synchronize();
    std::uint64_t wrong = 0;
    {
      const auto view = m.arena.host_read(x, n);
      say("the host reads what a kernel wrote" + with);
      for (std::uint64_t i = 0; i < n; ++i) {
        wrong += view[i] != static_cast<word>(i) * 20U ? 1U : 0U;
      }
    }
    CHECK(wrong == 0);
    s.launch("fill", 256, 256, 0, gpu_kernels::fill, overwrites(y, words_of(48_MiB)), 1U, 1U, words_of(48_MiB));
    s.synchronize();  // x has left for it, or most of it
    {
      const auto view = m.arena.host_write(x + 1000, 100);
      say("the host changes words of what has left" + with);
      for (word& w : view) {
        w += 1;
      }
    }
    s.launch("mix", 256, 256, 0, gpu_kernels::mix, x, static_cast<const word*>(x), n);
    s.synchronize();
    wrong = 0;
    const auto view = m.arena.host_read(x, n);
    for (std::uint64_t i = 0; i < n; ++i) {
      wrong += view[i] != 4U * (static_cast<word>(i) * 20U + (i >= 1000 && i < 1100 ? 1U : 0U)) ? 1U : 0U;
    }
    CHECK(wrong == 0);
    CHECK(m.arena.statistics().failed_calls == 0);
  }
  say("the host can use views");
}

TEST_CASE("paged memory: the host reads and writes the chunks beside the device through views") {
  const child_result r = run_alone("alone: the host uses chunks beside the device through views");
  INFO(r.output);
  if (r.status == 128 + SIGSEGV || r.status == 128 + SIGBUS) {
    FAIL_CHECK(
        "the host may not touch memory that cuMemCreate made on the host's NUMA node, although cuMemSetAccess "
        "said that it may: the process was ended by signal ",
        r.status - 128);
  }
  CHECK(r.said("the host can use views"));
  CHECK(r.status == 0);
}

// --- Declarations ----------------------------------------------------------------------------------------------------

TEST_CASE("alone: checked" * doctest::skip()) {
  if (!is_child()) {
    return;
  }
  {
    machine m(2_MiB, 64_MiB, "auto", evicted_chunks::unmapped, true);
    stream_type s(m.arena);
    word* const a = m.arena.allocate<word>(words_of(2_MiB));
    word* const b = m.arena.allocate<word>(words_of(2_MiB));
    s.memset(a, 0, 2_MiB);
    s.memset(b, 1, 2_MiB);
    s.launch("declares all", 64, 256, 0, gpu_kernels::mix, a, reads(b), words_of(2_MiB));
    s.synchronize();
    CHECK(m.arena.host_read(a, 1)[0] == 0x01010101U);
    say("what is declared is there");
    try {
      s.call("hides one", {updates(a)}, [&](cudaStream_t q) { enqueue_mix(q, a, b, words_of(2_MiB)); });
      s.synchronize();
      say("nothing was noticed");
    } catch (const deepum::error& e) {
      say(std::string("it said: ") + e.what());
    }
  }
  say("the arena was given back");
}

TEST_CASE("paged memory: in checked mode a wrong declaration is found, with the launch's name") {
  const child_result r = run_alone("alone: checked");
  INFO(r.output);
  CHECK(r.said("what is declared is there"));
  CHECK(r.said("it said: launch 'hides one' failed"));
  CHECK_FALSE(r.said("nothing was noticed"));
  CHECK(r.said("the arena was given back"));
  CHECK(r.status == 0);
}

/// A buffer that has left the device, and a launch that touches it and does not say so.
std::string touch_what_has_left(evicted_chunks evicted) {
  machine m(2_MiB, 16_MiB, "um", evicted);
  stream_type s(m.arena);
  word* const a = m.arena.allocate<word>(words_of(2_MiB));
  word* const b = m.arena.allocate<word>(words_of(2_MiB));
  word* const other = m.arena.allocate<word>(words_of(14_MiB));
  s.memset(b, 1, 2_MiB);
  s.memset(a, 0, 2_MiB);
  // Larger than one piece of a memset, so that all of it is there at once and b is not.
  s.launch("fill", 256, 256, 0, gpu_kernels::fill, overwrites(other, words_of(14_MiB)), 1U, 1U, words_of(14_MiB));
  s.synchronize();
  try {
    s.call("hides one", {updates(a)}, [&](cudaStream_t q) { enqueue_mix(q, a, b, words_of(2_MiB)); });
    s.synchronize();
    return m.arena.host_read(a, 1)[0] == 0x01010101U ? "found it" : "found something else";
  } catch (const deepum::error& e) {
    return e.code() == deepum::status::device_failure ? "the device failed" : e.what();
  }
}
TEST_CASE("alone: what has left is unmapped" * doctest::skip()) {
  if (is_child()) {
    say("outcome: " + touch_what_has_left(evicted_chunks::unmapped));
  }
}
TEST_CASE("alone: what has left is mapped to the host" * doctest::skip()) {
  if (is_child()) {
    say("outcome: " + touch_what_has_left(evicted_chunks::host_mapped));
  }
}

TEST_CASE("paged memory: what has left breaks the device, or is read through the link where that was asked for") {
  const child_result unmapped = run_alone("alone: what has left is unmapped");
  INFO(unmapped.output);
  CHECK(unmapped.said("outcome: the device failed"));
  CHECK(unmapped.status == 0);
  const child_result reachable = run_alone("alone: what has left is mapped to the host");
  INFO(reachable.output);
  CHECK(reachable.said("outcome: found it"));
  CHECK(reachable.status == 0);
}

TEST_CASE("paged memory: a launch that is larger than the budget is refused, and the arena goes on") {
  machine m(16_MiB, 64_MiB);
  stream_type s(m.arena);
  word* const large = m.arena.allocate<word>(words_of(80_MiB));
  std::string said;
  try {
    s.launch("too large", 64, 256, 0, gpu_kernels::fill, overwrites(large, words_of(80_MiB)), 1U, 1U, words_of(80_MiB));
  } catch (const deepum::error& e) {
    CHECK(e.code() == deepum::status::out_of_device_memory);
    said = e.what();
  }
  CHECK(said.find("'too large'") != std::string::npos);
  s.memset(large, 3, 80_MiB);  // in pieces
  s.synchronize();
  CHECK(m.arena.host_read(large + words_of(80_MiB) - 1, 1)[0] == 0x03030303U);
}

// --- Streams ---------------------------------------------------------------------------------------------------------

TEST_CASE("paged memory: two streams that wait for each other's events compute the same as one") {
  machine m(8_MiB, 40_MiB);
  constexpr std::size_t buffers = 8;
  constexpr std::uint64_t n = words_of(8_MiB);
  constexpr word rounds = 4;
  stream_type makes(m.arena);
  stream_type uses(m.arena);
  std::vector<word*> x;
  std::vector<word*> y;
  std::vector<std::unique_ptr<deepum::cuda::event>> made;
  std::vector<std::unique_ptr<deepum::cuda::event>> used;
  for (std::size_t i = 0; i < buffers; ++i) {
    x.push_back(m.arena.allocate<word>(n));
    y.push_back(m.arena.allocate<word>(n));
    uses.memset(y.back(), 0, 8_MiB);
    made.push_back(std::make_unique<deepum::cuda::event>());
    used.push_back(std::make_unique<deepum::cuda::event>());
  }
  for (word r = 0; r < rounds; ++r) {
    for (std::size_t i = 0; i < buffers; ++i) {
      makes.wait(*used[i]);
      makes.launch("make", 256, 256, 0, gpu_kernels::fill, overwrites(x[i], n), r + static_cast<word>(i), r, n);
      makes.record(*made[i]);
      uses.wait(*made[i]);
      uses.launch("use", 256, 256, 0, gpu_kernels::mix, y[i], reads(x[i]), n);
      uses.record(*used[i]);
    }
  }
  makes.synchronize();
  uses.synchronize();
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < buffers; ++i) {
    const auto view = m.arena.host_read(y[i], n);
    for (std::uint64_t k = 0; k < n; ++k) {
      word expected = 0;
      for (word r = 0; r < rounds; ++r) {
        expected = expected * 3 + r + static_cast<word>(i) + static_cast<word>(k) * r;
      }
      wrong += view[k] != expected ? 1U : 0U;
    }
  }
  CHECK(wrong == 0);
  CHECK(m.arena.statistics().failed_calls == 0);
}

/// The machine of `property/arena_run.hpp`.
struct program_machine {
  using memory_type = deepum::cuda::paged_memory;

  explicit program_machine(bytes chunk) : device(0, {.chunk = chunk}) {}

  static auto fill() -> void (*)(word*, word, word) { return &gpu_kernels::program_fill; }
  static auto mix() -> void (*)(word*, word, const word*, word, word) { return &gpu_kernels::program_mix; }
  static auto gather() -> void (*)(word*, word, const word*, word, const word*, word, word) {
    return &gpu_kernels::program_gather;
  }
  static auto chase() -> void (*)(word*, word, word* const*, word, word) { return &gpu_kernels::program_chase; }
  static void enqueue_chase(cudaStream_t q, word* a, word n, word* const* where, word m, word value) {
    std::array<void*, 5> arguments{&a, &n, &where, &m, &value};
    deepum::cuda::check(
        cudaLaunchKernel(reinterpret_cast<const void*>(chase()), dim3{1}, dim3{1}, arguments.data(), 0, q),
        "cudaLaunchKernel");
  }
  void before(std::size_t /*operation*/) {}
  void host_touched(const void* /*p*/, std::size_t /*size*/, deepum::access /*mode*/) {}

  deepum::cuda::device device;
};

deepum::arena_options options_for_programs(const std::string& policy, bytes budget) {
  return {.capacity = 1_GiB, .device_budget = budget, .policy = policy, .log = [](std::string_view) {}};
}

TEST_CASE("paged memory: random programs leave the same memory as without a GPU") {
  for (const std::uint64_t seed : {11U, 12U}) {
    CAPTURE(seed);
    const deepum_test::random_program program =
        deepum_test::make_random_program(seed, {.loop_length = 12, .repetitions = 4, .max_words = 1U << 19});
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const auto& [chunk, budget] : {std::pair{2_MiB, 14_MiB}, std::pair{16_MiB, 64_MiB}}) {
      for (const std::string policy : {"um", "auto"}) {
        CAPTURE(chunk.count);
        CAPTURE(policy);
        program_machine m(chunk);
        deepum_test::arena_run run(m, options_for_programs(policy, budget));
        CHECK(run.run(program) == expected);
        CHECK(run.counts().failed_calls == 0);
      }
    }
  }
}

TEST_CASE("paged memory: three threads with streams of their own do not disturb each other") {
  program_machine m(2_MiB);
  CHECK(deepum_test::threads_that_go_wrong(m, options_for_programs("auto", 16_MiB)) == 0);
}

// --- The device ------------------------------------------------------------------------------------------------------

bytes free_now() {
  std::size_t free = 0;
  std::size_t total = 0;
  deepum::cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return bytes{free};
}
bytes less(bytes a, bytes b) { return a > b ? a - b : bytes{}; }

/// Whether it comes within some seconds: the memory is given back by another thread.
template <class Predicate>
bool comes(Predicate&& holds) {
  for (int i = 0; i < 5000 && !holds(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return holds();
}

TEST_CASE("paged memory: the device's memory follows the budget down and up, and is given back in the end") {
  constexpr bytes slack = 64_MiB;  // what the runtime takes for itself meanwhile
  {
    machine first(16_MiB, 64_MiB);  // loads the kernels, which takes memory too
    ring program(first.arena);
    program.turn();
    program.synchronize();
  }
  const bytes before = free_now();
  {
    machine m(16_MiB, 128_MiB);
    ring program(m.arena);
    int turns = 0;
    // @returns  Most of what was taken while it ran.
    const auto run = [&] {
      bytes most{};
      for (int i = 0; i < 3; ++i, ++turns) {
        program.turn();
        most = std::max(most, less(before, free_now()));
      }
      program.synchronize();
      return std::max(most, less(before, free_now()));
    };
    const auto taken_at_most = [&](bytes most) {
      return comes([&] { return less(before, free_now()) <= most + slack; });
    };
    const bytes at_128 = run();
    CHECK(at_128 >= 112_MiB);
    CHECK(at_128 <= 128_MiB + slack);
    m.arena.set_budget(48_MiB);
    run();
    CHECK(m.arena.memory().device_memory() <= 48_MiB);
    CHECK(taken_at_most(48_MiB));
    CHECK(run() <= 48_MiB + slack);
    m.arena.set_budget(160_MiB);
    const bytes at_160 = run();
    CHECK(at_160 >= 144_MiB);
    CHECK(at_160 <= 160_MiB + slack);
    MESSAGE("MiB taken with a budget of 128: ", at_128.count >> 20U, ", of 160: ", at_160.count >> 20U);
    CHECK(program.wrong(turns) == 0);
    CHECK(m.arena.statistics().failed_calls == 0);
  }
  CHECK(comes([&] { return less(before, free_now()) <= slack; }));
}

TEST_CASE("paged memory: chunks come and go beside a running kernel, and its own stay") {
  machine m(2_MiB, 64_MiB);
  std::uint32_t* host = nullptr;  // the flag that ends the kernel, and what became of it
  deepum::cuda::check(cudaHostAlloc(reinterpret_cast<void**>(&host), 2 * sizeof(word), cudaHostAllocDefault),
                      "cudaHostAlloc");
  host[0] = host[1] = 0;
  {
    constexpr std::uint64_t n = words_of(4_MiB);
    stream_type runs(m.arena);
    word* const kept = m.arena.allocate<word>(n);
    runs.memset(kept, 0, 4_MiB);
    runs.synchronize();
    ring program(m.arena);
    program.synchronize();
    constexpr std::uint64_t longest = 5'000'000'000;  // then the test has failed
    runs.launch("work_until", 1, 1, 0, gpu_kernels::work_until, static_cast<const word*>(host), host + 1, kept, n,
                longest);
    for (int i = 0; i < 3; ++i) {
      program.turn();
    }
    program.synchronize();
    const std::uint32_t ended_early = *static_cast<volatile std::uint32_t*>(host + 1);
    *static_cast<volatile std::uint32_t*>(host) = 1;
    runs.synchronize();
    INFO("2: mapping or unmapping waited for the kernel, until it gave up");
    CHECK(ended_early == 0);
    CHECK(host[1] == 1);
    const auto view = m.arena.host_read(kept, n);
    CHECK(view[0] >= 1);
    CHECK(program.wrong(3) == 0);
    const deepum::statistics s = m.arena.statistics();
    CHECK(s.failed_calls == 0);
    CHECK(s.out().all_bytes() > 0);
  }
  (void)cudaFreeHost(host);
}

}  // namespace
