// Launches that the device does not take, and graphs whose memory has changed since they were recorded, on memory that
// never faults: nothing is lost, and nothing is written that belongs to others.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "support/failure.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace refused_launches_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using deepum::bytes;
using deepum::overwrites;
using deepum::reads;
using deepum::status;
using deepum::updates;
using word = std::uint32_t;

constexpr std::size_t chunk_words = (2_MiB).count / sizeof(word);

void set(word* a, std::uint64_t n, word value) {
  device_touch(a, n * sizeof(word), access::overwrite);
  std::fill_n(a, n, value);
}
void add(word* a, const word* b, std::uint64_t n) {
  device_touch(b, n * sizeof(word), access::read);
  device_touch(a, n * sizeof(word), access::update);
  for (std::uint64_t i = 0; i < n; ++i) {
    a[i] += b[i];
  }
}

template <class Memory>
struct machine {
  explicit machine(bytes budget)
      : device(0, {.chunk = 2_MiB}),
        arena(device, {.capacity = 64_MiB, .device_budget = budget, .policy = "um", .log = {}}) {
    fake_cuda::register_kernel(set);
    fake_cuda::register_kernel(add);
  }
  void fill(word* p, std::size_t n, word v) { std::ranges::fill(arena.host_overwrite(p, n), v); }
  [[nodiscard]] word first(const word* p) { return arena.host_read(p, 1)[0]; }

  fake_gpu gpu{};
  deepum::cuda::device device;
  deepum::arena<Memory> arena;
};

TEST_CASE("a launch that fails, whatever failed, leaves what it would have overwritten as it was") {
  machine<deepum::cuda::paged_memory> m(6_MiB);
  deepum::stream s(m.arena);
  constexpr std::size_t n = 2 * chunk_words;
  word* const x = m.arena.allocate<word>(n);
  word* const y = m.arena.allocate<word>(n);
  word* const z = m.arena.allocate<word>(n);
  m.fill(z, n, 0);
  const std::array<const char*, 3> ways{"launch", "memset", "call"};
  for (int round = 0; round < 6; ++round) {
    const std::string way = ways[static_cast<std::size_t>(round) % ways.size()];
    CAPTURE(way);
    m.fill(x, n, 0x2b);
    s.launch("set", 1, 1, 0, set, overwrites(y, n), std::uint64_t{n}, word{1});  // takes the room of x
    s.synchronize();
    if (way == "launch") {
      fake_cuda::fail_call("cudaLaunchKernel", 1, cudaErrorLaunchOutOfResources);
      failure(status::device_failure,
              [&] { s.launch("set", 1, 1, 0, set, overwrites(x, n), std::uint64_t{n}, word{2}); });
    } else if (way == "memset") {
      fake_cuda::fail_call("cudaMemsetAsync", 1, cudaErrorInvalidValue);
      failure(status::device_failure, [&] { s.memset(x, 0, bytes{n * sizeof(word)}); });
    } else {
      CHECK_THROWS_AS(s.call("throws", {overwrites(x, n)}, [](cudaStream_t) { throw std::runtime_error("no"); }),
                      std::runtime_error);
    }
    s.launch("add", 1, 1, 0, add, updates(z, chunk_words), reads(x, chunk_words), std::uint64_t{chunk_words});
    s.synchronize();
    CHECK(m.first(z) == static_cast<word>(round + 1) * 0x2b);
    CHECK(m.first(x) == 0x2b);
    CHECK(m.first(x + chunk_words) == 0x2b);
  }
}

TEST_CASE_TEMPLATE("a graph overwrites what its operands named when it was recorded", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  machine<Memory> m(32_MiB);
  deepum::stream s(m.arena);
  constexpr std::size_t n = 4 * chunk_words;
  word* const pool = m.arena.template allocate<word>(n);
  m.fill(pool, n, 3);
  auto graph = s.record_graph("part", [&] {
    s.launch("set", 1, 1, 0, set, overwrites(pool, chunk_words), std::uint64_t{chunk_words}, word{9});
  });
  const std::array<bytes, 2> parts{4_MiB, 4_MiB};
  m.arena.split(pool, parts);
  s.launch(graph);
  s.synchronize();
  CHECK(m.first(pool) == 9);
  CHECK(m.first(pool + chunk_words) == 3);
  CHECK(m.first(pool + 3 * chunk_words) == 3);
}

TEST_CASE_TEMPLATE("a graph is checked at each of its launches", Memory, deepum::cuda::managed_memory,
                   deepum::cuda::paged_memory) {
  machine<Memory> m(32_MiB);
  deepum::stream s(m.arena);
  word* const x = m.arena.template allocate<word>(chunk_words);
  word* const y = m.arena.template allocate<word>(chunk_words);
  word* const z = m.arena.template allocate<word>(chunk_words);
  m.fill(x, chunk_words, 1);
  m.fill(y, chunk_words, 1);
  m.fill(z, chunk_words, 1);
  auto graph = s.record_graph("step", [&] {
    s.launch("set", 1, 1, 0, set, overwrites(z, chunk_words), std::uint64_t{chunk_words}, word{5});
    s.launch("add", 1, 1, 0, add, updates(y, chunk_words), reads(x, chunk_words), std::uint64_t{chunk_words});
    s.launch("add", 1, 1, 0, add, updates(y, chunk_words), reads(z, chunk_words), std::uint64_t{chunk_words});
  });
  m.arena.mark_inactive(z, 2_MiB);  // the graph writes it before it reads it
  s.launch(graph);
  s.synchronize();
  CHECK(m.first(y) == 7);
  m.arena.mark_inactive(x, 2_MiB);
  CHECK(mentions(failure(status::invalid_argument, [&] { s.launch(graph); }), "'step'"));
  m.fill(x, chunk_words, 2);
  s.launch(graph);
  s.synchronize();
  CHECK(m.first(y) == 14);
  m.arena.deallocate(x);
  CHECK(mentions(failure(status::invalid_argument, [&] { s.launch(graph); }), "record it again"));
  word* const again = m.arena.template allocate<word>(chunk_words);  // the same place, another tensor
  m.fill(again, chunk_words, 100);
  failure(status::invalid_argument, [&] { s.launch(graph); });
  CHECK(m.first(again) == 100);
}

}  // namespace refused_launches_test
