#include "simulated_gpu.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace deepum_test::stream_test {

/// Computes for about `time` on nothing, then appends to a string.
auto logger(nanoseconds time, const sim::profile& p) {
  const double flops = static_cast<double>(time.count()) * 1e-9 * p.peak_flops * p.flops_efficiency;
  return sim::kernel([](std::string* log, char c) { *log += c; },
                     [flops](sim::work& w, std::string*, char) { w.flops(flops); });
}

struct timeline {
  std::vector<device_event> events;
  nanoseconds end{};
  sim::device_counters counters;
};

/// A program with everything in it.
timeline mixed_program(sim::device_options options = {}) {
  simulated_gpu gpu(6, 16, sim::find_profile("v100_pcie3"), options);
  gpu.fill_on_host(0, 16, 0);
  sim::stream second(gpu.memory);
  sim::event done;
  timeline result;
  auto* x = reinterpret_cast<float*>(gpu.at(0));
  for (std::uint32_t i = 0; i < 20; ++i) {
    const std::uint64_t n = (3 * block_size).count / sizeof(float);
    gpu.stream.begin(launch_id{i + 1});
    gpu.stream.launch(1U, 1U, 0, adder(), x + i * 7 % 13 * (n / 3), n, 1.0F);
    gpu.stream.end(launch_id{i + 1});
    gpu.stream.record(done);
    second.wait(done);
    second.fill(gpu.at(15), static_cast<int>(i), 1000);
    deepum_test::prefetch(gpu.memory, {block_id{i * 5 % 13}, 2}, 2 * i + 1);
    deepum_test::evict(gpu.memory, {block_id{i * 3 % 13}, 2}, 2 * i + 2);
    if (i % 4 == 0) {
      gpu.memory.host_access(block_size * (i % 11), bytes{100}, access::read);
    }
  }
  gpu.stream.synchronize();
  second.synchronize();
  gpu.settle();
  result.events = gpu.events();
  result.end = gpu.device.now();
  result.counters = gpu.device.counters();
  return result;
}

TEST_CASE("a kernel takes its launch latency and the longer of its compute and its memory time") {
  simulated_gpu gpu(8, 8);
  const sim::profile& p = gpu.device.properties();
  gpu.prefetch(0, 8);
  const auto time = [&](auto describe) {
    gpu.device.host_work(1ms);
    const nanoseconds start = gpu.device.now();
    gpu.stream.launch(1U, 1U, 0, sim::kernel([](const std::byte*) {}, describe),
                      static_cast<const std::byte*>(gpu.at(0)));
    gpu.stream.synchronize();
    return gpu.device.now() - start - p.host_launch - p.launch_latency;
  };
  const std::size_t n = (8 * block_size).count;
  CHECK(time([&](sim::work& w, const std::byte* x) { w.reads(x, n); }) == sim::time_at(bytes{n}, p.memory_bandwidth));
  CHECK(time([&](sim::work& w, const std::byte* x) { w.updates(x, n); }) ==
        sim::time_at(bytes{2 * n}, p.memory_bandwidth));
  CHECK(time([&](sim::work& w, const std::byte* x) { w.reads(x, n).traffic(1_GiB); }) ==
        sim::time_at(1_GiB, p.memory_bandwidth));
  CHECK(time([&](sim::work& w, const std::byte* x) { w.reads(x, n).flops(1e10).flops(1e10); }) ==
        sim::time_at(bytes{20'000'000'000}, p.peak_flops * p.flops_efficiency));
  CHECK(time([&](sim::work& w, const std::byte*) { w.flops(1e10); }) ==
        sim::time_at(bytes{10'000'000'000}, p.peak_flops * p.flops_efficiency));
}

TEST_CASE("a launch is reported when all that belongs to it is done, with its begin and its stalls") {
  simulated_gpu gpu(8, 8);
  gpu.fill_on_host(0, 8, 0);
  gpu.stream.begin(launch_id{5});
  gpu.stream.launch(1U, 1U, 0, toucher(access::read), static_cast<const std::byte*>(gpu.at(0)), std::size_t{100});
  gpu.stream.fill(gpu.at(1), 3, 100);
  gpu.stream.end(launch_id{5});
  gpu.stream.begin(launch_id{6});
  gpu.stream.end(launch_id{6});
  gpu.stream.synchronize();
  const auto finished = gpu.events(kind::launch_finished);
  REQUIRE(finished.size() == 2);
  CHECK(finished[0].launch == launch_id{5});
  CHECK(finished[0].began > nanoseconds{});
  CHECK(finished[0].stalled == gpu.device.counters().stalled);
  CHECK(finished[0].stalled > 100us);
  CHECK(finished[0].at - finished[0].began >= finished[0].stalled);
  CHECK(finished[1].launch == launch_id{6});
  CHECK(finished[1].stalled == nanoseconds{});
}

TEST_CASE("kernels of one stream run in order, those of several in the order of issue, never two at once") {
  simulated_gpu gpu(4, 4);
  sim::stream other(gpu.memory);
  const auto k = logger(100us, gpu.device.properties());
  std::string log;
  const nanoseconds start = gpu.device.now();
  gpu.stream.launch(1U, 1U, 0, k, &log, 'a');
  gpu.stream.launch(1U, 1U, 0, k, &log, 'b');
  other.launch(1U, 1U, 0, k, &log, 'c');
  gpu.stream.launch(1U, 1U, 0, k, &log, 'd');
  other.launch(1U, 1U, 0, k, &log, 'e');
  gpu.stream.synchronize();
  other.synchronize();
  CHECK(log == "abcde");
  CHECK(gpu.device.now() - start >= 500us);
}

TEST_CASE("launching returns at once, and arguments are those of the call") {
  simulated_gpu gpu(4, 4);
  std::string log;
  char c = 'x';
  gpu.stream.launch(1U, 1U, 0, logger(1ms, gpu.device.properties()), &log, c);
  c = 'y';
  CHECK(log.empty());
  CHECK_FALSE(gpu.stream.idle());
  gpu.stream.synchronize();
  CHECK(log == "x");
  CHECK(gpu.stream.idle());
}

TEST_CASE("an event orders streams, stands for the moment of its last record, and can be polled") {
  simulated_gpu gpu(4, 4);
  sim::stream other(gpu.memory);
  sim::event e;
  CHECK(e.done());
  e.synchronize();
  other.wait(e);  // never recorded: nothing to wait for
  std::string log;
  const auto k = logger(1ms, gpu.device.properties());
  gpu.stream.launch(1U, 1U, 0, k, &log, 'a');
  gpu.stream.record(e);
  other.wait(e);
  gpu.stream.launch(1U, 1U, 0, k, &log, 'b');
  other.launch(1U, 1U, 0, k, &log, 'c');
  gpu.stream.launch(1U, 1U, 0, k, &log, 'd');
  CHECK_FALSE(e.done());
  int polls = 0;
  while (!e.done()) {
    ++polls;
  }
  CHECK(log == "a");
  CHECK(polls > 10);
  sim::event last;
  other.record(last);
  last.synchronize();
  CHECK(log == "abc");
  gpu.stream.synchronize();
}

TEST_CASE("a full launch queue makes the host wait") {
  sim::profile p = sim::find_profile("h200_pcie5");
  p.launch_queue = 4;
  simulated_gpu gpu(4, 4, p);
  std::string log;
  for (int i = 0; i < 6; ++i) {
    gpu.stream.launch(1U, 1U, 0, logger(1ms, p), &log, 'a');
  }
  CHECK(log.size() == 2);
  CHECK(gpu.device.now() > 2ms);
}

TEST_CASE("a description may read memory: touches can depend on data") {
  simulated_gpu gpu(8, 8);
  gpu.fill_on_host(0, 8, 0);
  auto* index = reinterpret_cast<std::uint32_t*>(gpu.at(0));
  const auto set =
      sim::kernel([](std::uint32_t* i) { *i = 5; }, [](sim::work& w, std::uint32_t* i) { w.updates(i, 4); });
  const auto gather = sim::kernel([](const std::uint32_t*, std::byte*) {},
                                  [](sim::work& w, const std::uint32_t* i, std::byte* table) {
                                    w.reads(i, 4).reads(table + *i * block_size.count, 10);
                                  });
  gpu.stream.launch(1U, 1U, 0, set, index);
  gpu.stream.launch(1U, 1U, 0, gather, static_cast<const std::uint32_t*>(index), gpu.at(0));
  gpu.stream.synchronize();
  CHECK(gpu.record(5).on_device != 0);
}

TEST_CASE("operations on memory outside of all arenas need no blocks") {
  simulated_gpu gpu(4, 4);
  std::vector<float> x(100, 1.0F);
  gpu.stream.launch(1U, 1U, 0, adder(), x.data(), x.size(), 2.0F);
  gpu.stream.synchronize();
  CHECK(x[99] == 3.0F);
  CHECK(gpu.device.counters().faulted_blocks == 0);
}

TEST_CASE("copies go both ways and in place: the source has been read, and a target outside is complete, on return") {
  simulated_gpu gpu(4, 4);
  std::vector<std::byte> source(3'000'000, std::byte{4});
  gpu.stream.copy(gpu.at(0), source.data(), source.size());
  std::fill(source.begin(), source.end(), std::byte{5});
  gpu.stream.copy(gpu.at(2), gpu.at(0), source.size());
  gpu.stream.fill(gpu.at(2), 6, 10);
  gpu.stream.copy(source.data(), gpu.at(2), source.size());
  CHECK(source[9] == std::byte{6});
  CHECK(source[10] == std::byte{4});
  CHECK(source.back() == std::byte{4});
  gpu.stream.copy(gpu.at(0), source.data(), 0);
}

TEST_CASE("a copy from the host takes the link's time and runs beside a kernel") {
  simulated_gpu gpu(8, 8);
  gpu.prefetch(0, 8);
  sim::stream other(gpu.memory);
  std::string log;
  const std::vector<std::byte> source((8 * block_size).count);
  const nanoseconds start = gpu.device.now();
  gpu.stream.launch(1U, 1U, 0, logger(2ms, gpu.device.properties()), &log, 'a');
  other.copy(gpu.at(0), source.data(), source.size());
  other.synchronize();
  const nanoseconds copied = gpu.device.now() - start;
  gpu.stream.synchronize();
  const nanoseconds expected = sim::time_at(bytes{source.size()}, gpu.device.properties().pageable);
  CHECK(copied > expected);
  CHECK(copied < expected + 20us);
  CHECK(gpu.device.now() - start < 2100us);
}

TEST_CASE("what a kernel throws is thrown by every synchronize from then on, and nothing more runs") {
  simulated_gpu gpu(4, 4);
  const auto broken = sim::kernel([](int) { throw std::runtime_error("broken"); }, [](sim::work&, int) {});
  std::string log;
  gpu.stream.begin(launch_id{1});
  gpu.stream.launch(1U, 1U, 0, broken, 0);
  gpu.stream.launch(1U, 1U, 0, logger(1us, gpu.device.properties()), &log, 'a');
  gpu.stream.end(launch_id{1});
  CHECK_THROWS_WITH(gpu.stream.synchronize(), "broken");
  CHECK_THROWS_WITH(gpu.stream.synchronize(), "broken");
  CHECK(log.empty());
  CHECK(gpu.events(kind::launch_finished).size() == 1);
}

TEST_CASE("a description that goes past the end of the arena is an error with the kernel's name and the numbers") {
  simulated_gpu gpu(4, 4);
  CHECK_THROWS_WITH(touch(gpu, 3, 2), "kernel 'touch' touches 4194304 bytes at offset 6291456 of an arena of 8388608");
}

TEST_CASE("the same program gives the same events at the same virtual times") {
  const timeline first = mixed_program();
  const timeline second = mixed_program();
  CHECK(first.end == second.end);
  CHECK(first.counters.stalled == second.counters.stalled);
  REQUIRE(first.events.size() == second.events.size());
  CHECK(first.events.size() > 100);
  for (std::size_t i = 0; i < first.events.size(); ++i) {
    CAPTURE(i);
    CHECK(first.events[i].what == second.events[i].what);
    CHECK(first.events[i].at == second.events[i].at);
    CHECK(first.events[i].range == second.events[i].range);
  }
}

TEST_CASE("a launch looks at no other stream, unless that one waits for an event") {
  simulated_gpu gpu(8, 8);
  std::vector<std::unique_ptr<sim::stream>> others;
  for (int i = 0; i < 1000; ++i) {
    others.push_back(std::make_unique<sim::stream>(gpu.memory));
    others.back()->fill(gpu.at(1), 0, 16);
    others.back()->synchronize();
  }
  const std::uint64_t before = gpu.device.operations().streams_visited();
  for (int i = 0; i < 100; ++i) {
    gpu.stream.fill(gpu.at(0), 0, 16);
  }
  gpu.stream.synchronize();
  CHECK(gpu.device.operations().streams_visited() == before);

  sim::event e;
  gpu.stream.fill(gpu.at(0), 0, 16);
  gpu.stream.record(e);
  for (int i = 0; i < 3; ++i) {
    others[static_cast<std::size_t>(i)]->wait(e);
  }
  gpu.stream.synchronize();
  for (int i = 0; i < 3; ++i) {
    others[static_cast<std::size_t>(i)]->synchronize();
  }
  CHECK(gpu.device.operations().streams_visited() <= before + 2 * 3);
}

}  // namespace deepum_test::stream_test
