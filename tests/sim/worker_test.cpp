#include "simulated_gpu.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace deepum_test::worker_test {

sim::device_options with(sim::worker_mode mode, std::uint64_t seed = 0) { return {.worker = mode, .delay_seed = seed}; }

/// Waits, in real time, for what another thread does.
template <class Condition>
bool eventually(Condition&& holds) {
  for (int i = 0; i < 5000; ++i) {
    if (holds()) {
      return true;
    }
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

TEST_CASE("the pump runs shortly after a notification, once for several") {
  simulated_gpu gpu(4, 4);
  std::vector<nanoseconds> runs;
  gpu.memory.attach([&] { runs.push_back(gpu.memory.now()); });
  gpu.memory.notify();
  gpu.memory.notify();
  CHECK(runs.empty());
  gpu.device.host_work(1ms);
  REQUIRE(runs.size() == 1);
  CHECK(runs[0] == gpu.device.properties().worker_wake_up);
  gpu.memory.notify();
  gpu.device.host_work(1ms);
  CHECK(runs.size() == 2);
}

TEST_CASE("the pump runs when something happened, and commands from within it are carried out") {
  simulated_gpu gpu(4, 4);
  std::vector<device_event> seen;
  bool sent = false;
  gpu.memory.attach([&] {
    gpu.memory.poll(seen);
    if (!sent) {
      sent = deepum_test::prefetch(gpu.memory, {block_id{2}, 1}, 5);
    }
  });
  touch(gpu, 0, 1);
  gpu.device.host_work(1ms);
  CHECK(sent);
  CHECK(gpu.resident(2));
  CHECK(std::count_if(seen.begin(), seen.end(),
                      [](const device_event& e) { return e.what == kind::completed && e.ticket == 5; }) == 1);
}

TEST_CASE("a detached pump never runs again, whatever was on its way") {
  simulated_gpu gpu(4, 4);
  int runs = 0;
  gpu.memory.attach([&] { ++runs; });
  gpu.memory.notify();
  gpu.memory.detach();
  gpu.device.host_work(1ms);
  CHECK(runs == 0);
  gpu.memory.attach([&] { ++runs; });
  gpu.memory.notify();
  gpu.device.host_work(1ms);
  CHECK(runs == 1);
}

TEST_CASE("random delays of the pump come from the seed") {
  const auto delays = [](std::uint64_t seed) {
    simulated_gpu gpu(4, 4, sim::find_profile("h200_pcie5"), with(sim::worker_mode::virtual_time, seed));
    std::vector<nanoseconds> runs;
    gpu.memory.attach([&] { runs.push_back(gpu.memory.now()); });
    for (int i = 0; i < 10; ++i) {
      gpu.memory.notify();
      gpu.device.host_work(10ms);
    }
    gpu.memory.detach();
    return runs;
  };
  CHECK(delays(1) == delays(1));
  CHECK(delays(1) != delays(2));
  CHECK(delays(1).size() == 10);
}

TEST_CASE("a thread as worker wakes up for notifications and events without any host call, and ends when detached") {
  simulated_gpu gpu(4, 4, sim::find_profile("h200_pcie5"), with(sim::worker_mode::thread));
  std::atomic<int> runs{0};
  gpu.memory.attach([&] { ++runs; });
  gpu.memory.notify();
  CHECK(eventually([&] { return runs == 1; }));
  touch(gpu, 0, 1);
  CHECK(eventually([&] { return runs >= 2; }));
  gpu.memory.detach();
  const int before = runs;
  gpu.memory.notify();
  touch(gpu, 1, 1);
  CHECK(runs == before);
}

TEST_CASE(
    "several host threads, several streams and a worker that moves blocks under them compute what one thread would") {
  for (const sim::worker_mode mode : {sim::worker_mode::virtual_time, sim::worker_mode::thread}) {
    simulated_gpu gpu(5, 12, sim::find_profile("h200_pcie5"), with(mode, 3));
    constexpr std::uint32_t threads = 3;
    constexpr int rounds = 12;
    const std::size_t n = 1000;
    gpu.memory.attach([&, next = std::uint64_t{0}]() mutable {
      std::vector<device_event> events;
      gpu.memory.poll(events);
      if (next < 200) {
        ++next;
        (void)deepum_test::prefetch(gpu.memory, {block_id{static_cast<std::uint32_t>(next % 11)}, 2}, next);
        (void)deepum_test::evict(gpu.memory, {block_id{static_cast<std::uint32_t>(next * 5 % 12)}, 1}, next);
      }
    });
    std::vector<std::thread> hosts;
    for (std::uint32_t t = 0; t < threads; ++t) {
      hosts.emplace_back([&gpu, t] {
        sim::stream stream(gpu.memory);
        for (int round = 0; round < rounds; ++round) {
          for (std::uint32_t b = 0; b < 4; ++b) {
            auto* x = reinterpret_cast<float*>(gpu.at(4 * t + b));
            stream.launch(1U, 1U, 0, adder(), x, n, 1.0F);
            gpu.memory.notify();
          }
          if (round % 3 == 0) {
            stream.synchronize();
            gpu.memory.host_access(block_size * (4 * t), bytes{4 * n}, access::update);
            reinterpret_cast<float*>(gpu.at(4 * t))[0] += 1.0F;
          }
        }
        sim::event done;
        stream.record(done);
        while (!done.done()) {
        }
      });
    }
    for (std::thread& host : hosts) {
      host.join();
    }
    gpu.memory.detach();
    for (std::uint32_t b = 0; b < 4 * threads; ++b) {
      CAPTURE(b);
      CHECK(reinterpret_cast<float*>(gpu.at(b))[0] == (b % 4 == 0 ? 16.0F : 12.0F));
      CHECK(reinterpret_cast<float*>(gpu.at(b))[n - 1] == 12.0F);
    }
  }
}

}  // namespace deepum_test::worker_test
