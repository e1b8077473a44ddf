#include "cuda/fake_gpu.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/cuda/managed_limit.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace managed_limit_test {

using namespace deepum::literals;
using deepum::bytes;
using deepum::status;
using deepum::cuda::managed_limit;
using deepum_test::environment;
using deepum_test::fake_gpu;

/// The status of what `make` throws; nothing where it throws nothing.
template <class Make>
std::optional<status> thrown_by(Make&& make) {
  try {
    make();
  } catch (const deepum::error& e) {
    return e.code();
  }
  return std::nullopt;
}

TEST_CASE("without the variable, or with an empty one, there is no limit") {
  ::unsetenv(managed_limit::variable);
  CHECK_FALSE(managed_limit::left().has_value());
  const managed_limit::share much(1'000'000_GiB);
  const environment empty(managed_limit::variable, "");
  CHECK_FALSE(managed_limit::left().has_value());
}

TEST_CASE("a limit that is no size is an error that names the variable and the value") {
  const environment set(managed_limit::variable, "plenty");
  CHECK(thrown_by([] { (void)managed_limit::left(); }) == status::invalid_argument);
  try {
    const managed_limit::share s(1_MiB);
    CHECK(false);
  } catch (const deepum::error& e) {
    const std::string what = e.what();
    CHECK(what.find("DEEPUM_MANAGED_LIMIT") != std::string::npos);
    CHECK(what.find("plenty") != std::string::npos);
  }
}

TEST_CASE("shares add up to the limit and are given back; what does not fit takes nothing") {
  const environment set(managed_limit::variable, "10MiB");
  CHECK(managed_limit::left() == 10_MiB);
  {
    const managed_limit::share a(4_MiB);
    CHECK(managed_limit::left() == 6_MiB);
    const managed_limit::share b(6_MiB);
    CHECK(managed_limit::left() == 0_MiB);
    CHECK(thrown_by([] { const managed_limit::share c(bytes{1}); }) == status::out_of_arena_space);
    CHECK(managed_limit::left() == 0_MiB);
  }
  CHECK(managed_limit::left() == 10_MiB);
  CHECK(thrown_by([] { const managed_limit::share c(bytes{std::numeric_limits<std::uint64_t>::max()}); }) ==
        status::out_of_arena_space);
  {
    const managed_limit::share odd(bytes{1});
    CHECK(managed_limit::left() == 8_MiB);  // whole blocks
    const environment lower(managed_limit::variable, "0");
    CHECK(managed_limit::left() == 0_MiB);  // less than is taken already
  }
}

TEST_CASE("threads never take more than the limit together") {
  const environment set(managed_limit::variable, "8MiB");
  std::atomic<int> most{0};
  std::atomic<int> now{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        try {
          const managed_limit::share s(3_MiB);
          const int held = ++now;
          for (int seen = most.load(); seen < held && !most.compare_exchange_weak(seen, held);) {
          }
          --now;
        } catch (const deepum::error&) {  // NOLINT(bugprone-empty-catch): as often as it likes
        }
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  CHECK(most.load() <= 2);
  CHECK(managed_limit::left() == 8_MiB);
}

TEST_CASE("arenas share the limit, and the driver is asked for nothing beyond it") {
  const fake_gpu gpu;
  const environment set(managed_limit::variable, "32MiB");
  const environment no_feed("DEEPUM_FAULT_FEED", "none");
  deepum::cuda::device device;
  {
    const deepum::arena first(device, {.capacity = 20_MiB, .log = {}});
    CHECK(thrown_by([&] { deepum::arena second(device, {.capacity = 14_MiB, .log = {}}); }) ==
          status::out_of_arena_space);
    CHECK(deepum_test::fake_cuda::stats().managed == 20_MiB);
    const deepum::arena rest(device, {.log = {}});  // what is left
    CHECK(rest.capacity() == 12_MiB);
    CHECK(deepum_test::fake_cuda::stats().managed_peak == 32_MiB);
  }
  // What fails later gives its share back.
  deepum_test::fake_cuda::fail_call("cudaMallocManaged", 1, cudaErrorMemoryAllocation);
  CHECK(thrown_by([&] { deepum::arena failing(device, {.capacity = 30_MiB, .log = {}}); }) ==
        status::out_of_device_memory);
  CHECK(managed_limit::left() == 32_MiB);
  const deepum::arena all(device, {.capacity = 32_MiB, .log = {}});
}

}  // namespace managed_limit_test
