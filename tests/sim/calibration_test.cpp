// The measured rates of an H200 (docs/simulator.md), each from the same calls that were measured: 1 GiB at a time.
#include "simulated_gpu.hpp"
#include <deepum/sim/paged_memory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace deepum_test::calibration_test {

constexpr std::uint32_t gib = 512;  // blocks

bool within_a_tenth(double value, double measured) { return value > 0.9 * measured && value < 1.1 * measured; }

/// Time of prefetches or evictions of 1 GiB in calls of `each` blocks, issued back to back.
nanoseconds time_of_calls(simulated_gpu& gpu, bool in, std::uint32_t each) {
  const nanoseconds start = gpu.device.now();
  for (std::uint32_t b = 0; b < gib; b += each) {
    if (in) {
      deepum_test::prefetch(gpu.memory, {block_id{b}, each}, ++gpu.ticket);
    } else {
      deepum_test::evict(gpu.memory, {block_id{b}, each}, ++gpu.ticket);
    }
  }
  gpu.settle();
  return gpu.device.now() - start;
}

TEST_CASE("page faults stream at 8 to 10 GB/s, with one batch for each block") {
  simulated_gpu gpu(2 * gib, gib);
  gpu.populate_on_host(0, gib);
  const double rate = gigabytes_per_second(1_GiB, touch(gpu, 0, gib));
  CHECK(rate > 8);
  CHECK(rate < 10);
  CHECK(gpu.device.counters().faulted_blocks == gib);
}

TEST_CASE("prefetch to the device reaches 18, 37 and 51 GB/s in calls of 2 MiB, 16 MiB and 1 GiB") {
  for (const auto& measured : {std::pair{1U, 18.0}, std::pair{8U, 37.0}, std::pair{gib, 51.0}}) {
    const std::uint32_t each = measured.first;
    simulated_gpu gpu(2 * gib, gib);
    gpu.populate_on_host(0, gib);
    CAPTURE(each);
    CHECK(within_a_tenth(gigabytes_per_second(1_GiB, time_of_calls(gpu, true, each)), measured.second));
  }
}

TEST_CASE("prefetch to the host reaches 20 GB/s whatever the size of the calls") {
  for (const std::uint32_t each : {1U, 8U, gib}) {
    simulated_gpu gpu(2 * gib, gib);
    gpu.populate_on_host(0, gib);
    gpu.prefetch(0, gib);
    CAPTURE(each);
    CHECK(within_a_tenth(gigabytes_per_second(1_GiB, time_of_calls(gpu, false, each)), 20));
  }
}

TEST_CASE("with both directions at once the way in is unhurt and the way out falls to 9 GB/s") {
  simulated_gpu gpu(8 * gib, 6 * gib);
  gpu.populate_on_host(0, 6 * gib);
  gpu.prefetch(0, gib);
  const nanoseconds start = gpu.device.now();
  deepum_test::evict(gpu.memory, {block_id{0}, gib}, 100);
  deepum_test::prefetch(gpu.memory, {block_id{gib}, 5 * gib}, 101);
  gpu.finish(100);
  CHECK(within_a_tenth(gigabytes_per_second(1_GiB, gpu.seen.back().at - start), 9));
  gpu.finish(101);
  CHECK(within_a_tenth(gigabytes_per_second(5_GiB, gpu.seen.back().at - start), 51));
}

TEST_CASE("discarding 512 blocks takes 3.6 ms, here 32 of them") {
  simulated_gpu gpu(2 * gib, gib);
  gpu.prefetch(0, gib);
  const nanoseconds start = gpu.device.now();
  gpu.discard(0, gib / 16);
  CHECK(within_a_tenth(static_cast<double>((gpu.device.now() - start).count()), 3.6e6 / 16));
}

TEST_CASE("discard and prefetch of fresh contents takes 18 ms for a GiB, here a 16th of it, and moves nothing") {
  simulated_gpu gpu(2 * gib, gib);
  gpu.prefetch(0, gib);
  const nanoseconds start = gpu.device.now();
  gpu.discard(0, gib / 16);
  gpu.prefetch(0, gib / 16);
  CHECK(within_a_tenth(static_cast<double>((gpu.device.now() - start).count()), 18e6 / 16));
  CHECK(gpu.device.counters().in_by_command.count == 0);
}

TEST_CASE(
    "an eviction of read-mostly copies takes 2.2 ms for a GiB, copies nothing, and the next prefetch brings them") {
  simulated_gpu gpu(2 * gib, gib);
  gpu.populate_on_host(0, gib);
  gpu.advise(0, gib, advice::set_read_mostly);
  gpu.prefetch(0, gib);
  const nanoseconds start = gpu.device.now();
  gpu.evict(0, gib);
  CHECK(within_a_tenth(static_cast<double>((gpu.device.now() - start).count()), 2.2e6));
  CHECK(gpu.device.counters().out_by_command.count == 0);
  gpu.prefetch(0, gib);
  CHECK(gpu.device.counters().in_by_command == 2 * block_size * gib);
}

TEST_CASE("blocks that prefer the host and are mapped on the device are read at 51 GB/s and stay") {
  simulated_gpu gpu(2 * gib, gib);
  gpu.populate_on_host(0, gib);
  gpu.advise(0, gib, advice::set_preferred_location, location::host());
  gpu.advise(0, gib, advice::set_accessed_by, location::device());
  CHECK(within_a_tenth(gigabytes_per_second(1_GiB, touch(gpu, 0, gib)), 51));
  CHECK(gpu.device.counters().faulted_blocks == 0);
  CHECK(gpu.memory.free_memory() == block_size * (2 * gib));
}

TEST_CASE("compute beside a prefetch is slowed by 2 percent") {
  simulated_gpu gpu(4 * gib, 2 * gib);
  gpu.populate_on_host(0, 2 * gib);
  gpu.prefetch(0, gib);
  const auto busy = sim::kernel([](const std::byte*) {},
                                [](sim::work& w, const std::byte* p) { w.reads(p, (1_GiB).count).flops(0.5e12); });
  const auto time = [&] {
    const nanoseconds start = gpu.device.now();
    gpu.stream.launch(1U, 1U, 0, busy, static_cast<const std::byte*>(gpu.at(0)));
    gpu.stream.synchronize();
    return static_cast<double>((gpu.device.now() - start).count());
  };
  const double alone = time();
  deepum_test::prefetch(gpu.memory, {block_id{gib}, gib}, 100);
  CHECK(time() / alone == doctest::Approx(1.02).epsilon(0.002));
}

TEST_CASE("chunks of 16 MiB page through paged memory at 49 GB/s each way") {
  constexpr std::uint32_t each = 8;
  sim::device device(sim::find_profile("h200_pcie5"), {.memory = 1_GiB + each * block_size});
  sim::paged_memory memory(device, 2_GiB);
  const auto wait_for = [&](std::size_t completions) {
    std::vector<device_event> events;
    for (std::size_t n = 0; n < completions;) {
      device.host_work(500ns);
      events.clear();
      memory.poll(events);
      n += static_cast<std::size_t>(
          std::count_if(events.begin(), events.end(), [](const device_event& e) { return e.what == kind::completed; }));
    }
  };
  deepum_test::prefetch(memory, {block_id{0}, gib}, 1);
  wait_for(1);
  const nanoseconds start = device.now();
  for (std::uint32_t b = 0; b < 256; b += each) {  // swap one chunk in for one that goes out
    deepum_test::evict(memory, {block_id{b}, each}, 1);
    deepum_test::prefetch(memory, {block_id{gib + b}, each}, 2);
    wait_for(2);
  }
  CHECK(within_a_tenth(gigabytes_per_second(block_size * 256, device.now() - start), 49.0));
}

}  // namespace deepum_test::calibration_test
