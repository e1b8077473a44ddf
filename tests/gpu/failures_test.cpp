// What may go wrong beside a program, on a real GPU: the linker puts functions of this file between the library and the
// CUDA runtime, the reader of page faults and the operating system (tests/CMakeLists.txt names them), and these fail
// when a test says so. Whatever fails, the program ends with the right result.

#include "kernels.hpp"
#include "update_loop.hpp"
#include <deepum/cuda.hpp>
#include <deepum/cuda/faults/driver_fault_feed.hpp>

#include <deepum_uvm_events.h>
#include <doctest/doctest.h>
#include <poll.h>

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

cudaError_t real_prefetch(const void* first, std::size_t size, cudaMemLocation to, unsigned flags,
                          cudaStream_t stream) __asm__("__real_cudaMemPrefetchAsync");
cudaError_t wrapped_prefetch(const void* first, std::size_t size, cudaMemLocation to, unsigned flags,
                             cudaStream_t stream) __asm__("__wrap_cudaMemPrefetchAsync");
cudaError_t real_memory(std::size_t* free, std::size_t* total) __asm__("__real_cudaMemGetInfo");
cudaError_t wrapped_memory(std::size_t* free, std::size_t* total) __asm__("__wrap_cudaMemGetInfo");
int real_poll(pollfd* descriptors, nfds_t n, int timeout_ms) __asm__("__real_poll");
int wrapped_poll(pollfd* descriptors, nfds_t n, int timeout_ms) __asm__("__wrap_poll");
int real_open(deepum_uvm_events** out, const deepum_uvm_options* options, char* message,
              std::size_t size) __asm__("__real_deepum_uvm_events_open");
int wrapped_open(deepum_uvm_events** out, const deepum_uvm_options* options, char* message,
                 std::size_t size) __asm__("__wrap_deepum_uvm_events_open");

namespace {

/// What goes wrong now; nothing, before and behind each test.
struct failures {
  std::atomic<unsigned> prefetches{0};  ///< every so many calls one fails; 0: none
  std::atomic<std::uint64_t> prefetch_calls{0};
  std::atomic<std::uint64_t> failed_prefetches{0};
  std::atomic<std::uint64_t> free_memory{0};  ///< what the device has, in bytes; 0: what it really has
  std::atomic<bool> polls{false};             ///< all fail
  std::atomic<std::uint32_t> queue{0};        ///< slots of the driver's queue of faults; 0: what the library asks for

  void end() {
    prefetches = 0;
    prefetch_calls = 0;
    failed_prefetches = 0;
    free_memory = 0;
    polls = false;
    queue = 0;
  }
};

failures injected;

struct scope {
  scope() { injected.end(); }
  ~scope() { injected.end(); }
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;
};

}  // namespace

cudaError_t wrapped_prefetch(const void* first, std::size_t size, cudaMemLocation to, unsigned flags,
                             cudaStream_t stream) {
  const unsigned every = injected.prefetches;
  if (every != 0 && injected.prefetch_calls++ % every == 0) {
    ++injected.failed_prefetches;
    return cudaErrorMemoryAllocation;
  }
  return real_prefetch(first, size, to, flags, stream);
}

cudaError_t wrapped_memory(std::size_t* free, std::size_t* total) {
  const cudaError_t result = real_memory(free, total);
  if (const std::uint64_t left = injected.free_memory; left != 0 && result == cudaSuccess) {
    *free = left;
  }
  return result;
}

int wrapped_poll(pollfd* descriptors, nfds_t n, int timeout_ms) {
  if (injected.polls) {
    errno = EIO;
    return -1;
  }
  return real_poll(descriptors, n, timeout_ms);
}

int wrapped_open(deepum_uvm_events** out, const deepum_uvm_options* options, char* message, std::size_t size) {
  deepum_uvm_options changed = options != nullptr ? *options : deepum_uvm_options{};
  if (injected.queue != 0) {
    changed.queue_records = injected.queue;
  }
  return real_open(out, &changed, message, size);
}

namespace {

using namespace deepum::literals;
using deepum::cuda::fault_source;
using gpu_loop::loop_result;
using gpu_loop::run_loop;

constexpr std::array policies{"um", "deepum", "auto"};

const std::vector<std::uint32_t>& right_memory() {
  static const std::vector<std::uint32_t> memory = run_loop("ideal", 256_MiB, {.faults = fault_source::none}).memory;
  return memory;
}

/// The driver's feed as the library makes it, whose counts the test sees as long as the arena lives.
deepum::cuda::fault_feed_maker seen_feed(const deepum::cuda::driver_fault_feed*& feed) {
  return [&feed](std::byte* base, deepum::bytes size) {
    auto made = std::make_unique<deepum::cuda::driver_fault_feed>(base, size);
    feed = made.get();
    return made;
  };
}

TEST_CASE("injected: without the thread that reads page faults the result is right") {
  const std::vector<std::uint32_t>& expected = right_memory();
  for (const char* policy : policies) {
    CAPTURE(std::string(policy));
    const scope s;
    const deepum::cuda::driver_fault_feed* feed = nullptr;
    deepum_uvm_counts counts{};
    const loop_result r = run_loop(
        policy, 64_MiB, {},
        [&](int turn) {
          injected.polls = turn >= 1;
          counts = feed->counts();
        },
        seen_feed(feed));
    CHECK(r.memory == expected);
    CHECK(counts.thread_alive == 0);
    MESSAGE("faults told ", r.late.faults, ", lost ", r.late.lost_faults);
  }
}

TEST_CASE("injected: where the driver's queue is full all the time, faults are lost and counted, and nothing else is") {
  const std::vector<std::uint32_t>& expected = right_memory();
  for (const char* policy : policies) {
    CAPTURE(std::string(policy));
    const scope s;
    injected.queue = 2;
    const deepum::cuda::driver_fault_feed* feed = nullptr;
    deepum_uvm_counts counts{};
    const loop_result r = run_loop(
        policy, 64_MiB, {}, [&](int) { counts = feed->counts(); }, seen_feed(feed));
    CHECK(r.memory == expected);
    MESSAGE("dropped by the driver ", counts.dropped_by_driver, ", told ", r.late.faults, ", counted as lost ",
            r.late.lost_faults);
    if (policy == std::string("um")) {
      CHECK(counts.dropped_faults > 0);
      CHECK(r.late.lost_faults > 0);
    }
  }
}

TEST_CASE("injected: prefetches that fail, now and then or always, cost time and nothing else") {
  const std::vector<std::uint32_t>& expected = right_memory();
  for (const char* policy : policies) {
    for (const unsigned every : {1U, 3U}) {
      CAPTURE(std::string(policy));
      CAPTURE(every);
      const scope s;
      const loop_result r =
          run_loop(policy, 64_MiB, {}, [&](int turn) { injected.prefetches = turn >= 1 ? every : 0; });
      const std::uint64_t failed = injected.failed_prefetches;
      injected.prefetches = 0;
      CHECK(r.memory == expected);
      CHECK(failed > 0);
      CHECK(r.late.failed_calls > 0);
      MESSAGE("calls that failed ", failed, ", counted late ", r.late.failed_calls, ", faults ", r.late.faults);
    }
  }
}

/// The loop while others take the device's memory and give it back. Its budget is what is free, less the headroom.
/// @param least  Free, when others have most of it.
template <class Memory>
void check_shrinking_memory(const deepum::cuda::device_options& options, deepum::bytes least) {
  const std::vector<std::uint32_t>& expected = right_memory();
  const deepum::bytes headroom = deepum::arena_options{}.headroom;
  for (const char* policy : policies) {
    CAPTURE(std::string(policy));
    const scope s;
    injected.free_memory = (headroom + 96_MiB).count;
    const loop_result r = run_loop<Memory>(policy, 0_MiB, options, [&](int turn) {
      injected.free_memory = turn % 2 == 0 ? least.count : (headroom + 512_MiB).count;
    });
    CHECK(r.memory == expected);
    MESSAGE("MiB in ", r.late.in().all_bytes() >> 20U, ", out ", r.late.out().all_bytes() >> 20U, ", faults ",
            r.late.faults);
  }
}

TEST_CASE("injected: managed memory follows a device whose memory others take and give back") {
  check_shrinking_memory<deepum::cuda::managed_memory>({}, 1_MiB);
}

TEST_CASE("injected: paged memory follows a device whose memory others take and give back") {
  check_shrinking_memory<deepum::cuda::paged_memory>({.chunk = 2_MiB}, deepum::arena_options{}.headroom + 48_MiB);
}

}  // namespace
