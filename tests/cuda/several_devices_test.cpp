// Arenas on two devices in one process: what would work on one alone.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace several_devices_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using deepum::bytes;
using word = std::uint32_t;

constexpr std::uint64_t n = (4_MiB).count / sizeof(word);
constexpr word operands = 6;

void add(word* a, const word* b, std::uint64_t count) {
  device_touch(b, count * sizeof(word), access::read);
  device_touch(a, count * sizeof(word), access::update);
  for (std::uint64_t i = 0; i < count; i += 64) {
    a[i] += b[i];
  }
}
void set(word* a, std::uint64_t count, word value) {
  device_touch(a, count * sizeof(word), access::overwrite);
  std::fill_n(a, count, value);
}

/// An arena on one of the devices, which has room for half of what is allocated, and a stream.
template <class Memory>
struct side {
  explicit side(int ordinal) : device(ordinal, options()), arena(device, arena_options()), stream(arena) {
    for (word i = 0; i < operands; ++i) {
      x.push_back(arena.template allocate<word>(n));
    }
  }
  static deepum::cuda::device_options options() {
    deepum::cuda::device_options o;
    o.chunk = 2_MiB;
    o.faults = deepum::cuda::fault_source::none;
    return o;
  }
  static deepum::arena_options arena_options() {
    return {.capacity = 64_MiB, .device_budget = 12_MiB, .headroom = 2_MiB, .log = {}};
  }

  void fill(word base) {
    for (word i = 0; i < operands; ++i) {
      stream.launch("set", 1, 1, 0, set, deepum::overwrites(x[i], n), n, base + i);
    }
  }
  void sum() {
    for (word i = 1; i < operands; ++i) {
      stream.launch("add", 1, 1, 0, add, x[0], static_cast<const word*>(x[i]), n);
    }
  }
  /// What `fill(base)` and `sum()` come to.
  static word expected(word base) { return operands * base + operands * (operands - 1) / 2; }

  deepum::cuda::device device;
  deepum::arena<Memory> arena;
  deepum::stream<Memory> stream;
  std::vector<word*> x{};
};

struct machine {
  machine() : gpu(64_MiB) {
    fake_cuda::set_device_count(2);
    fake_cuda::register_kernel(add);
    fake_cuda::register_kernel(set);
  }
  fake_gpu gpu;
};
int current() {
  int device = -1;
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  return device;
}

template <class Memory>
void two_arenas() {
  const machine m;
  fake_cuda::set_delays(3, std::chrono::microseconds(200));
  side<Memory> a(0);
  side<Memory> b(1);
  for (const int device : {0, 1}) {  // whichever the program has made current
    CAPTURE(device);
    REQUIRE(cudaSetDevice(device) == cudaSuccess);
    for (word round = 1; round <= 3; ++round) {
      a.fill(round);
      b.fill(100 * round);
      a.sum();
      b.sum();
      a.stream.synchronize();
      b.stream.synchronize();
      CHECK(a.arena.host_read(a.x[0], n)[64] == side<Memory>::expected(round));
      CHECK(b.arena.host_read(b.x[0], n)[64] == side<Memory>::expected(100 * round));
      CHECK(current() == device);
    }
  }
  // Each has used its own memory, and no more than it may have.
  for (const int device : {0, 1}) {
    CAPTURE(device);
    CHECK(fake_cuda::most_used_memory(device) > bytes{});
    CHECK(fake_cuda::used_memory(device) <= 16_MiB);
  }
  CHECK(a.arena.statistics().finished == a.arena.statistics().launches);
  CHECK(fake_cuda::stats().between_devices == 0);
}

TEST_CASE("two arenas on two devices compute right, whichever is current: managed memory") {
  two_arenas<deepum::cuda::managed_memory>();
}
TEST_CASE("two arenas on two devices compute right, whichever is current: paged memory") {
  two_arenas<deepum::cuda::paged_memory>();
}

TEST_CASE("two threads, each with an arena on a device of its own") {
  const machine m;
  const auto work = [](int device) {
    side<deepum::cuda::paged_memory> s(device);
    for (word round = 1; round <= 5; ++round) {
      s.fill(round);
      s.sum();
      s.stream.synchronize();
      CHECK(s.arena.host_read(s.x[0], n)[64] == decltype(s)::expected(round));
    }
    CHECK(current() == device);
  };
  std::thread other(work, 1);
  work(0);
  other.join();
}

TEST_CASE("an arena on one device opens no other one") {
  const machine m;
  {
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    side<deepum::cuda::paged_memory> s(1);
    s.fill(1);
    s.sum();
    s.stream.synchronize();
  }
  CHECK(fake_cuda::opened_devices() == std::vector<int>{1});
}

TEST_CASE("a stream waits for an event of another device's") {
  const machine m;
  side<deepum::cuda::paged_memory> a(0);
  side<deepum::cuda::paged_memory> b(1);
  const cudaStream_t first = a.stream.native().native();
  const cudaStream_t second = b.stream.native().native();
  fake_cuda::hold(first);
  deepum::cuda::event done;
  a.stream.record(done);
  b.stream.wait(done);
  b.stream.launch("set", 1, 1, 0, set, deepum::overwrites(b.x[0], n), n, word{9});
  CHECK_FALSE(b.stream.native().idle());
  fake_cuda::resume(first);
  CHECK(comes([&] { return b.stream.native().idle(); }));
  CHECK(b.arena.host_read(b.x[0], n)[64] == 9);
  CHECK(second != first);
}

/// What one device has computed goes to the other's arena, by a stream of either.
template <class Memory>
void copies() {
  for (const bool by_target : {false, true}) {
    CAPTURE(by_target);
    const machine m;
    side<Memory> a(0);
    side<Memory> b(1);
    a.fill(1);
    b.fill(100);
    a.sum();
    a.stream.synchronize();
    b.stream.synchronize();
    (by_target ? b : a).stream.memcpy(b.x[5], a.x[0], 4_MiB);
    (by_target ? b : a).stream.synchronize();
    CHECK(b.arena.host_read(b.x[5], n)[64] == side<Memory>::expected(1));
    CHECK(b.arena.host_read(b.x[4], n)[64] == 104);
  }
}
TEST_CASE("memcpy between arenas on two devices: managed memory") { copies<deepum::cuda::managed_memory>(); }
TEST_CASE("memcpy between arenas on two devices: paged memory") { copies<deepum::cuda::paged_memory>(); }

}  // namespace several_devices_test
