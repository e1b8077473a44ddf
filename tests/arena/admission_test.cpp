// Launches that are held back until their blocks are there, on the simulated GPU (docs/adr/0004).

#include "support/test_scale.hpp"
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace admission_test {

using namespace deepum;
using namespace deepum::literals;

constexpr std::size_t buffer_size = 6 * 1024 * 1024;  // three blocks
constexpr std::size_t count = buffer_size / sizeof(float);

// The bodies work on one element in 16 KiB: enough to see a block that is stale, and fast.
constexpr std::size_t stride = 4096;

const auto add_one = sim::kernel(
    [](float* x, std::size_t n) {
      for (std::size_t i = 0; i < n; i += stride) {
        x[i] += 1;
      }
    },
    [](sim::work& w, float* x, std::size_t n) { w.updates(x, n * sizeof(float)).flops(static_cast<double>(n) * 4); });

/// Adds to several buffers, which are found through pointers in memory: the launch does not say which.
const auto add_one_to_all = sim::kernel(
    [](float* const* x, std::size_t buffers, std::size_t n) {
      for (std::size_t b = 0; b < buffers; ++b) {
        for (std::size_t i = 0; i < n; i += stride) {
          x[b][i] += 1;
        }
      }
    },
    [](sim::work& w, float* const* x, std::size_t buffers, std::size_t n) {
      w.reads(x, buffers * sizeof(float*));
      for (std::size_t b = 0; b < buffers; ++b) {
        w.updates(x[b], n * sizeof(float));
      }
    });

sim::device_options with_memory(bytes memory, sim::worker_mode worker) {
  sim::device_options o;
  o.memory = memory;
  o.worker = worker;
  return o;
}

arena_options options(bytes budget, std::string policy, bool hold = true) {
  arena_options o{.capacity = 128_MiB, .device_budget = budget, .policy = std::move(policy), .log = {}};
  o.tuning.hold_launches = hold;
  return o;
}

/// Repeats a loop over more buffers than the budget holds. Returns the faults of each repetition.
std::vector<std::uint64_t> faults_of_loop(bool hold, int repetitions) {
  sim::device gpu(sim::find_profile("h200_pcie5"), with_memory(48_MiB, sim::worker_mode::virtual_time));
  arena memory(gpu, options(24_MiB, "auto", hold));
  std::vector<float*> buffers;
  for (int i = 0; i < 12; ++i) {
    buffers.push_back(memory.allocate<float>(count));
    const auto view = memory.host_overwrite(buffers.back(), count);
    for (std::size_t at = 0; at < count; at += stride) {
      view[at] = 0;
    }
  }
  std::vector<std::uint64_t> faults;
  stream s(memory);
  for (int r = 0; r < repetitions; ++r) {
    const std::uint64_t before = memory.statistics().faults;
    for (float* x : buffers) {
      s.launch("add_one", 1, 1, 0, add_one, x, count);
    }
    s.synchronize();
    faults.push_back(memory.statistics().faults - before);
  }
  for (float* x : buffers) {
    const auto view = memory.host_read(x, count);
    CHECK(view[count - stride] == static_cast<float>(repetitions));
  }
  return faults;
}

TEST_CASE("a loop larger than the budget has no faults under auto from the third repetition on") {
  const std::vector<std::uint64_t> faults = faults_of_loop(true, 6);
  for (std::size_t r = 2; r < faults.size(); ++r) {
    CAPTURE(r);
    CHECK(faults[r] == 0);
  }
}

TEST_CASE("without being held back, launches of that loop run into faults") {
  std::uint64_t sum = 0;
  for (const std::uint64_t faults : faults_of_loop(false, 6)) {
    sum += faults;
  }
  CHECK(sum > 0);
}

TEST_CASE("threads whose launches together exceed the budget always come to an end") {
  constexpr std::size_t threads_at_once = 2;
  constexpr std::size_t buffers = 3;  // of three blocks: two launches need 18 blocks and a few, where there are 10
  const int rounds = static_cast<int>(deepum_test::scaled(8));
  for (const sim::worker_mode worker : {sim::worker_mode::virtual_time, sim::worker_mode::thread}) {
    for (const char* policy : {"um", "deepum", "auto"}) {
      for (const bool declared : {true, false}) {
        CAPTURE(policy);
        CAPTURE(declared);
        CAPTURE(worker == sim::worker_mode::thread);
        sim::device gpu(sim::find_profile("h200_pcie5"), with_memory(20_MiB, worker));
        arena memory(gpu, options(20_MiB, policy));
        std::array<bool, threads_at_once> right{};
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < threads_at_once; ++t) {
          threads.emplace_back([&, t] {
            std::array<float*, buffers> x{};
            float** list = memory.allocate<float*>(buffers);
            for (std::size_t b = 0; b < buffers; ++b) {
              x[b] = memory.allocate<float>(count);
              const auto view = memory.host_overwrite(x[b], count);
              for (std::size_t i = 0; i < count; i += stride) {
                view[i] = 0;
              }
              list[b] = x[b];
            }
            stream s(memory);
            for (int r = 0; r < rounds; ++r) {
              if (declared) {
                s.call("all", {updates(x[0], count), updates(x[1], count), updates(x[2], count), reads(list, buffers)},
                       [&](auto& q) { q.launch(1, 1, 0, add_one_to_all, list, buffers, count); });
              } else {
                s.launch("all", 1, 1, 0, add_one_to_all, list, buffers, count);
              }
            }
            s.synchronize();
            right[t] = true;
            for (float* const p : x) {
              const auto view = memory.host_read(p, count);
              right[t] = right[t] && view[0] == static_cast<float>(rounds) && view[count - stride] == view[0];
            }
          });
        }
        for (std::thread& t : threads) {
          t.join();
        }
        CHECK(right == std::array<bool, threads_at_once>{true, true});
      }
    }
  }
}

/// A launch is made while another one is in flight that has reserved what it needs, and does not end before it is made.
/// @param make  Is called with a function that makes it.
/// @returns     How long all of it took.
nanoseconds within_another(const std::function<void(const std::function<void()>&)>& make) {
  sim::device gpu(sim::find_profile("h200_pcie5"), with_memory(8_MiB, sim::worker_mode::virtual_time));
  arena memory(gpu, options(8_MiB, "auto"));
  float* x = memory.allocate<float>(count);
  float* y = memory.allocate<float>(count);
  stream outer(memory);
  stream inner(memory);
  const nanoseconds before = memory.memory().now();
  outer.call("outer", {updates(x, count)}, [&](auto& q) {
    q.launch(1, 1, 0, add_one, x, count);
    make([&] { inner.launch("inner", 1, 1, 0, add_one, y, count); });
  });
  outer.synchronize();
  inner.synchronize();
  CHECK(memory.statistics().unprepared_launches == 1);
  return memory.memory().now() - before;
}

TEST_CASE("a launch waits a second at most for what cannot come, even while something else is in flight") {
  // Nobody knows that the launch in flight waits for this thread.
  const nanoseconds took = within_another([](const std::function<void()>& launch) { std::thread(launch).join(); });
  CHECK(took >= std::chrono::seconds(1));
  CHECK(took < std::chrono::seconds(2));
}

TEST_CASE("a launch within a call does not wait for what the call itself keeps") {
  CHECK(within_another([](const std::function<void()>& launch) { launch(); }) < std::chrono::seconds(1));
}

TEST_CASE("a launch that is held back goes when the budget grows") {
  sim::device gpu(sim::find_profile("h200_pcie5"), with_memory(64_MiB, sim::worker_mode::thread));
  arena memory(gpu, options(8_MiB, "auto"));
  std::vector<float*> buffers;
  for (int i = 0; i < 4; ++i) {
    buffers.push_back(memory.allocate<float>(count));
  }
  std::atomic<bool> over{false};
  std::thread other([&] {
    for (unsigned i = 0; !over; ++i) {
      memory.set_budget(i % 2 == 0 ? 64_MiB : 8_MiB);
      std::this_thread::yield();
    }
  });
  {
    stream s(memory);
    for (int r = 0; r < 20; ++r) {
      for (float* x : buffers) {
        s.launch("add_one", 1, 1, 0, add_one, x, count);
      }
    }
    s.synchronize();
  }
  over = true;
  other.join();
  const nanoseconds end = memory.memory().now();
  CHECK(end < std::chrono::milliseconds(900));  // none had to wait until its second was over
}

}  // namespace admission_test
