// Random programs on a device with a neighbour whose owner takes its memory back at any moment.

#include "property/arena_run.hpp"
#include "property/random_kernels.hpp"
#include "property/random_program.hpp"
#include "support/test_scale.hpp"
#include <deepum/arena.hpp>
#include <deepum/sim/machine.hpp>
#include <deepum/sim/paged_memory.hpp>
#include <deepum/sim/stream.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>

namespace neighbour_programs_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::word;

constexpr bytes budget = 14_MiB;  // seven blocks: what a launch can need at once

struct setting {
  std::string policy;
  bytes lent;
  bool link = true;
  std::uint64_t seed = 0;
  sim::worker_mode worker = sim::worker_mode::virtual_time;
};

/// Two devices. Between any two operations of the program the owner of the second one may want more of its memory, or
/// less.
struct machine_beside {
  using memory_type = sim::paged_memory;

  explicit machine_beside(const setting& s)
      : all(sim::find_profile("2x_h200_nvlink"),
            {.memory = 512_MiB, .worker = s.worker, .delay_seed = s.worker == sim::worker_mode::thread ? s.seed : 0}),
        device(all[0]),
        dice(s.seed) {}

  static const auto& fill() { return deepum_test::fill_kernel; }
  static const auto& mix() { return deepum_test::mix_kernel; }
  static const auto& gather() { return deepum_test::gather_kernel; }
  static const auto& chase() { return deepum_test::chase_kernel; }
  static void enqueue_chase(sim::stream& q, word* a, word n, word* const* where, word m, word value) {
    q.launch(1, 1, 0, deepum_test::chase_kernel, a, n, where, m, value);
  }
  void before(std::size_t operation) {
    if (operation % 4 == 0 && before_operation) before_operation();
  }
  void host_touched(const void*, std::size_t, deepum::access) {}

  sim::machine all;
  sim::device& device;
  std::mt19937_64 dice;
  std::function<void()> before_operation{};
};

struct outcome {
  std::uint64_t sum = 0;
  statistics did{};
};

/// The next program from a seed on that needs far more than the budget: what fits tests nothing here.
deepum_test::random_program large_program(std::uint64_t& seed, deepum_test::program_options options) {
  options.max_buffers = 300;
  for (;; ++seed) {
    auto program = deepum_test::make_random_program(seed, options);
    if (2 * program.peak_words * sizeof(word) > 3 * budget.count) return program;
  }
}

outcome run_beside(const deepum_test::random_program& program, const setting& s) {
  machine_beside machine(s);
  deepum_test::arena_run run(
      machine, {.capacity = 256_MiB,
                .device_budget = budget,
                .neighbours = {{.device = machine.all[1], .memory = s.lent, .reserve = 16_MiB, .link = s.link}},
                .policy = s.policy,
                .log = {}});
  machine.before_operation = [&] {
    constexpr std::array shares{0U, 1U, 2U, 4U, 4U};
    const location beside = location::device(1);
    switch (machine.dice() % 3) {
      case 0:  // by call
        run.arena().set_budget(beside, bytes{s.lent.count / 4 * shares[machine.dice() % shares.size()]});
        CHECK(run.arena().engine().within_budget(beside));
        break;
      case 1:  // by taking it
        machine.all[1].set_foreign_memory(bytes{(32_MiB).count * (machine.dice() % 17)});
        break;
      default:
        break;
    }
  };
  const std::uint64_t sum = run.run(program);
  machine.before_operation = {};
  return {sum, run.counts()};
}

TEST_CASE("random programs give the same memory while a neighbour lends memory and takes it back") {
  const std::uint64_t programs = deepum_test::scaled(6);
  std::uint64_t held = 0;
  std::uint64_t given_back = 0;
  std::uint64_t seed = 9000;
  for (std::uint64_t n = 0; n != programs; ++n, ++seed) {
    const auto program = large_program(seed, {.loop_length = 12, .repetitions = 5, .max_words = 1U << 19});
    CAPTURE(seed);
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const char* policy : {"um", "lru", "harvest", "deepum", "auto"}) {
      CAPTURE(policy);
      const outcome o = run_beside(program, {policy, n % 3 == 0 ? 8_MiB : 32_MiB, n % 2 == 0, seed});
      REQUIRE(o.sum == expected);
      held += o.did.between(location::device(), location::device(1)).all_blocks();
      given_back += o.did.between(location::device(1), location::host()).all_blocks();
    }
  }
  CHECK(held != 0);
  CHECK(given_back != 0);
}

TEST_CASE("random programs give the same memory with a neighbour and delays in a real migration thread") {
  const std::uint64_t programs = deepum_test::scaled(5);
  std::uint64_t seed = 9500;
  for (std::uint64_t n = 0; n != programs; ++n, ++seed) {
    const auto program = large_program(seed, {.loop_length = 12, .repetitions = 4, .max_words = 1U << 19});
    CAPTURE(seed);
    const std::uint64_t expected = deepum_test::reference_run{}.run(program);
    for (const char* policy : {"lru", "auto"}) {
      CAPTURE(policy);
      REQUIRE(run_beside(program, {policy, 16_MiB, true, seed, sim::worker_mode::thread}).sum == expected);
    }
  }
}

}  // namespace neighbour_programs_test
