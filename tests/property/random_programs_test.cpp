// Thousands of random launch sequences give bitwise the same memory under every policy and budget.

#include "property/arena_run.hpp"
#include "property/random_kernels.hpp"
#include "property/random_program.hpp"
#include "support/test_scale.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace random_programs_test {

using namespace deepum;
using deepum_test::random_program;
using word = std::uint32_t;

struct setting {
  std::string policy;
  bytes device_memory;
  sim::worker_mode worker = sim::worker_mode::virtual_time;
  std::uint64_t delay_seed = 0;
  std::uint64_t failing_call = 0;  // 0: none
  bool checked = false;
};

template <class Memory>
struct machine_with {
  using memory_type = Memory;

  explicit machine_with(const setting& s)
      : device(sim::find_profile("h200_pcie5"),
               {.memory = s.device_memory, .worker = s.worker, .delay_seed = s.delay_seed}) {}

  static const auto& fill() { return deepum_test::fill_kernel; }
  static const auto& mix() { return deepum_test::mix_kernel; }
  static const auto& gather() { return deepum_test::gather_kernel; }
  static const auto& chase() { return deepum_test::chase_kernel; }
  static void enqueue_chase(sim::stream& q, word* a, word n, word* const* where, word m, word value) {
    q.launch(1, 1, 0, deepum_test::chase_kernel, a, n, where, m, value);
  }
  void before(std::size_t /*operation*/) {}
  void host_touched(const void*, std::size_t, deepum::access) {}

  sim::device device;
};
using simulated_machine = machine_with<sim::managed_memory>;
using paged_machine = machine_with<sim::paged_memory>;

/// What the program computed, and how many device calls failed.
std::pair<std::uint64_t, std::uint64_t> run_on_arena(const random_program& program, const setting& s) {
  simulated_machine machine(s);
  deepum_test::arena_run run(machine, {.capacity = 256_MiB,
                                       .device_budget = s.device_memory,
                                       .policy = s.policy,
                                       .zero_new = s.checked && s.delay_seed != 0,
                                       .checked = s.checked,
                                       .log = {}});
  if (s.failing_call != 0) {
    run.arena().memory().fail_call(s.failing_call);
  }
  const std::uint64_t sum = run.run(program);
  return {sum, run.counts().failed_calls};
}

std::vector<setting> settings() {
  std::vector<setting> all;
  for (const char* policy : {"um", "deepum", "auto"}) {
    for (const bytes memory : {8_MiB, 24_MiB, 256_MiB}) {
      all.push_back({policy, memory});
    }
  }
  all.push_back({"ideal", 256_MiB});
  return all;
}

TEST_CASE("random programs give the same memory under every policy and budget") {
  const std::uint64_t programs = deepum_test::scaled(20);
  const std::vector<setting> all = settings();
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    CAPTURE(seed);
    const random_program program = deepum_test::make_random_program(seed, {.max_words = 1U << 19});
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const setting& s : all) {
      CAPTURE(s.policy);
      CAPTURE(s.device_memory.count);
      REQUIRE(run_on_arena(program, s).first == expected);
    }
  }
}

/// The same on memory that never faults, where nothing but the engine keeps launches from what is not there.
std::uint64_t run_on_paged_memory(const random_program& program, const setting& s) {
  paged_machine machine({.policy = s.policy, .device_memory = 512_MiB, .worker = s.worker, .delay_seed = s.delay_seed});
  deepum_test::arena_run run(machine, {.capacity = 256_MiB,
                                       .device_budget = s.device_memory,
                                       .policy = s.policy,
                                       .zero_new = s.checked && s.delay_seed != 0,
                                       .checked = s.checked,
                                       .log = {}});
  const std::uint64_t sum = run.run(program);
  CHECK(run.counts().failed_calls == 0);
  return sum;
}

TEST_CASE("random programs give the same memory where it never faults") {
  const std::uint64_t programs = deepum_test::scaled(20);
  for (std::uint64_t seed = 5000; seed < 5000 + programs; ++seed) {
    CAPTURE(seed);
    const random_program program = deepum_test::make_random_program(seed, {.max_words = 1U << 19});
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const char* policy : {"um", "deepum", "auto"}) {
      for (const bytes budget : {14_MiB, 24_MiB, 256_MiB}) {
        CAPTURE(policy);
        CAPTURE(budget.count);
        REQUIRE(run_on_paged_memory(program, {policy, budget}) == expected);
      }
    }
  }
}

TEST_CASE("random programs give the same memory where it never faults, with delays in a real migration thread") {
  const std::uint64_t programs = deepum_test::scaled(10);
  for (std::uint64_t seed = 6000; seed < 6000 + programs; ++seed) {
    CAPTURE(seed);
    const random_program program =
        deepum_test::make_random_program(seed, {.loop_length = 16, .repetitions = 5, .max_words = 1U << 18});
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const char* policy : {"deepum", "auto"}) {
      CAPTURE(policy);
      for (const sim::worker_mode worker : {sim::worker_mode::thread, sim::worker_mode::virtual_time}) {
        REQUIRE(run_on_paged_memory(program, {policy, 14_MiB, worker, seed}) == expected);
      }
    }
  }
}

TEST_CASE("checked mode finds nothing in random programs, and changes no result") {
  const std::uint64_t programs = deepum_test::scaled(4);
  for (std::uint64_t seed = 7000; seed < 7000 + programs; ++seed) {
    CAPTURE(seed);
    const random_program program =
        deepum_test::make_random_program(seed, {.loop_length = 12, .repetitions = 3, .max_words = 1U << 17});
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const char* policy : {"lru", "auto"}) {
      CAPTURE(policy);
      setting s{policy, 14_MiB};
      s.checked = true;
      s.delay_seed = seed % 2;  // with zero_new
      REQUIRE(run_on_arena(program, s).first == expected);
      REQUIRE(run_on_paged_memory(program, s) == expected);
    }
  }
}

TEST_CASE("random programs survive a device call that fails, whichever it is") {
  const std::uint64_t programs = deepum_test::scaled(2);
  for (std::uint64_t seed = 1000; seed < 1000 + programs; ++seed) {
    CAPTURE(seed);
    const random_program program =
        deepum_test::make_random_program(seed, {.loop_length = 12, .repetitions = 4, .max_words = 1U << 19});
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const char* policy : {"deepum", "auto"}) {
      CAPTURE(policy);
      bool failed = true;
      std::uint64_t nth = 1;
      for (; failed && nth <= 60; ++nth) {
        CAPTURE(nth);
        const auto [sum, failures] =
            run_on_arena(program, {.policy = policy, .device_memory = 16_MiB, .failing_call = nth});
        REQUIRE(sum == expected);
        failed = failures != 0;
      }
      CHECK(nth > 3);  // calls were made, and made to fail
    }
  }
}

TEST_CASE("random programs give the same memory with a real migration thread and random delays in it") {
  const std::uint64_t programs = deepum_test::scaled(10);
  for (std::uint64_t seed = 2000; seed < 2000 + programs; ++seed) {
    CAPTURE(seed);
    const random_program program =
        deepum_test::make_random_program(seed, {.loop_length = 16, .repetitions = 5, .max_words = 1U << 18});
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const char* policy : {"deepum", "auto"}) {
      CAPTURE(policy);
      for (const sim::worker_mode worker : {sim::worker_mode::thread, sim::worker_mode::virtual_time}) {
        REQUIRE(run_on_arena(program, {policy, 8_MiB, worker, seed}).first == expected);
      }
    }
  }
}

TEST_CASE("threads that launch through streams of their own do not disturb each other") {
  for (const sim::worker_mode worker : {sim::worker_mode::virtual_time, sim::worker_mode::thread}) {
    for (const char* policy : {"um", "deepum", "auto"}) {
      CAPTURE(policy);
      simulated_machine machine({.policy = policy, .device_memory = 12_MiB, .worker = worker});
      CHECK(deepum_test::threads_that_go_wrong(machine,
                                               {.capacity = 128_MiB, .device_budget = 12_MiB, .policy = policy}) == 0);
      paged_machine paged({.policy = policy, .device_memory = 64_MiB, .worker = worker});
      CHECK(deepum_test::threads_that_go_wrong(paged,
                                               {.capacity = 128_MiB, .device_budget = 14_MiB, .policy = policy}) == 0);
    }
  }
}

}  // namespace random_programs_test
