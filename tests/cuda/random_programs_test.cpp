// The random programs of tests/property on the CUDA device: the same memory as without it, whatever moves when and
// whatever fails.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_driver_feed.hpp"
#include "property/arena_run.hpp"
#include "property/random_program.hpp"
#include "support/test_scale.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace random_programs_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using deepum::bytes;
using word = std::uint32_t;

// --- The kernels: what `property/random_program.hpp` computes, and what a GPU would touch for it. ---

void fill(word* a, word n, word value) {
  device_touch(a, n * sizeof(word), access::overwrite);
  for (word i = 0; i < n; ++i) {
    a[i] = filled(i, value);
  }
}
void mix(word* a, word n, const word* b, word m, word value) {
  device_touch(b, std::min(n, m) * sizeof(word), access::read);
  device_touch(a, n * sizeof(word), access::update);
  for (word i = 0; i < n; ++i) {
    a[i] = mixed(a[i], b[i % m], value);
  }
}
void gather(word* a, word n, const word* b, word m, const word* index, word k, word value) {
  device_touch(index, std::min(n, k) * sizeof(word), access::read);
  device_touch(a, n * sizeof(word), access::update);
  for (word i = 0; i < std::min(n, k); i += 1 + k / 64) {  // roughly
    device_touch(b + index[i] % m, sizeof(word), access::read);
  }
  for (word i = 0; i < n; ++i) {
    a[i] = mixed(a[i], b[index[i % k] % m], value);
  }
}
void chase(word* a, word n, word* const* where, word m, word value) {
  device_touch(where, sizeof *where, access::read);
  mix(a, n, *where, m, value);
}

/// The fake GPU from its beginning to its end.
struct fake_gpu {
  explicit fake_gpu(bytes memory) {
    CHECK(fake_cuda::reset() == "");
    fake_cuda::register_kernel(&random_programs_test::fill);
    fake_cuda::register_kernel(&random_programs_test::mix);
    fake_cuda::register_kernel(&random_programs_test::gather);
    fake_cuda::register_kernel(&random_programs_test::chase);
    fake_cuda::set_device_memory(memory);
  }
  ~fake_gpu() { CHECK(fake_cuda::reset() == ""); }
  fake_gpu(const fake_gpu&) = delete;
  fake_gpu& operator=(const fake_gpu&) = delete;
};

enum class faults : std::uint8_t { none, driver, late };
using deepum::cuda::migration_context;

/// The device on the fake runtime. What it is made of is there before and after it.
template <class Memory>
struct machine_with {
  using memory_type = Memory;

  explicit machine_with(bytes memory, faults seen = faults::driver,
                        migration_context migrations = migration_context::own)
      : gpu(memory),
        device(0, {.migrations = migrations, .faults = deepum::cuda::fault_source::none}, maker(seen)) {}
  machine_with(bytes memory, deepum::cuda::device_options o) : gpu(memory), device(0, std::move(o)) {}

  static auto fill() -> void (*)(word*, word, word) { return &random_programs_test::fill; }
  static auto mix() -> void (*)(word*, word, const word*, word, word) { return &random_programs_test::mix; }
  static auto gather() -> void (*)(word*, word, const word*, word, const word*, word, word) {
    return &random_programs_test::gather;
  }
  static auto chase() -> void (*)(word*, word, word* const*, word, word) { return &random_programs_test::chase; }
  static void enqueue_chase(cudaStream_t q, word* a, word n, word* const* where, word m, word value) {
    std::array<void*, 5> arguments{&a, &n, &where, &m, &value};
    REQUIRE(cudaLaunchKernel(reinterpret_cast<const void*>(chase()), dim3{1}, dim3{1}, arguments.data(), 0, q) ==
            cudaSuccess);
  }
  void before(std::size_t operation) const {
    if (meanwhile) {
      meanwhile(operation);
    }
  }
  static void host_touched(const void* p, std::size_t size, access mode) { host_touch(p, size, mode); }

  /// A budget in which the largest launch fits.
  static constexpr bytes tight = deepum::paged_memory_kind<Memory> ? 28_MiB : 12_MiB;

  fake_gpu gpu;
  fake_driver_feed events;
  deepum::cuda::device device;
  std::function<void(std::size_t)> meanwhile;  ///< before each operation of the program

 private:
  deepum::cuda::fault_feed_maker maker(faults seen) const {
    if (seen == faults::none) {
      return {};
    }
    return [this, seen](std::byte* base, bytes size) -> std::unique_ptr<deepum::cuda::fault_feed> {
      if (seen == faults::driver) {
        return events.open(base, size);
      }
      return std::make_unique<late_feed>(events.open(base, size), 3);
    };
  }
};

using machine = machine_with<deepum::cuda::managed_memory>;
using paged_machine = machine_with<deepum::cuda::paged_memory>;

deepum::arena_options arena_options(std::string policy, bytes budget) {
  return {.capacity = 128_MiB, .device_budget = budget, .headroom = 4_MiB, .policy = std::move(policy), .log = {}};
}

template <class Machine>
std::uint64_t run_on_arena(Machine& m, const random_program& program, const std::string& policy, bytes budget) {
  arena_run run(m, arena_options(policy, budget));
  const std::uint64_t sum = run.run(program);
  const deepum::statistics s = run.counts();
  CHECK(s.finished == s.launches);
  return sum;
}

const std::vector<const char*> policies = few<const char*>({"auto", "deepum", "lru", "um"}, 2);
constexpr program_options small{.loop_length = 12, .repetitions = 4, .max_words = 1U << 19};

TEST_CASE("random programs give the same memory under every policy, budget and fault feed") {
  const std::uint64_t programs = scaled(2);
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    CAPTURE(seed);
    const random_program program = make_random_program(seed, small);
    const std::uint64_t expected = reference_run{}.run(program);
    for (const char* policy : policies) {
      CAPTURE(policy);
      for (const bytes memory : {8_MiB, 24_MiB, 256_MiB}) {
        CAPTURE(memory.count);
        for (const faults seen : {faults::none, faults::driver, faults::late}) {
          CAPTURE(static_cast<int>(seen));
          machine m(memory, seen);
          REQUIRE(run_on_arena(m, program, policy, memory) == expected);
        }
      }
    }
  }
}

TEST_CASE("random programs give the same memory whatever is slow, and with or without contexts for migrations") {
  const std::uint64_t programs = scaled(2);
  for (std::uint64_t seed = 100; seed < 100 + programs; ++seed) {
    CAPTURE(seed);
    const random_program program = make_random_program(seed, small);
    const std::uint64_t expected = reference_run{}.run(program);
    for (const char* policy : policies) {
      CAPTURE(policy);
      for (const migration_context migrations : {migration_context::own, migration_context::shared}) {
        machine m(12_MiB, faults::driver, migrations);
        fake_cuda::set_delays(seed, std::chrono::microseconds(300));
        fake_cuda::set_fault_delay(std::chrono::microseconds(50));
        fake_cuda::set_clock_offset(std::chrono::hours(5));
        REQUIRE(run_on_arena(m, program, policy, 12_MiB) == expected);
      }
      machine m(12_MiB);
      fake_cuda::set_refuse_contexts(true);
      REQUIRE(run_on_arena(m, program, policy, 12_MiB) == expected);
    }
  }
}

TEST_CASE("random programs give the same memory while others take device memory and give it back") {
  const std::uint64_t programs = scaled(2);
  for (std::uint64_t seed = 200; seed < 200 + programs; ++seed) {
    CAPTURE(seed);
    const random_program program = make_random_program(seed, small);
    const std::uint64_t expected = reference_run{}.run(program);
    for (const char* policy : policies) {
      CAPTURE(policy);
      for (const bytes budget : {0_MiB, 24_MiB}) {  // the first: whatever is free
        CAPTURE(budget.count);
        machine m(24_MiB);
        m.meanwhile = [](std::size_t operation) {
          fake_cuda::set_foreign_memory(operation % 24 < 8    ? 0_MiB
                                        : operation % 24 < 16 ? 14_MiB
                                                              : 24_MiB);  // nothing is left
        };
        REQUIRE(run_on_arena(m, program, policy, budget) == expected);
      }
    }
  }
}

TEST_CASE("random programs give the same memory when the feed's thread dies, and when records are lost") {
  const random_program program = make_random_program(300, small);
  const std::uint64_t expected = reference_run{}.run(program);
  for (const char* policy : policies) {
    CAPTURE(policy);
    machine m(12_MiB);
    m.meanwhile = [&m](std::size_t operation) {
      if (operation == 20) {
        m.events.tools.fail_polls(EIO);
      }
      if (operation == 40) {
        m.events.tools.overwrite_indices(123'456'789, 42);
      }
    };
    REQUIRE(run_on_arena(m, program, policy, 12_MiB) == expected);
  }
}

/// Functions whose failure the program is told of: it is not a hint that failed, but its own work.
bool is_work(const std::string& name) {
  constexpr std::array work{"cudaLaunchKernel",         "cudaMemcpyAsync",      "cudaMemsetAsync",
                            "cudaStreamSynchronize",    "cudaStreamWaitEvent",  "cudaEventRecord",
                            "cudaEventCreateWithFlags", "cudaEventSynchronize", "cudaThreadExchangeStreamCaptureMode"};
  return std::find(work.begin(), work.end(), name) != work.end();
}

/// Runs the program with failures that `arrange` sets up when the arena is there. What is thrown has to be the failure
/// of the program's own work; else the result is right.
template <class Machine>
void run_with_failures(Machine& m, const random_program& program, std::uint64_t expected, const char* policy,
                       cudaError_t error, const std::function<void()>& arrange) {
  arena_run run(m, arena_options(policy, Machine::tight));
  arrange();
  try {
    const std::uint64_t sum = run.run(program);
    CHECK(sum == expected);
  } catch (const deepum::error& e) {
    CAPTURE(e.what());
    CHECK(e.native_code() == static_cast<int>(error));
    const std::vector<std::string> failed = fake_cuda::failed_calls();
    CHECK(std::any_of(failed.begin(), failed.end(), is_work));
  }
}

TEST_CASE("random programs survive a runtime call that fails, whichever it is") {
  const random_program program = make_random_program(400, small);
  const std::uint64_t expected = reference_run{}.run(program);
  for (const char* policy : few<const char*>({"auto", "deepum"}, 1)) {
    CAPTURE(policy);
    for (const char* name :
         {"cudaMemPrefetchAsync", "cudaMemAdvise", "cudaMemDiscardBatchAsync", "cudaEventRecord", "cudaEventQuery",
          "cudaEventElapsedTime", "cudaEventSynchronize", "cudaStreamIsCapturing", "cudaStreamQuery",
          "cudaStreamSynchronize", "cudaSetDevice", "cudaMemGetInfo", "cudaThreadExchangeStreamCaptureMode",
          "cudaEventCreateWithFlags", "cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"}) {
      CAPTURE(std::string(name));
      for (const unsigned nth : {1U, 4U}) {
        CAPTURE(nth);
        const cudaError_t error = nth == 1 ? cudaErrorMemoryAllocation : cudaErrorInvalidValue;
        machine m(12_MiB);
        run_with_failures(m, program, expected, policy, error, [&] { fake_cuda::fail_call(name, nth, error); });
      }
    }
  }
}

TEST_CASE("random programs give the same memory when no hint ever works") {
  const random_program program = make_random_program(500, small);
  const std::uint64_t expected = reference_run{}.run(program);
  for (const char* policy : policies) {
    CAPTURE(policy);
    for (const char* name : {"cudaMemPrefetchAsync", "cudaMemAdvise", "cudaMemDiscardBatchAsync", "cudaMemGetInfo",
                             "cudaEventElapsedTime", "cudaStreamIsCapturing"}) {
      CAPTURE(std::string(name));
      machine m(12_MiB);
      arena_run run(m, arena_options(policy, 12_MiB));
      fake_cuda::fail_all_calls(name, cudaErrorInvalidValue);
      CHECK(run.run(program) == expected);
    }
  }
}

TEST_CASE("an arena that cannot be set up says why and leaves nothing behind, whichever call fails") {
  const random_program program = make_random_program(600, {.loop_length = 4, .repetitions = 2, .max_words = 1U << 16});
  const std::uint64_t expected = reference_run{}.run(program);
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorInvalidValue}) {
    for (const migration_context migrations : {migration_context::own, migration_context::shared}) {
      unsigned thrown = 0;
      for (unsigned nth = 1; nth <= 60; ++nth) {
        CAPTURE(nth);
        // Few with the feed: its thread takes 20 ms to end.
        machine m(12_MiB, nth % 20 == 0 ? faults::driver : faults::none, migrations);
        fake_cuda::fail_nth_call_of_any(nth, error);
        try {
          CHECK(run_on_arena(m, program, "auto", 12_MiB) == expected);
        } catch (const deepum::error& e) {
          CAPTURE(e.what());
          CHECK(e.native_code() == static_cast<int>(error));
          CHECK(e.code() == (error == cudaErrorMemoryAllocation ? deepum::status::out_of_device_memory
                                                                : deepum::status::device_failure));
          ++thrown;
        }
      }
      CHECK(thrown >= 10);  // some calls are made by threads beside it, how many first is chance
    }
  }
}

TEST_CASE("a device that breaks ends the program with its error, and hangs nobody") {
  const random_program program = make_random_program(700, small);
  for (const char* policy : policies) {
    CAPTURE(policy);
    machine m(12_MiB);
    arena_run run(m, arena_options(policy, 12_MiB));
    m.meanwhile = [](std::size_t operation) {
      if (operation == 30) {
        fake_cuda::break_device(cudaErrorIllegalAddress);
      }
    };
    int code = 0;
    try {
      (void)run.run(program);
    } catch (const deepum::error& e) {
      code = e.native_code();
    }
    CHECK(code == cudaErrorIllegalAddress);
    const deepum::statistics s = run.counts();
    CHECK(s.finished == s.launches);
  }
}

TEST_CASE("threads that launch through CUDA streams of their own do not disturb each other") {
  for (const char* policy : policies) {
    CAPTURE(policy);
    for (const faults seen : few<faults>({faults::driver, faults::none}, 1)) {
      machine m(12_MiB, seen);
      CHECK(threads_that_go_wrong(m, arena_options(policy, 12_MiB)) == 0);
    }
  }
}

// --- Memory that never faults. ---

deepum::cuda::device_options with_chunk(bytes chunk, deepum::cuda::evicted_chunks evicted = {}) {
  deepum::cuda::device_options o;
  o.chunk = chunk;
  o.evicted = evicted;
  return o;
}

TEST_CASE("random programs give the same memory where it never faults, whatever is slow") {
  const std::uint64_t programs = scaled(4);
  for (std::uint64_t seed = 800; seed < 800 + programs; ++seed) {
    CAPTURE(seed);
    const random_program program = make_random_program(seed, small);
    const std::uint64_t expected = reference_run{}.run(program);
    for (const char* policy : policies) {
      CAPTURE(policy);
      for (const bytes chunk : {2_MiB, 4_MiB}) {
        CAPTURE(chunk.count);
        paged_machine m(256_MiB, with_chunk(chunk, seed % 2 == 0 ? deepum::cuda::evicted_chunks::unmapped
                                                                 : deepum::cuda::evicted_chunks::host_mapped));
        fake_cuda::set_delays(seed, std::chrono::microseconds(300));
        REQUIRE(run_on_arena(m, program, policy, paged_machine::tight) == expected);
        CHECK(fake_cuda::stats().taken_in_use == 0);
      }
    }
  }
}

TEST_CASE("random programs declare all that they touch: checked mode finds nothing") {
  const random_program program = make_random_program(850, small);
  const std::uint64_t expected = reference_run{}.run(program);
  deepum::arena_options checked = arena_options("auto", paged_machine::tight);
  checked.checked = true;
  paged_machine m(256_MiB, with_chunk(2_MiB));
  arena_run run(m, std::move(checked));
  CHECK(run.run(program) == expected);
}

TEST_CASE("random programs survive a runtime call that fails where memory never faults") {
  const random_program program = make_random_program(900, small);
  const std::uint64_t expected = reference_run{}.run(program);
  for (const char* name :
       {"cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cudaEventRecord", "cudaEventQuery",
        "cudaStreamIsCapturing", "cudaStreamQuery", "cudaStreamSynchronize", "cudaStreamWaitEvent", "cudaMemGetInfo",
        "cudaEventCreateWithFlags", "cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"}) {
    CAPTURE(std::string(name));
    for (const unsigned nth : few<unsigned>({5, 1, 20}, 1)) {
      CAPTURE(nth);
      paged_machine m(256_MiB, with_chunk(2_MiB));
      run_with_failures(m, program, expected, "auto", cudaErrorInvalidValue,
                        [&] { fake_cuda::fail_call(name, nth, cudaErrorInvalidValue); });
      CHECK(fake_cuda::stats().taken_in_use == 0);
    }
  }
}

TEST_CASE("a device that breaks ends the program with its error where memory never faults") {
  const random_program program = make_random_program(950, small);
  paged_machine m(256_MiB, with_chunk(2_MiB));
  arena_run run(m, arena_options("auto", paged_machine::tight));
  m.meanwhile = [](std::size_t operation) {
    if (operation == 30) {
      fake_cuda::break_device(cudaErrorIllegalAddress);
    }
  };
  CHECK_THROWS_AS((void)run.run(program), deepum::error);
}

TEST_CASE("threads with streams of their own do not disturb each other where memory never faults") {
  for (const char* policy : policies) {
    CAPTURE(policy);
    paged_machine m(256_MiB, with_chunk(2_MiB));
    CHECK(threads_that_go_wrong(m, arena_options(policy, paged_machine::tight)) == 0);
  }
}

}  // namespace random_programs_test
