// Random programs that do all that a program may do, on the simulated GPU: after each operation the arena holds what a
// naive shadow says, and refuses what it has to refuse. DEEPUM_TEST_SEED runs one program alone, or those of a range.
//
// What they find by themselves, each with the first seeds that do where it is taken out:
//
// | taken out | paged | managed |
// |---|---|---|
// | `host_access::end` asks the law before it gives a home copy up | 105, 120, 123 | - |
// | `allocation_table::free` tells deaths at once | 10, 33, 46 | 38, 200, 210 |
// | `given_up_memory::use_again` tells what is in use again | 2, 7, 10 | 6, 10, 16 |
// | `launch_tracker::issue` keeps holds apart | 2 | 2 |
// | `demand_pager::awaits_program` looks at holds | several threads: 1, 10, 16 | - |
// | `demand_pager::demand` lets room without contents leave | 1900 | - |
// | `block_contents::remember` | 2, 4, 11 | - |
//
// On the fake CUDA (tests/cuda/lockstep_test.cpp), where there are graphs and libraries:
//
// | taken out | paged | managed |
// |---|---|---|
// | `scratch::used_by` keeps memory with a graph | 10, 11, 16 | 2, 5, 10 |
// | `stream::launch` of a graph takes the operands of its recording | 38, 44 | - |
// | `launch_view::unmap` keeps what is not unmapped | first 50 | - |
// | `launch_view::map_device` maps nothing where a chunk is kept | 493 | - |

#include "property/lockstep_run.hpp"
#include "property/lockstep_seeds.hpp"
#include "property/lockstep_world.hpp"
#include "property/simulated_machine.hpp"
#include "property/traffic_watch.hpp"
#include "support/test_scale.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace lockstep_test {

using namespace deepum;
using namespace deepum_test;

constexpr std::array policies{"auto", "deepum", "lru", "um"};

/// A program of its own for each seed, on a machine that the seed chooses, too.
template <class Memory>
lockstep_outcome run_alone(std::uint64_t seed, const std::string& policy) {
  constexpr bool paged = paged_memory_kind<Memory>;
  std::mt19937_64 random(seed * 7919);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };

  lockstep_options o;
  o.seed = seed;
  o.steps = 400;
  o.arenas = below(8) == 0 ? 2 : 1;
  o.live = bytes{std::uint64_t{24 + 8 * below(3)} << 20};
  o.most_budget = 8 + below(8);
  o.least_budget = o.most_budget - below(3);
  const bytes capacity = o.live + bytes{std::uint64_t{below(2) == 0 ? 2U : 64U} << 20};
  const bytes budget = block_size * o.most_budget;

  // Little more than what does not fit on the device, where the host's memory is limited.
  const std::uint64_t needed = o.live.count / block_size.count + 2;
  const bool few_host_blocks = paged && o.arenas == 1 && below(3) != 0;
  const std::uint64_t host_blocks = few_host_blocks ? needed - o.least_budget / 2 + below(4) : 0;
  simulated_machine<Memory> machine(
      {.memory = block_size * (o.arenas * o.most_budget + (paged ? 4 : 0)),
       .worker = below(4) == 0 ? sim::worker_mode::thread : sim::worker_mode::virtual_time,
       .delay_seed = below(3) == 0 ? seed : 0,
       .host_limit = block_size * host_blocks});
  o.time_is_virtual = machine.device.options().worker == sim::worker_mode::virtual_time;
  traffic_watch watch;
  std::vector<std::unique_ptr<arena<Memory>>> arenas;
  for (std::uint8_t a = 0; a < o.arenas; ++a) {
    arena_options options{.capacity = capacity, .device_budget = budget, .policy = policy, .log = {}};
    if (a == 0) {
      options.observer = watch.observer();
    }
    arenas.push_back(std::make_unique<arena<Memory>>(machine.device, options));
  }
  if constexpr (!paged) {
    machine.fail_command = [&arenas](std::uint32_t dice) {
      arenas.front()->memory().fail_call(1 + dice % 5, dice % 2 == 0 ? sim::failure::at_call : sim::failure::half_way);
    };
  }
  watch.of(arenas.front()->memory().base(), capacity / block_size, block_size.count);
  const bool driver_alone = !paged && policy == "um";  // it knows nothing of what is of any value
  const bool watched = o.time_is_virtual && !driver_alone;
  lockstep_outcome done;
  std::string why;
  {
    lockstep_run<simulated_machine<Memory>> run(machine, arenas, o, policy + (paged ? ", paged" : ", managed"),
                                                watched ? &watch : nullptr);
    why = run.run();
    done.launches = run.launches();
    done.tolerated = run.tolerated();
  }
  INFO(why);
  CHECK(why.empty());
  done.wrong = why.empty() ? 0 : 1;
  return done;
}

template <class Memory>
void run_all(std::size_t programs) {
  const lockstep_outcome all =
      run_seeds(programs, [](std::uint64_t seed) { return run_alone<Memory>(seed, policies[seed % policies.size()]); });
  MESSAGE("launches: ", all.launches, ", errors that are allowed: ", all.tolerated);
  CHECK(all.launches >= 200 * all.programs);
}

// Ten times as many under --full: a million launches on each kind of memory, and 10^5 and more under each sanitizer. On
// two cores with nothing else to do that takes about four minutes a case, with a sanitizer or without.

TEST_CASE("managed memory holds what a shadow says, whatever the program does") {
  run_all<sim::managed_memory>(scaled(380));
}

TEST_CASE("memory that never faults holds what a shadow says, whatever the program does") {
  run_all<sim::paged_memory>(scaled(380));
}

/// Programs of three threads in one arena, each with streams and a shadow of its own. Each may hold memory that the
/// launches of the others wait for.
template <class Memory>
void run_threads(std::uint64_t seed, const std::string& policy) {
  constexpr bool paged = paged_memory_kind<Memory>;
  const auto blocks = static_cast<std::uint32_t>(6 + seed % 5);
  simulated_machine<Memory> machine(
      {.memory = block_size * (blocks + (paged ? 4 : 0)),
       .worker = seed % 2 == 0 ? sim::worker_mode::thread : sim::worker_mode::virtual_time});
  std::vector<std::unique_ptr<arena<Memory>>> arenas;
  arenas.push_back(std::make_unique<arena<Memory>>(
      machine.device,
      arena_options{.capacity = 128_MiB, .device_budget = block_size * blocks, .policy = policy, .log = {}}));
  std::array<std::string, 3> why;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < why.size(); ++t) {
    threads.emplace_back([&, t] {
      lockstep_options o;
      o.seed = seed * 100 + t;
      o.steps = 150;
      o.live = 16_MiB;
      o.most_budget = o.least_budget = blocks;
      o.alone = false;
      o.time_is_virtual = false;
      try {
        lockstep_run<simulated_machine<Memory>> run(machine, arenas, o, policy + (paged ? ", paged" : ", managed"));
        why[t] = run.run();
      } catch (const std::exception& e) {
        why[t] = e.what();
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  for (const std::string& w : why) {
    INFO(w);
    REQUIRE(w.empty());
  }
}

TEST_CASE("programs of several threads in one arena do not disturb each other, whatever they hold") {
  const std::size_t programs = scaled(20);
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    CAPTURE(seed);
    run_threads<sim::paged_memory>(seed, policies[seed % policies.size()]);
    run_threads<sim::managed_memory>(seed, policies[seed % policies.size()]);
  }
}

}  // namespace lockstep_test
