#include "cuda/lane_bench.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <thread>

namespace migration_lane_test {

using namespace lane_bench_of_tests;
TEST_CASE("commands that follow one another are merged up to 64 MiB, and each is told by itself") {
  bench b;
  b.hold_inward();
  b.prefetch(200, 1, 1);
  b.prefetch(210, 1, 2);
  b.prefetch(220, 1, 3);
  REQUIRE(comes([&] { return b.hinted().size() == 3; }));
  for (std::uint32_t i = 0; i < 10; ++i) {
    b.prefetch(i * 7, 7, 10 + i);
  }
  b.prefetch(80, 2, 20);  // not adjacent
  b.prefetch(75, 5, 21);  // adjacent, but not behind it
  b.resume_inward();
  b.settle();
  CHECK(b.hinted() == strings{"200+1>device", "210+1>device", "220+1>device", "0+32>device", "32+32>device",
                              "64+6>device", "80+2>device", "75+5>device"});
  CHECK(b.events.text() ==
        "arrived 200+1 #1, completed #1, arrived 210+1 #2, completed #2, arrived 220+1 #3, completed #3, "
        "arrived 0+7 #10, arrived 7+7 #11, arrived 14+7 #12, arrived 21+7 #13, arrived 28+4 #14, completed #10, "
        "completed #11, completed #12, "
        "completed #13, arrived 32+3 #14, arrived 35+7 #15, arrived 42+7 #16, arrived 49+7 #17, arrived 56+7 #18, "
        "arrived 63+1 #19, completed #14, completed #15, completed #16, completed #17, completed #18, "
        "arrived 64+6 #19, completed #19, arrived 80+2 #20, completed #20, arrived 75+5 #21, completed #21");
}

TEST_CASE("a long command is cut, and its pieces are told as they come") {
  bench b;
  b.prefetch(0, 100, 5);
  b.settle();
  CHECK(prefetches(b.base) == strings{"0+32>device", "32+32>device", "64+32>device", "96+4>device"});
  CHECK(b.events.text() == "arrived 0+32 #5, arrived 32+32 #5, arrived 64+32 #5, arrived 96+4 #5, completed #5");
  b.events.clear();
  b.evict(0, 40, 6);
  b.settle();
  CHECK(prefetches(b.base, 4) == strings{"0+16>host", "16+16>host", "32+8>host"});
  CHECK(b.events.text() == "departed 0+16 #6, departed 16+16 #6, departed 32+8 #6, completed #6");
  CHECK(fake_cuda::stats().device_blocks == 60);
}

TEST_CASE("to the device three pieces move, each in a stream that was idle; no fourth one is given to the driver") {
  bench b;
  b.hold_inward();
  b.prefetch(0, 128, 1);
  REQUIRE(comes([&] { return b.hinted().size() == 3; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(b.hinted() == strings{"0+32>device", "32+32>device", "64+32>device"});
  CHECK(std::set<cudaStream_t>(b.held.begin(), b.held.end()).size() == 3);
  CHECK(b.inward->load() == 1);
  CHECK(b.events.text() == "");
  b.resume_inward();
  b.settle();
  CHECK(b.inward->load() == 0);
  CHECK(b.hinted().size() == 4);
}

TEST_CASE("the two directions do not wait for each other") {
  bench b;
  b.prefetch(0, 4, 1);
  b.settle();
  b.hold_inward();
  b.prefetch(10, 1, 2);
  b.evict(0, 4, 3);
  b.outward->wait();
  CHECK(b.events.text() == "departed 0+4 #3, completed #3");
  b.resume_inward();
}

TEST_CASE("a call that fails, fails its own command and no other, whichever it is") {
  for (const bool inward : {true, false}) {
    for (const char* name : {"cudaMemPrefetchAsync", "cudaStreamQuery", "cudaStreamSynchronize"}) {
      const std::string called = name;
      if (called == (inward ? "cudaStreamSynchronize" : "cudaStreamQuery")) {
        continue;
      }
      CAPTURE(called);
      CAPTURE(inward);
      for (unsigned nth = 1; nth <= 5; ++nth) {
        CAPTURE(nth);
        bench b;
        if (!inward) {
          b.prefetch(0, 10, 99);
          b.settle();
        }
        b.events.clear();
        fake_cuda::fail_call(name, nth, cudaErrorInvalidValue);
        for (std::uint32_t i = 0; i < 5; ++i) {
          inward ? b.prefetch(i * 2, 1, 1 + i) : b.evict(i * 2, 1, 1 + i);
        }
        b.settle();
        std::string expected;
        unsigned failures = 0;
        std::array<bool, 6> failed{};
        for (const device_event& e : b.events.all()) {
          if (e.what == device_event::kind::failed) {
            failed.at(e.ticket) = true;
            ++failures;
          }
        }
        CHECK(failures == 1);
        if (called != "cudaStreamQuery") {  // which is asked as often as it takes
          CHECK(failed.at(nth));
        }
        for (std::uint64_t t = 1; t <= 5; ++t) {
          const std::string i = std::to_string((t - 1) * 2);
          const std::string n = std::to_string(t);
          expected += expected.empty() ? "" : ", ";
          expected += failed.at(t) ? "failed #" + n
                                   : (inward ? "arrived " : "departed ") + i + "+1 #" + n + ", completed #" + n;
        }
        CHECK(b.events.text() == expected);
      }
    }
  }
}

TEST_CASE("of a command whose piece fails the other pieces move, and it has failed") {
  bench b;
  fake_cuda::fail_call("cudaMemPrefetchAsync", 2, cudaErrorMemoryAllocation);
  b.prefetch(0, 96, 1);
  b.settle();
  CHECK(b.events.text() == "arrived 0+32 #1, arrived 64+32 #1, failed #1");
  CHECK(b.places(1) == "d");
  CHECK_FALSE(b.at(40).on_device);
  b.events.clear();
  fake_cuda::fail_call("cudaMemPrefetchAsync", 1, cudaErrorMemoryAllocation);
  b.evict(0, 32, 2);
  b.evict(64, 1, 3);
  b.settle();
  CHECK(b.events.text() == "departed 16+16 #2, failed #2, departed 64+1 #3, completed #3");
}

TEST_CASE("all commands of a merged piece that fails have failed") {
  bench b;
  b.hold_inward();
  b.prefetch(200, 1, 1);
  b.prefetch(210, 1, 2);
  b.prefetch(220, 1, 6);
  REQUIRE(comes([&] { return b.hinted().size() == 3; }));
  b.prefetch(0, 2, 3);
  b.prefetch(2, 2, 4);
  b.prefetch(10, 1, 5);
  fake_cuda::fail_call("cudaMemPrefetchAsync", 1, cudaErrorInvalidValue);
  b.resume_inward();
  b.settle();
  CHECK(b.events.text() ==
        "arrived 200+1 #1, completed #1, arrived 210+1 #2, completed #2, arrived 220+1 #6, completed #6, failed #3, "
        "failed #4, arrived 10+1 #5, completed #5");
}

TEST_CASE("what managed memory cannot do fails, and the lane goes on") {
  bench b;
  b.inward->submit(bench::command(transfer::clean(reason::write_back), 0, 1, 1));
  b.outward->submit(bench::command(transfer::clean(reason::write_back), 0, 1, 2));
  b.prefetch(0, 1, 3);
  b.inward->wait();
  b.outward->wait();
  const std::string told = b.events.text();
  for (const char* part : {"failed #1", "failed #2", "arrived 0+1 #3", "completed #3"}) {
    CHECK(told.find(part) != std::string::npos);
  }
}

TEST_CASE("a lane that ends carries out what it was given") {
  for (const migration_context migrations : {migration_context::own, migration_context::shared}) {
    bench b(migrations);
    CHECK(b.inward->has_context() == (migrations == migration_context::own));
    fake_cuda::set_delays(3, std::chrono::microseconds(200));
    for (std::uint32_t i = 0; i < 60; ++i) {
      b.prefetch(i * 2, 1, 1 + i);
    }
    b.inward->repopulate_when_idle({block_id{0}, 4});
    b.close();
    std::size_t completed = 0;
    for (const device_event& e : b.events.all()) {
      completed += e.what == device_event::kind::completed ? 1 : 0;
    }
    CHECK(completed == 60);
    CHECK(fake_cuda::stats().device_blocks == 60);
  }
}

TEST_CASE("where no context can be made, lanes use the program's") {
  bench b;
  b.close();
  fake_cuda::set_refuse_contexts(true);
  b.open();
  CHECK_FALSE(b.inward->has_context());
  b.prefetch(0, 1, 1);
  b.evict(0, 1, 2);
  b.settle();
  CHECK(b.events.all().size() == 4);
}

TEST_CASE("a lane that cannot be made leaves nothing behind and the thread on its device") {
  for (const migration_context migrations : {migration_context::own, migration_context::shared}) {
    for (unsigned nth = 1; nth <= migration_lane::pieces_in_flight; ++nth) {
      const fake_gpu gpu;
      const deepum::cuda::device device(0, {.migrations = migrations});
      deepum::cuda::block_marks marks(1);
      fake_cuda::fail_call("cudaStreamCreateWithFlags", nth, cudaErrorMemoryAllocation);
      CHECK_THROWS_AS(migration_lane(device, nullptr, marks, [](const device_event&) {}), deepum::error);
      cudaStream_t s = nullptr;
      CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
      void (*const kernel)() = nothing;
      fake_cuda::register_kernel(kernel);
      std::array<void*, 1> none{};
      CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(1), dim3(1), none.data(), 0, s) ==
            cudaSuccess);
      CHECK(cudaStreamDestroy(s) == cudaSuccess);
    }
  }
}

}  // namespace migration_lane_test
