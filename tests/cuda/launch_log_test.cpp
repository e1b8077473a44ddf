#include "cuda/fake_gpu.hpp"
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/completion/launch_log.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace launch_log_test {

using namespace deepum_test;
using deepum::device_event;
using deepum::launch_id;
using deepum::nanoseconds;

void nothing() {}
/// Runs until the gate is opened.
void wait_for(std::atomic<bool>* gate) {
  while (!gate->load()) {
    std::this_thread::yield();
  }
}

/// A stream with its log.
struct bench {
  bench() {
    fake_cuda::register_kernel(nothing);
    fake_cuda::register_kernel(wait_for);
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    clock.emplace();
    log.emplace(stream);
  }
  ~bench() {
    log.reset();
    clock.reset();
    (void)cudaStreamDestroy(stream);
  }
  bench(const bench&) = delete;
  bench& operator=(const bench&) = delete;

  void launch(bool timed = true, bool begun = false, std::atomic<bool>* gate = nullptr) {
    log->begin(launch_id{++issued}, timed, begun);
    std::array<void*, 2> args{&gate, nullptr};
    const auto* kernel =
        gate != nullptr ? reinterpret_cast<const void*>(wait_for) : reinterpret_cast<const void*>(nothing);
    CHECK(cudaLaunchKernel(kernel, dim3(1), dim3(1), args.data(), 0, stream) == cudaSuccess);
    log->end();
  }
  /// @returns  Whether launches are in flight yet.
  bool collect() { return log->collect(*clock, events); }
  /// All that was launched is done, and has been collected.
  void collect_all() {
    (void)cudaStreamSynchronize(stream);
    CHECK_FALSE(collect());
  }
  /// Whether the launches up to this one, and no other, were told in order.
  [[nodiscard]] bool told_up_to(std::uint64_t last) const {
    bool right = events.size() == last;
    for (std::size_t i = 0; i < events.size(); ++i) {
      right = right && events[i].what == device_event::kind::launch_finished && events[i].launch == launch_id{i + 1} &&
              (i == 0 || events[i - 1].at <= events[i].at);
    }
    return right;
  }

  fake_gpu gpu;
  cudaStream_t stream = nullptr;
  std::optional<deepum::cuda::gpu_clock> clock;
  std::optional<deepum::cuda::launch_log> log;
  std::vector<device_event> events;
  std::uint64_t issued = 0;
};

TEST_CASE("hundreds of launches that are queued are told when the stream has got there, in order, and none before") {
  bench b;
  fake_cuda::hold(b.stream);
  for (int i = 0; i < 600; ++i) {
    b.launch(i % 3 != 0, i % 2 == 0);
  }
  CHECK(b.collect());
  CHECK(b.events.empty());
  fake_cuda::resume(b.stream);
  b.collect_all();
  CHECK(b.told_up_to(600));
  for (std::size_t i = 0; i < b.events.size(); ++i) {
    CHECK(b.events[i].timed == (i % 3 != 0));
    const bool begun = i % 3 != 0 && i % 2 == 0;
    CHECK((b.events[i].began != nanoseconds{}) == begun);
    if (begun) {
      CHECK(b.events[i].began <= b.events[i].at);
      CHECK((i == 0 || b.events[i - 1].at <= b.events[i].began));
    }
  }
}

TEST_CASE("a launch ended when its event says, though by the host's clock that is still to come") {
  bench b;
  fake_cuda::set_clock_offset(std::chrono::hours(1));
  b.launch();
  b.collect_all();
  REQUIRE(b.told_up_to(1));
  CHECK(b.events[0].at > deepum::cuda::gpu_clock::host_now() + std::chrono::minutes(50));
}

TEST_CASE("events are used again") {
  bench b;
  std::uint64_t made = 0;
  for (int round = 0; round < 5; ++round) {
    fake_cuda::hold(b.stream);
    for (int i = 0; i < 50; ++i) {
      b.launch(i % 2 == 0, true);
    }
    fake_cuda::resume(b.stream);
    b.collect_all();
    made = round == 0 ? fake_cuda::calls("cudaEventCreateWithFlags") : made;
  }
  CHECK(fake_cuda::calls("cudaEventCreateWithFlags") == made);
  CHECK(b.told_up_to(250));
}

TEST_CASE("what is not timed was over when the next one was that is") {
  bench b;
  std::atomic<bool> first{false};
  std::atomic<bool> last{false};
  b.launch(true);
  b.launch(false);
  b.launch(true, false, &first);
  b.launch(true);
  b.launch(true, false, &last);
  b.launch(false);
  first = true;
  REQUIRE(comes([&] { return b.collect() && b.events.size() == 4; }));
  last = true;
  const nanoseconds released = deepum::cuda::gpu_clock::host_now();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  b.collect_all();
  CHECK(b.told_up_to(6));
  CHECK_FALSE(b.events[1].timed);
  CHECK(b.events[1].at <= b.events[2].at);
  CHECK(b.events[3].at < released);
  CHECK_FALSE(b.events[5].timed);
}

TEST_CASE("a late look does not push the ends of timed launches behind an untimed one to the present") {
  bench b;
  b.launch(false);
  b.launch(true);
  (void)cudaStreamSynchronize(b.stream);
  const nanoseconds over = deepum::cuda::gpu_clock::host_now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(b.collect());
  CHECK(b.told_up_to(2));
  CHECK(b.events[0].at <= b.events[1].at);
  CHECK(b.events[1].at < over + std::chrono::milliseconds(10));
}

TEST_CASE("launches whose event cannot be made or recorded finish with the next one, or when the stream is empty") {
  for (const char* name : {"cudaEventCreateWithFlags", "cudaEventRecord", "cudaStreamIsCapturing"}) {
    CAPTURE(std::string(name));
    bench b;
    std::atomic<bool> first{false};
    std::atomic<bool> second{false};
    b.launch();
    fake_cuda::fail_call(name, 1, cudaErrorMemoryAllocation);
    b.launch(true, false, &first);
    b.launch(true, false, &second);
    REQUIRE(comes([&] { return b.collect() && b.events.size() == 1; }));
    first = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(b.collect());
    CHECK(b.told_up_to(1));
    second = true;
    (void)cudaStreamSynchronize(b.stream);
    CHECK_FALSE(b.collect());
    CHECK(b.told_up_to(3));
    CHECK_FALSE(b.events[1].timed);
    CHECK(b.events[2].timed);

    fake_cuda::fail_all_calls(name, cudaErrorMemoryAllocation);
    std::atomic<bool> third{false};
    b.launch(true, true, &third);
    b.launch();
    CHECK(b.collect());
    CHECK(b.told_up_to(3));
    third = true;
    b.collect_all();
    CHECK(b.told_up_to(5));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
}

TEST_CASE("a capture gets no event of ours, and asking for it leaves the capture valid") {
  bench b;
  b.launch();
  b.collect_all();
  fake_cuda::set_capturing(b.stream, true);
  b.launch(true, true);
  b.launch(false);
  CHECK(fake_cuda::stats().captured == 2);  // the two kernels
  CHECK(b.collect());
  CHECK(b.told_up_to(1));
  CHECK(fake_cuda::stats().capture_violations == 0);
  fake_cuda::set_capturing(b.stream, false);
  b.collect_all();
  CHECK(b.told_up_to(3));
}

TEST_CASE("a device that breaks finishes all launches") {
  bench b;
  fake_cuda::hold(b.stream);
  for (int i = 0; i < 10; ++i) {
    b.launch(i % 2 == 0);
  }
  CHECK(b.collect());
  fake_cuda::break_device(cudaErrorIllegalAddress);
  CHECK_FALSE(b.collect());
  CHECK(b.told_up_to(10));
  b.log->begin(launch_id{11}, true, true);
  b.log->end();
  CHECK_FALSE(b.collect());
  CHECK(b.told_up_to(11));
}

TEST_CASE("a log that ends with launches in flight gives their events back") {
  bench b;
  fake_cuda::hold(b.stream);
  b.launch(true, true);
  CHECK(b.collect());
  b.launch(false);
  fake_cuda::resume(b.stream);
}

}  // namespace launch_log_test
