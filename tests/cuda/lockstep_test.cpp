// Random programs that do all that a program may do, on the fake CUDA: graphs and libraries with scratch memory, too,
// and runtime calls that fail.

#include "cuda/fake_cuda.hpp"
#include "cuda/lockstep_machine.hpp"
#include "property/lockstep_run.hpp"
#include "property/lockstep_seeds.hpp"
#include "property/lockstep_world.hpp"
#include "support/test_scale.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace lockstep_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::bytes;

constexpr std::array policies{"auto", "deepum", "lru", "um"};

template <class Memory>
lockstep_outcome run_alone(std::uint64_t seed, const std::string& policy) {
  constexpr bool paged = deepum::paged_memory_kind<Memory>;
  std::mt19937_64 random(seed * 7919);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };

  lockstep_options o;
  o.seed = seed;
  o.steps = 250;
  o.time_is_virtual = false;
  o.live = bytes{std::uint64_t{20 + 8 * below(2)} << 20};
  o.buffer_blocks = 4;
  o.most_budget = (paged ? 10 : 6) + below(4);
  o.least_budget = o.most_budget - below(2);
  const bytes capacity = o.live + bytes{std::uint64_t{below(2) == 0 ? 8U : 64U} << 20};
  const bytes budget = deepum::block_size * o.most_budget;

  deepum::cuda::device_options options;
  if (paged) {
    options.chunk = 2_MiB;
    options.evicted =
        below(3) == 0 ? deepum::cuda::evicted_chunks::host_mapped : deepum::cuda::evicted_chunks::unmapped;
  }
  lockstep_machine<Memory> machine(paged ? 256_MiB : budget, options, below(8) == 0);
  if (below(3) == 0) {
    fake_cuda::set_delays(seed, std::chrono::microseconds(100));
  }
  if (paged && below(2) == 0) {
    machine.host_limit = o.live / deepum::block_size + below(4) - budget / deepum::block_size / 2;
    machine.host_keeps_all = options.evicted == deepum::cuda::evicted_chunks::host_mapped;  // launches may use it
    fake_cuda::set_host_memory(deepum::block_size * machine.host_limit);
  }
  std::vector<std::unique_ptr<deepum::arena<Memory>>> arenas;
  arenas.push_back(std::make_unique<deepum::arena<Memory>>(
      machine.device,
      deepum::arena_options{.capacity = capacity, .device_budget = budget, .policy = policy, .log = {}}));
  lockstep_outcome done;
  std::string why;
  {
    lockstep_run<lockstep_machine<Memory>> run(machine, arenas, o, policy + (paged ? ", paged" : ", managed"));
    why = run.run();
    done.launches = run.launches();
    done.tolerated = run.tolerated();
    done.failures = fake_cuda::stats().failures;
  }
  INFO(why);
  CHECK(why.empty());
  done.wrong = why.empty() ? 0 : 1;
  CHECK(fake_cuda::stats().taken_in_use == 0);
  CHECK(fake_cuda::stats().most_mappings <= 2);  // its own address, and where launches expect it
  return done;
}

template <class Memory>
void run_all(std::size_t programs) {
  const lockstep_outcome all =
      run_seeds(programs, [](std::uint64_t seed) { return run_alone<Memory>(seed, policies[seed % policies.size()]); });
  MESSAGE("launches: ", all.launches, ", errors that are allowed: ", all.tolerated,
          ", calls that failed: ", all.failures);
  CHECK((all.failures != 0 || all.programs < 10));
}

TEST_CASE("managed memory holds what a shadow says on the fake CUDA, whatever the program does") {
  run_all<deepum::cuda::managed_memory>(scaled(50));
}

TEST_CASE("memory that never faults holds what a shadow says on the fake CUDA, whatever the program does") {
  run_all<deepum::cuda::paged_memory>(scaled(50));
}

}  // namespace lockstep_test
