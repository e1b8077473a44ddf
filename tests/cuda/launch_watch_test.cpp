#include "cuda/fake_gpu.hpp"
#include "support/watchdog.hpp"
#include <deepum/cuda/completion/launch_log.hpp>
#include <deepum/cuda/completion/launch_watch.hpp>
#include <deepum/cuda/device.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace launch_watch_test {

using namespace deepum_test;
using deepum::device_event;
using deepum::launch_id;

void nothing() {}

/// Some streams with their logs, and the watch over them, without its thread.
struct bench {
  struct one {
    explicit one(deepum::cuda::launch_watch& owner) : watch(owner) {
      REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
      log = std::make_unique<deepum::cuda::launch_log>(stream);
      watch.add(*log);
    }
    ~one() {
      std::vector<device_event> events;
      watch.remove(*log, events);
      log.reset();
      (void)cudaStreamDestroy(stream);
    }
    one(const one&) = delete;
    one& operator=(const one&) = delete;

    deepum::cuda::launch_watch& watch;
    cudaStream_t stream = nullptr;
    std::unique_ptr<deepum::cuda::launch_log> log{};
  };

  explicit bench(std::size_t count, const deepum::cuda::launch_watch::intervals& looks = {}) : watch(device, looks) {
    fake_cuda::register_kernel(nothing);
    for (std::size_t i = 0; i < count; ++i) {
      streams.push_back(std::make_unique<one>(watch));
    }
  }
  void launch(std::size_t stream) {
    one& s = *streams[stream];
    s.log->begin(launch_id{++issued}, false, false);
    std::array<void*, 1> args{nullptr};
    CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(nothing), dim3(1), dim3(1), args.data(), 0, s.stream) ==
          cudaSuccess);
    watch.issued(*s.log, s.log->end());
  }
  /// So many launches that the last command was a while ago.
  void let_time_pass() {
    for (int i = 0; i < 1000; ++i)
      (void)watch.mark_launches();
  }
  /// @returns  Whether launches are in flight yet.
  bool collect() {
    const std::lock_guard lock(watch.mutex());
    const bool in_flight = watch.collect(events, [&](std::size_t) { ++looked_at; });
    CHECK(in_flight != watch.busy_logs().empty());
    return in_flight;
  }

  fake_gpu gpu;
  deepum::cuda::device device{0};
  deepum::cuda::launch_watch watch;
  std::vector<std::unique_ptr<one>> streams{};
  std::vector<device_event> events{};
  std::uint64_t issued = 0;
  std::uint64_t looked_at = 0;  // streams, by all calls of collect
};

TEST_CASE("streams without launches in flight are not looked at, however many are open") {
  bench b(200);
  CHECK_FALSE(b.collect());
  CHECK(b.looked_at == 0);
  for (std::size_t s = 0; s < 200; ++s) {
    b.launch(s);
    (void)cudaStreamSynchronize(b.streams[s]->stream);
  }
  CHECK_FALSE(b.collect());
  CHECK(b.looked_at == 200);
  CHECK(b.events.size() == 200);
  for (int i = 0; i < 100; ++i) {
    b.launch(7);
    (void)cudaStreamSynchronize(b.streams[7]->stream);
    CHECK_FALSE(b.collect());
    CHECK_FALSE(b.collect());
  }
  CHECK(b.looked_at == 300);
  CHECK(b.events.size() == 300);
}

TEST_CASE("a stream is looked at until its last launch is over, and one that ends is not any more") {
  bench b(3);
  fake_cuda::hold(b.streams[0]->stream);
  b.launch(0);
  b.launch(1);
  b.launch(0);
  (void)cudaStreamSynchronize(b.streams[1]->stream);
  CHECK(b.collect());
  CHECK(b.collect());
  CHECK(b.watch.busy_logs().size() == 1);
  CHECK(b.events.size() == 1);
  b.launch(2);
  (void)cudaStreamSynchronize(b.streams[2]->stream);
  b.streams.pop_back();  // before anybody has looked
  CHECK(b.collect());
  CHECK(b.watch.busy_logs().size() == 1);
  fake_cuda::resume(b.streams[0]->stream);
  (void)cudaStreamSynchronize(b.streams[0]->stream);
  CHECK_FALSE(b.collect());
  CHECK(b.events.size() == 3);
}

TEST_CASE("a wait ends when the pump has run, and at once where it has run since the count was taken") {
  const watchdog ends("waits for the pump");
  bench b(0);
  std::atomic<std::uint64_t> runs{0};
  std::atomic<bool> more{false};
  b.watch.attach([&] {
    ++runs;
    if (more) b.watch.hurry();
  });
  CHECK(comes([&] { return b.watch.runs() != 0; }));
  const std::uint64_t before = b.watch.runs();
  b.watch.notify();
  b.watch.wait(before, std::chrono::hours(1));
  CHECK(b.watch.runs() > before);
  b.watch.wait(before, std::chrono::hours(1));
  // Threads that sleep are all woken, however often and whenever the pump runs.
  std::vector<std::thread> waiting;
  for (int t = 0; t < 4; ++t) {
    waiting.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const std::uint64_t seen = b.watch.runs();
        b.watch.wait(seen, std::chrono::hours(1));
        CHECK(b.watch.runs() > seen);
      }
    });
  }
  more = true;
  b.watch.hurry();
  for (std::thread& t : waiting)
    t.join();
  more = false;
  b.watch.detach();
  CHECK(b.watch.runs() == runs);
}

TEST_CASE("a wait sleeps while the pump does, and wakes it when its time is over") {
  const watchdog ends("waits while the pump sleeps");
  bench b(0);
  b.watch.attach([] {});
  std::uint64_t ended_by_runs = 0;
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t seen = b.watch.runs();
    const auto began = std::chrono::steady_clock::now();
    b.watch.wait(seen, std::chrono::milliseconds(2));
    const bool ran = b.watch.runs() > seen;
    ended_by_runs += ran ? 1 : 0;
    CHECK((ran || std::chrono::steady_clock::now() - began >= std::chrono::milliseconds(2)));
    CHECK(comes([&] { return b.watch.runs() > seen; }));
  }
  b.watch.detach();  // now nothing runs
  const std::uint64_t last = b.watch.runs();
  const auto began = std::chrono::steady_clock::now();
  b.watch.wait(last, std::chrono::milliseconds(5));
  CHECK(std::chrono::steady_clock::now() - began >= std::chrono::milliseconds(5));
  CHECK(b.watch.runs() == last);
}

TEST_CASE("while nothing moves the pump naps beside launches, and who needs it ends the nap") {
  const watchdog ends("naps of the pump");
  constexpr auto never = std::chrono::hours(1);
  bench b(1, {.calm = never, .idle = never});
  b.let_time_pass();
  std::atomic<bool> moves{false};
  b.watch.attach([&] {
    if (moves.exchange(false)) b.watch.command_submitted(1);
    b.watch.note_in_flight(b.collect());
  });
  fake_cuda::hold(b.streams[0]->stream);
  CHECK(comes([&] { return b.watch.runs() == 1; }));
  b.launch(0);
  b.watch.hurry();
  CHECK(comes([&] { return b.watch.runs() >= 2; }));
  for (int i = 0; i < 100; ++i)
    b.launch(0);
  CHECK(b.watch.runs() <= 3);  // at the beginning, for the first launch, and for the wish

  for (int i = 0; i < 100; ++i) {
    const std::uint64_t seen = b.watch.runs();
    b.watch.wait(seen, never);
    CHECK(b.watch.runs() > seen);
    const std::uint64_t before = b.watch.runs();
    b.watch.hurry();
    CHECK(comes([&] { return b.watch.runs() > before; }));
  }

  moves = true;
  b.watch.hurry();
  const std::uint64_t before = b.watch.runs();
  CHECK(comes([&] { return b.watch.runs() > before + 100; }));  // it looks for the command's end
  b.watch.command_ended();
  fake_cuda::resume(b.streams[0]->stream);
  b.watch.detach();
}

TEST_CASE("a nap of the pump does not keep it from ending") {
  const watchdog ends("ends of naps of the pump");
  constexpr auto never = std::chrono::hours(1);
  for (int i = 0; i < 50; ++i) {
    bench b(1, {.calm = never, .idle = never});
    b.let_time_pass();
    b.watch.attach([&] { b.watch.note_in_flight(b.collect()); });
    fake_cuda::hold(b.streams[0]->stream);
    CHECK(comes([&] { return b.watch.runs() == 1; }));
    b.launch(0);
    b.watch.hurry();
    CHECK(comes([&] { return b.watch.runs() >= 2; }));
    b.watch.detach();
    fake_cuda::resume(b.streams[0]->stream);
  }
}

}  // namespace launch_watch_test
