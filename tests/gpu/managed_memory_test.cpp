#include "kernels.hpp"
#include "support/transfers.hpp"
#include "update_loop.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace deepum::literals;
using deepum::bytes;
using deepum::launch_id;
using deepum::overwrites;
using deepum::reads;
using gpu_loop::loop_result;
using gpu_loop::run_loop;
using gpu_loop::silent;
using gpu_loop::words_of;

TEST_CASE("a loop leaves the same memory behind under every policy, budget and feed") {
  using source = deepum::cuda::fault_source;
  const loop_result expected = run_loop("ideal", 256_MiB, {.faults = source::none});
  for (const char* policy : {"um", "lru", "deepum", "auto"}) {
    for (const bytes budget : {64_MiB, 128_MiB}) {
      for (const source feed : {source::driver, source::none}) {
        CAPTURE(std::string(policy));
        CAPTURE(budget.count);
        CAPTURE(static_cast<int>(feed));
        const loop_result r = run_loop(policy, budget, {.faults = feed});
        CHECK(r.memory == expected.memory);
        MESSAGE(std::string(policy), " ", budget.count >> 20U, " MiB, feed ", static_cast<int>(feed), ": faults ",
                r.late.faults, ", MiB in ", r.late.in().all_bytes() >> 20U, " out ", r.late.out().all_bytes() >> 20U,
                ", stalled us ", r.late.stalled.count() / 1000, ", failed ", r.late.failed_calls, ", unprepared ",
                r.late.unprepared_launches, ", feed ", r.late.fault_feed);
      }
    }
  }
}

TEST_CASE("with zero_new memory that was never handed out is zero without a fill, and reused memory after one") {
  void* dirt = nullptr;  // what the driver may hand to the arena next
  deepum::cuda::check(cudaMalloc(&dirt, (1_GiB).count), "cudaMalloc");
  deepum::cuda::check(cudaMemset(dirt, 0x5a, (1_GiB).count), "cudaMemset");
  deepum::cuda::check(cudaFree(dirt), "cudaFree");
  deepum::cuda::device gpu{0, {.faults = deepum::cuda::fault_source::none}};
  deepum::arena arena{gpu, {.capacity = 512_MiB, .device_budget = 256_MiB, .zero_new = true, .log = silent}};
  deepum::stream stream{arena};
  const std::size_t n = words_of(128_MiB);
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    auto* on_device = arena.allocate<std::uint32_t>(n);
    auto* on_host = arena.allocate<std::uint32_t>(n);
    std::vector<std::uint32_t> found(n, 1);
    stream.memcpy(found.data(), on_device, 128_MiB);
    stream.synchronize();
    CHECK(std::count(found.begin(), found.end(), 0U) == static_cast<std::ptrdiff_t>(n));
    CHECK(std::count(on_host, on_host + n, 0U) == static_cast<std::ptrdiff_t>(n));
    stream.memset(on_device, 0x77, 128_MiB);
    stream.memset(on_host, 0x77, 128_MiB);
    stream.synchronize();
    arena.deallocate(on_device);
    arena.deallocate(on_host);
  }
}

TEST_CASE("migrations in the program's own context give the same") {
  const loop_result expected = run_loop("ideal", 256_MiB, {.faults = deepum::cuda::fault_source::none});
  const loop_result r =
      run_loop("auto", 64_MiB,
               {.migrations = deepum::cuda::migration_context::shared, .faults = deepum::cuda::fault_source::driver});
  CHECK(r.memory == expected.memory);
}

// --- Faults ----------------------------------------------------------------------------------------------------------

/// Scattered blocks of a buffer of 512 MiB, all different.
std::vector<std::uint32_t> scattered_blocks(std::uint32_t n, std::uint32_t seed) {
  std::vector<std::uint32_t> blocks(256);
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = i;
  }
  std::uint32_t random = seed;
  for (std::size_t i = blocks.size() - 1; i > 0; --i) {
    random = random * 1664525U + 1013904223U;
    std::swap(blocks[i], blocks[random % (i + 1)]);
  }
  blocks.resize(n);
  return blocks;
}

/// Blocks on which the launches of a loop faulted, by launch.
struct faulted_blocks {
  std::vector<std::uint64_t> first{};  // no earlier one had faulted on them
  std::vector<std::uint64_t> again{};
};
std::string text(const std::vector<std::uint64_t>& counts) {
  std::string all;
  for (const std::uint64_t n : counts) {
    all += std::to_string(n) + " ";
  }
  return all;
}

/// Launches a kernel that finds its blocks through an index array, some times with other work between.
faulted_blocks gather(deepum::cuda::fault_source source, std::string& feed) {
  deepum::cuda::device gpu{0, {.faults = source}};
  std::map<std::uint64_t, std::set<std::uint32_t>> faulted;  // blocks, by launch
  std::mutex mutex;
  deepum::arena arena{gpu,
                      {.capacity = 768_MiB,
                       .device_budget = 256_MiB,
                       .policy = "auto",
                       .log = silent,
                       .observer = [&](const deepum::device_event& e, launch_id launch) {
                         if (e.what == deepum::device_event::kind::fault) {
                           const std::lock_guard lock(mutex);
                           faulted[launch.value].insert(e.range.first.value);
                         }
                       }}};
  feed = arena.memory().fault_feed();
  MESSAGE(arena.memory().description());
  deepum::stream stream{arena};
  auto* table = arena.allocate<std::uint32_t>(words_of(512_MiB));
  auto* other = arena.allocate<std::uint32_t>(words_of(224_MiB));
  stream.memset(table, 0, 512_MiB);
  stream.memset(other, 0, 224_MiB);
  const std::vector<std::uint32_t> blocks = scattered_blocks(37, 1);
  std::uint32_t* index = nullptr;
  deepum::cuda::check(cudaMalloc(reinterpret_cast<void**>(&index), blocks.size() * sizeof(std::uint32_t)),
                      "cudaMalloc");
  stream.memcpy(index, blocks.data(), bytes{blocks.size() * sizeof(std::uint32_t)});
  std::vector<std::uint64_t> launches;
  const int turns = 8;
  for (int turn = 0; turn < turns; ++turn) {
    // An empty list of operands: nobody knows what it touches.
    launches.push_back(stream
                           .call("gather", {},
                                 [&](cudaStream_t q) {
                                   auto base = reinterpret_cast<std::uintptr_t>(table);
                                   std::uint32_t* where = index;
                                   auto n = static_cast<std::uint32_t>(blocks.size());
                                   void* arguments[] = {&base, &where, &n};
                                   deepum::cuda::check(
                                       cudaLaunchKernel(reinterpret_cast<const void*>(&gpu_kernels::touch_blocks),
                                                        dim3{n}, dim3{1}, arguments, 0, q),
                                       "cudaLaunchKernel");
                                 })
                           .value);
    stream.launch("other", 256, 256, 0, gpu_kernels::mix, other, reads(other), words_of(224_MiB));
    stream.synchronize();
  }
  (void)arena.statistics();
  faulted_blocks faults;
  std::set<std::uint32_t> known;
  for (const std::uint64_t l : launches) {
    const std::lock_guard lock(mutex);
    std::uint64_t first = 0;
    std::uint64_t again = 0;
    for (const std::uint32_t b : blocks) {
      if (faulted[l].contains(b)) {
        (known.insert(b).second ? first : again) += 1;
      }
    }
    faults.first.push_back(first);
    faults.again.push_back(again);
  }
  const auto view = arena.host_read(table, words_of(512_MiB));
  for (const std::uint32_t b : blocks) {
    CHECK(view[std::size_t{b} << 19U] == turns);
  }
  (void)cudaFree(index);
  return faults;
}

TEST_CASE("blocks that only an index array knows are prefetched after two launches") {
  std::string feed;
  const faulted_blocks faults = gather(deepum::cuda::fault_source::driver, feed);
  REQUIRE(feed == "driver");
  MESSAGE("blocks that faulted for the first time, by launch: ", text(faults.first), "and again: ", text(faults.again));
  CHECK(faults.first[0] >= 30);  // some may still be there from the beginning, and fault when they have left
  for (std::size_t i = 2; i < faults.again.size(); ++i) {
    CHECK(faults.again[i] == 0);
  }
  CHECK(faults.first.back() == 0);
}

TEST_CASE("with CUPTI it is the same, later; with no feed it is correct") {
  std::string feed;
  const faulted_blocks with_cupti = gather(deepum::cuda::fault_source::cupti, feed);
  if (feed == "cupti") {
    MESSAGE("blocks that faulted for the first time, by launch: ", text(with_cupti.first),
            "and again: ", text(with_cupti.again));
    CHECK(with_cupti.first.back() + with_cupti.again.back() == 0);
  } else {
    MESSAGE("there is no CUPTI here, but ", feed);
  }
  const faulted_blocks without = gather(deepum::cuda::fault_source::none, feed);
  CHECK(feed == "none");
  CHECK(*std::max_element(without.first.begin(), without.first.end()) == 0);
}

TEST_CASE("each fault belongs to its launch, with hundreds of launches queued ahead") {
  deepum::cuda::device gpu{0, {.faults = deepum::cuda::fault_source::driver}};
  std::map<std::uint32_t, std::set<std::uint64_t>> launches_by_block;
  deepum::arena arena{gpu,
                      {.capacity = 1_GiB,
                       .device_budget = 1_GiB,
                       .policy = "um",
                       .log = silent,
                       .observer = [&](const deepum::device_event& e, launch_id launch) {
                         if (e.what == deepum::device_event::kind::fault) {
                           launches_by_block[e.range.first.value].insert(launch.value);
                         }
                       }}};
  REQUIRE(arena.memory().fault_feed() == "driver");
  deepum::stream stream{arena};
  auto* x = arena.allocate<std::uint32_t>(words_of(800_MiB));
  stream.launch("spin", 1, 1, 0, gpu_kernels::spin, 20'000'000U);
  constexpr std::uint32_t launches = 240;  // with as many between them: all are timed, as no fault is longer ago
  std::map<std::uint32_t, std::uint64_t> expected;
  for (std::uint32_t i = 0; i < launches; ++i) {
    std::uint32_t* p = x + std::uint64_t{i} * words_of(2_MiB);
    const launch_id id =
        stream.launch("fill", 1, 32, 0, gpu_kernels::fill, overwrites(p, 32), i, 1U, std::uint64_t{32});
    expected[i] = id.value;
    stream.launch("nothing", 1, 32, 0, gpu_kernels::nothing);
  }
  stream.synchronize();
  (void)arena.statistics();
  std::size_t right = 0;
  std::size_t nobodys = 0;
  std::size_t wrong = 0;
  for (const auto& [block, launch] : expected) {
    for (const std::uint64_t l : launches_by_block[block]) {
      right += l == launch ? 1 : 0;
      nobodys += l == 0 ? 1 : 0;
      wrong += l != launch && l != 0 ? 1 : 0;
    }
  }
  MESSAGE("right ", right, ", nobody's ", nobodys, ", wrong ", wrong);
  CHECK(right == launches);
  CHECK(wrong == 0);
}

TEST_CASE("read-mostly blocks leave without a copy, and what is written in between survives") {
  deepum::cuda::device gpu{0};
  deepum::cuda::managed_memory memory(gpu, 128_MiB);
  std::vector<deepum::device_event> events;
  const auto finish = [&](std::uint64_t ticket) {
    for (;;) {
      memory.poll(events);
      for (const deepum::device_event& e : events) {
        if (e.ticket == ticket && e.what == deepum::device_event::kind::completed) return true;
        if (e.ticket == ticket && e.what == deepum::device_event::kind::failed) return false;
      }
    }
  };
  const deepum::block_range all{deepum::block_id{0}, 64};
  auto* x = reinterpret_cast<std::uint32_t*>(memory.base());
  deepum::cuda::stream s{memory};
  s.launch(256, 256, 0, gpu_kernels::fill, x, 5U, 3U, words_of(128_MiB));
  s.synchronize();
  CHECK(deepum_test::evict(memory, all, 1));
  CHECK(finish(1));
  CHECK(memory.advise(all, deepum::advice::set_read_mostly, deepum::location::device()));
  CHECK(deepum_test::prefetch(memory, all, 2));
  CHECK(finish(2));
  const bool stays = std::any_of(events.begin(), events.end(), [](const deepum::device_event& e) {
    return e.what == deepum::device_event::kind::arrived && e.ticket == 2 && e.host_copy_stays;
  });
  CHECK(stays);
  s.launch(1, 32, 0, gpu_kernels::fill, x, 100U, 1U, std::uint64_t{32});  // against the advice
  s.synchronize();
  CHECK(deepum_test::evict(memory, all, 3));
  CHECK(finish(3));
  CHECK(x[0] == 100U);
  CHECK(x[31] == 131U);
  CHECK(x[32] == 5U + 32U * 3U);
  CHECK(x[words_of(128_MiB) - 1] == 5U + 3U * static_cast<std::uint32_t>(words_of(128_MiB) - 1));
}

}  // namespace
